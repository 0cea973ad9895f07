#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Output files are whole or untouched, and nothing is left beside them.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"

case_line=(--op decode --seq-lens 20000 --head-dim 64)
expect 0 "$m3idx" gen "${case_line[@]}" -o case
mkdir out
cp case out/kept
before=$(sha256sum <out/kept)

# The disk is full, or as good as: no file may grow past 64 KiB.
# shellcheck disable=SC2317  # expect calls it
limited() { (trap '' XFSZ; ulimit -f 64; exec "$@"); }
expect 2 limited "$m3idx" gen "${case_line[@]}" --seed 1 -o out/kept
says "out/kept: cannot write: File too large"
expect 2 limited "$m3idx" run case -o out/kept --backend ref
says "out/kept: cannot write: File too large"
# The same where the system kills who writes too much, as it does by default.
# shellcheck disable=SC2317  # expect calls it
killed() { (ulimit -f 64; exec "$@"); }
expect 2 killed "$m3idx" gen "${case_line[@]}" --seed 1 -o out/kept
says "out/kept: cannot write: File too large"
# The input is bad, or the backend cannot.
expect 2 "$m3idx" gen "${case_line[@]}" --topk 0 -o out/kept
expect 2 "$m3idx" run /dev/null -o out/kept
head -c 1000 case >short
expect 2 "$m3idx" run short -o out/kept --backend ref
says "short: tensor "
expect 3 env M3IDX_HIP_PLUGIN=/nonexistent "$m3idx" run case -o out/kept --backend hip
equal "$before" "$(sha256sum <out/kept)" "the file that was there"
equal "out/kept" "$(echo out/*)" "files beside the output"

# Where nothing may be written.
expect 2 "$m3idx" gen "${case_line[@]}" -o out/no/such/file
says "out/no/such/file"
expect 2 "$m3idx" gen "${case_line[@]}" -o out
says "out: not a regular file"
expect 2 "$m3idx" gen "${case_line[@]}" -o /dev/null
says "/dev/null: not a regular file"
expect 0 test -c /dev/null

# A success replaces it, through a link too, and the same line makes the same bytes.
ln -s kept out/link
expect 0 "$m3idx" gen "${case_line[@]}" --seed 2 -o out/link
expect 0 test -L out/link
expect 0 "$m3idx" gen "${case_line[@]}" --seed=2 -o again
expect 0 cmp again out/kept
expect 0 "$m3idx" run out/kept -o out/kept --backend ref
expect 0 "$m3idx" digest out/kept
equal "out/kept out/link" "$(echo out/*)" "files beside the output"
equal "$(umask)" "$(printf '%04o' $((0666 & ~0$(stat -c %a out/kept))))" "mode of a new file, less umask"

# The case line in the file is its repro.
line=$(head -c 4096 out/kept | tr -d '\0' | grep -a -o -E '"case_line":"[^"]*"' | cut -d'"' -f4)
equal "--op decode --seq-lens 20000 --head-dim 64 --seed 2" "$line" "the case line"

# An interrupt at any moment: the old file or the new one, and nothing beside it.
expect 0 "$m3idx" gen "${case_line[@]}" --heads 16 --decode-query-len 64 --seed 3 -o whole
old=$(sha256sum <out/kept)
new=$(sha256sum <whole)
for delay in 0 0.01 0.02 0.03 0.04 0.05 0.07 0.1 0.2 0.4; do
  "$m3idx" gen "${case_line[@]}" --heads 16 --decode-query-len 64 --seed 3 -o out/kept &
  sleep $delay
  kill -TERM $! 2>/dev/null
  wait $! 2>/dev/null
  now=$(sha256sum <out/kept)
  checks=$((checks + 1))
  [[ $now == "$old" || $now == "$new" ]] || fail "interrupted after $delay s, the output is neither old nor new"
  equal "out/kept out/link" "$(echo out/*)" "files beside the output after an interrupt"
done

# Progress: on a terminal, past a second, unless quiet.
expect 0 "$m3idx" gen --op decode --seq-lens 8192x8 --heads 24 --k-dtype f32 -o slow
slow=("$m3idx" run slow -o slow_golden --backend ref --threads 1)
if script -q -e -c true /dev/null >/dev/null 2>&1; then
  expect 0 script -q -e -c "${slow[*]}" /dev/null
  explains "decode on backend ref, 1 s"
  expect 0 script -q -e -c "${slow[*]} --quiet" /dev/null
  equal "" "$out" "a terminal after a quiet run"
else
  echo "progress on a terminal is not tested: script(1) gets no terminal"
fi
expect 0 "${slow[@]}"
equal "" "$out$err" "output where there is no terminal"
finish
