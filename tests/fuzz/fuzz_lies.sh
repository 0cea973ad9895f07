#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz_lies.sh PROGRAM TREE: the fuzzer finds every backend that lies, crashes or hangs, and what it makes of the case
# still fails, as a line and as a file, and is small: one request, row and head of 16 dims but where the lie needs more.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../cli/cli_lib.sh"
fuzz=$m3idx
lies=0

# field NAME: a text of the only failure of the report.
field() { sed -n "s/^ *\"$1\": \"\(.*\)\",*\$/\1/p" report.json; }

# lie NAME KIND CALL ROWS HEADS PUTS: the most that its shrunk case may have.
lie() {
  local name=$1 kind=$2 call=$3 rows=$4 heads=$5 puts=$6 line file count
  [[ $name != lie:* ]] || lies=$((lies + 1))
  expect 1 "$fuzz" --backends "ref,$name" --cases 40000 --failures 1 --shrink 60 --hang 1 --report report.json
  equal "$kind" "$(field kind)" "$name: kind"
  equal "$name" "$(field backend)" "$name: backend"
  [[ $(field call) == "$call"* ]] || fail "$name: call is '$(field call)', want '$call'"
  line=$(field shrunk)
  file=$(field file)
  explains "shrunk in "
  explains "$line"
  if [[ $name != bad:crashes ]]; then # which would take this process with it
    expect 1 "$fuzz" --backends "ref,$name" --case "$line"
    expect 1 "$fuzz" --backends "ref,$name" --case "$file"
  fi
  expect 0 "$fuzz" --backends ref,ref --case "$line"
  count=$(grep -o -E -e '--(seq-lens|q-lens|num-blocks) [^ ]*' <<<"$line" | head -n 1 | tr ',' '\n' |
    awk -Fx '{ n += NF > 1 ? $2 : 1 } END { print n }')
  ((count <= rows)) || fail "$name: more than $rows requests: $line"
  count=$(sed -n 's/.*--\(q-lens\|decode-query-len\) \([0-9]*\).*/\2/p' <<<"$line")
  ((${count:-1} <= rows)) || fail "$name: more than $rows rows: $line"
  count=$(sed -n 's/.*--heads \([0-9]*\).*/\1/p' <<<"$line")
  ((${count:-1} <= heads)) || fail "$name: more than $heads heads: $line"
  count=$(grep -o : <<<"${line##* --put }" | wc -l)
  ((count <= puts)) || fail "$name: more than $puts elements: $line"
  [[ $line != *--head-dim* || $line == *"--head-dim 16 "* ]] || fail "$name: more than 16 dims: $line"
  [[ $line == *"--data zeros"* ]] || fail "$name: not of zeros: $line"
  checks=$((checks + 5))
  rm -f "$file"
}

for name in one_ulp zero_sign unwritten no_minus_inf guard_byte row_padding dropped_last refusal_wrote invalid; do
  lie lie:$name different score 1 1 0
done
lie lie:wrote_input crash score 1 1 0
lie lie:read_past_end crash score 1 1 0
lie lie:wrong_tie different select 1 1 0
lie lie:swapped different select 1 1 0
lie lie:truncated_128 crash select 1 1 0
lie lie:truncated_512 crash select 1 1 0
lie lie:stale_row different select 2 1 1
lie lie:wrong_key different select 1 1 0
lie lie:dropped_part different merge 1 1 1
lie lie:fused_order different topk 1 1 0
lie lie:context_off different sparse_table 1 1 0
lie lie:head_major different sparse_table 1 1 0
lie lie:wrapped_slot different cache_insert 5 2 0 # five rows, or three of two heads
lie lie:converts_all different cache_insert 1 1 0
lie lie:dirty_counter different score 1 1 0
lie lie:past_workspace different score 1 1 0
lie lie:wrote_device_input different score 1 1 0
lie bad:crashes crash score 2 1 0
lie bad:rare different score 1 1 24

# A trial that hangs takes as long as --hang says, so that the clock may cut this one short.
expect 1 "$fuzz" --backends ref,bad:hangs --cases 40000 --failures 1 --shrink 6 --hang 0.3 --report report.json
equal hang "$(field kind)" "bad:hangs: kind"
equal bad:hangs "$(field backend)" "bad:hangs: backend"

# Every lie is tried, and the honest are believed, in both kinds of memory.
equal "$(grep -c '{"lie:' "$tree/tests/selftest/liars.c")" "$lies" "lies tried"
expect 0 "$fuzz" --backends ref,honest:host,honest:device --cases 300
explains "honest:device: pass"
finish
