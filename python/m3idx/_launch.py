# SPDX-License-Identifier: Apache-2.0
"""What the operations of _ops.py share: rows, tables and outputs put into the structures of the C ABI."""

from __future__ import annotations

import ctypes
import math
import operator
from typing import Any

from . import _abi, _arrays
from ._errors import InvalidError


def int64(name: str, value: Any) -> int:
    """An integer that ctypes will not wrap round; the library judges its bounds."""
    value = int(operator.index(value))
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidError(f"{name} = {value} does not fit 64 bits")
    return value


def topk_of(topk: int) -> int:
    """K, judged before anything of its size is made."""
    topk = operator.index(topk)
    if not 1 <= topk <= 128:
        raise InvalidError(f"topk = {topk} is outside 1..128")
    return topk


def forced(init_blocks: int, local_blocks: int) -> dict[str, int]:
    """The two counts as fields."""
    return {"init_blocks": int64("init_blocks", init_blocks), "local_blocks": int64("local_blocks", local_blocks)}


class Rows:
    """An m3idx_batch with what keeps its arrays alive."""

    def __init__(
        self,
        num_rows: int,
        max_block: int,
        block_size: int,
        seq_lens: Any,
        cu_seqlens: Any,
        prefix_lens: Any,
        decode_query_len: int | None,
    ) -> None:
        if (cu_seqlens is None) != (prefix_lens is None):
            raise InvalidError("cu_seqlens and prefix_lens go together: both make a prefill, neither a decode")
        if cu_seqlens is not None and decode_query_len is not None:
            raise InvalidError("decode_query_len is for decode; cu_seqlens and prefix_lens make a prefill")
        seq = _arrays.integers("seq_lens", seq_lens)
        requests = self.requests = seq.shape[0]
        self.owners = [seq]
        self.struct = _abi.Batch(
            mode=_abi.DECODE if cu_seqlens is None else _abi.PREFILL,
            num_requests=requests,
            num_rows=num_rows,
            max_block=int64("max_block", max_block),
            block_size=int64("block_size", block_size),
            seq_lens=seq.address,
        )
        if cu_seqlens is None:
            self.struct.decode_query_len = int64(
                "decode_query_len", 1 if decode_query_len is None else decode_query_len
            )
        else:
            cu = _arrays.integers("cu_seqlens", cu_seqlens, length=requests + 1)
            prefix = _arrays.integers("prefix_lens", prefix_lens, length=requests)
            self.struct.cu_seqlens, self.struct.prefix_lens = cu.address, prefix.address
            self.owners += [cu, prefix]

    @property
    def pointer(self) -> Any:
        return ctypes.pointer(self.struct)


def contract_of(name: str) -> _abi.Contract:
    """A preset, or four free fields."""
    contract = _abi.Contract()
    if not isinstance(name, str) or _abi.LIB.m3idx_contract_by_name(name.encode(), ctypes.byref(contract)):
        raise InvalidError(
            f"contract = {name!r} is neither vllm, aiter, atom, sglang, flashinfer nor of the form "
            "tie=lower|higher,nan=-1e30|-inf|below|bits,zero=equal|signed,order=score|id"
        )
    return contract


def scale_of(scale: float) -> float:
    """As binary32.  0 would mean the default to the library, and what overflows or vanishes is no longer the caller's."""
    narrow = ctypes.c_float(scale).value
    if not (math.isfinite(narrow) and narrow > 0):
        raise InvalidError(f"scale = {scale!r} is not a finite binary32 number above 0")
    return narrow


def capacity(max_block: int | None, block_table: Any) -> int:
    """M: given, or the columns of the table."""
    if max_block is not None:
        if max_block < 0:
            raise InvalidError(f"max_block = {max_block} is below 0")
        return int64("max_block", max_block)
    return _arrays.view("block_table", block_table, rank=2).shape[1]


def queries(args: Any, q: Any, index_k: Any, q_dtype: str | None, k_dtype: str | None) -> Any:
    """Put both into args; the views keep what args points to."""
    args.q, q_view = _arrays.numeric("q", q, q_dtype)
    args.index_k, k_view = _arrays.numeric("index_k", index_k, k_dtype)
    return q_view, k_view


def pages(args: Any, block_table: Any, rows: Rows, name: str = "block_table") -> None:
    """Put a block table into args."""
    seen = _arrays.table(name, block_table, rows.requests, rows.struct.max_block)
    args.block_table = seen.address
    args.block_table_stride = seen.strides[0] if rows.requests > 1 else 0


def ids(args: Any, torch: Any, out: Any, heads: int, rows: int, topk: int) -> Any:
    """Room for topk_idx in args: the caller's or new."""
    if out is None:
        out = _arrays.new(torch, (heads, rows, topk), "int32")
    seen = _arrays.output("out", out, (heads, rows, topk), ("int32",))
    args.topk_idx = seen.address
    args.topk_stride_head, args.topk_stride_row = _arrays.row_strides("out", seen)
    return out


def sparse(
    args: _abi.SparseOut,
    torch: Any,
    rows: Rows,
    block_table: Any,
    page_stride: int,
    table: Any,
    lens: Any,
    lines: int,
    topk: int,
) -> tuple[Any, Any]:
    """Put the page-16 table and lengths, the caller's or new, into args."""
    width = 8 * topk
    pages(args, block_table, rows, "attention_block_table")
    args.page_stride = int64("page_stride", page_stride)
    if page_stride == 0:
        raise InvalidError("page_stride = 0 is neither 8 nor 16")
    table = _arrays.new(torch, (lines, width), "int32") if table is None else table
    lens = _arrays.new(torch, (lines,), "int32") if lens is None else lens
    seen = _arrays.output("sparse_block_table_out", table, (lines, width), ("int32",))
    _arrays.last_is_dense("sparse_block_table_out", seen)
    if lines > 1 and seen.strides[0] == 0:
        raise InvalidError("sparse_block_table_out repeats its rows (stride 0)")
    args.table, args.table_stride = seen.address, seen.strides[0] if lines > 1 else 0
    seen = _arrays.output("sparse_context_lens_out", lens, (lines,), ("int32",))
    _arrays.last_is_dense("sparse_context_lens_out", seen)
    args.context_lens = seen.address
    return table, lens
