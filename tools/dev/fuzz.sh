#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev fuzz [--short|--afl] [TARGET] [SECONDS]   the coverage-guided targets; findings in build/fuzz-finds, and exit 1
#
# SECONDS are for each target: 600, with --short 20.  libFuzzer starts from the corpus in the tree and keeps what is new
# in build/fuzz-corpus; --afl takes afl-fuzz instead.  docs/MUTANTS.md says how an input gets into the tree's corpus.
set -euo pipefail
. tools/dev/dev_lib.sh
kind=libfuzzer
seconds=600
case ${1:-} in
  --short) seconds=20; shift ;;
  --afl) kind=afl; shift ;;
esac
targets=()
for source in fuzz/targets/target_*.c; do targets+=("$(basename "$source" .c | cut -c8-)"); done
if [[ ${1:-} =~ ^[a-z]+$ ]]; then
  [[ " ${targets[*]} " == *" $1 "* ]] || die "no target '$1' among ${targets[*]}"
  targets=("$1")
  shift
fi
[[ ${1:-1} =~ ^[0-9]+$ && $# -le 1 ]] || die "not a number of seconds: $*"
seconds=${1:-$seconds}
need "${TEST_PACKAGES[@]}" clang libclang-rt-14-dev

preset=fuzz
if [[ $kind == afl ]]; then
  need afl++
  preset=afl
fi
say "building build/$preset"
configure $preset
quietly build/$preset/build.log cmake --build build/$preset -j "$JOBS" --target "${targets[@]/#/target_}"

# hunt TARGET: 0 = nothing found in the time.
libfuzzer() {
  mkdir -p build/fuzz-corpus/"$1"
  build/fuzz/fuzz/targets/target_"$1" -max_total_time="$seconds" -timeout=25 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="build/fuzz-finds/$1/" build/fuzz-corpus/"$1" fuzz/corpus/"$1" >build/fuzz-finds/"$1".log 2>&1
}
inputs_of_libfuzzer() { sed -n 's/^stat::number_of_executed_units: *//p' build/fuzz-finds/"$1".log; }
afl() {
  local out=build/afl-out/$1
  rm -rf "$out"
  mkdir -p build/afl-out
  AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_NO_UI=1 AFL_NO_COLOR=1 AFL_NO_AFFINITY=1 \
    AFL_CRASHING_SEEDS_AS_NEW_CRASH=1 ASAN_OPTIONS=abort_on_error=1:symbolize=0:detect_leaks=0 \
    afl-fuzz -V "$seconds" -m none -t 5000 -G 4096 -i fuzz/corpus/"$1" -o "$out" -- build/afl/fuzz/targets/target_"$1" \
    >build/fuzz-finds/"$1".log 2>&1 || { tail -n 5 build/fuzz-finds/"$1".log >&2; die "afl-fuzz cannot run $1"; }
  find "$out" -path '*/crashes/id*' -o -path '*/hangs/id*' | while read -r find; do cp "$find" build/fuzz-finds/"$1"/; done
  [[ -z $(ls build/fuzz-finds/"$1") ]]
}
inputs_of_afl() { sed -n 's/^execs_done *: *//p' build/afl-out/"$1"/default/fuzzer_stats; }

failed=0
for target in "${targets[@]}"; do
  rm -rf build/fuzz-finds/"$target"
  mkdir -p build/fuzz-finds/"$target"
  if $kind "$target" </dev/null; then
    say "$target: nothing in $seconds s, $(inputs_of_$kind "$target") inputs"
  else
    failed=$((failed + 1))
    grep -E 'is false|ERROR:|runtime error' build/fuzz-finds/"$target".log | head -n 5 >&2 || true
    say "$target: FOUND something; the input is in build/fuzz-finds/$target, what was said in build/fuzz-finds/$target.log"
  fi
done
((failed == 0)) || exit 1
