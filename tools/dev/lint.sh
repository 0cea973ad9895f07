#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev lint [CHECK...]                      style, static analysis and house rules, each shown to be able to fail
set -euo pipefail
. tools/dev/dev_lib.sh
need "${TEST_PACKAGES[@]}" git clang libomp-dev clang-format-14 clang-tidy-14 cppcheck shellcheck groff-base
configure clang
export JOBS
exec bash tests/lint/run_checks.sh "$@" </dev/null
