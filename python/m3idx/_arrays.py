# SPDX-License-Identifier: Apache-2.0
"""numpy arrays and torch CPU tensors as addresses, formats, shapes and strides, without copies.

Neither library is imported here: an array is known by its own module.  What C cannot see is judged here: the lengths of
arrays, their element types, and whether an output may be written.  Everything else is judged by the library's door.
"""

from __future__ import annotations

import array
import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _abi
from ._errors import InvalidError

# Names that numpy, ml_dtypes and torch give to element types, and ours.
FORMATS = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3fn",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2": "e5m2",
    "float8_e5m2fnuz": "e5m2fnuz",
}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "e4m3fn": 1, "e4m3fnuz": 1, "e5m2": 1, "e5m2fnuz": 1}
# Raw integers that may carry the patterns of a format that the caller names.
CARRIERS = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4}


class View(NamedTuple):
    """Where the elements of an array are.  Strides count elements."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any


def torch_of(*arrays: Any) -> Any:
    """The torch module if one of the arrays is its tensor, else None.  Does not import torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    return torch if any(isinstance(a, torch.Tensor) for a in arrays) else None


def _numpy_of(a: Any) -> Any:
    numpy = sys.modules.get("numpy")
    return numpy if numpy is not None and isinstance(a, numpy.ndarray) else None


