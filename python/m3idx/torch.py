# SPDX-License-Identifier: Apache-2.0
"""The operations as PyTorch custom operators torch.ops.m3idx.*, with fake kernels, for torch.compile and torch.export.

The functions here take what those of m3idx take and call the operators; arrays are CPU tensors and lengths int32
tensors, since a traced call may not read them.  With out= the operator that writes it is called (it mutates its argument and
returns nothing), else one that makes its result.  Nothing has a gradient: ids have none, and scores are made for them.

num_threads None: torch.get_num_threads() when the call runs.
"""

from __future__ import annotations

from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(f"m3idx.torch needs torch ({error}); the functions of m3idx itself do not") from error

from . import _ops
from ._errors import InvalidError
from ._ops import SparseTopK

Tensor = torch.Tensor

__all__ = [
    "SparseTopK",
    "index_cache_insert",
    "index_decode",
    "index_prefill",
    "index_score",
    "index_topk",
    "index_topk_keys",
    "merge",
    "sparse_table",
]

# Arguments as schemas spell them, in the order in which every operator takes them.
_QUERIES = "Tensor q, Tensor index_k, Tensor block_table, Tensor seq_lens"
_ROWS = "Tensor? cu_seqlens, Tensor? prefix_lens, int? decode_query_len"
_FORCED = "int init_blocks, int local_blocks"
_RUN = "int? num_threads, str backend"
_SCORE = f"{_QUERIES}, {_ROWS}, int? max_block, float scale, {_FORCED}, str? q_dtype, str? k_dtype, {_RUN}"
_TOPK = f"Tensor score, int topk, Tensor? num_blocks, Tensor? seq_lens, {_ROWS}, int block_size, {_FORCED}, str contract, {_RUN}"
_FUSED = f"{_QUERIES}, int topk, {_ROWS}, int? max_block, float scale, {_FORCED}, str contract, str? q_dtype, str? k_dtype, {_RUN}"
_TABLE = "Tensor? attention_block_table, int page_stride"
_SPARSE = f"Tensor topk_idx, Tensor block_table, Tensor seq_lens, {_ROWS}, int? max_block, int page_stride, {_RUN}"


def _operator(name: str, schema: str, fake: Any, mutates: tuple[str, ...] = ()) -> Any:
    """Decorator: the function becomes the CPU kernel of m3idx::name, and fake says what it returns."""

    def register(kernel: Any) -> Any:
        operator = torch.library.custom_op(
            f"m3idx::{name}", kernel, mutates_args=mutates, device_types="cpu", schema=schema
        )
        operator.register_fake(fake)
        return operator

    return register


def _nothing(*_: Any) -> None:
    """Fake of an operator that only writes."""


