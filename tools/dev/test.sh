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
# Case files meet the safetensors package of PyPI; without the network that one test is skipped and says so.
python=build/venv/bin/python3
if ! $python -c 'import numpy, safetensors' 2>/dev/null; then
  say "making build/venv with numpy and safetensors"
  { python3 -m venv build/venv && $python -m pip install --quiet --disable-pip-version-check numpy safetensors; } ||
    say "no numpy and safetensors from PyPI: interop_safetensors will be skipped"
fi
[[ -x $python ]] || python=$(command -v python3)
build gcc -DPython3_EXECUTABLE="$(realpath -s "$python")"
say "$(sed -n 's/^-- \(HIP plugin: .*\)/\1/p' build/gcc/configure.log)"
exec ctest --test-dir build/gcc --output-on-failure --no-tests=error -j "$JOBS" "${level[@]}" "$@" </dev/null
