# SPDX-License-Identifier: Apache-2.0
"""Threads of Python and of OpenMP: the interpreter lock, contexts, thread counts, forks."""

import ctypes
import os
import subprocess
import sys
import threading
import time

import m3idx
import pytest
from m3idx import _abi, _context

np = pytest.importorskip("numpy")


def work(blocks=64, rows=64):
    rng = np.random.default_rng(1)
    return {
        "q": rng.standard_normal((rows, 1, 128)).astype(np.float32),
        "index_k": rng.standard_normal((blocks, 128, 128)).astype(np.float32),
        "block_table": np.arange(blocks, dtype=np.int32)[None],
        "seq_lens": [blocks * 128],
        "decode_query_len": rows,
    }


class Watched:
    """The library, counting how often another Python thread runs while m3idx_score() does."""

    def __init__(self, library):
        self.library, self.count, self.during, self.seconds = library, 0, 0, 0.0

    def __getattr__(self, name):
        return getattr(self.library, name)

    def m3idx_score(self, *args):
        stop, started = threading.Event(), threading.Event()

        def tick():
            while not stop.is_set():
                self.count += 1
                started.set()
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        started.wait()
        before, start = self.count, time.perf_counter()
        status = self.library.m3idx_score(*args)
        self.during, self.seconds = self.count - before, time.perf_counter() - start
        stop.set()
        thread.join()
        return status


def test_calls_release_the_interpreter_lock(monkeypatch):
    seen = []
    # Shown to be able to fail: through PyDLL, which keeps the lock, the other thread stands still.
    for library in (_abi.LIB, _abi.prototype(ctypes.PyDLL(_abi.LIB._name))):
        watched = Watched(library)
        monkeypatch.setattr(_context, "LIB", watched)
        m3idx.index_score(**work(), backend="ref", num_threads=1)
        assert watched.seconds > 0.05, "too quick to tell"
        seen.append(watched.during)
    released, held = seen
    # On a busy machine a few ticks fall between the reading of the count and the call itself.
    assert released >= 20 and 4 * held <= released


def test_threads_have_contexts_of_their_own():
    given = work(8, 8)
    want = m3idx.index_score(**given)
    pointers, wrong = set(), []
    gate = threading.Barrier(6)

    def run(threads):
        for _ in range(5):
            if not np.array_equal(want, m3idx.index_score(**given, num_threads=threads, backend="cpu")):
                wrong.append(threads)
        pointers.add(_context.get("cpu", threads, None).pointer.value)
        gate.wait()  # all are alive, so equal addresses would be one context

    pool = [threading.Thread(target=run, args=(1 + i % 3,)) for i in range(6)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    assert not wrong and len(pointers) == 6
    assert _context.get("cpu", 1, None) is _context.get("cpu", 1, None)


def test_contexts_end_with_their_thread(monkeypatch):
    closed = []
    monkeypatch.setattr(_context.Context, "__del__", lambda self: closed.append(self.pointer.value))
    thread = threading.Thread(target=lambda: m3idx.backend_info("cpu"))
    thread.start()
    thread.join()
    assert len(closed) == 1
    _abi.LIB.m3idx_close(closed[0])


def test_thread_counts(monkeypatch):
    asked = []
    real = _context.Context

    def record(backend, threads):
        asked.append(threads)
        return real(backend, threads)

    monkeypatch.setattr(_context, "Context", record)
    monkeypatch.setattr(_context, "_local", threading.local())
    given = work(2, 2)
    m3idx.index_score(**given)
    m3idx.index_score(**given, num_threads=3)
    m3idx.set_num_threads(2)
    try:
        assert m3idx.get_num_threads() == 2
        m3idx.index_score(**given)
        m3idx.index_score(**given, num_threads=1)
    finally:
        m3idx.set_num_threads(None)
    assert asked == [0, 3, 2, 1]


def test_results_do_not_depend_on_threads():
    given = work(20, 7)
    want = m3idx.index_score(**given, backend="ref", num_threads=1)
    for threads in (1, 2, 5):
        assert want.tobytes() == m3idx.index_score(**given, backend="cpu", num_threads=threads).tobytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_works():
    """OpenMP's workers do not survive a fork: the child works with one thread and says so when asked for more."""
    code = """
import os, sys, numpy as np, m3idx
score = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
pick = lambda **more: m3idx.index_topk(score, 1, num_blocks=[3] * 4, **more).ravel().tolist()
assert pick(num_threads=4) == [2] * 4
child = os.fork()
if child == 0:
    assert pick() == pick(num_threads=1) == [2] * 4
    try:
        pick(num_threads=4)
    except m3idx.UnavailableError as error:
        assert "forked" in str(error) and "spawn" in str(error)
        os._exit(42)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "42", done.stderr
