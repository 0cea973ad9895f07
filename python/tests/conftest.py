# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: the m3idx command, case files, and random launches.

M3IDX_TOOL names the command of the same build as the wheel; without it the tests that need one are skipped.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tool():
    """Runs the m3idx command and returns what it printed."""
    path = os.environ.get("M3IDX_TOOL")
    if not path:
        pytest.skip("M3IDX_TOOL does not name the m3idx command")

    def run(*arguments, status=0):
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == status, f"m3idx {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    run.path = path
    return run


ENCODINGS = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3fn", "F8_E5M2": "e5m2"}


class Case:
    """A case file by its definition (docs/CASES.md), with no library but numpy."""

    def __init__(self, path: Path) -> None:
        import numpy

        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        self.metadata = header.pop("__metadata__")
        self.tensors, self.formats = {}, {}
        raw = {1: "u1", 2: "<u2", 4: "<u4"}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            form = self.metadata.get(name + "_encoding") or ENCODINGS.get(entry["dtype"])
            width = (
                1 if entry["dtype"] in ("U8", "F8_E4M3", "F8_E5M2") else 2 if entry["dtype"] in ("F16", "BF16") else 4
            )
            kind = {"F32": "<f4", "I32": "<i4"}.get(entry["dtype"], raw[width])
            array = numpy.frombuffer(data[8 + length + begin : 8 + length + end], kind)
            self.tensors[name] = array.reshape(entry["shape"])
            self.formats[name] = form

    def __getattr__(self, name):
        try:
            return self.tensors[name]
        except KeyError:
            return self.metadata[name]


@pytest.fixture(scope="session")
def golden(tool, tmp_path_factory):
    """A case line run by the reference backend, as a Case; made once."""
    made = {}

    def make(line: str) -> Case:
        if line not in made:
            directory = tmp_path_factory.mktemp("golden")
            tool("gen", *line.split(), "-o", directory / "case.safetensors")
            tool("run", directory / "case.safetensors", "-o", directory / "golden.safetensors", "--backend", "ref")
            made[line] = Case(directory / "golden.safetensors")
            made[line].path = directory / "golden.safetensors"
        return made[line]

    return make
