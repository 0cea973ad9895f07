#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# m3idx verify: one wrong bit anywhere is found and placed; kinds of wrong rows are told apart; files that cannot be
# compared are refused and say why.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"

gen() { expect 0 "$m3idx" gen "$@"; }
run() { expect 0 "$m3idx" run "$1" -o "$2" --backend ref "${@:3}"; }

# ---- every output, one bit ----
gen --op decode --seq-lens 700,260 --decode-query-len 2 --heads 2 --head-dim 16 --topk 3 --local 1 --sparse-table 1 \
  -o case
run case golden
run case same --threads 2
expect 0 "$m3idx" verify golden same
explains "score: same, 48 elements"
explains "sparse_context_lens: same, 8 elements"
expect 0 "$m3idx" verify --quiet golden same
equal "" "$out$err" "a quiet verdict"
while read -r tensor index where count; do
  cp golden other
  word=$(peek golden "$tensor" "$index")
  poke other "$tensor" "$index" "$(printf '%08x' $((0x$word ^ 1)))"
  expect 1 "$m3idx" verify golden other
  explains "$tensor: 1 of $count elements differ"
  explains "first $where: want "
  [[ $out != *"last "* ]] || fail "one differing element has no last: $out"
  expect 1 "$m3idx" verify -q golden other
  equal "" "$out$err" "a quiet verdict"
done <<'PLACES'
score 0 [0][0][0] 48
score 47 [1][3][5] 48
topk_idx 7 [0][2][1] 24
sparse_block_table 191 [7][23] 192
sparse_context_lens 5 [5] 8
PLACES

# ---- scores: kinds ----
cp golden other
poke other score 0 "$(printf '%08x' $((0x$(peek golden score 0) + 1)))"
expect 1 "$m3idx" verify golden other
explains "want 0x$(peek golden score 0) ("
explains "got 0x$(peek other score 0) ("
explains ", 1 ulp"
explains "roundings (1 ulp) 1, signs of zero 0, bits of NaN 0, wrong 0"
cp golden zero
cp golden other
poke zero score 5 00000000
poke other score 5 80000000
poke zero score 6 7fc00000
poke other score 6 7fc00001
poke zero score 7 3f800000
poke other score 7 3f800007
poke zero score 8 3f800000
poke other score 8 7fc00000
expect 1 "$m3idx" verify zero other
explains "score: 4 of 48 elements differ"
explains "first [0][0][5]: want 0x00000000 (0), got 0x80000000 (-0), 0 ulp"
explains "last  [0][1][2]: want 0x3f800000 (1), got 0x7fc00000 (nan)"
explains "roundings (1 ulp) 0, signs of zero 1, bits of NaN 1, wrong 2 (up to 7 ulp)"

# ---- selections: kinds, on scores that are written here ----
# Five blocks: 1, 1, 1 + 1 ulp, 2, NaN; the three best are 3, 2, 0.
gen --op select --num-blocks 5 --topk 3 -o case
for i in 0 1; do poke case score $i 3f800000; done
poke case score 2 3f800001
poke case score 3 40000000
poke case score 4 7fc00000
run case golden
equal "00000003 00000002 00000000" "$(for i in 0 1 2; do peek golden topk_idx $i; done | xargs)" "the selection"
while read -r a b c kind; do
  cp golden other
  i=0
  for id in $a $b $c; do
    poke other topk_idx $i "$(printf '%08x' $((id & 0xffffffff)))"
    i=$((i + 1))
  done
  expect 1 "$m3idx" verify golden other
  explains "rows $kind"
done <<'KINDS'
3 2 1 only ties: 1 of 1, [h][t] [0][0]
2 3 0 only order: 1 of 1
3 0 2 only order: 1 of 1
3 0 1 only roundings (1 ulp): 1 of 1
3 2 4 wrong: 1 of 1
3 2 2 wrong: 1 of 1
3 2 5 wrong: 1 of 1
3 2 -1 wrong: 1 of 1
2 0 1 wrong: 1 of 1
KINDS
cp golden other
poke other topk_idx 2 00000002
expect 1 "$m3idx" verify golden other
explains "first: id 2 is there twice"
poke other topk_idx 2 00000005
expect 1 "$m3idx" verify golden other
explains "first: slot 2 is 5, must be 0..4"

# Without a score in the golden nobody can weigh another block.
gen --op decode --seq-lens 700 --head-dim 16 --topk 2 --sparse-table 1 -o case
run case golden --no-score
run case other
expect 0 "$m3idx" verify golden other
explains "score: not in the golden, not compared"
for id in 0 1 2 3 4 5; do
  [[ 0000000$id == "$(peek golden topk_idx 0)" || 0000000$id == "$(peek golden topk_idx 1)" ]] && continue
  poke other topk_idx 1 0000000$id
done
expect 1 "$m3idx" verify golden other
explains "rows of a kind that only scores could tell: 1 of 1"
# A table that differs although its selection does not, and one that follows.
run case other --no-score
poke other sparse_block_table 0 00000077
expect 1 "$m3idx" verify golden other
explains "rows that follow a differing topk_idx 0, that differ on their own 1"
poke other topk_idx 0 00000077
expect 1 "$m3idx" verify golden other
explains "rows that follow a differing topk_idx 1, that differ on their own 0"

# ---- what cannot be compared ----
expect 2 "$m3idx" verify case golden
says "has no outputs"
expect 2 "$m3idx" verify golden case
says "tensor topk_idx: missing, the golden has it"
expect 2 "$m3idx" verify golden absent
says "absent: No such file"
expect 2 "$m3idx" verify golden
says "1 of 2 files given"
line=(--op decode --seq-lens 700 --head-dim 16 --topk 2 --sparse-table 1)
while IFS='|' read -r want options; do
  # shellcheck disable=SC2086  # options are words
  gen "${line[@]}" $options -o third_case
  run third_case third
  expect 2 "$m3idx" verify golden third
  says "another case: $want"
done <<'INPUTS'
tensor q: element |--seed 1
tensor q: not the golden's shape|--heads 2
q: numbers are f16|--q-dtype f16
index_k: numbers are e5m2|--k-dtype e5m2
metadata max_block: 9, the golden has 6|--max-block 9
metadata init_blocks: 1, the golden has 0|--init 1
metadata local_blocks: 1, the golden has 0|--local 1
metadata page_stride: 16, the golden has 8|--page-stride 16
metadata contract: atom, the golden has vllm|--contract atom
metadata scale: 2, the golden has 1|--scale 2
tensor attention_block_table: only in the other file|--attention-table 1
INPUTS
gen --op decode --seq-lens 700 --head-dim 16 --topk 3 --sparse-table 1 -o third_case
expect 2 "$m3idx" verify golden third_case
says "another case: metadata topk: 3, the golden has 2"
gen --op select --num-blocks 6 --topk 2 -o third_case
expect 2 "$m3idx" verify golden third_case
says "another case: metadata op: select, the golden has decode"
cp golden other
poke other block_table 0 00000001
poke other block_table 1 00000000
expect 2 "$m3idx" verify golden other
says "tensor block_table: element "
finish
