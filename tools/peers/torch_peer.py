#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peer of the benchmark: block maxima of q @ k.T, and their top 16, with torch on the CPU.

Alone it prints medians as JSON.  With --serve it answers `m3idx bench --peers` on its standard input and output, so
that each repetition times both:
    make KIND ROWS BLOCKS THREADS   ->  ok SLOT VERSION | no REASON
    run SLOT                        ->  SECONDS
    drop SLOT                       ->  ok
KIND is bf16-max, bf16-topk or f32-max.  Products are made 16k tokens at a time, as large as pays.
"""
import argparse
import json
import statistics
import sys
import time

DIM, BLOCK, CHUNK, TOPK = 128, 128, 16384, 16
KINDS = ("bf16-max", "bf16-topk", "f32-max")


class Job:
    def __init__(self, torch, kind, rows, blocks, threads):
        self.torch, self.kind, self.threads = torch, kind, threads
        dtype = torch.float32 if kind.startswith("f32") else torch.bfloat16
        generator = torch.Generator().manual_seed(1)
        self.q = torch.randn(rows, DIM, generator=generator).to(dtype)
        self.k = torch.randn(blocks * BLOCK, DIM, generator=generator).to(dtype)

    def work(self):
        parts = []
        for first in range(0, self.k.shape[0], CHUNK):
            product = self.q @ self.k[first : first + CHUNK].T
            parts.append(product.view(product.shape[0], -1, BLOCK).amax(-1))
        score = self.torch.cat(parts, 1)
        return score.topk(min(TOPK, score.shape[1])) if self.kind.endswith("topk") else score

    def run(self):
        self.torch.set_num_threads(self.threads)
        start = time.perf_counter()
        with self.torch.inference_mode():
            self.work()
        return time.perf_counter() - start


def serve(torch):
    jobs = []
    for line in sys.stdin:
        words = line.split()
        if words[0] == "make":
            try:
                jobs.append(Job(torch, words[1], *map(int, words[2:5])))
                answer = f"ok {len(jobs) - 1} torch {torch.__version__}"
            except (RuntimeError, MemoryError) as error:
                answer = "no " + " ".join(str(error).split())
        elif words[0] == "drop":
            jobs[int(words[1])] = None
            answer = "ok"
        else:
            answer = repr(jobs[int(words[1])].run())
        print(answer, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help="answer m3idx bench")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--blocks", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=0, help="0 = torch's default")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"no {error}", flush=True)
        return 3
    if args.serve:
        serve(torch)
        return 0
    flops = 2 * args.rows * args.blocks * BLOCK * DIM
    for kind in KINDS:
        job = Job(torch, kind, args.rows, args.blocks, args.threads or torch.get_num_threads())
        job.run()
        median = statistics.median(job.run() for _ in range(args.repeats))
        print(json.dumps({"kind": kind, "rows": args.rows, "blocks": args.blocks, "threads": job.threads,
                          "torch": torch.__version__, "seconds": median, "gflops": flops / median * 1e-9}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
