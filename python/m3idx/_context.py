# SPDX-License-Identifier: Apache-2.0
"""Contexts of the library, one for each thread, backend and thread count, opened when first needed.

A context is used by one thread at a time, so none is shared between threads; a thread's contexts are closed when it ends.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, NamedTuple

from . import _abi
from ._errors import UnavailableError, raise_status

LIB = _abi.LIB


class Context:
    """An m3idx_context; closed with the last reference."""

    __slots__ = ("pointer",)

    def __init__(self, backend: str, num_threads: int) -> None:
        self.pointer = ctypes.c_void_p()
        why = ctypes.create_string_buffer(1024)
        options = _abi.Options(backend.encode(), num_threads, 0)
        status = LIB.m3idx_open(ctypes.byref(self.pointer), ctypes.byref(options), why, len(why))
        if status:
            raise_status(status, why.value.decode())

    def __del__(self) -> None:
        if self.pointer:
            LIB.m3idx_close(self.pointer)

    def call(self, operation: str, args: ctypes.Structure) -> None:
        """One operation; ctypes lets other Python threads run meanwhile."""
        status = getattr(LIB, "m3idx_" + operation)(self.pointer, ctypes.byref(args))
        if status:
            raise_status(status, LIB.m3idx_message(self.pointer).decode())


_local = threading.local()
_default_threads: int | None = None
# After a fork the workers of the parent's OpenMP are gone and its runtime waits for them for ever.
_used = False
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def set_num_threads(num_threads: int | None) -> None:
    """Set the CPU threads of later calls in this process that do not say num_threads themselves.

    None (the start) means: torch.get_num_threads() where the call is given torch tensors, else OpenMP's default
    (OMP_NUM_THREADS, or one for each core).  0 means OpenMP's default in every case.  Results do not depend on it.
    """
    global _default_threads
    _default_threads = None if num_threads is None else int(num_threads)


def get_num_threads() -> int | None:
    """What set_num_threads() was last given; None at first."""
    return _default_threads


def get(backend: str, num_threads: int | None, torch: Any) -> Context:
    """This thread's context.  torch: the module where a call was given its tensors, else None."""
    global _used
    if num_threads is None:
        num_threads = _default_threads
    if _forked:
        if num_threads is not None and num_threads > 1:
            raise UnavailableError(
                f"num_threads = {num_threads} must be 1 in a process forked from one that has used m3idx: "
                "OpenMP's threads do not survive a fork; start processes with the method 'spawn'"
            )
        num_threads = 1
    elif num_threads is None:
        num_threads = torch.get_num_threads() if torch is not None else 0
    key = (backend, num_threads)
    contexts: dict[tuple[str, int], Context] = _local.__dict__.setdefault("contexts", {})
    context = contexts.get(key)
    if context is None:
        context = contexts[key] = Context(backend, num_threads)
    _used = True
    return context


class BackendInfo(NamedTuple):
    """Which backend a name gives on this machine."""

    name: str
    """"ref", "cpu" or "hip"."""
    reason: str
    """Why it was taken, and what was passed over."""
    details: str
    """Instruction sets, devices, architectures."""


def backend_info(backend: str = "auto") -> BackendInfo:
    """Open a backend and tell about it.  Raises UnavailableError with the exact reason where it cannot work."""
    pointer = get(backend, None, None).pointer
    texts = (LIB.m3idx_backend_name, LIB.m3idx_backend_reason, LIB.m3idx_backend_details)
    return BackendInfo(*(text(pointer).decode() for text in texts))


def backends() -> list[str]:
    """Names of the backends that this build of the library knows, whether or not they work here."""
    names: list[str] = []
    while True:
        name = LIB.m3idx_backend_list(len(names))
        if name is None:
            return names
        names.append(name.decode())


def version() -> str:
    """Version of the library, "major.minor.patch"."""
    return str(LIB.m3idx_version(), "ascii")