def _keyword(schema: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of a call by the names of its schema."""
    return {part.split()[-1]: value for part, value in zip(schema.split(", "), values)}


def _score_shape(q: Tensor, block_table: Tensor, max_block: int | None) -> tuple[Any, ...]:
    return q.shape[1], q.shape[0], block_table.shape[1] if max_block is None else max_block


def _fake_score(q: Tensor, k: Tensor, table: Tensor, *rest: Any) -> Tensor:
    return q.new_empty(_score_shape(q, table, rest[4]), dtype=torch.float32)


@_operator("index_score", f"({_SCORE}) -> Tensor", _fake_score)
def _index_score(*args: Any) -> Any:
    return _ops.index_score(**_keyword(_SCORE, args))


@_operator("index_score_out", f"({_SCORE}, Tensor(a!) out) -> ()", _nothing, ("out",))
def _index_score_out(*args: Any) -> None:
    _ops.index_score(**_keyword(_SCORE, args[:-1]), out=args[-1])


def _fake_topk(score: Tensor, topk: int, *rest: Any) -> Tensor:
    return score.new_empty((score.shape[0], score.shape[1], topk), dtype=torch.int32)


@_operator("index_topk", f"({_TOPK}) -> Tensor", _fake_topk)
def _index_topk(*args: Any) -> Any:
    return _ops.index_topk(**_keyword(_TOPK, args))


@_operator("index_topk_out", f"({_TOPK}, Tensor(a!) out) -> ()", _nothing, ("out",))
def _index_topk_out(*args: Any) -> None:
    _ops.index_topk(**_keyword(_TOPK, args[:-1]), out=args[-1])


_KEYS = f"Tensor score, int topk, Tensor num_blocks, int first_block, {_FORCED}, str contract, {_RUN}"


def _fake_keys(score: Tensor, topk: int, *rest: Any) -> Tensor:
    return score.new_empty((score.shape[0], score.shape[1], topk), dtype=torch.int64)


@_operator("index_topk_keys", f"({_KEYS}) -> Tensor", _fake_keys)
def _index_topk_keys(*args: Any) -> Any:
    return _ops.index_topk_keys(**_keyword(_KEYS, args))


_MERGE = f"Tensor keys, str contract, {_RUN}"


@_operator("merge", f"({_MERGE}) -> Tensor", lambda keys, *rest: keys.new_empty(keys.shape[1:], dtype=torch.int32))
def _merge(*args: Any) -> Any:
    return _ops.merge(**_keyword(_MERGE, args))


@_operator("merge_out", f"({_MERGE}, Tensor(a!) out) -> ()", _nothing, ("out",))
def _merge_out(*args: Any) -> None:
    _ops.merge(**_keyword(_MERGE, args[:-1]), out=args[-1])


def _run_fused(args: tuple[Any, ...], **more: Any) -> Any:
    given = _keyword(_FUSED, args)
    if given["cu_seqlens"] is None:
        for name in ("cu_seqlens", "prefix_lens"):
            del given[name]
        return _ops.index_decode(**given, **more)
    del given["decode_query_len"]
    return _ops.index_prefill(**given, **more)


def _fake_fused(q: Tensor, k: Tensor, table: Tensor, lens: Tensor, topk: int, *rest: Any) -> Tensor:
    return q.new_empty((q.shape[1], q.shape[0], topk), dtype=torch.int32)


def _fake_table(like: Tensor, lines: Any, topk: int) -> tuple[Tensor, Tensor]:
    return like.new_empty((lines, 8 * topk), dtype=torch.int32), like.new_empty((lines,), dtype=torch.int32)


@_operator("index_select", f"({_FUSED}) -> Tensor", _fake_fused)
def _index_select(*args: Any) -> Any:
    return _run_fused(args)


@_operator("index_select_out", f"({_FUSED}, Tensor(a!) out) -> ()", _nothing, ("out",))
def _index_select_out(*args: Any) -> None:
    _run_fused(args[:-1], out=args[-1])


@_operator(
    "index_select_sparse",
    f"({_FUSED}, {_TABLE}) -> (Tensor, Tensor, Tensor)",
    lambda q, k, table, lens, topk, *rest: (
        _fake_fused(q, k, table, lens, topk),
        *_fake_table(q, q.shape[0] * q.shape[1], topk),
    ),
)
def _index_select_sparse(*args: Any) -> Any:
    return tuple(_run_fused(args[:-2], **_keyword(_TABLE, args[-2:]), sparse_table=True))


_SPARSE_OUTS = "Tensor(b!) sparse_block_table_out, Tensor(c!) sparse_context_lens_out"


@_operator(
    "index_select_sparse_out",
    f"({_FUSED}, {_TABLE}, Tensor(a!) out, {_SPARSE_OUTS}) -> ()",
    _nothing,
    ("out", "sparse_block_table_out", "sparse_context_lens_out"),
)
def _index_select_sparse_out(*args: Any) -> None:
    outs = dict(zip(("out", "sparse_block_table_out", "sparse_context_lens_out"), args[-3:]))
    _run_fused(args[:-5], **_keyword(_TABLE, args[-5:-3]), **outs)


@_operator(
    "sparse_table",
    f"({_SPARSE}) -> (Tensor, Tensor)",
    lambda ids, *rest: _fake_table(ids, ids.shape[0] * ids.shape[1], ids.shape[2]),
)
def _sparse_table(*args: Any) -> Any:
    return _ops.sparse_table(**_keyword(_SPARSE, args))


@_operator(
    "sparse_table_out",
    f"({_SPARSE}, {_SPARSE_OUTS}) -> ()",
    _nothing,
    ("sparse_block_table_out", "sparse_context_lens_out"),
)
def _sparse_table_out(*args: Any) -> None:
    outs = dict(zip(("sparse_block_table_out", "sparse_context_lens_out"), args[-2:]))
    _ops.sparse_table(**_keyword(_SPARSE, args[:-2]), **outs)


_INSERT = f"Tensor key, Tensor(a!) cache, Tensor slot_mapping, str? key_dtype, str? cache_dtype, {_RUN}"


@_operator("index_cache_insert", f"({_INSERT}) -> ()", _nothing, ("cache",))
def _index_cache_insert(*args: Any) -> None:
    _ops.index_cache_insert(**_keyword(_INSERT, args))


def index_score(
    q: Tensor,
    index_k: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    cu_seqlens: Tensor | None = None,
    prefix_lens: Tensor | None = None,
    decode_query_len: int | None = None,
    max_block: int | None = None,
    scale: float = 1.0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    q_dtype: str | None = None,
    k_dtype: str | None = None,
    out: Tensor | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """m3idx.index_score() as an operator."""
    args: tuple[Any, ...] = (
        q,
        index_k,
        block_table,
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
        max_block,
        scale,
        init_blocks,
    )
    args += (local_blocks, q_dtype, k_dtype, num_threads, backend)
    if out is None:
        return _index_score(*args)
    _index_score_out(*args, out)
    return out


def index_topk(
    score: Tensor,
    topk: int,
    *,
    num_blocks: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    prefix_lens: Tensor | None = None,
    decode_query_len: int | None = None,
    block_size: int = _ops.BLOCK_SIZE,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    out: Tensor | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """m3idx.index_topk() as an operator."""
    args: tuple[Any, ...] = (
        score,
        topk,
        num_blocks,
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
        block_size,
        init_blocks,
    )
    args += (local_blocks, contract, num_threads, backend)
    if out is None:
        return _index_topk(*args)
    _index_topk_out(*args, out)
    return out


def index_topk_keys(
    score: Tensor,
    topk: int,
    *,
    num_blocks: Tensor,
    first_block: int = 0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    num_threads: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """m3idx.index_topk_keys() as an operator; the patterns of the keys are int64."""
    return _index_topk_keys(
        score, topk, num_blocks, first_block, init_blocks, local_blocks, contract, num_threads, backend
    )


def merge(
    keys: Tensor,
    *,
    contract: str = "vllm",
    out: Tensor | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """m3idx.merge() as an operator."""
    if out is None:
        return _merge(keys, contract, num_threads, backend)
    _merge_out(keys, contract, num_threads, backend, out)
    return out


def _select(
    args: tuple[Any, ...],
    sparse_table: bool,
    attention_block_table: Tensor | None,
    page_stride: int,
    out: Tensor | None,
    table_out: Tensor | None,
    lens_out: Tensor | None,
) -> Tensor | SparseTopK:
    q, topk = args[0], args[4]
    if not (sparse_table or table_out is not None or lens_out is not None):
        if attention_block_table is not None:
            raise InvalidError("attention_block_table is given and no sparse table is asked for")
        if out is None:
            return _index_select(*args)
        _index_select_out(*args, out)
        return out
    if out is None and table_out is None and lens_out is None:
        return SparseTopK(*_index_select_sparse(*args, attention_block_table, page_stride))
    lines = q.shape[0] * q.shape[1]
    if out is None:
        out = q.new_empty((q.shape[1], q.shape[0], topk), dtype=torch.int32)
    if table_out is None:
        table_out = q.new_empty((lines, 8 * topk), dtype=torch.int32)
    if lens_out is None:
        lens_out = q.new_empty((lines,), dtype=torch.int32)
    _index_select_sparse_out(*args, attention_block_table, page_stride, out, table_out, lens_out)
    return SparseTopK(out, table_out, lens_out)


def index_decode(
    q: Tensor,
    index_k: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    topk: int,
    *,
    decode_query_len: int = 1,
    max_block: int | None = None,
    scale: float = 1.0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    sparse_table: bool = False,
    attention_block_table: Tensor | None = None,
    page_stride: int = 8,
    q_dtype: str | None = None,
    k_dtype: str | None = None,
    out: Tensor | None = None,
    sparse_block_table_out: Tensor | None = None,
    sparse_context_lens_out: Tensor | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Tensor | SparseTopK:
    """m3idx.index_decode() as an operator."""
    args: tuple[Any, ...] = (
        q,
        index_k,
        block_table,
        seq_lens,
        topk,
        None,
        None,
        decode_query_len,
        max_block,
        scale,
        init_blocks,
    )
    args += (local_blocks, contract, q_dtype, k_dtype, num_threads, backend)
    outs = (out, sparse_block_table_out, sparse_context_lens_out)
    return _select(args, sparse_table, attention_block_table, page_stride, *outs)


def index_prefill(
    q: Tensor,
    index_k: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens: Tensor,
    prefix_lens: Tensor,
    topk: int,
    *,
    max_block: int | None = None,
    scale: float = 1.0,
    init_blocks: int = 0,
    local_blocks: int = 0,
    contract: str = "vllm",
    sparse_table: bool = False,
    attention_block_table: Tensor | None = None,
    page_stride: int = 8,
    q_dtype: str | None = None,
    k_dtype: str | None = None,
    out: Tensor | None = None,
    sparse_block_table_out: Tensor | None = None,
    sparse_context_lens_out: Tensor | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> Tensor | SparseTopK:
    """m3idx.index_prefill() as an operator."""
    args: tuple[Any, ...] = (
        q,
        index_k,
        block_table,
        seq_lens,
        topk,
        cu_seqlens,
        prefix_lens,
        None,
        max_block,
        scale,
        init_blocks,
    )
    args += (local_blocks, contract, q_dtype, k_dtype, num_threads, backend)
    outs = (out, sparse_block_table_out, sparse_context_lens_out)
    return _select(args, sparse_table, attention_block_table, page_stride, *outs)


def sparse_table(
    topk_idx: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    cu_seqlens: Tensor | None = None,
    prefix_lens: Tensor | None = None,
    decode_query_len: int | None = None,
    max_block: int | None = None,
    page_stride: int = 8,
    sparse_block_table_out: Tensor | None = None,
    sparse_context_lens_out: Tensor | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """m3idx.sparse_table() as an operator."""
    args: tuple[Any, ...] = (
        topk_idx,
        block_table,
        seq_lens,
        cu_seqlens,
        prefix_lens,
        decode_query_len,
        max_block,
        page_stride,
    )
    args += (num_threads, backend)
    if sparse_block_table_out is None and sparse_context_lens_out is None:
        return _sparse_table(*args)
    table, lens = _fake_table(topk_idx, topk_idx.shape[0] * topk_idx.shape[1], topk_idx.shape[2])
    table = table if sparse_block_table_out is None else sparse_block_table_out
    lens = lens if sparse_context_lens_out is None else sparse_context_lens_out
    _sparse_table_out(*args, table, lens)
    return table, lens


def index_cache_insert(
    key: Tensor,
    cache: Tensor,
    slot_mapping: Tensor,
    *,
    key_dtype: str | None = None,
    cache_dtype: str | None = None,
    num_threads: int | None = None,
    backend: str = "auto",
) -> None:
    """m3idx.index_cache_insert() as an operator."""
    _index_cache_insert(key, cache, slot_mapping, key_dtype, cache_dtype, num_threads, backend)
