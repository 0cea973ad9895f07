#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev coverage                             lines and branches of common and ref that the tests execute, by llvm-cov
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}" clang libomp-dev llvm-14
build coverage
rm -rf build/coverage/profile
# One file a program, into which its runs are added.  What tests the kernels, the package or the harness is left out.
LLVM_PROFILE_FILE=$PWD/build/coverage/profile/%m.profraw ctest --test-dir build/coverage --output-on-failure \
  --no-tests=error -j "$JOBS" -LE 'package|simt|selftest' -E simt </dev/null

llvm-profdata-14 merge -sparse -o build/coverage/all.profdata build/coverage/profile/*.profraw
# The objects of the rooms, so that a file that no program links counts, and one that has the functions of geometry.h.
mapfile -t objects < <(find build/coverage/{common,ref} build/coverage/tests/unit/CMakeFiles/test_geometry.dir -name '*.o' | sort)
# Lists (*.def) are data; which of their rows counts as executed depends on who includes them.
left_out='tests/|\.def$'
if ! build/coverage/tools/m3idx info | grep -q '^backend cpu: isa amx'; then
  say "ref/simd is not measured: this machine lacks instruction sets that it is written for"
  left_out+='|ref/simd/'
fi
measured=(-instr-profile build/coverage/all.profdata "-ignore-filename-regex=$left_out" "${objects[0]}"
  "${objects[@]/#/-object=}")
llvm-cov-14 report "${measured[@]}" >build/coverage/report.txt
say "what no test executes; build/coverage/report.txt is a table by file"
llvm-cov-14 export "${measured[@]}" | python3 tools/dev/coverage_left.py
