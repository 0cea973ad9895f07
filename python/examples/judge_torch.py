#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judge a torch implementation of the indexer: run it on a case, put its outputs into a copy, ask m3idx.

    pip install torch safetensors m3idx
    python judge_torch.py [--m3idx PATH-OF-THE-COMMAND] [--arith f32] [CASE-LINE...]

implementation() below stands for your kernel: replace it.  The verdict is that of `m3idx judge`, or of `m3idx verify`
(byte for byte) where the command has no judge; so is the exit status.  A select or sparse-table case needs more outputs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

LINE = "--op decode --seq-lens 3000,700,4097 --decode-query-len 2 --heads 2 --head-dim 128 --topk 16 --local 1 --seed 7"
BLOCK = 128


def implementation(case: dict[str, torch.Tensor], meta: dict[str, str]) -> dict[str, torch.Tensor]:
    """Decode in plain torch: float32 matrix products, block maxima, torch.topk.  Not exact, and honest about it."""
    q, keys, table, lens = case["q"].float(), case["index_k"].float(), case["block_table"], case["seq_lens"].tolist()
    rows, heads = q.shape[:2]
    max_block, topk, length = int(meta["max_block"]), int(meta["topk"]), int(meta["decode_query_len"])
    score = torch.full((heads, rows, max_block), -torch.inf)
    ids = torch.full((heads, rows, topk), -1, dtype=torch.int32)
    for row in range(rows):
        request, position = row // length, lens[row // length] - length + row % length
        blocks = position // BLOCK + 1
        seen = keys[table[request, :blocks].long()].reshape(-1, keys.shape[2])
        dots = q[row] @ seen.T
        dots[:, position + 1 :] = -torch.inf
        score[:, row, :blocks] = dots.reshape(heads, blocks, BLOCK).amax(-1)
        score[:, row, blocks - int(meta["local_blocks"]) : blocks] = 1e29
        count = min(topk, blocks)
        # Stable, so that the lower block id wins among equal scores, as contract "vllm" has it.
        order = torch.sort(score[:, row, :blocks], dim=-1, descending=True, stable=True).indices
        ids[:, row, :count] = order[:, :count].int()
    return {"score": score, "topk_idx": ids}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m3idx", default="m3idx", help="the command (default: on the PATH)")
    parser.add_argument("--arith", default="f32", help="the arithmetic that the implementation declares to the judge")
    args, line = parser.parse_known_args()
    line = line or LINE.split()
    with tempfile.TemporaryDirectory() as name:
        case, golden, theirs = (Path(name) / f"{stem}.safetensors" for stem in ("case", "golden", "theirs"))
        subprocess.run([args.m3idx, "gen", *line, "-o", case], check=True)
        subprocess.run([args.m3idx, "run", case, "-o", golden, "--backend", "ref"], check=True)
        # A copy of the case, metadata included, with our outputs under the names of docs/CASES.md.
        tensors = load_file(case)
        with safe_open(case, framework="pt") as opened:
            meta = opened.metadata()
        save_file(tensors | implementation(tensors, meta), theirs, meta)
        verbs = subprocess.run([args.m3idx, "--help"], capture_output=True, text=True, check=True).stdout
        if any(row.split()[:1] == ["judge"] for row in verbs.splitlines()):
            command = [args.m3idx, "judge", golden, theirs, "--arith", args.arith]
        else:
            print("this m3idx has no judge: compared byte for byte")
            command = [args.m3idx, "verify", golden, theirs]
        sys.stdout.flush()
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
