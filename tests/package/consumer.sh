#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# consumer.sh CMAKE BUILD SOURCE CC CXX FLAGS GENERATOR: install BUILD into a fresh prefix and build a user's program
# against it in every way the README offers: find_package and pkg-config, shared and static, C, C++, and C++ alone.
set -euo pipefail
cmake=$1 build=$2 source=$3 cc=$4 cxx=$5 flags=$6 generator=$7
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/staged" >/dev/null
# The package must not remember where it was installed.
mv "$work/staged" "$work/prefix"
mkdir "$work/user"
cp "$source/consumer.cmake" "$work/user/CMakeLists.txt"
cp "$source/consumer.c" "$work/user/consumer.c"
cp "$source/consumer.c" "$work/user/consumer.cpp"

for languages in "C;CXX" CXX; do
  dir=$work/cmake-${languages/;/-}
  if ! {
    "$cmake" -G "$generator" -S "$work/user" -B "$dir" -DCMAKE_PREFIX_PATH="$work/prefix" -DLANGUAGES="$languages" \
      -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" &&
      "$cmake" --build "$dir"
  } >"$work/log" 2>&1; then
    tail -n 40 "$work/log"
    exit 1
  fi
done
count=0
for program in "$work"/cmake-*/use_*; do
  "$program"
  count=$((count + 1))
done
((count == 6)) || { echo "built $count programs by find_package, want 6"; exit 1; }

pc=$(find "$work/prefix" -name m3idx.pc)
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=${pc%/*}
# shellcheck disable=SC2046,SC2086  # flags are words
{
  "$cc" $flags -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$work/pc_c" "$source/consumer.c" \
    $(pkg-config --cflags --libs m3idx) -Wl,-rpath,"$libdir"
  "$cxx" $flags -std=c++11 -Wall -Wextra -Wpedantic -Werror -x c++ -o "$work/pc_cxx" "$source/consumer.c" -x none \
    $(pkg-config --cflags --libs m3idx) -Wl,-rpath,"$libdir"
  "$cc" $flags -std=c11 -o "$work/pc_static" "$source/consumer.c" $(pkg-config --cflags m3idx) \
    $(pkg-config --static --libs m3idx | sed 's/-lm3idx/-l:libm3idx.a/')
}
for program in pc_c pc_cxx pc_static; do
  "$work/$program"
done
echo "9 programs built and ran"
