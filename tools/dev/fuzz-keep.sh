#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev fuzz-keep CASE [REASON]              put a case line or case file into the regression list, and run it
set -euo pipefail
. tools/dev/dev_lib.sh
(($# == 1 || $# == 2)) || die "usage: ./dev fuzz-keep CASE-LINE-OR-FILE [REASON]"
need "${BUILD_PACKAGES[@]}"
build release
list=tests/conform/regression.list
build/release/tools/m3idx fuzz --keep "$1" --list $list --why "${2:-Found by m3idx fuzz.}"
# It is kept whether or not it passes today; whether it does is worth a line.
exec build/release/tools/m3idx fuzz --isa all --case "$1"