def view(name: str, a: Any, *, rank: int, output: bool = False) -> View:
    """Look at an array, or raise with a sentence that names it."""
    if torch_of(a) is not None:
        if a.device.type != "cpu":
            raise InvalidError(f"{name} is on device {a.device}; m3idx reads CPU tensors, use .cpu()")
        if a.layout != sys.modules["torch"].strided:
            raise InvalidError(f"{name} has layout {a.layout}; a dense tensor is needed")
        seen = View(a.data_ptr(), str(a.dtype).rpartition(".")[2], tuple(a.shape), tuple(a.stride()), a)
    elif _numpy_of(a) is not None:
        if not a.dtype.isnative:
            raise TypeError(
                f"{name} has elements {a.dtype} in foreign byte order; use .astype({name}.dtype.newbyteorder('='))"
            )
        size = a.dtype.itemsize
        if any(stride % size for stride in a.strides):
            raise InvalidError(f"{name}.strides = {a.strides} bytes are not multiples of its {size}-byte elements")
        if output and not a.flags.writeable:
            raise InvalidError(f"{name} is read-only and would be written")
        seen = View(a.ctypes.data, a.dtype.name, a.shape, tuple(s // size for s in a.strides), a)
    else:
        raise TypeError(f"{name} is a {type(a).__name__}; a numpy array or a torch CPU tensor is needed")
    if len(seen.shape) != rank:
        raise InvalidError(f"{name} has shape {seen.shape}; {rank} dimensions are needed")
    if 0 in seen.shape:  # nothing is ever stepped over, and numpy says so with strides of 0
        seen = seen._replace(strides=_dense(seen.shape))
    return seen


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, as if no dimension were empty."""
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * max(1, shape[i + 1])
    return tuple(strides)


def _outward(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Strides with those of dimensions that never step (size 0 or 1) made dense; numpy and torch leave them at will."""
    result = list(strides)
    for i in reversed(range(len(shape))):
        if shape[i] <= 1:
            result[i] = max(1, result[i + 1] * max(1, shape[i + 1])) if i + 1 < len(shape) else 1
    return result


def numeric(name: str, a: Any, dtype: str | None, *, output: bool = False, rank: int = 3) -> tuple[_abi.Tensor, View]:
    """q, index_k, a key or a cache as an m3idx_tensor.  dtype names the format of raw integers."""
    seen = view(name, a, rank=rank, output=output)
    own = FORMATS.get(seen.dtype)
    if dtype is not None and dtype not in BYTES:
        raise InvalidError(f"the dtype of {name} = {dtype!r} is none of {', '.join(BYTES)}")
    form = own or dtype
    if form is None:
        raise TypeError(
            f"{name} has elements {seen.dtype}; a float format is needed ({', '.join(FORMATS)}), "
            f"or raw integers and the name of their format"
        )
    if dtype is not None and dtype != form:
        raise TypeError(f"{name} has elements {seen.dtype}, which contradicts the given dtype {dtype!r}")
    if own is None and CARRIERS.get(seen.dtype) != BYTES[form]:
        raise TypeError(f"{name} has elements {seen.dtype}, which cannot carry {BYTES[form]}-byte {form}")
    strides = _outward(seen.shape, seen.strides)
    if not any(strides):
        # Everything is one repeated element; to the library all strides 0 mean dense, so lay one row out.
        if output:
            raise InvalidError(f"{name} is written and repeats one element (all strides are 0)")
        row = a[0, 0]
        row = row.clone(memory_format=sys.modules["torch"].contiguous_format) if torch_of(a) is not None else row.copy()
        seen = seen._replace(address=view(name, row, rank=1).address, owner=row)
        strides = [0, 0, 1]
    code = ctypes.c_int()
    _abi.LIB.m3idx_dtype_by_name(form.encode(), ctypes.byref(code))
    shape = (1,) * (3 - rank) + seen.shape
    strides = [strides[0] * seen.shape[0] or 1] * (3 - rank) + strides
    tensor = _abi.Tensor(seen.address, code, (ctypes.c_int64 * 3)(*shape), (ctypes.c_int64 * 3)(*strides))
    return tensor, seen


def integers(name: str, a: Any, *, length: int | None = None, dtype: str = "int32") -> View:
    """A dense vector of int32 or int64.  Python sequences are converted, strided arrays made dense."""
    if isinstance(a, (Sequence, array.array)) and not isinstance(a, (str, bytes)):
        try:
            a = array.array("i" if dtype == "int32" else "q", a)
        except (TypeError, OverflowError) as error:
            raise InvalidError(f"{name} is not a sequence of {dtype}: {error}") from error
        seen = View(a.buffer_info()[0], dtype, (len(a),), (1,), a)
    else:
        seen = view(name, a, rank=1)
    if seen.dtype != dtype:
        raise TypeError(f"{name} has elements {seen.dtype}; {dtype} is needed")
    if length is not None and seen.shape[0] != length:
        raise InvalidError(f"{name} has {seen.shape[0]} elements; {length} are needed")
    if seen.shape[0] > 1 and seen.strides[0] != 1:
        dense = a.contiguous() if torch_of(a) is not None else a.copy()
        seen = view(name, dense, rank=1)
    return seen


def table(name: str, a: Any, num_requests: int, max_block: int) -> View:
    """A block table, int32 [>= R][>= M], rows dense."""
    seen = view(name, a, rank=2)
    if seen.dtype != "int32":
        raise TypeError(f"{name} has elements {seen.dtype}; int32 is needed")
    if seen.shape[0] < num_requests:
        raise InvalidError(f"{name} has {seen.shape[0]} rows; seq_lens has {num_requests} requests")
    if seen.shape[1] < max_block:
        raise InvalidError(f"{name} has {seen.shape[1]} columns; max_block = {max_block} are needed")
    last_is_dense(name, seen)
    if num_requests > 1 and max_block > 0 and seen.strides[0] < max_block:
        raise InvalidError(f"{name} has row stride {seen.strides[0]}, below max_block = {max_block}")
    return seen


def last_is_dense(name: str, seen: View) -> None:
    """The innermost elements must be neighbours."""
    if seen.shape[-1] > 1 and seen.strides[-1] != 1:
        raise InvalidError(f"{name} has stride {seen.strides[-1]} along its last dimension; 1 is needed")


def row_strides(name: str, seen: View) -> tuple[int, int]:
    """(head, row) strides of a [H][T][width] array, 0 (the library's default) where there is no step."""
    last_is_dense(name, seen)
    for i in (0, 1):
        if seen.shape[i] > 1 and seen.strides[i] == 0 and seen.shape[2] and seen.shape[1 - i]:
            raise InvalidError(f"{name} repeats its elements along dimension {i} (stride 0); a copy is needed")
    return tuple(seen.strides[i] if seen.shape[i] > 1 else 0 for i in (0, 1))  # type: ignore[return-value]


def output(name: str, a: Any, shape: tuple[int, ...], dtype: Sequence[str]) -> View:
    """An output that the caller gave: exact shape and type, writable."""
    seen = view(name, a, rank=len(shape), output=True)
    if seen.dtype not in dtype:
        raise TypeError(f"{name} has elements {seen.dtype}; {dtype[0]} is needed")
    if seen.shape != shape:
        raise InvalidError(f"{name} has shape {seen.shape}; {shape} is needed")
    return seen


def new(torch: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An output of our own: a torch tensor if torch is given, else a numpy array."""
    if torch is not None:
        # Not every torch has operations on uint64: patterns of keys are int64 there.
        return torch.empty(shape, dtype=getattr(torch, "int64" if dtype == "uint64" else dtype))
    numpy = sys.modules["numpy"]  # an input is its array
    return numpy.empty(shape, dtype)
