#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev demo                                 build, generate a case, make its golden, verify it, show the result
set -euo pipefail
. tools/dev/dev_lib.sh
need "${BUILD_PACKAGES[@]}"
build release

m3idx=build/release/tools/m3idx
dir=build/demo
mkdir -p "$dir"
lens=(7 1000 8192)
run() {
  printf '$ %s\n' "$*"
  "$@"
}

say "a case: decode of three requests, bf16 queries against fp8 keys"
run $m3idx gen --op decode --seq-lens "$(IFS=,; echo "${lens[*]}")" --heads 2 --head-dim 128 --topk 16 --local 1 \
  --q-dtype bf16 --k-dtype e4m3fn --data normal --seed 1 --sparse-table 1 -o $dir/case.safetensors
say "its golden, from the reference"
run $m3idx run $dir/case.safetensors -o $dir/golden.safetensors --backend ref
say "a second opinion, compared byte for byte"
run $m3idx run $dir/case.safetensors -o $dir/other.safetensors --backend auto --threads 1
run $m3idx verify $dir/golden.safetensors $dir/other.safetensors
run $m3idx digest $dir/golden.safetensors

# topk_idx is [H][T][K] int32 at data_offsets behind an 8-byte length and that many bytes of JSON.
say "blocks of 128 keys that head 0 selected, best first"
golden=$dir/golden.safetensors
header_bytes=$(($(od -An -tu8 --endian=little -N8 $golden)))
offset=$(head -c $((8 + header_bytes)) $golden | tail -c +9 |
  sed -n 's/.*"topk_idx": *{[^}]*"data_offsets": *\[ *\([0-9]*\).*/\1/p')
for r in "${!lens[@]}"; do
  ids=$(od -An -td4 --endian=little -w64 -j $((8 + header_bytes + offset + r * 64)) -N64 $golden)
  printf 'request %d, %4d keys: %s\n' "$r" "${lens[r]}" "$(echo "$ids" | sed 's/ -1//g; s/  */ /g')"
done
