#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The HIP plugin loads into a plain C program on any machine, shows one symbol, needs libc alone, and either
# works or says in one sentence why it cannot.  plugin.sh HIP_OPEN M3IDX PLUGIN LLVM_BIN HIP-TOOLCHAIN...
# M3IDX is the command, or - where it is not built.
set -euo pipefail
program=$1 m3idx=$2 plugin=$3 bin=$4
shift 4
toolchain=("$@") # the command, with its environment
failed=0
fail() { printf 'FAIL: %s\n' "$*"; failed=1; }

symbols=$("$bin/llvm-nm" -D --defined-only --format=just-symbols "$plugin")
[ "$symbols" = m3idx_plugin_backend ] || fail "exported symbols: want m3idx_plugin_backend, got $symbols"
needed=$("$bin/llvm-readelf" -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | xargs)
[ "$needed" = libc.so.6 ] || fail "needed libraries: want libc.so.6, got $needed"

# open_says WAY COMMAND...: status and sentence, of which there is one
open_says() {
  local way=$1 said
  shift
  said=$(M3IDX_HIP_PLUGIN=$plugin "$@" "$program") || { fail "$way: the program died"; return; }
  printf '%s: %s\n' "$way" "$said"
  [ "$(wc -l <<<"$said")" = 1 ] || fail "$way: more than one line"
  case $said in
    "0 device 0 of "*)
      [ -e /dev/kfd ] || [ -e /dev/dxg ] || fail "$way: a device without a driver" ;;
    "3 hipGetDeviceCount: "?* | "3 device 0 is "*"; the plugin carries code for "*) ;;
    "3 this machine shows no AMD GPU (no /dev/kfd), and no HIP runtime loads: "?* | "3 no HIP runtime loads: "?*)
      [ "$way" = native ] || fail "$way: the toolchain's own runtime did not load" ;;
    *) fail "$way: not a sentence this test knows" ;;
  esac
}
open_says native env
open_says "toolchain's runtime" "${toolchain[@]}" --run
if [ -e /dev/kfd ] || [ -e /dev/dxg ]; then exit $failed; fi

# From here on: a machine without a device.
said=$(M3IDX_HIP_PLUGIN=$plugin "${toolchain[@]}" --run "$program")
[ "$said" = "3 hipGetDeviceCount: no ROCm-capable device is detected" ] || fail "without a device: $said"
[ "$m3idx" != - ] || exit $failed
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$m3idx" gen --op decode --seq-lens 200 --heads 1 --head-dim 64 --topk 16 -o "$dir/case.safetensors"
# The plugin lies where the command looks by itself, and the reason is its own.
for way in "" "${toolchain[*]} --run"; do
  status=0
  $way "$m3idx" run "$dir/case.safetensors" -o "$dir/out.safetensors" --backend hip 2>"$dir/said" || status=$?
  cat "$dir/said"
  [ $status = 3 ] || fail "m3idx run --backend hip: want exit 3, got $status"
  [ "$(wc -l <"$dir/said")" = 1 ] || fail "m3idx run --backend hip: want one line"
  grep -q -E 'hipGetDeviceCount: no ROCm-capable device|this machine shows no AMD GPU' "$dir/said" ||
    fail "does not say that there is no device"
  [ ! -e "$dir/out.safetensors" ] || fail "m3idx run --backend hip left an output"
done
exit $failed
