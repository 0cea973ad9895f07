# shellcheck shell=bash disable=SC2034  # variables here are read by the scripts that source this
# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this directory: run a command, expect a status and words, count.  Sourced with the
# script's arguments: the m3idx binary and the source tree.  Works in a fresh directory, $work.
set -uo pipefail
m3idx=$1
tree=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
checks=0
failures=0

fail() {
  failures=$((failures + 1))
  printf 'FAIL: %s\n' "$*"
}

# expect STATUS COMMAND...: its exit status; stdout and stderr are left in $out and $err.
expect() {
  local want=$1 got
  shift
  checks=$((checks + 1))
  "$@" >stdout 2>stderr </dev/null
  got=$?
  out=$(cat stdout)
  err=$(cat stderr)
  ((got == want)) || fail "exit $got, want $want: $*"$'\n'"$out"$'\n'"$err"
}

# says TEXT, explains TEXT: the last command's standard error, or output, has these words.
says() {
  checks=$((checks + 1))
  [[ $err == *"$1"* ]] || fail "standard error wants '$1', has: $err"
}
explains() {
  checks=$((checks + 1))
  [[ $out == *"$1"* ]] || fail "standard output wants '$1', has: $out"
}

# equal WANT GOT WHAT
equal() {
  checks=$((checks + 1))
  [[ $1 == "$2" ]] || fail "$3: want '$1', got '$2'"
}

# place FILE TENSOR: the offset of the tensor's first byte in a canonical case file.
place() {
  local header_bytes begin
  header_bytes=$(od -An -tu8 --endian=little -N8 "$1" | tr -d ' ')
  begin=$(head -c $((8 + header_bytes)) "$1" | tail -c +9 |
    sed -n "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/p")
  echo $((8 + header_bytes + begin))
}

# poke FILE TENSOR INDEX HEX: overwrite the 4-byte element INDEX by a little-endian word.
poke() {
  local bytes="\\x${4:6:2}\\x${4:4:2}\\x${4:2:2}\\x${4:0:2}"
  # shellcheck disable=SC2059  # the bytes are the format
  printf "$bytes" | dd of="$1" bs=1 seek=$(($(place "$1" "$2") + 4 * $3)) conv=notrunc status=none
}
# peek FILE TENSOR INDEX: the same as eight hexadecimal digits.
peek() { od -An -tx4 --endian=little -j $(($(place "$1" "$2") + 4 * $3)) -N4 "$1" | tr -d ' '; }

finish() {
  printf '%d checks, %d failures\n' "$checks" "$failures"
  ((failures == 0 && checks > 0))
  exit
}
