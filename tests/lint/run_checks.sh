#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_checks.sh [CHECK...]: one PASS or FAIL line for each check.  Before a check is believed it must pass a small sound
# tree and fail the same tree with one planted fault.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
root=$PWD
. tests/lint/lint_checks.sh
. tests/lint/lint_plants.sh
(($#)) && CHECKS=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# in_tree NAME CHECK [PLANT]: a fresh sound tree, perhaps with a fault, judged by CHECK.
in_tree() {
  mkdir "$work/$1"
  cd "$work/$1"
  sound_tree "$root"
  [[ $# -lt 3 ]] || "$3"
  LINT_BUILD=build/clang "$2"
}

failed=0
for check in "${CHECKS[@]}"; do
  log=$work/$check.log
  if ! (in_tree "sound-$check" "check_$check") >"$log" 2>&1; then
    verdict="FAIL $check: the check rejects a sound tree"
  elif (in_tree "planted-$check" "check_$check" "plant_$check") >"$log" 2>&1; then
    verdict="FAIL $check: the check misses a planted fault"
  elif ! (set -euo pipefail; "check_$check") >"$log" 2>&1; then
    verdict="FAIL $check"
  else
    echo "PASS $check"
    continue
  fi
  sed 's/^/    /' "$log" | head -n 60
  echo "$verdict"
  failed=$((failed + 1))
done
echo "$((${#CHECKS[@]} - failed)) of ${#CHECKS[@]} checks passed"
((failed == 0))
