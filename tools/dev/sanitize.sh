#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev sanitize [address|thread|memory]...    the tests under sanitizers; each must first find a planted fault
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}" clang libomp-dev valgrind

# finds TOOL FAULT -- COMMAND...: the tool is silent on the sound program and reports the planted fault.  COMMAND takes
# the fault as its last argument, and what $SOUND says, or "none", for the sound program.
finds() {
  local tool=$1 fault=$2 log=build/sanitize/$1-$2.log
  shift 3
  "$@" "${SOUND:-none}" >"$log" 2>&1 </dev/null || { cat "$log"; die "$tool complains about a sound program"; }
  if "$@" "$fault" >"$log" 2>&1 </dev/null; then die "$tool misses a planted $fault"; fi
  say "$tool finds a planted $fault"
}

# plant COMPILER FLAG...: build tests/sanitize/planted_faults.c and print where it is.
plant() {
  local program=build/sanitize/planted_$1${2//[^a-z]/_}
  "$@" -std=c11 -g -O1 -fopenmp -o "$program" tests/sanitize/planted_faults.c
  echo "$program"
}

tests() { ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$JOBS" "${@:2}" </dev/null; }

address() {
  local program
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
  export UBSAN_OPTIONS=print_stacktrace=1
  program=$(plant gcc -fsanitize=address,undefined -fno-sanitize-recover=all)
  finds address overrun -- "$program"
  finds undefined overflow -- "$program"
  build asan-ubsan
  tests build/asan-ubsan -LE simt
  # Each lane of the executor is a fiber with a stack: frames kept for use after return cost three times the time.
  ASAN_OPTIONS=${ASAN_OPTIONS/use_after_return=1/use_after_return=0} tests build/asan-ubsan -L simt
}

# libgomp's synchronisation is invisible to the thread sanitizer; libomp's is not, through archer.
thread() {
  local program archer
  archer=$(find /usr/lib/llvm-*/lib -name libarcher.so 2>/dev/null | sort -V | tail -n 1)
  [[ -n $archer ]] || die "no libarcher.so beside libomp"
  export OMP_TOOL_LIBRARIES=$archer OMP_NUM_THREADS=4
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1:allocator_may_return_null=1
  program=$(plant clang -fsanitize=thread)
  finds thread race -- "$program"
  build tsan
  # The tests that run the library's loops in this process.
  tests build/tsan -LE 'package|simt|hip|cli|interop|selftest|golden'
}

memory() {
  local program line options
  options=(--quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite)
  program=$(plant gcc -fno-inline)
  finds valgrind uninit -- valgrind "${options[@]}" "$program"
  build gcc -DMEMORYCHECK_COMMAND="$(command -v valgrind)" "-DMEMORYCHECK_COMMAND_OPTIONS=${options[*]}"
  export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
  # An interpreted run takes about thirty times as long: the quick unit tests, and the smoke level of the harness.
  tests build/gcc -T memcheck -R '^test_(ref|case|door|names|backend|oracle)' -E casegen
  line='--op decode --seq-lens 129,300 --heads 2 --head-dim 16 --topk 4'
  SOUND=honest:host finds valgrind unset -- \
    valgrind "${options[@]}" build/gcc/tests/selftest/liars --case "$line" --backend
  # Of the instruction sets valgrind knows AVX2 and nothing newer.
  M3IDX_ISA=scalar tests build/gcc -T memcheck -R '^conform_smoke$'
  if grep -qw avx2 /proc/cpuinfo; then
    M3IDX_ISA=avx2 tests build/gcc -T memcheck -R '^conform_smoke$'
  else
    say "memory: this machine has no AVX2, so the cpu backend was watched as scalar only"
  fi
}

mkdir -p build/sanitize
(($#)) || set -- address thread memory
for kind in "$@"; do
  case $kind in
    address | thread | memory) "$kind" ;;
    *) die "no sanitizer '$kind'" ;;
  esac
done
say "sanitizers: all clean ($*)"
