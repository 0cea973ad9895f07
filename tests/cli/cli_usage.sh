#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Help, version, info, and bad usage of every verb: statuses, and words that name the argument.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"

for verb in gen run verify judge fuzz digest policy bench info; do
  expect 0 "$m3idx" --help
  explains "  $verb "
  expect 0 "$m3idx" $verb --help
  explains "Usage: m3idx $verb"
  equal "" "$err" "$verb --help on standard error"
  expect 2 "$m3idx" $verb --no-such-option
  says "m3idx $verb: --no-such-option:"
  [[ $verb == info || $verb == bench ]] || expect 2 "$m3idx" $verb
  expect 0 grep -q -x "\.SS $verb" "$tree/tools/m3idx.1"
  expect 0 "$m3idx" $verb --help
  # Every long option of the help stands in the man page.
  while read -r option; do
    [[ $verb == policy && $option != --json ]] && continue
    [[ $option == --help ]] && continue
    expect 0 grep -q -F -e "${option//-/\\-}" "$tree/tools/m3idx.1"
  done < <(grep -o -E -e '^ .*--[a-z-]+' <<<"$out" | grep -o -E -e '--[a-z-]+' | sort -u)
done
expect 2 "$m3idx"
says "which verb?"
expect 2 "$m3idx" frobnicate
says "frobnicate: no such verb"
expect 0 "$m3idx" --version
explains "m3idx "

expect 0 "$m3idx" info
explains "backend ref: "
expect 0 "$m3idx" info --json
explains '"name": "ref"'
explains '"works": true'
expect 2 "$m3idx" info extra
says "extra: one argument too many"
expect 2 sh -c "'$m3idx' info >/dev/full"
says "cannot write to standard output"

# gen: errors of the case line come with the verb's name and write nothing.
expect 2 "$m3idx" gen --op decode --seq-lens 9
says "m3idx gen: -o: missing"
expect 2 "$m3idx" gen --op decode --seq-lens 9 --heads 0 -o no
says "m3idx gen: --heads 0: must be 1..4096"
expect 2 "$m3idx" gen --op decode --seq-lens 9 --heads 1 --heads 2 -o no
says "--heads: given twice"
expect 2 "$m3idx" gen --op decode --seq-lens 9 -o no extra
says "extra: one argument too many"
expect 2 "$m3idx" gen --op decode --seq-lens 9 --seed -1 -o no
says "--seed -1: must be 0.."
expect 3 "$m3idx" gen --op select --num-blocks 134217727x4096 --heads 4096 -o no
says "tensor score: no memory"
expect 1 test -e no

# run
expect 0 "$m3idx" gen --op decode --seq-lens 300 --head-dim 16 --topk 2 -o case
expect 2 "$m3idx" run case
says "m3idx run: -o: missing"
expect 2 "$m3idx" run -o no
says "0 of 1 file given"
expect 2 "$m3idx" run absent -o no
says "absent: No such file"
expect 2 "$m3idx" run case -o no --threads -1
says "--threads -1: must be 0..4096"
expect 2 "$m3idx" run case -o no --threads two
says "--threads two: must be 0..4096"
expect 2 "$m3idx" run case -o no --device -1
says "--device -1: must be 0.."
expect 2 "$m3idx" run case -o no --backend gpu
says "--backend gpu: "
expect 3 env M3IDX_HIP_PLUGIN=/nonexistent "$m3idx" run case -o no --backend hip
says "--backend hip: "
expect 1 test -e no
expect 0 env M3IDX_HIP_PLUGIN=/nonexistent "$m3idx" run case -o golden --backend auto
says "m3idx run: auto took "
says "passed over hip: "
# The choice is no progress: quiet or not, auto never chooses in silence.
expect 0 env M3IDX_HIP_PLUGIN=/nonexistent "$m3idx" run case -o golden --quiet
says "m3idx run: auto took "
expect 0 "$m3idx" run case -o golden --backend ref --quiet
equal "" "$out$err" "output of a quiet run"
cp case malformed
poke malformed seq_lens 0 ffffffff
expect 2 "$m3idx" run malformed -o no --backend ref
says "seq_lens"
expect 1 test -e no

# digest
expect 2 "$m3idx" digest case
says "case: has no outputs"
expect 2 "$m3idx" digest /dev/null
says "/dev/null: not a regular file"
expect 0 "$m3idx" digest golden
equal "score topk_idx" "$(awk '{ print $2 }' <<<"$out" | xargs)" "digested tensors"
# The definition: SHA-256 of the tensor's bytes as the file holds them.
tail -c +$(($(place golden topk_idx) + 1)) golden | head -c 8 >bytes
equal "$(sha256sum <bytes | cut -d' ' -f1)  topk_idx" "$(grep topk_idx <<<"$out")" "digest of topk_idx"
finish
