#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# m3idx fuzz --exec: programs that are right, wrong, dead, slow, mute, or of another shape; and no shell in between.
# shellcheck source-path=SCRIPTDIR disable=SC2016  # programs are written as text
. "$(dirname "$0")/../cli/cli_lib.sh"

# judged STATUS PROGRAM OPTION...: a short campaign; what is left of a failure goes to a folder of its own.
mkdir -p left
judged() { expect "$1" "$m3idx" fuzz --exec "$2" --save left --failures 1 --shrink 20 --report report.json "${@:3}"; }
field() { sed -n "s/^ *\"$1\": \"\(.*\)\",*\$/\1/p" report.json; }
# program NAME: its text from standard input, executable.
program() {
  { printf '#!/bin/bash\nM=%q\n. %q\n' "$m3idx" "$work/parts.sh"; cat; } >"$1"
  chmod +x "$1"
}
{ declare -f place poke peek; } >parts.sh
right='"$M" run "$1" -o "$2" --backend cpu --quiet'

# ---- right ----
program right <<<"$right"
judged 0 "./right {in} {out}" --cases 60
number() { sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" report.json | head -n 1; }
equal 60 $(($(number pass) + $(number passed_over))) "cases judged, and those that are no launch"
explains " fail 0 "
equal exec "$(sed -n 's/.*"name": "\(exec\)".*/\1/p' report.json)" "backend of the report"
# Paths may stand inside a word, more than once, and programs be named by options.
judged 0 "'$m3idx' run {in} --output={out} --backend=ref" --cases 20
# A truth of another backend.
judged 0 "./right {in} {out}" --cases 20 --backends cpu

# ---- wrong: one id of every selection of two blocks and more ----
program wrong <<EOF2
$right
grep -q -a '"op":"select"' "\$1" || exit 0
[[ \$(peek "\$2" num_blocks 0) == 0000000[01] ]] || poke "\$2" topk_idx 0 00000000
EOF2
judged 1 "./wrong {in} {out}" --cases 200
equal different "$(field kind)" "kind of a wrong program"
explains "topk_idx: 1 of "
line=$(field shrunk)
# Two blocks, of which the other one is better: one score of two remains, or a tie rule that prefers it.
[[ $line == "--op select --num-blocks 2 --topk 1 "*"--data zeros"* ]] || fail "not the smallest case: $line"
[[ $(grep -o : <<<"$line" | wc -l) -le 1 ]] || fail "more than one element: $line"
expect 1 "$m3idx" fuzz --exec "./wrong {in} {out}" --cases 200 --failures 1 --shrink 0 --save left

# ---- dead, slow, mute ----
program dies <<<'kill -SEGV $$'
judged 1 "./dies {in} {out}" --cases 5
equal crash "$(field kind)" "kind of a program that dies"
explains "the program was ended by signal 11"
program fails <<<'echo a reason >&2; exit 3'
judged 1 "./fails {in} {out}" --cases 5
equal crash "$(field kind)" "kind of a program that fails"
explains "the program ended with status 3"
explains "a reason"
program sleeps <<<'sleep 1000 & sleep 1000'
judged 1 "./sleeps {in} {out}" --cases 5 --hang 0.3 --shrink 1
equal hang "$(field kind)" "kind of a program that hangs"
explains "the program took more than 0.3 s"
expect 1 pgrep -f "^sleep 1000\$"
judged 1 "./nosuch {in} {out}" --cases 5
explains "the program ended with status 127"
explains "./nosuch: cannot be run"
program mute <<<'exit 0'
judged 1 "./mute {in} {out}" --cases 5
explains "the program's output: "
program babbles <<<'echo no case file >"$2"'
judged 1 "./babbles {in} {out}" --cases 5
explains "the program's output: "
# The outputs of the case before do not count for this one.
program once <<<"[[ -e ran ]] && exit 0; touch ran; $right"
judged 1 "./once {in} {out}" --cases 20 --shrink 0
explains "the program's output: "
program declines <<<'exit 77'
judged 1 "./declines {in} {out}" --cases 5
equal 5 $(($(number unsupported) + $(number passed_over))) "cases declined, and those that are no launch"
explains "  exec: pass 0 fail 0 unsupported "
explains "0 calls compared, 0 failures: FAIL"

# ---- other shapes ----
program elsewhere <<EOF2
"\$M" gen --op select --num-blocks 3 --topk 2 -o elsewhere.safetensors
"\$M" run elsewhere.safetensors -o "\$2" --backend ref
EOF2
judged 1 "./elsewhere {in} {out}" --cases 20 --op select
equal different "$(field kind)" "kind of a program with another shape"
says "tensor topk_idx: must be I32 ["
program halves <<<'"$M" run "$1" -o "$2" --backend cpu --quiet --no-score'
judged 1 "./halves {in} {out}" --cases 20 --op decode --shrink 0
explains "score differs, or is missing"
judged 0 "./halves {in} {out}" --cases 20 --op decode --outputs topk_idx,sparse_block_table,sparse_context_lens
judged 2 "./halves {in} {out}" --cases 20 --outputs topk_idx,scores
says "--outputs topk_idx,scores: must be of score, topk_idx, sparse_block_table and sparse_context_lens"

# ---- by an arithmetic ----
model="$m3idx run {in} -o {out} --arith cdna3-mfma"
some=(--op "prefill,decode" --fix "--q-dtype bf16 --k-dtype bf16 --sparse-table 0 --attention-table 0" --cases 30)
judged 1 "$model" "${some[@]}" --shrink 0
judged 0 "$model" "${some[@]}" --judge cdna3-mfma
judged 1 "$model" "${some[@]}" --judge exact --shrink 0
explains "wrong by exact"

# ---- fixed options ----
judged 0 "./right {in} {out}" --cases 60 --op decode --fix "--head-dim 128 --block-size 128 --topk 16"
counts=$(sed -n '/"edge"/,/}/p' report.json | tr -d ' \n')
[[ $counts == *'"topk":'* ]] || fail "no edges in the report"
expect 0 "$m3idx" fuzz --cases 300 --fix "--q-dtype e5m2 --k-dtype f16 --data near"
explains "  data: near "
expect 0 "$m3idx" fuzz --cases 60 --op select --fix "--q-dtype e5m2 --heads 3 --num-blocks 70"
for fix in "" "--heads" "--head 3" "--heads 2 --heads 3" "heads 3"; do
  judged 2 "./right {in} {out}" --cases 5 --fix "$fix"
  says "--fix"
done
# A value that no line may have leaves no line.
judged 1 "./right {in} {out}" --cases 20 --fix "--heads 0"
explains "0 calls compared"

# A table that names no page is no launch (S7.1): no program sees it.
judged 1 "./right {in} {out}" --cases 10 --op decode --fix "--seq-lens 40 --put block_table:0=7fffffff"
equal 10 "$(number passed_over)" "cases that are no launch"
explains "0 calls compared"

# ---- a program that stays ----
program stays <<EOF2
while IFS=\$'\\t' read -r a b; do
  "\$M" run "\$a" -o "\$b" --backend cpu --quiet && echo done || exit 9
done
touch ended
EOF2
judged 0 ./stays --serve --cases 40
explains "  exec: pass "
expect 0 test -e ended
program stumbles <<<'read -r a; echo unsupported; read -r a; echo what; read -r a; exit 5'
judged 1 ./stumbles --serve --cases 20 --failures 2 --shrink 0
explains "unsupported 1"
explains 'the program answered "what"'
explains "the program ended with status 5"
program stalls <<<'read -r a; sleep 1000'
judged 1 ./stalls --serve --cases 20 --hang 0.3 --shrink 0
equal hang "$(field kind)" "kind of a program that stalls"

# ---- no shell ----
odd="$work/a \"b\" 'c' \$(touch pwned) ; touch pwned &"
mkdir "$odd"
expect 0 env TMPDIR="$odd" "$m3idx" fuzz --exec "./right {in} {out}" --cases 5
expect 1 test -e pwned
expect 1 "$m3idx" fuzz --exec "./right {in} {out} ; touch pwned" --cases 2 --shrink 0 --save left --exec "./fails {in} {out} \$(touch pwned) ; touch pwned"
expect 1 test -e pwned
equal "" "$(ls -A "$odd")" "what is left in the temporary directory"

# ---- usage ----
judged 2 "./right {in}" --cases 5
says "--exec: no {out}"
judged 2 "./right {out}" --cases 5
says "--exec: no {in}"
judged 2 "" --cases 5
says "--exec : "
expect 2 "$m3idx" fuzz --cases 5 --judge f32
says "need --exec"
judged 2 "./right {in} {out}" --cases 5 --judge nosuch
says "--judge nosuch: must be exact"
judged 2 "./right {in} {out}" --cases 5 --flush
says "need --judge"
judged 2 "./right {in} {out}" --cases 5 --backends nosuch
says "--backends nosuch: "
expect 2 env TMPDIR=/nowhere "$m3idx" fuzz --exec "./right {in} {out}" --cases 5
says "cannot make a directory"
finish
