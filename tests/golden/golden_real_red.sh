#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# golden_real_red.sh GOLDEN_REAL DATA: a changed input, a changed digest and a missing file each turn the check red.
set -euo pipefail
judge=$1
data=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
name=smollm2-layer8-group1.safetensors
table=$dir/real.tsv

# red WORDS: it must fail and say so.
red() {
  local said
  if said=$("$judge" "$dir" "$table" 2>&1); then
    echo "FAIL: green although it should say '$1'"
    exit 1
  fi
  grep -q -F -e "$1" <<<"$said" || { echo "FAIL: no '$1' in: $said"; exit 1; }
}

cp "$data/real.tsv" "$table"
red "$name"
cp "$data/$name" "$dir"
printf '\177' | dd of="$dir/$name" bs=1 seek=$(($(stat -c %s "$dir/$name") - 1)) conv=notrunc status=none # in the last query
red "FAIL golden_real: inputs of $name"
cp "$data/$name" "$dir"
sed -i '/\ttopk_idx\t/s/\t[0-9a-f]\{8\}/\t01234567/' "$table"
red "FAIL golden_real: topk_idx of $name"
echo "3 faults found"
