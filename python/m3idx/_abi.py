# SPDX-License-Identifier: Apache-2.0
"""The C ABI of libm3idx (common/m3idx.h) as ctypes: structures, prototypes and the loaded library.

Foreign calls of ctypes.CDLL release the interpreter lock.  tests/test_abi.py compares every offset below with what a C
compiler makes of the header.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

PREFILL, DECODE = 0, 1


class Contract(Structure):
    _fields_ = [("tie", c_int), ("nan", c_int), ("zero", c_int), ("order", c_int)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("shape", c_int64 * 3), ("stride", c_int64 * 3)]


class Batch(Structure):
    _fields_ = [
        ("mode", c_int),
        ("num_requests", c_int64),
        ("num_rows", c_int64),
        ("max_block", c_int64),
        ("block_size", c_int64),
        ("decode_query_len", c_int64),
        ("seq_lens", c_void_p),
        ("cu_seqlens", c_void_p),
        ("prefix_lens", c_void_p),
    ]


class ScoreArgs(Structure):
    _fields_ = [
        ("batch", POINTER(Batch)),
        ("q", Tensor),
        ("index_k", Tensor),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("scale", c_float),
        ("init_blocks", c_int64),
        ("local_blocks", c_int64),
        ("score", c_void_p),
        ("score_stride_head", c_int64),
        ("score_stride_row", c_int64),
    ]


class SelectArgs(Structure):
    _fields_ = [
        ("batch", POINTER(Batch)),
        ("num_blocks", c_void_p),
        ("num_heads", c_int64),
        ("num_rows", c_int64),
        ("max_block", c_int64),
        ("score", c_void_p),
        ("score_stride_head", c_int64),
        ("score_stride_row", c_int64),
        ("init_blocks", c_int64),
        ("local_blocks", c_int64),
        ("topk", c_int64),
        ("contract", Contract),
        ("first_block", c_int64),
        ("topk_idx", c_void_p),
        ("topk_stride_head", c_int64),
        ("topk_stride_row", c_int64),
        ("keys", c_void_p),
    ]


class MergeArgs(Structure):
    _fields_ = [
        ("num_parts", c_int64),
        ("num_heads", c_int64),
        ("num_rows", c_int64),
        ("topk", c_int64),
        ("contract", Contract),
        ("keys", c_void_p),
        ("keys_stride_part", c_int64),
        ("topk_idx", c_void_p),
        ("topk_stride_head", c_int64),
        ("topk_stride_row", c_int64),
        ("merged_keys", c_void_p),
    ]


class SparseOut(Structure):
    _fields_ = [
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("page_stride", c_int64),
        ("table", c_void_p),
        ("table_stride", c_int64),
        ("context_lens", c_void_p),
    ]


class TopkArgs(Structure):
    _fields_ = [
        ("batch", POINTER(Batch)),
        ("q", Tensor),
        ("index_k", Tensor),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("scale", c_float),
        ("init_blocks", c_int64),
        ("local_blocks", c_int64),
        ("topk", c_int64),
        ("contract", Contract),
        ("topk_idx", c_void_p),
        ("topk_stride_head", c_int64),
        ("topk_stride_row", c_int64),
        ("sparse", POINTER(SparseOut)),
    ]


class SparseTableArgs(Structure):
    _fields_ = [
        ("batch", POINTER(Batch)),
        ("num_heads", c_int64),
        ("topk", c_int64),
        ("topk_idx", c_void_p),
        ("topk_stride_head", c_int64),
        ("topk_stride_row", c_int64),
        ("sparse", SparseOut),
    ]


class CacheInsertArgs(Structure):
    _fields_ = [("key", Tensor), ("slot_mapping", c_void_p), ("cache", Tensor)]


class Options(Structure):
    _fields_ = [("backend", c_char_p), ("num_threads", c_int), ("device", c_int)]


class DecodeTopkGeometry(Structure):
    _fields_ = [
        ("chunks", c_int64),
        ("block", c_int64),
        ("warps", c_int64),
        ("stages", c_int64),
        ("single_tile", c_int),
        ("adaptive_merge", c_int),
    ]


class DecodeScoreGeometry(Structure):
    _fields_ = [("chunks", c_int64), ("high_batch", c_int)]


class PrefillScoreGeometry(Structure):
    _fields_ = [("block_q", c_int64), ("splits", c_int64)]


# C name of each structure that callers fill or read.
STRUCTURES = {
    "m3idx_contract": Contract,
    "m3idx_tensor": Tensor,
    "m3idx_batch": Batch,
    "m3idx_score_args": ScoreArgs,
    "m3idx_select_args": SelectArgs,
    "m3idx_merge_args": MergeArgs,
    "m3idx_sparse_out": SparseOut,
    "m3idx_topk_args": TopkArgs,
    "m3idx_sparse_table_args": SparseTableArgs,
    "m3idx_cache_insert_args": CacheInsertArgs,
    "m3idx_options": Options,
    "m3idx_decode_topk_geometry": DecodeTopkGeometry,
    "m3idx_decode_score_geometry": DecodeScoreGeometry,
    "m3idx_prefill_score_geometry": PrefillScoreGeometry,
}

OPERATIONS = {
    "score": ScoreArgs,
    "select": SelectArgs,
    "merge": MergeArgs,
    "topk": TopkArgs,
    "sparse_table": SparseTableArgs,
    "cache_insert": CacheInsertArgs,
}


def prototype(lib: Any) -> Any:
    """Give every function of a loaded library that this package calls its types."""

    def declare(name: str, result: Any, *arguments: Any) -> None:
        function = getattr(lib, "m3idx_" + name)
        function.restype, function.argtypes = result, arguments

    declare("open", c_int, POINTER(c_void_p), POINTER(Options), c_char_p, c_size_t)
    declare("close", None, c_void_p)
    declare("message", c_char_p, c_void_p)
    declare("backend_name", c_char_p, c_void_p)
    declare("backend_reason", c_char_p, c_void_p)
    declare("backend_details", c_char_p, c_void_p)
    declare("backend_list", c_char_p, c_int)
    for name, arguments in OPERATIONS.items():
        declare(name, c_int, c_void_p, POINTER(arguments))
    declare("status_name", c_char_p, c_int)
    declare("dtype_name", c_char_p, c_int)
    declare("dtype_by_name", c_int, c_char_p, POINTER(c_int))
    declare("dtype_bytes", c_size_t, c_int)
    declare("contract_by_name", c_int, c_char_p, POINTER(Contract))
    declare("contract_name", None, POINTER(Contract), c_char_p, c_size_t)
    declare("arch_by_name", c_int, c_char_p)
    declare("decode_topk_policy", c_int, c_int64, c_int64, c_int64, c_int64, c_int, POINTER(DecodeTopkGeometry))
    declare("decode_score_budget", c_int, c_int64, c_int64, c_int, c_int, c_int, POINTER(c_int64))
    declare("decode_score_split", c_int, c_int64, c_int64, c_int, c_int, c_int, POINTER(DecodeScoreGeometry))
    declare(
        "prefill_score_policy", c_int, c_int64, c_int64, c_int64, c_int64, c_int64, c_int, POINTER(PrefillScoreGeometry)
    )
    declare("version", c_char_p)
    return lib


def load() -> Any:
    """The library beside this file.  M3IDX_LIBRARY names another, for who works on libm3idx itself."""
    path = os.environ.get("M3IDX_LIBRARY") or str(Path(__file__).with_name("libm3idx.so"))
    try:
        return prototype(ctypes.CDLL(path))
    except OSError as error:
        hint = ""
        if "libgomp" in str(error):
            hint = "; the OpenMP runtime of gcc is needed (Debian and Ubuntu: apt-get install libgomp1)"
        raise ImportError(f"m3idx: {path} cannot be loaded: {error}{hint}") from error


LIB = load()
