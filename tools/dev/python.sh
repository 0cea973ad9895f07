#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev python [--torch] [PYTEST-ARGUMENT]   build the wheel and test it in clean environments; --torch: with torch too
set -euo pipefail
. tools/dev/dev_lib.sh
packages=("${BUILD_PACKAGES[@]}" python3 python3-venv)
with_torch=0
if [[ ${1:-} == --torch ]]; then
  with_torch=1
  packages+=(g++) # for what torch.compile makes
  shift
fi
need "${packages[@]}"
build release # the command, for goldens
dir=build/python
mkdir -p $dir

# environment NAME REQUIREMENT...: an environment with these and the wheel, made anew when the requirements change.
environment() {
  local env=$dir/env-$1 wanted
  shift
  wanted=$(printf '%s\n' "$@" && cat python/tests/requirements*.txt)
  if [[ ! -x $env/bin/python3 || $(cat "$env/wanted" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "$env"
    quietly "$env.log" python3 -m venv "$env"
    quietly "$env.log" "$env/bin/python3" -m pip install --quiet --disable-pip-version-check "$@"
    printf '%s\n' "$wanted" >"$env/wanted"
  fi
  quietly "$env.log" "$env/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps \
    --force-reinstall $dir/m3idx-*.whl
}

say "building the wheel"
rm -f $dir/*.whl
[[ -x $dir/env-build/bin/python3 ]] || quietly $dir/build.log python3 -m venv $dir/env-build
quietly $dir/wheel.log $dir/env-build/bin/python3 -m pip wheel --disable-pip-version-check --no-deps -w $dir ./python
ls $dir/*.whl

requirements=python/tests/requirements.txt
run() {
  local env=$dir/env-$1
  shift
  # From another directory, so that what is imported is the wheel and not the tree; python -m finds modules there too.
  (cd $dir && M3IDX_TOOL=$PWD/../release/tools/m3idx "$OLDPWD/$env/bin/python3" -m pytest -q -p no:cacheprovider \
    -c "$OLDPWD/python/pyproject.toml" --rootdir "$OLDPWD/python" "$OLDPWD/python/tests" "$@" </dev/null)
}
say "with nothing but pytest"
environment bare "$(grep ^pytest $requirements)"
run bare "$@"
say "with numpy, ml_dtypes and safetensors"
environment numpy -r$requirements
run numpy "$@"
if ((with_torch)); then
  say "with torch"
  environment torch -r$requirements -rpython/tests/requirements-torch.txt
  run torch "$@"
fi
