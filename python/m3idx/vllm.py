# SPDX-License-Identifier: Apache-2.0
"""The indexer under the names and arguments of vLLM's MiniMax-M3 kernels, for CPU tensors: a fallback to import in place.

Exact, contract "vllm", through the operators of m3idx.torch.  What a launch on a GPU needs and a CPU does not
(max_query_len, max_decode_query_len, completion_counter) is taken and has no effect.
"""

from __future__ import annotations

import torch

from . import torch as ops
from ._errors import InvalidError
from ._ops import BLOCK_SIZE

__all__ = ["minimax_m3_index_decode", "minimax_m3_index_score", "minimax_m3_index_topk"]


def _heads(idx_q: torch.Tensor, num_kv_heads: int) -> None:
    if idx_q.shape[1] != num_kv_heads:
        raise InvalidError(f"idx_q has {idx_q.shape[1]} heads and num_kv_heads = {num_kv_heads}; M3 has one for each")


def minimax_m3_index_score(
    idx_q: torch.Tensor,
    index_kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seq_lens: torch.Tensor,
    prefix_lens: torch.Tensor,
    max_query_len: int,
    max_seq_len: int,
    num_kv_heads: int,
) -> torch.Tensor:
    """Prefill scores, float32 [num_kv_heads][total_q][ceil(max_seq_len / 128)]; see m3idx.index_score()."""
    _heads(idx_q, num_kv_heads)
    return ops.index_score(
        idx_q,
        index_kv_cache,
        block_table,
        seq_lens,
        cu_seqlens=cu_seqlens_q,
        prefix_lens=prefix_lens,
        max_block=-(-max_seq_len // BLOCK_SIZE),
    )


def minimax_m3_index_topk(
    score: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    prefix_lens: torch.Tensor,
    max_query_len: int,
    topk: int,
    init_blocks: int,
    local_blocks: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Prefill selection, int32 [heads][total_q][topk]; out may have more rows, and out[:, :total_q] is written."""
    seq_lens = prefix_lens + (cu_seqlens_q[1:] - cu_seqlens_q[:-1])
    return ops.index_topk(
        score,
        topk,
        seq_lens=seq_lens,
        cu_seqlens=cu_seqlens_q,
        prefix_lens=prefix_lens,
        init_blocks=init_blocks,
        local_blocks=local_blocks,
        out=None if out is None else out[:, : score.shape[1]],
    )


def minimax_m3_index_decode(
    idx_q: torch.Tensor,
    index_kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    topk: int,
    init_blocks: int,
    local_blocks: int,
    num_kv_heads: int,
    decode_query_len: int,
    max_decode_query_len: int,
    out: torch.Tensor | None = None,
    *,
    attention_block_table: torch.Tensor | None = None,
    sparse_block_table_out: torch.Tensor | None = None,
    sparse_context_lens_out: torch.Tensor | None = None,
    block_page_stride: int | None = None,
    completion_counter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Decode selection, int32 [num_kv_heads][total_q][topk]; out may have more rows, and out[:, :total_q] is written.

    With the two sparse outputs the page-16 table is written too; they may have more rows than total_q * heads.
    """
    _heads(idx_q, num_kv_heads)
    if (sparse_block_table_out is None) != (sparse_context_lens_out is None):
        raise InvalidError("sparse_block_table_out and sparse_context_lens_out go together")
    sparse = sparse_block_table_out is not None
    lines = idx_q.shape[0] * idx_q.shape[1]
    result = ops.index_decode(
        idx_q,
        index_kv_cache,
        block_table,
        seq_lens,
        topk,
        decode_query_len=decode_query_len,
        max_block=-(-max_seq_len // BLOCK_SIZE),
        init_blocks=init_blocks,
        local_blocks=local_blocks,
        attention_block_table=attention_block_table if sparse else None,
        page_stride=8 if block_page_stride is None else block_page_stride,
        out=None if out is None else out[:, : idx_q.shape[0]],
        sparse_block_table_out=None if sparse_block_table_out is None else sparse_block_table_out[:lines],
        sparse_context_lens_out=None if sparse_context_lens_out is None else sparse_context_lens_out[:lines],
    )
    return result.topk_idx if isinstance(result, ops.SparseTopK) else result
