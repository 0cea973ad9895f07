#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev mutants [--jobs N] [--only REGEX] [--how REGEX]   seed faults one by one, and time how long the fuzzer takes
#
# About 306 faults, up to 60 s each; results go to build/mutants/results.tsv and, read by a person, to docs/MUTANTS.md.
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}" git clang libclang-rt-14-dev
exec python3 fuzz/mutants/run_fuzz_mutants.py . build/mutants "$@" </dev/null
