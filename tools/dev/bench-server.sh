#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev bench-server [BENCH-ARGUMENT...]     the same on a server: installs nothing, times torch in turn, prints every bar
set -euo pipefail
dir=build/bench
mkdir -p $dir
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
{
  cmake -S . -B $dir "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DM3IDX_TOOLS=OFF -DBUILD_TESTING=OFF -DM3IDX_HIP=OFF
  cmake --build $dir -j "$(getconf _NPROCESSORS_ONLN)" --target m3idx_bench
} >$dir/build.log 2>&1 </dev/null || { cat $dir/build.log >&2; exit 3; }
lscpu 2>/dev/null | grep -E '^(Model name|CPU\(s\)|Thread|Core|Socket|NUMA node\(s\)|L[123])' || true
$dir/tools/m3idx_bench --peers --torch=tools/peers/torch_peer.py --json "$@" </dev/null >$dir/server.json
exec python3 tools/peers/bench_view.py $dir/server.json
