# SPDX-License-Identifier: Apache-2.0
"""The operations on numpy arrays and torch CPU tensors.  What they compute is docs/SEMANTICS.md of the project.

Symbols in the docstrings: R requests, T query rows, H index heads, D head dim, P pages of the index-key cache, B tokens
in a block (and page), M = max_block, the capacity of a launch in blocks, N the blocks that a row sees, K = topk.

Common arguments
    num_threads   CPU threads; None: see set_num_threads().  Results do not depend on it.
    backend       "auto" (hip where a device works, else cpu), "cpu", "ref" or "hip".  Results do not depend on it.
    q_dtype, k_dtype    names of the formats when q or index_k are raw integers: "bf16" in uint16, "e4m3fnuz" in uint8

Arrays may have any strides where the docstring does not say dense; nothing is copied but small integer vectors.  They
must not change during a call.  Outputs that are not given are new arrays of the kind (numpy or torch) of the first input.
On error no output byte has changed (SEMANTICS S7.2).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _abi, _arrays, _context, _launch
from ._errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy
    import torch

    Array = Union[numpy.ndarray, torch.Tensor]
    Integers = Union[numpy.ndarray, torch.Tensor, Sequence[int]]


BLOCK_SIZE = 128


class SparseTopK(NamedTuple):
    """Selected blocks with the page-16 table that attention reads (SEMANTICS S5)."""

    topk_idx: Any
    """int32 [H][T][K], block ids, unused slots -1."""
    sparse_block_table: Any
    """int32 [T*H][8K], row t*H + h: attention pages, unused entries 0."""
    sparse_context_lens: Any
    """int32 [T*H], tokens that the row of the table covers."""


def index_score(
    q: Array,
    index_k: Array,
    block_table: Array,
    seq_lens: Integers,
    *,
    cu_seqlens: Integers | None = None,
    prefix_lens: Integers | None = None,
    decode_query_len: int | None = None,
    max_block: int | None = None,
    scale: float = 1.0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    q_dtype: str | None = None,
    k_dtype: str | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Array:
    """Score every visible block of every row: the largest exact dot product, rounded once to float32 (S3).

    A prefill if cu_seqlens and prefix_lens are given, else a decode.

    Args:
        q: [T][H][D] index queries, float32, float16, bfloat16 or an 8-bit float.  D is a multiple of 16, 16..256.
        index_k: [P][B][D] paged index keys, of any of these formats.  B is 16, 32, 64 or 128.
        block_table: int32 [>= R][>= M], rows dense; page of each logical block.  Dead entries are not read.
        seq_lens: int32 [R], keys of each request with this step's; 0 = padded request.
        cu_seqlens: int32 [R+1], first row of each request (prefill).
        prefix_lens: int32 [R], keys before the first row of this chunk (prefill).
        decode_query_len: rows of each request (decode, default 1): T = R * decode_query_len.
        max_block: M; default the columns of block_table.
        scale: factor on the rounded score, one more rounding; forced values are not scaled.
        init_blocks, local_blocks: decode only: first blocks that score 1e30 and last that score 1e29.
        out: float32 [H][T][M] to write; the last dimension dense.

    Returns:
        float32 [H][T][M]; columns at or past a row's N hold -inf.

    Raises:
        InvalidError, TypeError, UnsupportedError, UnavailableError, OutOfMemoryError.
    """
    torch = _arrays.torch_of(q)
    args = _abi.ScoreArgs(scale=_launch.scale_of(scale), **_launch.forced(init_blocks, local_blocks))
    q_view, k_view = _launch.queries(args, q, index_k, q_dtype, k_dtype)
    rows = _launch.Rows(
        q_view.shape[0],
        _launch.capacity(max_block, block_table),
        k_view.shape[1],
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
    )
    args.batch = rows.pointer
    _launch.pages(args, block_table, rows)
    shape = (q_view.shape[1], q_view.shape[0], rows.struct.max_block)
    if out is None:
        out = _arrays.new(torch, shape, "float32")
    seen = _arrays.output("out", out, shape, ("float32",))
    args.score = seen.address
    args.score_stride_head, args.score_stride_row = _arrays.row_strides("out", seen)
    context = _context.get(backend, num_threads, _arrays.torch_of(q, index_k, block_table))
    context.call("score", args)
    return out


def _selection(
    score: Any,
    num_blocks: Any,
    seq_lens: Any,
    cu_seqlens: Any,
    prefix_lens: Any,
    decode_query_len: int | None,
    block_size: int,
    first_block: int,
    topk: int,
    init_blocks: int,
    local_blocks: int,
    contract: str,
) -> tuple[_abi.SelectArgs, list[Any]]:
    """The inputs of a selection, and what must outlive the call."""
    seen = _arrays.view("score", score, rank=3)
    if seen.dtype != "float32":
        raise TypeError(f"score has elements {seen.dtype}; float32 is needed")
    heads, num_rows, max_block = seen.shape
    args = _abi.SelectArgs(
        num_heads=heads,
        num_rows=num_rows,
        max_block=max_block,
        score=seen.address,
        **_launch.forced(init_blocks, local_blocks),
        topk=_launch.topk_of(topk),
        contract=_launch.contract_of(contract),
        first_block=_launch.int64("first_block", first_block),
    )
    args.score_stride_head, args.score_stride_row = _arrays.row_strides("score", seen)
    if (num_blocks is None) == (seq_lens is None):
        raise InvalidError("exactly one of num_blocks and seq_lens is needed")
    if num_blocks is not None:
        if cu_seqlens is not None or prefix_lens is not None or decode_query_len is not None:
            raise InvalidError("cu_seqlens, prefix_lens and decode_query_len go with seq_lens, not with num_blocks")
        blocks = _arrays.integers("num_blocks", num_blocks, length=num_rows)
        args.num_blocks = blocks.address
        return args, [seen, blocks]
    rows = _launch.Rows(num_rows, max_block, block_size, seq_lens, cu_seqlens, prefix_lens, decode_query_len)
    args.batch = rows.pointer
    return args, [seen, rows]


def index_topk(
    score: Array,
    topk: int,
    *,
    num_blocks: Integers | None = None,
    seq_lens: Integers | None = None,
    cu_seqlens: Integers | None = None,
    prefix_lens: Integers | None = None,
    decode_query_len: int | None = None,
    block_size: int = BLOCK_SIZE,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    out: Array | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Array:
    """Select the K best blocks of each row and head of any float32 array (S4).

    What a row sees comes from num_blocks, or from seq_lens with either cu_seqlens and prefix_lens (prefill) or
    decode_query_len (decode, default 1).

    Args:
        score: float32 [H][T][M], the last dimension dense; columns at or past N are not read.  Need not be index_score's.
        topk: K, 1..128.
        num_blocks: int32 [T], N of each row.
        block_size: B, where seq_lens is given.
        init_blocks, local_blocks: first blocks that count as 1e30 and last that count as 1e29.
        contract: "vllm", "aiter", "atom", "sglang", "flashinfer" or four free fields (S4.2).
        out: int32 [H][T][K] to write; the last dimension dense.

    Returns:
        int32 [H][T][K], unique block ids; slots past min(K, N) hold -1.

    Raises:
        InvalidError (a live N above M among others), TypeError, UnavailableError, OutOfMemoryError.
    """
    args, _owners = _selection(
        score,
        num_blocks,
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
        block_size,
        0,
        topk,
        init_blocks,
        local_blocks,
        contract,
    )
    torch = _arrays.torch_of(score)
    out = _launch.ids(args, torch, out, args.num_heads, args.num_rows, topk)
    _context.get(backend, num_threads, torch).call("select", args)
    return out


def index_topk_keys(
    score: Array,
    topk: int,
    *,
    num_blocks: Integers,
    first_block: int = 0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    num_threads: int | None = None,
    backend: str = "auto",
) -> Array:
    """Select from a part of the blocks: sortable keys that merge() puts together (S4.3 to S4.5).

    Args:
        score: float32 [H][T][columns], scores of the blocks first_block .. first_block + columns - 1.
        topk: K, 1..128.
        num_blocks: int32 [T], N of each whole row, not of the part.
        first_block: id of column 0.
        init_blocks, local_blocks: as in index_topk(), by whole rows.
        contract: as in index_topk().

    Returns:
        [H][T][K] keys, descending, unused slots 0: uint64 with numpy, their patterns as int64 with torch.

    Raises:
        As index_topk().
    """
    args, _owners = _selection(
        score, num_blocks, None, None, None, None, BLOCK_SIZE, first_block, topk, init_blocks, local_blocks, contract
    )
    torch = _arrays.torch_of(score)
    keys: Array = _arrays.new(torch, (args.num_heads, args.num_rows, topk), "uint64")
    args.keys = _arrays.view("keys", keys, rank=3).address
    _context.get(backend, num_threads, torch).call("select", args)
    return keys


def merge(
    keys: Array,
    *,
    contract: str = "vllm",
    out: Array | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Array:
    """The K best blocks from the keys of disjoint parts (S4.5).

    Args:
        keys: uint64 or int64 [parts][H][T][K] as index_topk_keys() makes them, each part dense; 0 = empty.
        contract: that of the parts.
        out: int32 [H][T][K] to write; the last dimension dense.

    Returns:
        int32 [H][T][K] as of index_topk() on the whole.

    Raises:
        InvalidError (a key that holds no id among others), TypeError, UnavailableError, OutOfMemoryError.
    """
    seen = _arrays.view("keys", keys, rank=4)
    if seen.dtype not in ("uint64", "int64"):
        raise TypeError(f"keys has elements {seen.dtype}; uint64 or int64 is needed")
    parts, heads, num_rows, topk = seen.shape
    dense = 1
    for size, stride in zip(reversed(seen.shape[1:]), reversed(seen.strides[1:])):
        if size > 1 and stride != dense:
            raise InvalidError(f"keys has strides {seen.strides}; each part must be dense")
        dense *= size
    if parts > 1 and seen.strides[0] == 0:
        raise InvalidError("keys repeats its parts (stride 0); parts hold disjoint blocks")
    args = _abi.MergeArgs(
        num_parts=parts,
        num_heads=heads,
        num_rows=num_rows,
        topk=_launch.topk_of(topk),
        contract=_launch.contract_of(contract),
        keys=seen.address,
        keys_stride_part=seen.strides[0] if parts > 1 else 0,
    )
    torch = _arrays.torch_of(keys)
    out = _launch.ids(args, torch, out, heads, num_rows, topk)
    _context.get(backend, num_threads, torch).call("merge", args)
    return out


def _fused(
    q: Any,
    index_k: Any,
    block_table: Any,
    seq_lens: Any,
    cu_seqlens: Any,
    prefix_lens: Any,
    decode_query_len: int | None,
    topk: int,
    max_block: int | None,
    scale: float,
    init_blocks: int,
    local_blocks: int,
    contract: str,
    sparse_table: bool,
    attention_block_table: Any,
    page_stride: int,
    q_dtype: str | None,
    k_dtype: str | None,
    out: Any,
    table_out: Any,
    lens_out: Any,
    num_threads: int | None,
    backend: str,
) -> Array | SparseTopK:
    torch = _arrays.torch_of(q)
    args = _abi.TopkArgs(
        scale=_launch.scale_of(scale),
        **_launch.forced(init_blocks, local_blocks),
        topk=_launch.topk_of(topk),
        contract=_launch.contract_of(contract),
    )
    q_view, k_view = _launch.queries(args, q, index_k, q_dtype, k_dtype)
    num_rows, heads = q_view.shape[:2]
    rows = _launch.Rows(
        num_rows,
        _launch.capacity(max_block, block_table),
        k_view.shape[1],
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
    )
    args.batch = rows.pointer
    _launch.pages(args, block_table, rows)
    out = _launch.ids(args, torch, out, heads, num_rows, topk)
    result: Array | SparseTopK = out
    if sparse_table or table_out is not None or lens_out is not None:
        sparse = _abi.SparseOut()
        attention = block_table if attention_block_table is None else attention_block_table
        result = SparseTopK(
            out,
            *_launch.sparse(sparse, torch, rows, attention, page_stride, table_out, lens_out, num_rows * heads, topk),
        )
        args.sparse = ctypes.pointer(sparse)
    elif attention_block_table is not None:
        raise InvalidError("attention_block_table is given and no sparse table is asked for")
    _context.get(backend, num_threads, _arrays.torch_of(q, index_k, block_table)).call("topk", args)
    return result


def index_decode(
    q: Array,
    index_k: Array,
    block_table: Array,
    seq_lens: Integers,
    topk: int,
    *,
    decode_query_len: int = 1,
    max_block: int | None = None,
    scale: float = 1.0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    sparse_table: bool = False,
    attention_block_table: Array | None = None,
    page_stride: int = 8,
    q_dtype: str | None = None,
    k_dtype: str | None = None,
    out: Array | None = None,
    sparse_block_table_out: Array | None = None,
    sparse_context_lens_out: Array | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Array | SparseTopK:
    """Decode: queries and keys straight to the selected blocks; scores are never stored (S3, S4, S5).

    Args:
        q, index_k, block_table, seq_lens, max_block, scale: as in index_score().
        topk, init_blocks, local_blocks, contract: as in index_topk().  M3 itself: 16, 0, 1.
        decode_query_len: rows of each request, T = R * decode_query_len.
        sparse_table: also write the page-16 table and context lengths; needs B = 128.  Implied by their outputs.
        attention_block_table: int32 [>= R][>= M], pages of attention; default block_table.
        page_stride: attention pages that a block id spans, 8 or 16.
        out: int32 [H][T][K] to write; the last dimension dense.
        sparse_block_table_out: int32 [T*H][8K] to write, rows dense.
        sparse_context_lens_out: int32 [T*H] to write, dense.

    Returns:
        int32 [H][T][K], or SparseTopK where a sparse table is asked for.

    Raises:
        InvalidError, TypeError, UnsupportedError, UnavailableError, OutOfMemoryError.
    """
    return _fused(
        q,
        index_k,
        block_table,
        seq_lens,
        None,
        None,
        decode_query_len,
        topk,
        max_block,
        scale,
        init_blocks,
        local_blocks,
        contract,
        sparse_table,
        attention_block_table,
        page_stride,
        q_dtype,
        k_dtype,
        out,
        sparse_block_table_out,
        sparse_context_lens_out,
        num_threads,
        backend,
    )


def index_prefill(
    q: Array,
    index_k: Array,
    block_table: Array,
    seq_lens: Integers,
    cu_seqlens: Integers,
    prefix_lens: Integers,
    topk: int,
    *,
    max_block: int | None = None,
    scale: float = 1.0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    sparse_table: bool = False,
    attention_block_table: Array | None = None,
    page_stride: int = 8,
    q_dtype: str | None = None,
    k_dtype: str | None = None,
    out: Array | None = None,
    sparse_block_table_out: Array | None = None,
    sparse_context_lens_out: Array | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Array | SparseTopK:
    """Prefill: as index_decode(), for rows cu_seqlens[r] .. cu_seqlens[r+1]-1 of request r at prefix_lens[r] and on.

    Args:
        cu_seqlens: int32 [R+1], first row of each request.
        prefix_lens: int32 [R], keys before the first row of this chunk.
        The others, what is returned and what is raised: as in index_decode().
    """
    return _fused(
        q,
        index_k,
        block_table,
        seq_lens,
        cu_seqlens,
        prefix_lens,
        None,
        topk,
        max_block,
        scale,
        init_blocks,
        local_blocks,
        contract,
        sparse_table,
        attention_block_table,
        page_stride,
        q_dtype,
        k_dtype,
        out,
        sparse_block_table_out,
        sparse_context_lens_out,
        num_threads,
        backend,
    )


def sparse_table(
    topk_idx: Array,
    block_table: Array,
    seq_lens: Integers,
    *,
    cu_seqlens: Integers | None = None,
    prefix_lens: Integers | None = None,
    decode_query_len: int | None = None,
    max_block: int | None = None,
    page_stride: int = 8,
    sparse_block_table_out: Array | None = None,
    sparse_context_lens_out: Array | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> tuple[Array, Array]:
    """The page-16 table and context lengths of selected blocks (S5), for B = 128.

    Args:
        topk_idx: int32 [H][T][K], the last dimension dense.
        block_table: int32 [>= R][>= M], pages of attention, rows dense.
        seq_lens, cu_seqlens, prefix_lens, decode_query_len, max_block: as in index_score().
        page_stride, sparse_block_table_out, sparse_context_lens_out: as in index_decode().

    Returns:
        (int32 [T*H][8K], int32 [T*H]).

    Raises:
        As index_topk().
    """
    seen = _arrays.view("topk_idx", topk_idx, rank=3)
    if seen.dtype != "int32":
        raise TypeError(f"topk_idx has elements {seen.dtype}; int32 is needed")
    heads, num_rows, topk = seen.shape
    args = _abi.SparseTableArgs(num_heads=heads, topk=topk, topk_idx=seen.address)
    args.topk_stride_head, args.topk_stride_row = _arrays.row_strides("topk_idx", seen)
    rows = _launch.Rows(
        num_rows,
        _launch.capacity(max_block, block_table),
        BLOCK_SIZE,
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
    )
    args.batch = rows.pointer
    torch = _arrays.torch_of(topk_idx)
    result = _launch.sparse(
        args.sparse,
        torch,
        rows,
        block_table,
        page_stride,
        sparse_block_table_out,
        sparse_context_lens_out,
        num_rows * heads,
        topk,
    )
    _context.get(backend, num_threads, torch).call("sparse_table", args)
    return result


def index_cache_insert(
    key: Array,
    cache: Array,
    slot_mapping: Integers,
    *,
    key_dtype: str | None = None,
    cache_dtype: str | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> None:
    """Store index keys into the paged cache: cache[slot // B][slot % B] = key (S6).

    Args:
        key: [n][D] index keys.
        cache: [P][B][D] to write, the last dimension dense; of key's format, or an 8-bit float for float32, float16 and
            bfloat16 keys: nearest even, saturating.
        slot_mapping: int64 [n]; below 0 writes nothing; no slot twice.
        key_dtype, cache_dtype: names of the formats when the arrays are raw integers.

    Raises:
        InvalidError, TypeError, UnsupportedError (another pair of formats), UnavailableError, OutOfMemoryError.
    """
    args = _abi.CacheInsertArgs()
    args.key, key_view = _arrays.numeric("key", key, key_dtype, rank=2)
    args.cache, _cache_view = _arrays.numeric("cache", cache, cache_dtype, output=True)
    slots = _arrays.integers("slot_mapping", slot_mapping, length=key_view.shape[0], dtype="int64")
    args.slot_mapping = slots.address
    _context.get(backend, num_threads, _arrays.torch_of(key, cache)).call("cache_insert", args)
