# SPDX-License-Identifier: Apache-2.0
"""The example that fuzzes a kernel through case files: right as it is, and caught with each fault that is planted."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("safetensors")

EXAMPLE = Path(__file__).parents[1] / "examples" / "fuzz_kernel.py"
FIX = "--contract vllm --sparse-table 0 --attention-table 0"
FORMATS = " --q-dtype f32 --k-dtype f16"


def fuzz(tool, where, source, cases, seed=0):
    # The numpy kernel, whatever else is installed: the faults below are in it.
    source = source.replace("import torch\n", "raise ImportError\n", 1)
    program = where / "kernel.py"
    program.write_text(source)
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}"
    options = ["--serve", "--judge", "f32", "--op", "decode", "--fix", FIX + FORMATS, "--cases", str(cases)]
    options += ["--seed", str(seed), "--failures", "1", "--shrink", "20", "--save", str(where), "--quiet"]
    return subprocess.run([tool.path, "fuzz", "--exec", command, *options], capture_output=True, text=True, check=False)


def test_is_right(tool, tmp_path):
    done = fuzz(tool, tmp_path, EXAMPLE.read_text(), 300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " fail 0 " in done.stdout
    assert "pass 0 " not in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("total - length + i + 1)", "total - length + i)"),  # sees one key less
        ('max(0, blocks - int(meta["local_blocks"]))', 'blocks - int(meta["local_blocks"])'),  # wraps around
        ("= 1e29", "= 1e30"),  # init wins over local
        ("numpy.fmax", "numpy.maximum"),  # a NaN wins over every number
        ("numpy.argsort(-ranks", "numpy.argsort(-ranks - 1"),  # small scores run together
    ],
)
def test_faults_are_found(tool, tmp_path, right, wrong):
    source = EXAMPLE.read_text()
    assert right in source
    done = fuzz(tool, tmp_path, source.replace(right, wrong), 2000)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL exec" in done.stdout


def test_torch_is_right(tool, tmp_path):
    pytest.importorskip("torch")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(EXAMPLE))}"
    options = ["--serve", "--judge", "f32", "--op", "decode", "--fix", FIX, "--cases", "200", "--quiet"]
    done = subprocess.run([tool.path, "fuzz", "--exec", command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_says_what_it_does_not_know(tool, tmp_path):
    program = tmp_path / "kernel.py"
    program.write_text(EXAMPLE.read_text())
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}"
    done = subprocess.run(
        [tool.path, "fuzz", "--serve", "--exec", command, "--op", "select", "--cases", "5", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1  # nothing was compared
    assert "unsupported 5" in done.stdout
