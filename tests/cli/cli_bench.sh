#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# m3idx bench on tiny shapes: every contender has a time or a reason, ours have a time, the JSON is JSON; bad usage.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"
export OMP_WAIT_POLICY=passive

# Every shape that --list names, from a build with and one without the command's libraries.
# shellcheck disable=SC2317  # called through expect
judge() {
  python3 - "$@" <<'PY'
import json, sys
shapes, text = sys.argv[1].split(), open(sys.argv[2], encoding="utf-8").read()
run = json.loads(text)
bad = [f"no results for {s}" for s in shapes if not any(r["shape"] == s for r in run["results"])]
for row in run["results"]:
    name = f"{row['shape']}: {row['contender']}"
    if "absent" in row:
        ours = row["contender"].split()[0] in ("score", "selected", "select", "filter")
        words = ("lacks", "the machine has") if ours else ("",)
        if not row["absent"] or not any(w in row["absent"] for w in words):
            bad.append(f"{name}: absent without a reason: '{row['absent']}'")
    elif not 0 < row["min_s"] <= row["median_s"] <= row["max_s"]:
        bad.append(f"{name}: {row}")
for bar in run["bars"]:
    if ("absent" in bar) == ("got" in bar) or not bar.get("got", 1) > 0:
        bad.append(f"bar {bar}")
if run["tiny"] is not True or not run["bars"] or len(shapes) < 10:
    bad.append("not the tiny run of all shapes")
print("\n".join(bad))
sys.exit(bool(bad))
PY
}

# shellcheck disable=SC2317  # called through expect
both_shapes() {
  python3 - "$@" <<'PY'
import json, sys
run = json.load(open(sys.argv[1], encoding="utf-8"))
assert {r["shape"] for r in run["results"]} == {"case", "case-normal"}, run
assert all(r["median_s"] > 0 if "median_s" in r else "lacks" in r["absent"] for r in run["results"]), run
PY
}

# The case in a file with a page number that is one too many.
# shellcheck disable=SC2317  # called through expect
beyond_pages() {
  python3 - "$@" <<'PY'
import json, struct, sys
raw = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack("<Q", raw[:8])[0]
first = json.loads(raw[8 : 8 + size])["block_table"]["data_offsets"][0]
raw[8 + size + first + 4 : 8 + size + first + 8] = struct.pack("<i", 32)
open(sys.argv[2], "wb").write(raw)
PY
}

# Other libraries keep what they keep until the end, and run code that a leak checker cannot walk.
peers=(env "ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0")

expect 0 "$m3idx" bench --list
shapes=$(awk '{ print $1 }' <<<"$out")
expect 0 "${peers[@]}" "$m3idx" bench --tiny --repeats 1 --peers --torch "$tree/tools/peers/torch_peer.py" --json
cp stdout judged
expect 0 judge "$shapes" judged
expect 0 "${peers[@]}" "$(dirname "$m3idx")/m3idx_bench" --tiny --repeats=3 --peers --json
cp stdout judged
expect 0 judge "$shapes" judged

# The data of a case, and normal data of its size; what cannot be timed is refused.
real=$tree/tests/data/smollm2-layer8-group1.safetensors
expect 0 "$m3idx" bench --case "$real" --tiny --repeats 1 --json
cp stdout judged
expect 0 both_shapes judged
expect 0 "$m3idx" gen --op decode --seq-lens 1000 -o decode
expect 2 "$m3idx" bench --case decode --tiny
says "decode: no prefill of one request"
expect 0 "$m3idx" gen --op prefill --q-lens 3 --prefix-lens 1000 --k-dtype f32 -o f32
expect 2 "$m3idx" bench --case f32 --tiny
says "f32: not bf16"
expect 0 "$m3idx" gen --op prefill --q-lens 3 --prefix-lens 500 -o short
expect 2 "$m3idx" bench --case short --tiny
says "short: not of blocks of 128"
expect 2 "$m3idx" bench --case nowhere
says "nowhere"
expect 0 beyond_pages "$real" beyond
expect 2 "$m3idx" bench --case beyond --tiny
says "beyond: block_table names a page"

# A peer that is not there is a reason, not a silence.
expect 0 "${peers[@]}" "$m3idx" bench --tiny --repeats 1 --peers --filter context-8 \
  --torch /nowhere/torch_peer.py --python /nowhere/python
explains "absent: /nowhere/python: "
# Without --peers there are none.
expect 0 "$m3idx" bench --tiny --repeats 1 --filter select-74
checks=$((checks + 1))
[[ $out != *partial_sort* ]] || fail "a peer that nobody asked for: $out"

expect 2 "$m3idx" bench --filter no-such-shape
says 'no-such-shape'
expect 2 "$m3idx" bench --repeats 0
says 'repeats'
expect 2 "$(dirname "$m3idx")/m3idx_bench" --repeats=100
says '1..99'
expect 2 "$(dirname "$m3idx")/m3idx_bench" --fast
says '--fast'
finish
