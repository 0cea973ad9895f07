#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev test [--full] [CTEST-ARGUMENT...]   build with gcc, warnings as errors, and run the tests; --full: slow ones too
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}"
level=()
if [[ ${1:-} == --full ]]; then
  level=(-C Long)
  shift
fi
build gcc
exec ctest --test-dir build/gcc --output-on-failure --no-tests=error -j "$JOBS" "${level[@]}" "$@" </dev/null
