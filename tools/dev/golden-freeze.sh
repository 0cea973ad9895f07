#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev golden-freeze                        rewrite tests/golden/golden.tsv from the oracle; never in CI
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}"
table=tests/golden/golden.tsv
configure gcc
quietly build/gcc/build.log cmake --build build/gcc -j "$JOBS" --target golden_oracle
build/gcc/tests/golden/golden_oracle $table --freeze >build/gcc/golden.tsv
moved=$(diff $table build/gcc/golden.tsv | grep -c '^[<>]' || true)
cp build/gcc/golden.tsv $table
say "$moved lines of $table differ from before; a digest that moved needs a line in CHANGELOG.md"
