# SPDX-License-Identifier: Apache-2.0
"""The package without numpy and without torch, whatever is installed: each is hidden in a fresh interpreter."""

import subprocess
import sys

import pytest

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Hide())
"""


def run(hidden, code):
    program = HIDE.format(hidden=hidden) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_imports_without_numpy_and_torch():
    done = run(("numpy", "torch"), "import m3idx; print(m3idx.backend_info('cpu').name, m3idx.policy.prefill_score("
               "128, 8192, 1, 1, 304, 'gfx942'))")  # fmt: skip
    assert done.stdout.strip() == "cpu PrefillScoreGeometry(block_q=128, splits=8)", done.stderr


def test_importing_it_imports_neither():
    done = run((), "import m3idx; print('numpy' in sys.modules, 'torch' in sys.modules)")
    assert done.stdout.strip() == "False False", done.stderr


def test_says_what_an_operation_needs():
    done = run(("numpy", "torch"), "import m3idx; m3idx.index_topk([[[1.0]]], 1, num_blocks=[1])")
    assert "TypeError: score is a list; a numpy array or a torch CPU tensor is needed" in done.stderr


def test_says_that_the_operators_need_torch():
    done = run(("torch",), "import m3idx.torch")
    assert "ImportError: m3idx.torch needs torch (No module named 'torch')" in done.stderr


def test_says_which_library_is_missing(tmp_path):
    code = f"import os; os.environ['M3IDX_LIBRARY'] = {str(tmp_path / 'none.so')!r}; import m3idx"
    assert f"ImportError: m3idx: {tmp_path / 'none.so'} cannot be loaded" in run((), code).stderr


@pytest.mark.parametrize("module", ["numpy", "torch"])
def test_works_with_the_one_that_is_there(module):
    pytest.importorskip(module)
    hidden = {"numpy": ("torch",), "torch": ("numpy",)}[module]
    code = f"import {module} as lib, m3idx; s = lib.ones((1, 1, 3), dtype=lib.float32); s[0, 0, 2] = 2; "
    done = run(hidden, code + "print(m3idx.index_topk(s, 4, num_blocks=[3]).tolist())")
    assert done.stdout.strip() == "[[[2, 0, 1, -1]]]", done.stderr
