#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge_tutorial.py M3IDX TUTORIAL: run docs/TUTORIAL-JUDGE.md and compare what it shows with what happens.

A ```python block is kernel.py, a ```diff block edits it, a ```console block has commands after "$ " and their output.
"""
import os
import subprocess
import sys
import tempfile


def blocks(text):
    kind, lines = None, []
    for line in text.splitlines():
        if kind is None and line.startswith("```"):
            kind, lines = line[3:], []
        elif line == "```":
            yield kind, lines
            kind = None
        elif kind is not None:
            lines.append(line)


def edit(path, lines):
    with open(path) as file:
        text = file.read()
    for hunk in "\n".join(lines).split("\n@@\n"):
        old = "".join(line[1:] + "\n" for line in hunk.splitlines() if line[0] == "-")
        new = "".join(line[1:] + "\n" for line in hunk.splitlines() if line[0] == "+")
        assert text.count(old) == 1, f"the tutorial edits what is not there: {old}"
        text = text.replace(old, new)
    with open(path, "w") as file:
        file.write(text)


def check(lines, env, work):
    """Commands run and commands whose output is not as shown."""
    ran = bad = 0
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")] + [len(lines)]
    for start, end in zip(starts, starts[1:]):
        run = subprocess.run(["bash", "-c", lines[start][2:]], cwd=work, env=env, text=True, timeout=120,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        want = "".join(line + "\n" for line in lines[start + 1:end])
        ran += 1
        if run.stdout != want:
            bad += 1
            print(f"FAIL {lines[start]}\n--- want\n{want}--- got\n{run.stdout}")
    return ran, bad


def main():
    m3idx, tutorial = map(os.path.abspath, sys.argv[1:3])
    with open(tutorial) as file:
        text = file.read()
    ran = bad = 0
    with tempfile.TemporaryDirectory() as work:
        tools = os.path.join(work, "bin")
        os.mkdir(tools)
        for name, target in ("m3idx", m3idx), ("python3", sys.executable):
            with open(os.path.join(tools, name), "w") as file:
                file.write(f'#!/bin/sh\nexec "{target}" "$@"\n')
            os.chmod(file.name, 0o755)
        env = dict(os.environ, PATH=tools + os.pathsep + os.environ["PATH"])
        for kind, lines in blocks(text):
            if kind == "python":
                with open(os.path.join(work, "kernel.py"), "w") as file:
                    file.write("\n".join(lines) + "\n")
            elif kind == "diff":
                edit(os.path.join(work, "kernel.py"), lines)
            elif kind == "console":
                counts = check(lines, env, work)
                ran, bad = ran + counts[0], bad + counts[1]
    print(f"{ran} commands, {bad} not as the tutorial shows")
    return 1 if bad or ran < 10 else 0


if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
        import safetensors.numpy  # noqa: F401
    except ImportError as missing:
        print(f"SKIP: {missing}")
        sys.exit(77)
    sys.exit(main())
