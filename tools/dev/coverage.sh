#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev coverage                             lines of common and ref that the tests execute; fails below 98 %
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}" gcovr
build coverage
find build/coverage -name '*.gcda' -delete
ctest --test-dir build/coverage --output-on-failure --no-tests=error -j "$JOBS" -LE 'package|simt|hip|selftest' </dev/null

report() { gcovr --root . --object-directory build/coverage build/coverage/{common,ref,tests} "$@"; }
say "ref/simd: what this machine's instruction sets reach (no threshold)"
report --filter 'ref/simd/'
say "common and ref: lines that no test executes are listed, and must be at most 2 %"
# The lists in *.def are data; which of their rows counts as executed depends on who includes them last.
report --filter 'common/' --filter 'ref/[^/]*$' --exclude '.*\.def' --fail-under-line 98
