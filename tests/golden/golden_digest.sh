#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# golden_digest.sh M3IDX TABLE: every sixth golden line through m3idx gen, run and digest, as a person repeats it.
set -euo pipefail
m3idx=$1
table=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
compared=0
lines=0
while IFS= read -r line; do
  lines=$((lines + 1))
  read -r -a words <<<"$line"
  "$m3idx" gen "${words[@]}" -o "$dir/case.safetensors"
  "$m3idx" run "$dir/case.safetensors" -o "$dir/golden.safetensors" --backend ref
  while read -r digest tensor; do
    grep -q -x -F -e "$line"$'\t'"$tensor"$'\t'"$digest" "$table" || { echo "FAIL $tensor of $line: got $digest"; exit 1; }
    compared=$((compared + 1))
  done < <("$m3idx" digest "$dir/golden.safetensors")
done < <(grep -v '^#' "$table" | cut -f1 | uniq | awk 'NR % 6 == 0')
((lines >= 10 && compared >= 2 * lines - 2)) || { echo "FAIL: $compared digests of $lines lines"; exit 1; }
echo "$compared digests of $lines lines"
