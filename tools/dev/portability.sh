#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev portability [ROW...]                 the same bytes from every compiler, option, thread count and machine
set -euo pipefail
. tools/dev/dev_lib.sh

program=tests/golden/golden_emit
table=tests/golden/golden.tsv
dir=build/portability
wanted=" $* "
mkdir -p $dir
rm -f $dir/*.{out,txt,err,conform}

# run ROW BUILD COMMAND...: keep what the program of BUILD prints under COMMAND, then run the conformance harness; .txt
# begins when both ran to their ends.
run() {
  local row=$1 build=$dir/$2
  shift 2
  if timeout 900 "$@" "$build/$program" $table >"$dir/$row.out" 2>"$dir/$row.err" </dev/null &&
    timeout 900 "$@" "$build/tests/conform/conform" >"$dir/$row.conform" 2>&1 </dev/null; then
    : >"$dir/$row.txt"
  fi
}

# row NAME COMPILER [CMAKE-ARGUMENT...] [-- COMMAND...]: build and run in the background, as many at once as cores.
# COMPILER =NAME runs the program that row NAME built.
rows=()
row() {
  local name=$1 compiler=$2 arguments=()
  shift 2
  while (($#)) && [[ $1 != -- ]]; do
    arguments+=("$1")
    shift
  done
  [[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
  rows+=("$name")
  while (($(jobs -rp | wc -l) >= JOBS)); do wait -n || true; done
  if [[ $compiler == =* ]]; then
    run "$name" "${compiler#=}" "${@:2}"
  else
    {
      {
        cmake -G Ninja -S . -B "$dir/$name" -DCMAKE_C_COMPILER="$compiler" "-DM3IDX_TEST_KINDS=conform;golden" \
          -DM3IDX_TOOLS=OFF -DM3IDX_HIP=OFF "${arguments[@]}" &&
          cmake --build "$dir/$name" -j 1 --target golden_emit conform
      } >"$dir/$name.err" 2>&1 </dev/null && run "$name" "$name" "${@:2}"
    } &
  fi
}

# cross MACHINE EMULATOR: Debian's cross compilers bring the machine's libraries to /usr/MACHINE-linux-gnu.  One
# thread, because qemu-user can hang where OpenMP's threads wait for each other.
cross() {
  row "$1" "$1-linux-gnu-gcc" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$1" \
    -- env OMP_NUM_THREADS=1 "$2" -L "/usr/$1-linux-gnu"
}

need "${BUILD_PACKAGES[@]}" clang libomp-dev qemu-user
need gcc-{aarch64,i686,riscv64,s390x}-linux-gnu libc6-dev-{arm64,i386,riscv64,s390x}-cross

say "building and running, $JOBS at once"
cross s390x qemu-s390x     # big-endian
cross riscv64 qemu-riscv64
cross aarch64 qemu-aarch64
cross i686 qemu-i386       # 32-bit, floating point on the x87 stack
row gcc gcc -- env OMP_NUM_THREADS=1
row gcc-O0 gcc -DCMAKE_C_FLAGS_RELEASE=-O0
row gcc-native gcc "-DCMAKE_C_FLAGS_RELEASE=-O3 -march=native"
row gcc-no-openmp gcc -DM3IDX_OPENMP=OFF
row clang-O0 clang -DCMAKE_C_FLAGS_RELEASE=-O0
row clang-native clang "-DCMAKE_C_FLAGS_RELEASE=-O3 -march=native" -- env OMP_NUM_THREADS=3
wait
for threads in 2 3 7; do
  [[ ! -x $dir/gcc/$program ]] || row "gcc-$threads-threads" =gcc -- env OMP_NUM_THREADS=$threads
done
# The same program where the processor is asked what it has: the first x86-64, one without AVX2, one without AVX-512.
if [[ $(uname -m) == x86_64 && -x $dir/gcc/$program ]]; then
  for cpu in qemu64 SandyBridge Haswell; do row "gcc-$cpu" =gcc -- env OMP_NUM_THREADS=1 qemu-x86_64 -cpu $cpu; done
fi

# golden_check, built for this machine, judges what every row printed.
check=$dir/gcc/tests/golden/golden_check
if [[ ! -x $check ]]; then
  quietly $dir/check.log cmake -G Ninja -S . -B $dir/check -DM3IDX_HIP=OFF -DM3IDX_TOOLS=OFF \
    "-DM3IDX_TEST_KINDS=conform;golden"
  quietly $dir/check.log cmake --build $dir/check --target golden_check
  check=$dir/check/tests/golden/golden_check
fi
failed=0
((${#rows[@]})) || die "no row called $*"
for name in "${rows[@]}"; do
  status=failed
  if [[ -f $dir/$name.txt ]]; then
    status=same
    "$check" $table <"$dir/$name.out" >"$dir/$name.txt" || status=differs
  else
    : >"$dir/$name.txt"
  fi
  [[ $status == same ]] || { failed=$((failed + 1)); tail -n 15 "$dir/$name".{err,txt,conform} >&2 || true; }
  calls=$(sed -n 's/^conform: .* lines, \(.*\) calls compared, .*/\1/p' "$dir/$name.conform" 2>/dev/null || true)
  printf '%-16s %s: conform %s, goldens %s\n' "$name" "$status" "${calls:-none}" \
    "$(sed -n 's/^golden \(.*\): \(.*\) tensors, .*/\1 \2/p' "$dir/$name.txt" | paste -s -d ,)"
done
((failed == 0)) || die "$failed of ${#rows[@]} rows failed or differ (outputs in $dir)"
say "portability: ${#rows[@]} rows, all have the bytes of the goldens"
