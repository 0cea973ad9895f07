# SPDX-License-Identifier: Apache-2.0
"""m3idx: the MiniMax-M3 sparse-attention indexer, exact, on numpy arrays and torch CPU tensors.

Every result is defined to the last bit by docs/SEMANTICS.md of the project ("S3.2" in the docstrings is its clause) and
is the same on every machine, for every thread count and backend.

    index_score          queries and keys -> block scores
    index_topk           scores -> the K best blocks
    index_decode         queries and keys -> the K best blocks, decode
    index_prefill        the same, prefill
    sparse_table         selected blocks -> page-16 table
    index_cache_insert   index keys -> paged cache
    index_topk_keys, merge   the selection of a part, and of the whole from its parts
    policy               launch policies

m3idx.torch has the same as custom operators for torch.compile, m3idx.vllm under the names and arguments of vLLM.
numpy and torch are optional: whichever is there can be used.  Calls release the interpreter lock.
"""

from __future__ import annotations

from . import policy
from ._context import BackendInfo, backend_info, backends, get_num_threads, set_num_threads, version
from ._errors import DeviceError, Error, InvalidError, OutOfMemoryError, UnavailableError, UnsupportedError
from ._ops import (
    SparseTopK,
    index_cache_insert,
    index_decode,
    index_prefill,
    index_score,
    index_topk,
    index_topk_keys,
    merge,
    sparse_table,
)

__version__ = version()

__all__ = [
    "BackendInfo",
    "DeviceError",
    "Error",
    "InvalidError",
    "OutOfMemoryError",
    "SparseTopK",
    "UnavailableError",
    "UnsupportedError",
    "backend_info",
    "backends",
    "get_num_threads",
    "index_cache_insert",
    "index_decode",
    "index_prefill",
    "index_score",
    "index_topk",
    "index_topk_keys",
    "merge",
    "policy",
    "set_num_threads",
    "sparse_table",
    "version",
]
