#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# selftest.sh PROGRAM: the harness is red on each lying backend, says why in the right words, gives a line that repeats
# the failure, and is green on ref with the same case and on the honest backends.
set -uo pipefail
program=$1
failed=0
lies=0

wrong() { printf 'selftest: %s\n%s\n' "$1" "$2"; failed=1; }

# lie NAME WORDS CASE: WORDS is an extended regular expression that the output must match.
lie() {
  local name=$1 words=$2 case=$3 output repeat
  lies=$((lies + 1))
  output=$("$program" --backend ref --case "$case" 2>&1) || wrong "$name: its case is red on ref" "$output"
  output=$("$program" --backend "lie:$name" --case "$case" 2>&1)
  [[ $? == 1 ]] || { wrong "$name: the harness is not red" "$output"; return; }
  [[ $output =~ $words ]] || wrong "$name: nothing says $words" "$output"
  repeat=$(sed -n 's/^  repeat: //p' <<<"$output" | head -n 1)
  output=$(eval "$repeat" 2>&1)
  [[ $? == 1 && $output =~ $words ]] || wrong "$name: this line does not repeat it: $repeat" "$output"
}

decode="--op decode --seq-lens 129,300 --heads 2 --head-dim 16 --topk 4 --max-block 4"
lie one_ulp       'block 1\]: want 0x[0-9a-f]{8} .* got 0x[0-9a-f]{8} .*, [+-]1 ulp' "$decode --seed 1"
lie zero_sign     'only the sign of zero differs' "--op decode --seq-lens 17,17,17,17 --head-dim 16 --block-size 16 --data ties"
lie unwritten     'all of them were never written' "$decode --seed 2"
lie no_minus_inf  'want 0xff800000 \(-inf\) got' "$decode --seed 2"
lie guard_byte    'guard after the buffer was written, byte 0' "$decode --seed 3"
lie row_padding   '4 bytes of row padding were written' "$decode --seed 3"
lie dropped_last  'every difference is in the last block that its row sees' "$decode --seed 4"
lie refusal_wrote 'refused \(.*: this head dim is not mine\) and wrote' "$decode --seed 4"
lie invalid       'status: want .* got .*: I do not like this' "$decode --seed 4"
lie wrote_input   'input q: byte 0 of [0-9]+ was written' "$decode --seed 5"
lie read_past_end 'input seq_lens: touched byte 8 of 8, past its end' "$decode --seed 5"
lie wrong_tie     'equal, so the tie rule decides' "--op select --num-blocks 40,70 --topk 4 --data ties --seed 6"
lie swapped       'the same blocks in another order' "--op select --num-blocks 40,70 --topk 4 --seed 7"
lie truncated_128 'no id above 127 was chosen anywhere, 12[89] should be' "--op select --num-blocks 130,129 --topk 128 --seed 8"
lie truncated_512 'no id above 5[01][0-9] was chosen anywhere, [56][0-9]* should be' "--op select --num-blocks 640 --topk 128 --seed 9"
lie stale_row     'every difference holds what the row before should' "--op select --num-blocks 60,60,60 --topk 8 --seed 10"
lie wrong_key     'keys: 1 of [0-9]+ elements differ' "--op select --num-blocks 60,60,60 --topk 8 --seed 11"
lie dropped_part  'merged_keys: [0-9]+ of [0-9]+ elements differ' "--op select --num-blocks 60,60,60 --topk 32 --seed 12"
lie fused_order   'the same blocks in another order' "--op decode --seq-lens 200 --head-dim 16 --block-size 16 --topk 4 --seed 13"
lie context_off   'row 0\]\[head 0\]: want [0-9]+ got [0-9]+, \+1' "$decode --seed 14"
lie head_major    'sparse_table: 1 of [0-9]+ elements differ' "$decode --seed 15"
lie wrapped_slot  'cache: 1 of [0-9]+ elements differ' "--op decode --seq-lens 9,9,9 --heads 2 --head-dim 16 --seed 16"
lie converts_all  'status: want valid, but .* got success' "--op decode --seq-lens 9 --head-dim 16 --q-dtype e5m2 --k-dtype f16"
lie dirty_counter 'device memory, launch 2' "$decode --seed 17"
lie past_workspace 'workspace: a guard byte was written' "$decode --seed 18"
lie wrote_device_input 'input q: byte 1 of [0-9]+ was written' "$decode --seed 19"

# The honest ones; honest:device runs in both kinds of memory.
output=$("$program" --backend honest:host --level regression --complete 2>&1) || wrong "honest:host is red" "$output"
output=$("$program" --backend honest:device --complete 2>&1) || wrong "honest:device is red" "$output"
# So is one whose bytes are right although it looked at memory nobody wrote; ./dev sanitize memory is red on it.
output=$("$program" --backend unset --case "$decode" 2>&1) || wrong "unset is red" "$output"

# A run that compares nothing is red.
output=$("$program" --backend ref --op topk --case "--op select --num-blocks 3" 2>&1)
[[ $? == 1 && $output == *"nothing was compared"* ]] || wrong "a run of zero calls is green" "$output"
# A line that cannot be read is red.
"$program" --backend ref --case "--op decode" >/dev/null 2>&1 && wrong "a malformed line is green" ""

listed=$(grep -c '{"lie:' "${0%/*}/liars.c")
((lies == listed)) || wrong "$lies lies are tried, liars.c has $listed" ""
echo "selftest: $lies lies, $([[ $failed == 0 ]] && echo PASS || echo FAIL)"
exit $failed
