#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzz a decode kernel written in torch, Triton or numpy with the m3idx command.

    m3idx fuzz --serve --exec "python3 fuzz_kernel.py" --judge f32 --op decode \\
        --fix "--contract vllm --sparse-table 0 --attention-table 0" --seconds 600

The command starts this program once and hands it case files; each answer is "done", or "unsupported" for cases that the
kernel does not know.  kernel_torch() and kernel_numpy() stand for yours: replace one.  Where torch is missing numpy
serves, and then queries and keys of f32 and f16 only.
"""

from __future__ import annotations

import sys

from safetensors import safe_open

try:
    import torch
except ImportError:
    torch = None
    import numpy


def rows_of(case, meta):
    """Row, its request, and how many keys it sees (docs/SEMANTICS.md, S2.3)."""
    length = int(meta["decode_query_len"])
    for request, total in enumerate(case["seq_lens"].tolist()):
        for i in range(length):
            yield request * length + i, request, max(0, total - length + i + 1)


def kernel_torch(case, meta):
    """Block scores and their selection.  For a GPU: move q, keys and table there, and launch your kernel here."""
    q, keys, table = case["q"].float(), case["index_k"].float(), case["block_table"].long()
    heads, block = q.shape[1], keys.shape[1]
    scores = torch.full((heads, q.shape[0], int(meta["max_block"])), -torch.inf)
    chosen = torch.full((heads, q.shape[0], int(meta["topk"])), -1, dtype=torch.int32)
    for row, request, seen in rows_of(case, meta):
        blocks = -(-seen // block)
        if not blocks:
            continue
        dots = torch.full((heads, blocks * block), torch.nan)
        dots[:, :seen] = q[row] @ keys[table[request, :blocks]].reshape(blocks * block, -1)[:seen].T
        dots = dots.reshape(heads, blocks, block)
        best = torch.where(dots.isnan(), -torch.inf, dots).amax(-1)  # S3.3: NaN loses to every number
        best = torch.where(dots.isnan().all(-1), torch.nan, best) * float(meta["scale"])
        best[:, : int(meta["init_blocks"])] = 1e30  # S3.7: local over init
        best[:, max(0, blocks - int(meta["local_blocks"])) :] = 1e29
        scores[:, row, :blocks] = best
        # S4.2, contract vllm: NaN ranks as -1e30; stable, so that the lower id wins among equals.
        order = torch.sort(best.nan_to_num(-1e30, torch.inf, -torch.inf), -1, descending=True, stable=True).indices
        count = min(blocks, chosen.shape[2])
        chosen[:, row, :count] = order[:, :count].int()
    return {"score": scores, "topk_idx": chosen}


def kernel_numpy(case, meta):
    """The same in numpy."""
    q, keys, table = case["q"].astype("f4"), case["index_k"].astype("f4"), case["block_table"]
    heads, block = q.shape[1], keys.shape[1]
    scores = numpy.full((heads, q.shape[0], int(meta["max_block"])), -numpy.inf, "f4")
    chosen = numpy.full((heads, q.shape[0], int(meta["topk"])), -1, "i4")
    for row, request, seen in rows_of(case, meta):
        blocks = -(-seen // block)
        if not blocks:
            continue
        dots = numpy.full((heads, blocks * block), numpy.nan, "f4")
        dots[:, :seen] = q[row] @ keys[table[request, :blocks]].reshape(blocks * block, -1)[:seen].T
        best = numpy.fmax.reduce(dots.reshape(heads, blocks, block), axis=-1) * numpy.float32(meta["scale"])
        best[:, : int(meta["init_blocks"])] = 1e30
        best[:, max(0, blocks - int(meta["local_blocks"])) :] = 1e29
        scores[:, row, :blocks] = best
        ranks = numpy.where(numpy.isnan(best), numpy.float32(-1e30), best)
        order = numpy.argsort(-ranks, axis=-1, kind="stable")
        count = min(blocks, chosen.shape[2])
        chosen[:, row, :count] = order[:, :count]
    return {"score": scores, "topk_idx": chosen}


def answer(path, out):
    with safe_open(path, "pt" if torch else "np") as opened:
        meta = opened.metadata()
        formats = {meta.get("q_encoding"), meta.get("index_k_encoding")}
        known = {"f32", "f16", "bf16", "e4m3fn", "e5m2"} if torch else {"f32", "f16"}
        if meta["op"] != "decode" or meta.get("contract", "vllm") != "vllm" or not formats <= known:
            return "unsupported"
        case = {name: opened.get_tensor(name) for name in ("q", "index_k", "block_table", "seq_lens")}
    if torch:
        from safetensors.torch import save_file

        save_file(kernel_torch(case, meta), out)
    else:
        from safetensors.numpy import save_file

        save_file(kernel_numpy(case, meta), out)
    return "done"


def main():
    if not torch:
        numpy.seterr(all="ignore")  # cases are full of infinities
    for line in sys.stdin:
        print(answer(*line.rstrip("\n").split("\t")), flush=True)


if __name__ == "__main__":
    main()
