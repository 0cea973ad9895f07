#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The plugin on a runtime with one device that computes nothing: it is found and preferred, it is asked which device
# it has, every operation launches, and what it launches are kernels of both targets' code objects.
# launch.sh HIP_LAUNCH PLUGIN LLVM_BIN RUNTIME_FOLDER
set -euo pipefail
program=$1 plugin=$2 bin=$3 runtime=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
fail() { printf 'FAIL: %s\n' "$*"; failed=1; }

LD_LIBRARY_PATH=$runtime M3IDX_HIP_PLUGIN=$plugin "$program" >"$dir/said" || fail "the program's exit status is $?"
cat "$dir/said"
# Nobody computes the probe's products, so it must find them wrong.
device='device 0 of 1: gfx942:sramecc\+:xnack- \(AMD Instinct MI300X\), 304 compute units, HIP runtime 7\.0\.51831; '
grep -q -x -E "${device}matrix steps err by [0-9.]+ of their bound: scores do without them" "$dir/said" ||
  fail "the details of the device"
grep -q '^launch .*probe_steps' "$dir/said" || fail "no probe was launched"

# Each call's lines come after the launches it made.
launches_of() {
  awk -v op="$1" '
    $1 == "launch" { seen = seen " " $2; next }
    $1 == op { print seen; exit }
    { seen = "" }' "$dir/said"
}
declare -A WANT=([score]=score_decode [select]=select_decode [merge]=merge_rows [sparse_table]=table_rows
  [topk]="score_decode select_decode" [cache_insert]=insert_keys)
for op in "${!WANT[@]}"; do
  for kernel in ${WANT[$op]}; do
    [[ $(launches_of "$op") == *"$kernel"* ]] || fail "$op does not launch $kernel: $(launches_of "$op")"
  done
done

# A launched name is a kernel in the code objects of both targets.
cp "$plugin" "$dir/plugin.so"
(cd "$dir" && "$bin/llvm-objdump" --offloading plugin.so >/dev/null)
for target in gfx942 gfx950; do
  for object in "$dir"/plugin.so.*"$target"; do "$bin/llvm-readelf" --notes "$object"; done |
    sed -n 's/^ *\.name: *\(_Z[^ ]*\)$/\1/p' | sort >"$dir/$target"
  while read -r name; do
    grep -q -x -F -e "$name" "$dir/$target" || fail "$name is no kernel of $target"
  done < <(sed -n 's/^launch \([^ ]*\) .*/\1/p' "$dir/said" | sort -u)
done
exit $failed
