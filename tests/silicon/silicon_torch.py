# SPDX-License-Identifier: Apache-2.0
"""What torch takes for the block maxima of bf16 dots: a matrix product and amax, 16k keys at a time.

silicon_torch.py ROWSxKEYS... prints "rows keys us", the median of 20 runs.  No mask, no paging, no exactness."""
import sys

import torch

CHUNK, DIM, BLOCK = 16384, 128, 128


def maxima(q, k, out):
    for begin in range(0, k.shape[0], CHUNK):
        dots = q @ k[begin:begin + CHUNK].T
        out[:, begin // BLOCK:(begin + CHUNK) // BLOCK] = dots.view(q.shape[0], -1, BLOCK).amax(-1)


for shape in sys.argv[1:]:
    rows, keys = map(int, shape.split("x"))
    torch.manual_seed(1)
    q = torch.randn(rows, DIM, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(keys, DIM, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(rows, keys // BLOCK, device="cuda", dtype=torch.bfloat16)
    times = []
    for i in range(25):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        maxima(q, k, out)
        end.record()
        torch.cuda.synchronize()
        if i >= 5:
            times.append(begin.elapsed_time(end) * 1e3)
    print(rows, keys, sorted(times)[len(times) // 2])
