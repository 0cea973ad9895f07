#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every data kind, operation and format is generated, run, and comes out the same from every backend that
# works here, any thread count, and the fused path.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"

formats=(f32 f16 bf16 e4m3fn e4m3fnuz e5m2 e5m2fnuz)
contracts=(vllm aiter atom sglang flashinfer "tie=higher,nan=bits,zero=equal,order=id")
mapfile -t backends < <("$m3idx" info | sed -n '/: cannot: /d; s/^backend \([a-z]*\): .*/\1/p')
echo "backends: ${backends[*]}"
cases=0
export OMP_WAIT_POLICY=passive # threads that spin between thousands of short runs only get in each other's way

# judge OPTION...: one case, its golden, and everything that must agree with it.
judge() {
  local backend
  cases=$((cases + 1))
  expect 0 "$m3idx" gen "$@" --seed $cases -o case
  expect 0 "$m3idx" run case -o golden --backend ref --threads 1
  for backend in "${backends[@]}"; do
    expect 0 "$m3idx" run case -o other --backend "$backend" --threads 3
    expect 0 "$m3idx" verify golden other
    expect 0 "$m3idx" run case -o fused --backend "$backend" --no-score
    expect 0 "$m3idx" verify fused golden
  done
}

i=0
for data in normal ties specials wide near; do
  for q in "${!formats[@]}"; do
    # Each format meets others from kind to kind; the conformance tests try every pair.
    i=$((i + 1))
    common=(--q-dtype "${formats[q]}" --data "$data" --contract "${contracts[i % 6]}" --head-dim 16)
    judge --op decode --seq-lens 0,3,517,1030 --decode-query-len 2 --heads 2 --topk 3 --init $((i % 3)) --local 1 \
      --sparse-table 1 --k-dtype "${formats[(q + i / 7) % 7]}" "${common[@]}"
    judge --op prefill --q-lens 3,0,2 --prefix-lens 0,9,131 --heads 2 --topk 4 --block-size $((16 << i % 4)) \
      --local 1 --scale 0.25 --k-dtype "${formats[(q + i / 7 + 3) % 7]}" "${common[@]}"
  done
  for contract in "${contracts[@]}"; do
    judge --op select --num-blocks 0,1,74,128,129,700 --heads 2 --topk 16 --data $data --contract "$contract" --local 1
  done
done
echo "$cases cases"
finish
