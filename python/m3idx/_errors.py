# SPDX-License-Identifier: Apache-2.0
"""Statuses of the library as exceptions.  The text is the library's own sentence: argument, value, bound."""

from __future__ import annotations


class Error(Exception):
    """Base of everything that the library reports.  No output byte has changed, except after DeviceError."""


class InvalidError(Error, ValueError):
    """An argument is outside its bounds (SEMANTICS S7.1)."""


class UnsupportedError(Error, NotImplementedError):
    """Valid, but this backend does not implement it."""


class UnavailableError(Error, RuntimeError):
    """The backend cannot work on this machine; the text is the exact reason."""


class OutOfMemoryError(Error, MemoryError):
    """The library could not get memory."""


class DeviceError(Error, RuntimeError):
    """The device runtime reported an error; outputs are undefined."""


# Values of common/status.def; 5 (IO) is of files, which this package does not open.
BY_STATUS = {1: InvalidError, 2: UnsupportedError, 3: UnavailableError, 4: OutOfMemoryError, 6: DeviceError}


def raise_status(status: int, sentence: str) -> None:
    """Raise what a status other than 0 means."""
    raise BY_STATUS.get(status, Error)(sentence)
