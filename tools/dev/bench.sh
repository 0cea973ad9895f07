#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev bench [BENCH-ARGUMENT...]            measure the CPU path beside OpenBLAS, oneDNN and others; --filter picks shapes
set -euo pipefail
. tools/dev/dev_lib.sh
need "${BUILD_PACKAGES[@]}" g++ libopenblas-dev libdnnl-dev
build release
# torch takes part where python3 has it; otherwise its rows say why not.
exec build/release/tools/m3idx bench --peers --torch tools/peers/torch_peer.py "$@" </dev/null
