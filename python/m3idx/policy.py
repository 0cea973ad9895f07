# SPDX-License-Identifier: Apache-2.0
"""Launch policies (SEMANTICS S8): pure integers from shape constants and capacity.  They decide speed, no result.

arch is "gfx942", "gfx950" or anything else.  Arguments out of bounds raise InvalidError.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from . import _abi
from ._errors import InvalidError

__all__ = [
    "DecodeScoreGeometry",
    "DecodeTopkGeometry",
    "PrefillScoreGeometry",
    "decode_score_budget",
    "decode_score_split",
    "decode_topk",
    "prefill_score",
]


class DecodeTopkGeometry(NamedTuple):
    chunks: int
    block: int
    warps: int
    stages: int
    single_tile: bool
    adaptive_merge: bool


class DecodeScoreGeometry(NamedTuple):
    chunks: int
    high_batch: bool


class PrefillScoreGeometry(NamedTuple):
    block_q: int
    splits: int


_INT64 = 1 << 63


def _call(function: str, names: str, values: tuple[int, ...], tail: tuple[Any, ...]) -> None:
    for name, value in zip(names.split(), values):
        # ctypes would take such a value modulo 2^64.
        if not -_INT64 <= value < _INT64:
            raise InvalidError(f"{name} = {value} is outside 0..2147483647")
    if getattr(_abi.LIB, "m3idx_" + function)(*values, *tail):
        given = ", ".join(f"{name} = {value}" for name, value in zip(names.split(), values))
        raise InvalidError(f"{function}: {given}: a value is outside its bounds (0..2147483647)")


def _arch(arch: str) -> int:
    return int(_abi.LIB.m3idx_arch_by_name(arch.encode()))


def _dtype(name: str) -> int:
    code = ctypes.c_int()
    if _abi.LIB.m3idx_dtype_by_name(name.encode(), ctypes.byref(code)):
        raise InvalidError(f"dtype = {name!r} is none of f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz")
    return code.value


def decode_topk(max_block: int, rows: int, heads: int, topk: int, arch: str) -> DecodeTopkGeometry:
    """Geometry of the decode selector (S8.1)."""
    g = _abi.DecodeTopkGeometry()
    _call(
        "decode_topk_policy",
        "max_block rows heads topk",
        (max_block, rows, heads, topk),
        (_arch(arch), ctypes.byref(g)),
    )
    return DecodeTopkGeometry(g.chunks, g.block, g.warps, g.stages, bool(g.single_tile), bool(g.adaptive_merge))


def decode_score_budget(reqs: int, head_dim: int, q_dtype: str, k_dtype: str, arch: str) -> int | None:
    """Programs of the balanced decode map (S8.3), or None where there is no budget and the split applies."""
    budget = ctypes.c_int64()
    tail = (_dtype(q_dtype), _dtype(k_dtype), _arch(arch), ctypes.byref(budget))
    _call("decode_score_budget", "reqs head_dim", (reqs, head_dim), tail)
    return budget.value or None


def decode_score_split(reqs: int, head_dim: int, q_dtype: str, k_dtype: str, arch: str) -> DecodeScoreGeometry:
    """Chunks of the decode scorer (S8.4)."""
    g = _abi.DecodeScoreGeometry()
    tail = (_dtype(q_dtype), _dtype(k_dtype), _arch(arch), ctypes.byref(g))
    _call("decode_score_split", "reqs head_dim", (reqs, head_dim), tail)
    return DecodeScoreGeometry(g.chunks, bool(g.high_batch))


def prefill_score(
    max_query_len: int, max_seq_len: int, reqs: int, heads: int, compute_units: int, arch: str
) -> PrefillScoreGeometry:
    """Geometry of the prefill scorer (S8.5)."""
    g = _abi.PrefillScoreGeometry()
    names = "max_query_len max_seq_len reqs heads compute_units"
    values = (max_query_len, max_seq_len, reqs, heads, compute_units)
    _call("prefill_score_policy", names, values, (_arch(arch), ctypes.byref(g)))
    return PrefillScoreGeometry(g.block_q, g.splits)
