# SPDX-License-Identifier: Apache-2.0
"""Tables of seeded faults: tab-separated lines, each a text of a file (found exactly once) and what stands there instead.

\\n in a text is a line break.  Shared by the runner of this directory and by tests/simt/mutants.
"""
import pathlib
from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    kind: str  # class of the fault
    file: str  # below the checkout
    how: str  # what hunts it
    text: str
    instead: str
    argument: str  # why no output can differ; "" = it must be found


def lines(path):
    """The fields of each line that is no comment."""
    return [line.split("\t") for line in pathlib.Path(path).read_text().splitlines() if line and not line.startswith("#")]


def unescape(text):
    return text.replace("\\n", "\n")


def plant(original, text, instead):
    """The file's text with the fault, or None where `text` is not found exactly once."""
    return original.replace(text, instead) if original.count(text) == 1 else None
