#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The HIP sources on a real GPU of the other vendor: builds everything with nvcc, runs the conformance harness on
# it, graph replays, the compute sanitizer and the timings, and prints a table of verdicts last.  Needs an NVIDIA
# GPU, CUDA 13, cmake and ninja; no other library.  Logs and figures go to $OUT (build/silicon/out without it).
# SILICON_STEPS ("conform replay memcheck racecheck prefill bench"; prefill takes python3 with torch for its peer),
# SILICON_SECONDS (470, for all), SILICON_ARCH (sm_90).
set -uo pipefail
self=$(readlink -f "$0")

OPS=(score select merge topk sparse_table cache_insert)

# run.sh --each-op COMMAND...: COMMAND --op OP for every op at once; their output in order.  Fails if one does.
if [[ ${1:-} == --each-op ]]; then
  shift
  dir=$(mktemp -d)
  pids=()
  for op in "${OPS[@]}"; do
    "$@" --op "$op" >"$dir/$op" 2>&1 &
    pids+=($!)
  done
  failed=0
  for i in "${!OPS[@]}"; do
    wait "${pids[i]}" || { echo "${OPS[i]}: exit $?"; failed=1; }
    cat "$dir/${OPS[i]}"
  done
  grep -h '^conform: .* calls compared' "$dir"/* | awk '{lines = $2; calls += $4; bad += $7}
    END {printf "%d lines, %d calls compared, %d failed\n", lines, calls, bad}'
  rm -rf "$dir"
  exit $failed
fi

cd "$(dirname "$self")/../.." || exit 2
build=build/silicon
out=${OUT:-$build/out}
steps=${SILICON_STEPS:-conform replay memcheck racecheck prefill bench}
mkdir -p "$out" "$build"
started=$SECONDS
deadline=$((SECONDS + ${SILICON_SECONDS:-470})) # all of it, whatever hangs
export PATH=$PATH:/usr/local/cuda/bin
# Programs share the cores; the harness's own answers come from small problems.
export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
verdicts=()
failed=0

# step NAME SECONDS COMMAND...: run within the time, keep the log, note the verdict.
step() {
  local name=$1 limit=$2 log=$out/$1.log status=0 began=$SECONDS verdict
  shift 2
  ((limit < deadline - SECONDS)) || limit=$((deadline > SECONDS ? deadline - SECONDS : 1))
  timeout "$limit" "$@" >"$log" 2>&1 || status=$?
  [ $status = 0 ] && verdict=PASS || verdict="FAIL $status"
  verdicts+=("$(printf '%-10s %-8s %4d s  %.100s' "$name" "$verdict" $((SECONDS - began)) "$(tail -n 1 "$log")")")
  [ $status = 0 ] || { failed=1; tail -n 30 "$log"; }
  return $status
}
wanted() { [[ " $steps " == *" $1 "* ]]; }

export M3IDX_HIP_PLUGIN=$PWD/$build/libm3idx_hip.so
conform=("$build/tests/conform/conform" --backend hip)
sanitizer=(compute-sanitizer --error-exitcode 9 --print-limit 20)
make="cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DM3IDX_SILICON=ON -DM3IDX_HIP=OFF -DM3IDX_TOOLS=OFF"
make+=" -DM3IDX_SILICON_ARCH=${SILICON_ARCH:-sm_90} && cmake --build $build -j $(nproc)"
if step build 240 bash -c "$make"; then
  if wanted conform; then step conform 220 "$self" --each-op "${conform[@]}" --level full; fi
  if wanted replay; then OMP_NUM_THREADS=$(nproc) step replay 120 "$build/tests/silicon/silicon_replay" 1000; fi
  for tool in memcheck racecheck; do
    checked=("${sanitizer[@]}" --tool "$tool" "${conform[@]}" --level smoke)
    if wanted $tool; then step $tool 120 "$self" --each-op "${checked[@]}"; fi
  done
  if wanted prefill; then
    python3 tests/silicon/silicon_torch.py 8192x32768 2048x131072 >"$out/torch.txt" 2>"$out/torch.log" || true
    OMP_NUM_THREADS=$(nproc) step prefill 60 "$build/tests/silicon/silicon_prefill" "$out/prefill.json" "$out/torch.txt"
    cat "$out/prefill.log"
  fi
  if wanted bench; then
    OMP_NUM_THREADS=$(nproc) step bench 120 "$build/tests/silicon/silicon_bench" "$out/bench.json"
    cat "$out/bench.log"
  fi
fi
{
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,memory.total --format=csv,noheader
  nvcc --version | tail -n 2 | head -n 1
  printf '%s\n' "${verdicts[@]}"
  echo "total $((SECONDS - started)) s"
} 2>&1 | tee "$out/verdicts.txt"
exit $failed
