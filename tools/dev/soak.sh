#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev soak [SECONDS] [SEED] [M3IDX]        every instruction set against ref, a shard a core; reports in build/soak
#
# 600 seconds and the seed 0 where nothing is said.  M3IDX is a binary that exists, for machines that cannot build one:
# `./dev soak portable` makes build/soak/m3idx, which needs nothing but libc there.  Exit 1 if anything differed.
set -euo pipefail
. tools/dev/dev_lib.sh
dir=build/soak
mkdir -p $dir

# From static libraries, so that it runs on a machine that lacks them.
portable() {
  local library settings=() gomp
  need "${BUILD_PACKAGES[@]}"
  for library in jansson popt nettle; do
    settings+=("-Dpkgcfg_lib_${library^^}_$library=$(pkg-config --variable=libdir $library)/lib$library.a")
  done
  gomp=$(gcc -print-file-name=libgomp.a)
  {
    cmake -S . -B $dir/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DM3IDX_HIP=OFF \
      "-DOpenMP_gomp_LIBRARY=$gomp" -DOpenMP_pthread_LIBRARY=-lpthread "${settings[@]}"
    cmake --build $dir/build --target m3idx_tool
  } >$dir/build.log 2>&1 </dev/null || { tail -n 30 $dir/build.log >&2; exit 3; }
  cp $dir/build/tools/m3idx $dir/m3idx
}

if [[ ${1:-} == portable ]]; then
  portable
  say "$dir/m3idx"
  exit
fi
seconds=${1:-600}
seed=${2:-0}
m3idx=${3:-$dir/m3idx}
[[ $seconds =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || die "not a number of seconds and a seed: $seconds $seed"
(($# >= 3)) || portable
cores=$(nproc)
rm -f $dir/shard-*.json $dir/shard-*.log
pids=()
for ((i = 0; i < cores; i++)); do
  threads=$((i % 3 == 2 ? 3 : 1)) # calls are cut into ranges only where there are threads for them
  OMP_WAIT_POLICY=passive "$m3idx" fuzz --backends ref,cpu --isa all --threads $threads --seconds "$seconds" --seed "$seed" \
    --shard "$i/$cores" --report $dir/shard-$i.json --save $dir --quiet >$dir/shard-$i.log 2>&1 &
  pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null || true' INT TERM
status=0
for ((i = 0; i < cores; i++)); do
  wait "${pids[i]}" || status=$?
  [[ -s $dir/shard-$i.json ]] || { cat $dir/shard-$i.log >&2; die "shard $i left no report"; }
done
"$m3idx" fuzz --merge $dir/shard-*.json --complete -o $dir/soak.json || status=$?
exit "$status"
