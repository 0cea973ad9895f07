# SPDX-License-Identifier: Apache-2.0
"""The tables of S8, read from docs/SEMANTICS.md, and bounds."""

from pathlib import Path

import m3idx
import pytest
from m3idx import policy

SEMANTICS = Path(__file__).resolve().parents[2] / "docs" / "SEMANTICS.md"


def rows(heading):
    """Cells of the last table of a section, without its header."""
    section = SEMANTICS.read_text().split(f"### {heading} ")[1].split("\n### ")[0]
    table = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("|")]
    start = max(i for i, cells in enumerate(table) if cells[0].startswith("---")) + 1
    return [[cell.strip() for cell in cells] for cells in table[start:]]


def expected(text):
    return tuple({"T": True, "F": False}.get(part) if part in "TF" else int(part) for part in text.split(", "))


@pytest.mark.parametrize("cells", rows("S8.1"))
def test_decode_topk(cells):
    assert policy.decode_topk(*map(int, cells[:4]), cells[4]) == expected(cells[5])


@pytest.mark.parametrize("cells", rows("S8.4"))
def test_decode_score_split(cells):
    reqs, dim, *names = cells[:5]
    assert policy.decode_score_split(int(reqs), int(dim), *names) == expected(cells[5])


@pytest.mark.parametrize("cells", rows("S8.5"))
def test_prefill_score(cells):
    assert policy.prefill_score(*map(int, cells[:5]), cells[5]) == expected(cells[6])


@pytest.mark.parametrize(
    ("reqs", "dim", "q", "arch", "want"),
    [(1, 128, "bf16", "gfx950", 1024), (8, 128, "bf16", "gfx950", 1024), (9, 128, "bf16", "gfx950", 768),
     (11, 128, "bf16", "gfx950", 768), (12, 128, "bf16", "gfx950", None), (8, 64, "bf16", "gfx950", None),
     (8, 128, "f16", "gfx950", None), (8, 128, "bf16", "gfx942", None)],
)  # fmt: skip
def test_decode_score_budget(reqs, dim, q, arch, want):
    assert policy.decode_score_budget(reqs, dim, q, "bf16", arch) == want


def test_out_of_bounds():
    with pytest.raises(m3idx.InvalidError, match="rows = -1"):
        policy.decode_topk(1, -1, 1, 16, "gfx950")
    with pytest.raises(m3idx.InvalidError, match=f"max_block = {2**64 + 1}"):
        policy.decode_topk(2**64 + 1, 1, 1, 16, "gfx950")
    with pytest.raises(m3idx.InvalidError, match="dtype = 'fp8'"):
        policy.decode_score_budget(1, 128, "fp8", "bf16", "gfx950")
