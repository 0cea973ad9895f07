#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# m3idx fuzz as a person runs it: shards and their merge, single cases, the list, instruction sets, bad usage.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../cli/cli_lib.sh"
fuzz() { expect "$1" "$m3idx" fuzz "${@:2}"; }

# integers KEY: everything below "counts" and "calls", as one line.
counts() { sed -n '/^  "counts"/,/^  "failures"/p' "$1" | tr -d ' \n'; }

# ---- shards are disjoint and complete: their sum is what one process does alone, in whatever order ----
fuzz 0 --cases 240 --seed 5 --report all.json
for i in 0 1 2; do fuzz 0 --cases 240 --seed 5 --shard $i/3 --report s$i.json; done
for i in 0 1 2; do equal '"cases": 80,' "$(grep -o '"cases": [0-9]*,' s$i.json)" "cases of shard $i"; done
fuzz 0 --merge s2.json s0.json s1.json -o sum.json --complete
equal "$(counts all.json)" "$(counts sum.json)" "sum of the shards"
equal '"cases": 240,' "$(grep -o '"cases": [0-9]*,' sum.json)" "cases of the sum"
explains "3 of 3 shards, 240 cases"
fuzz 0 --merge s2.json s0.json -o part.json
explains "2 of 3 shards, 160 cases"
fuzz 0 --merge part.json s1.json -o again.json --complete
equal "$(counts sum.json)" "$(counts again.json)" "sum of sums"
fuzz 2 --merge s2.json s0.json --complete
says "--complete: shards are missing"

# ---- reports that do not belong together, or are none ----
fuzz 2 --merge s0.json s1.json s0.json
says "s0.json: shard 0: is in another report too"
fuzz 0 --cases 24 --seed 6 --shard 1/3 --report other.json
fuzz 2 --merge s0.json other.json
says "other.json: seed: not that of s0.json"
fuzz 0 --cases 24 --seed 5 --shard 1/4 --report other.json
fuzz 2 --merge s0.json other.json
says "other.json: shards: not that of s0.json"
fuzz 0 --cases 24 --seed 5 --shard 1/3 --op select --report other.json
fuzz 2 --merge s0.json other.json
says "other.json: ops: not that of s0.json"
sed 's/"grammar": 7/"grammar": 0/' s1.json >other.json
fuzz 2 --merge s0.json other.json
says "other.json: grammar: not that of s0.json"
sed 's/"format": "m3idx-fuzz/"format": "fuzz/' s1.json >other.json
fuzz 2 --merge s0.json other.json
says "other.json: format: must be m3idx-fuzz/1"
sed '/"cases":/d' s1.json >other.json
fuzz 2 --merge s0.json other.json
says "other.json: cases: missing"
sed 's/"shard": \[/"shard": [ 7,/' s1.json >other.json
fuzz 2 --merge s0.json other.json
says "other.json: shard: not one of 0..2"
echo '{' >other.json
fuzz 2 --merge s0.json other.json
says "other.json: "
fuzz 2 --merge s0.json nowhere.json
says "nowhere.json: "
fuzz 2 --merge
says "--merge: no report given"

# ---- the same stream again, and only what was asked for ----
fuzz 0 --cases 240 --seed 5 --report twice.json
equal "$(counts all.json)" "$(counts twice.json)" "the same seed twice"
fuzz 0 --cases 60 --op select --report select.json
equal '"op":{"prefill":0,"decode":0,"select":60},' "$(sed -n '/"op": {/,/}/p' select.json | tr -d ' \n')" "only select"
fuzz 0 --seconds 0.5
explains "0 failures: PASS"

