#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# m3idx judge as a person runs it: statuses, the screen, JSON, the page; and run --arith.
# Arguments: the binary and the source tree.
# shellcheck source-path=SCRIPTDIR
. "$2/tests/cli/cli_lib.sh"

expect 0 "$m3idx" gen --op decode --seq-lens 700,2600 --decode-query-len 2 --heads 2 --head-dim 64 --topk 8 --local 1 \
  --data near --seed 1 -o case
expect 0 "$m3idx" run case -o golden --backend ref
expect 0 "$m3idx" run case -o "their's" --arith cdna3-mfma
expect 2 "$m3idx" run case -o no --arith cdna3-mfma --k-block 16
says "--k-block 16: only e4m3fnuz"
expect 2 "$m3idx" run case -o no --arith f32
says "--arith f32: must be cdna3-mfma"
expect 2 "$m3idx" run case -o no --arith cdna3-mfma --backend ref
says "takes no --backend"
expect 2 "$m3idx" run case -o no --k-block 8
says "--k-block: needs --arith"
expect 1 test -e no

# ---- verdicts and statuses ----
expect 0 "$m3idx" judge golden golden
explains "golden: nothing wrong"
explains "bit for bit"
expect 0 "$m3idx" judge case golden --arith f32
expect 0 "$m3idx" judge golden "their's" --arith cdna3-mfma
explains "within the proven error of cdna3-mfma"
explains "end to end  legitimate"
explains "m3idx judge golden 'their'\\''s' --arith cdna3-mfma --json"
lines=$(wc -l <<<"$out")
((lines <= 40)) || fail "one screen has $lines lines"
expect 1 "$m3idx" judge golden "their's"
explains "their's: WRONG"
explains "--arith f32    # or bf16-mma"
expect 1 "$m3idx" judge golden "their's" --quiet
equal "" "$out$err" "a quiet verdict"

# The command that the screen proposes for another contract is right.
expect 0 "$m3idx" gen --op decode --seq-lens 2600x2 --head-dim 32 --topk 8 --data ties --contract aiter -o other_case
expect 0 "$m3idx" run other_case -o other
expect 0 "$m3idx" gen --op decode --seq-lens 2600x2 --head-dim 32 --topk 8 --data ties -o tied_case
expect 0 "$m3idx" run tied_case -o tied
cp tied theirs
for i in {0..15}; do poke theirs topk_idx "$i" "$(peek other topk_idx "$i")"; done
expect 1 "$m3idx" judge tied theirs
explains "every row is what another contract selects: "
command=$(sed -n 's/^  \(m3idx judge .* --contract .*\)/\1/p' <<<"$out" | head -n 1)
read -r -a words <<<"$command"
expect 0 "$m3idx" "${words[@]:1}"
expect 0 "$m3idx" judge tied theirs --contract aiter
expect 2 "$m3idx" judge tied theirs --contract best
says "--contract best: neither"

# ---- unusable ----
expect 2 "$m3idx" judge golden case
says "theirs: no tensor topk_idx and no tensor score"
expect 2 "$m3idx" judge golden tied
says "theirs: another case: "
expect 2 "$m3idx" judge golden absent
says "absent: No such file"
expect 2 "$m3idx" judge golden golden --arith f64
says "--arith f64: must be exact, f32"
expect 2 "$m3idx" judge golden golden --arith exact --flush
says "--flush: --arith exact keeps subnormals"
expect 2 "$m3idx" judge golden golden --k-block 0
says "--k-block 0: must be 1..256"
cp golden stale
poke stale topk_idx 0 00000013
expect 2 "$m3idx" judge stale golden
says "golden: its outputs are not those of its case"

# ---- what is not judged is said ----
expect 0 "$m3idx" gen --op decode --seq-lens 300 --head-dim 32 --topk 4 --sparse-table 1 -o table_case
expect 0 "$m3idx" run table_case -o table
cp table table_wrong
poke table_wrong sparse_block_table 0 00003039
expect 1 "$m3idx" verify table table_wrong
expect 0 "$m3idx" judge table table_wrong
explains "sparse_block_table and sparse_context_lens are not judged: m3idx verify compares them"
expect 0 "$m3idx" judge golden golden
equal "" "$(grep 'not judged' <<<"$out")" "a case without a table"

# ---- for machines ----
expect 1 "$m3idx" judge golden "their's" --json
if command -v python3 >python; then
  cp stdout report.json
  expect 0 python3 -c '
import json
r = json.load(open("report.json"))
assert r["wrong"] is True and r["arith"] == "exact" and r["contract"] == "vllm"
assert r["selection"]["wrong"] is False and r["selection"]["rows"]["right"] == 8
assert r["scores"]["wrong"] is True and r["scores"]["outside"] > 0
assert sum(u["count"] for u in r["scores"]["ulps"]) == 2 * (2 * 6 + 2 * 21)
assert sum(r["end_to_end"]["rows"].values()) == 8
assert r["worst"] and {"head", "row", "selection", "scores", "end_to_end"} <= set(r["worst"][0])'
fi

# ---- the page ----
expect 1 "$m3idx" judge golden "their's" --html page.html
expect 0 grep -q '<svg role="img" aria-label="histogram of ulps"' page.html
expect 0 grep -q '<svg role="img" aria-label="map of rows"' page.html
expect 1 grep -q -E 'src=|href=|@import|url\(|<script' page.html
expect 2 "$m3idx" judge golden golden --html absent/page.html
says "absent/page.html: No such file"
chromium=$(command -v chromium || command -v chromium-browser || true)
if [[ $chromium ]]; then
  # Rendered once: the map has a cell for every row, and the picture is no blank page.
  expect 0 timeout 60 "$chromium" --headless --no-sandbox --disable-gpu --dump-dom "file://$work/page.html"
  equal 8 "$(grep -o '<title>\[' <<<"$out" | wc -l)" "cells of the map"
else
  echo "SKIP: the page in a browser: no chromium here"
fi
finish
