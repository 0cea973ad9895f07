#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# m3idx policy: rows of the tables of SEMANTICS S8, as JSON in the fields' order and as text; bad usage.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"

# S8.1
while read -r M rows heads topk arch want; do
  expect 0 "$m3idx" policy decode-topk --max-block "$M" --rows "$rows" --heads "$heads" --topk "$topk" \
    --arch "$arch" --json
  read -r chunks block warps stages single merge <<<"$want"
  equal "{\"chunks\": $chunks, \"block\": $block, \"warps\": $warps, \"stages\": $stages, \"single_tile\": $single, \
\"adaptive_merge\": $merge}" "$out" "decode-topk $M $rows $heads $topk $arch"
done <<'ROWS'
0 24 1 16 gfx950 2 512 8 2 false false
74 4 1 16 gfx950 1 128 2 1 true true
129 4 1 16 gfx950 16 512 4 2 true true
8193 16 1 16 gfx950 4 512 8 2 false false
513 16 4 16 gfx942 1 512 8 2 false false
ROWS

# S8.4 and S8.3
while read -r reqs dim q k arch split budget; do
  options=(--reqs "$reqs" --head-dim "$dim" --q-dtype "$q" --k-dtype "$k" --arch "$arch")
  expect 0 "$m3idx" policy decode-score "${options[@]}" --json
  equal "{\"chunks\": ${split%,*}, \"high_batch\": ${split#*,}}" "$out" "decode-score ${options[*]}"
  expect 0 "$m3idx" policy decode-budget "${options[@]}" --json
  equal "{\"budget\": $budget}" "$out" "decode-budget ${options[*]}"
done <<'ROWS'
19 128 bf16 bf16 gfx950 16,false null
20 128 bf16 bf16 gfx950 32,true null
65 128 bf16 bf16 gfx950 4,false null
20 128 f16 bf16 gfx950 16,false null
8 128 bf16 bf16 gfx950 64,false 1024
9 128 bf16 bf16 gfx950 32,false 768
12 128 bf16 bf16 gfx950 32,false null
8 128 bf16 bf16 gfx942 64,false null
ROWS

# S8.5
while read -r query seq reqs heads cus arch block_q splits; do
  expect 0 "$m3idx" policy prefill-score --max-query-len "$query" --max-seq-len "$seq" --reqs "$reqs" \
    --heads "$heads" --compute-units "$cus" --arch "$arch" --json
  equal "{\"block_q\": $block_q, \"splits\": $splits}" "$out" "prefill-score $query $seq"
done <<'ROWS'
127 262144 1 1 304 gfx942 64 1
8192 8192 1 1 304 gfx942 128 8
32768 262144 1 4 304 gfx942 128 2
32768 262144 1 1 256 gfx950 64 1
ROWS

topk=(--max-block 74 --rows 4 --heads 1 --topk 16 --arch gfx950)
expect 0 "$m3idx" policy decode-topk "${topk[@]}"
equal "chunks=1 block=128 warps=2 stages=1 single_tile=true adaptive_merge=true" "$out" "text"
expect 0 "$m3idx" policy decode-budget --reqs 20 --head-dim 128 --q-dtype bf16 --k-dtype bf16 --arch gfx90a
equal "budget=none" "$out" "no budget as text"

expect 2 "$m3idx" policy decode "${topk[@]}"
says "decode: must be decode-topk, decode-score, decode-budget or prefill-score"
expect 2 "$m3idx" policy decode-topk "${topk[@]:2}"
says "--max-block: missing, decode-topk needs it"
expect 2 "$m3idx" policy decode-topk "${topk[@]}" --reqs 3
says "--reqs: means nothing to decode-topk"
expect 2 "$m3idx" policy decode-topk "${topk[@]}" --rows 4
says "--rows: given twice"
for bad in -1 4x "" 2147483648 99999999999999999999; do
  expect 2 "$m3idx" policy decode-topk "${topk[@]:2}" --max-block "$bad"
  says "--max-block $bad: must be 0..2147483647"
done
cus=(--max-query-len 8192 --max-seq-len 8192 --reqs 1 --heads 1 --arch gfx942)
for bad in 0 -1 2147483648; do
  expect 2 "$m3idx" policy prefill-score "${cus[@]}" --compute-units "$bad"
  says "--compute-units $bad: must be 1..2147483647"
done
expect 2 "$m3idx" policy
says "0 of 1 policy given"
expect 2 "$m3idx" policy decode-topk prefill-score "${topk[@]}"
says "prefill-score: one argument too many, 1 policy wanted"
expect 2 "$m3idx" policy decode-score --reqs 1 --head-dim 128 --q-dtype fp8 --k-dtype bf16 --arch gfx950
says "--q-dtype fp8: must be f32"
finish