# ---- instruction sets ----
fuzz 0 --cases 60 --isa scalar
explains "  cpu:scalar: pass"
fuzz 0 --cases 60 --isa all
explains "  cpu:scalar: pass"
expect 0 env M3IDX_ISA=scalar "$m3idx" fuzz --cases 30
explains "  cpu:scalar: pass"
fuzz 2 --cases 60 --isa nosuch
says "backend cpu:nosuch: this program has no such backend"
missing=neon
[[ $(uname -m) == x86_64 || $(uname -m) == i?86 ]] || missing=amx
fuzz 3 --cases 60 --isa scalar,$missing
says "cpu:$missing: "
fuzz 0 --cases 30 --backends cpu,ref
explains "  ref: pass"
fuzz 0 --cases 30 --threads 3

# ---- one case ----
fuzz 0 --case "--op decode --seq-lens 40 --head-dim 16"
explains "PASS"
expect 0 "$m3idx" gen --op select --num-blocks 30,4 --data near -o case.safetensors
fuzz 0 --case case.safetensors
fuzz 2 --case "--op decode"
says "--seq-lens: missing"
fuzz 2 --case nowhere.safetensors
says "nowhere.safetensors"
# Refused by the truth: all must refuse, which is agreement.
fuzz 0 --case "--op decode --seq-lens 40 --head-dim 16 --put block_table:0=7"
explains "1 calls compared: PASS"

# ---- the regression list ----
printf '# SPDX-License-Identifier: Apache-2.0\n# Lines.\n' >list
fuzz 0 --keep "--seed 4 --op select --num-blocks 9,9" --list list --why "Two rows of nine."
explains "--op select --num-blocks 9x2 --seed 4"
equal '# Two rows of nine. --op select --num-blocks 9x2 --seed 4' "$(tail -n 2 list | tr '\n' ' ' | sed 's/ $//')" "what was kept"
fuzz 0 --keep "--op select --num-blocks 9x2 --seed 4" --list list
explains "already kept"
equal 5 "$(wc -l <list)" "lines of the list"
fuzz 0 --keep case.safetensors --list list
explains "--op select --num-blocks 30,4 --data near"
fuzz 2 --keep "--op decode" --list list
says "--seq-lens: missing"
fuzz 2 --keep case.safetensors
says "--keep: needs --list"
fuzz 2 --keep case.safetensors --list no/list
says "no/list: cannot read"

# ---- usage ----
fuzz 2
says "--seconds or --cases: how long?"
fuzz 2 --cases 5 extra
says "extra: one argument too many"
for shard in 3/3 1 a/2 1/0 -1/2 1/2x /2; do
  fuzz 2 --cases 5 --shard $shard
  says "--shard $shard: must be I/N"
done
for seed in x -1 1x; do
  fuzz 2 --cases 5 --seed $seed
  says "--seed $seed: must be a number"
done
fuzz 2 --cases 5 --op decode,score
says "--op decode,score: must be of prefill, decode and select"
fuzz 2 --cases 5 --backends ref
says "--backends ref: 1 to compare, at least 2 are needed"
fuzz 2 --cases 5 --backends ref,frobnicate
says "backend frobnicate: this program has no such backend"
fuzz 2 --seconds -1
says "--seconds -1: must be"
fuzz 2 --seconds 1 --failures 0
says "--failures 0: must be 1..100"
expect 3 env M3IDX_HIP_PLUGIN=/dev/null "$m3idx" fuzz --cases 5 --backends ref,hip
says "hip: "
expect 0 test -z "$(find . -name '*.tmp-*')"
(umask 027 && "$m3idx" fuzz --cases 5 --report mode.json >/dev/null)
equal 640 "$(stat -c %a mode.json)" "mode of a report"
fuzz 2 --cases 5 --report no/such/dir.json
says "no/such/dir.json: cannot write"

# A campaign of no cases is not green.
fuzz 1 --cases 0 --seconds 0.000001 --shard 999999/1000000 --failures 1 --backends ref,ref
explains "0 calls compared, 0 failures: FAIL"

# An interrupt ends the campaign, not the report.
"$m3idx" fuzz --seconds 60 --report cut.json >/dev/null 2>&1 &
sleep 1.5
kill -TERM $!
wait $!
equal 0 $? "status after an interrupt"
expect 0 grep -q '"format": "m3idx-fuzz/1"' cut.json
finish
