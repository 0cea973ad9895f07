#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# golden_red.sh EMIT CHECK TABLE: golden_check is red on a changed byte, a cut or empty stream, tensors under another name, and a
# table with another digest.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1" "$3" ref >"$dir/good"
red() { # WHAT WORDS TABLE, the stream on standard input
  local output
  if output=$("$check" "$3"); then
    echo "FAIL: golden_check is green on $1"
    exit 1
  fi
  [[ $output == *"$2"* ]] || { printf 'FAIL: %s does not give "%s":\n%s\n' "$1" "$2" "$output"; exit 1; }
}
check=$2
"$check" "$3" <"$dir/good" >/dev/null
size=$(wc -c <"$dir/good")
head -c $((size - 1)) "$dir/good" >"$dir/cut"
{ cat "$dir/cut"; printf '\252'; } >"$dir/changed" # the last byte is of a table's or an id's high end, never 0xaa
sed '$s/.$/x/' "$3" >"$dir/table"
red "a changed byte" "FAIL golden ref (" "$3" <"$dir/changed"
red "a cut stream" "ends early" "$3" <"$dir/cut"
red "an empty stream" "the stream is empty" "$3" </dev/null
red "a table with another digest" "FAIL golden ref (" "$dir/table" <"$dir/good"
LC_ALL=C sed 's/golden ref staged score /golden ref staged other /' "$dir/good" >"$dir/renamed"
red "scores under another name" "no score of" "$3" <"$dir/renamed"
