#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# exports.sh LIBRARY SOURCE: the dynamic symbols of LIBRARY, those of exports.txt and those that m3idx.h declares.
set -euo pipefail
export LC_ALL=C
library=$1 source=$2
# Sanitizers and coverage add symbols of their own; they begin with two underscores.
exported=$(nm -D --defined-only --format=posix "$library" | cut -d' ' -f1 | grep -v '^__' | sort)
declared=$(tr '\n' ' ' <"$source/../../common/m3idx.h" | grep -o 'M3IDX_API [^;{]*(' | grep -o 'm3idx_[a-z0-9_]*(' |
  tr -d '(' | sort -u)
listed=$(grep -v '^#' "$source/exports.txt")
status=0
diff <(echo "$declared") <(echo "$listed") || { echo "exports.txt (>) differs from m3idx.h (<)"; status=1; }
diff <(echo "$exported") <(echo "$listed") || { echo "exports.txt (>) differs from the library (<)"; status=1; }
exit $status
