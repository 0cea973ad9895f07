# SPDX-License-Identifier: Apache-2.0
"""The structures of _abi.py against what a C compiler makes of the public header."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import m3idx
import pytest
from m3idx import _abi, _errors

COMMON = Path(__file__).resolve().parents[2] / "common"


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """{"m3idx_tensor.shape": (offset, size), "m3idx_tensor": (0, size)} as cc lays them out."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("layout")
    lines = []
    for name, structure in _abi.STRUCTURES.items():
        lines.append(f'  printf("{name} 0 %zu\\n", sizeof({name}));')
        for field, *_ in structure._fields_:
            of = f"offsetof({name}, {field}), sizeof((({name} *)0)->{field})"
            lines.append(f'  printf("{name}.{field} %zu %zu\\n", {of});')
    for name in ("M3IDX_PREFILL", "M3IDX_DECODE"):
        lines.append(f'  printf("{name} 0 %d\\n", {name});')
    source = "#include <stddef.h>\n#include <stdio.h>\n#include <m3idx.h>\nint main(void) {\n%s\n  return 0;\n}\n"
    (directory / "layout.c").write_text(source % "\n".join(lines))
    subprocess.run([compiler, f"-I{COMMON}", "layout.c", "-o", "layout"], cwd=directory, check=True)
    printed = subprocess.run([directory / "layout"], capture_output=True, text=True, check=True).stdout
    return {name: (int(offset), int(size)) for name, offset, size in map(str.split, printed.splitlines())}


@pytest.mark.parametrize("name", _abi.STRUCTURES)
def test_every_field_lies_where_c_has_it(layout, name):
    structure = _abi.STRUCTURES[name]
    got = {name: (0, _abi.ctypes.sizeof(structure))}
    for field, *_ in structure._fields_:
        descriptor = getattr(structure, field)
        got[f"{name}.{field}"] = (descriptor.offset, descriptor.size)
    want = {key: value for key, value in layout.items() if key == name or key.startswith(name + ".")}
    assert want == got


def test_the_header_has_no_field_that_is_missing_here():
    header = re.sub(r"/\*.*?\*/", "", (COMMON / "m3idx.h").read_text(), flags=re.S)
    for name, structure in _abi.STRUCTURES.items():
        (body,) = re.findall(r"typedef struct %s \{(.*?)\} %s;" % (name, name), header, flags=re.S)
        fields = []
        for declaration in filter(str.strip, body.split(";")):
            first, *more = declaration.split(",")
            fields += [re.findall(r"(\w+)(?:\[\d+\])?\s*$", part)[0] for part in (first, *more)]
        assert fields == [field for field, *_ in structure._fields_], name


def test_modes_and_statuses_have_the_values_of_the_header(layout):
    assert layout["M3IDX_PREFILL"][1] == _abi.PREFILL
    assert layout["M3IDX_DECODE"][1] == _abi.DECODE
    rows = re.findall(r"M3IDX_STATUS\((\w+), (\d+),", (COMMON / "status.def").read_text())
    names = {"InvalidError": "INVALID", "UnsupportedError": "UNSUPPORTED", "UnavailableError": "UNAVAILABLE",
             "OutOfMemoryError": "NO_MEMORY", "DeviceError": "DEVICE"}  # fmt: skip
    want = {int(value): name for name, value in rows if name not in ("OK", "IO")}
    assert want == {status: names[error.__name__] for status, error in _errors.BY_STATUS.items()}


def test_the_package_is_of_the_version_of_its_library():
    from importlib import metadata

    if "M3IDX_LIBRARY" in os.environ:
        pytest.skip("the package is not installed: M3IDX_LIBRARY is set")
    assert m3idx.__version__ == metadata.version("m3idx") == m3idx.version()
