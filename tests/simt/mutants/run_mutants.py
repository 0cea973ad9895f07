#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the kernel files with one fault each (mutants.tsv), run the simt suites, and demand that one fails.

usage: run_mutants.py SOURCE BUILD [--jobs N] [NAME...]     SOURCE: the checkout, BUILD: a folder for the builds

The suites are built once, without a fault, and must be green.  A mutant compiles the objects that read its file and
nothing else, and links them before the sound ones; N mutants at a time (default: the cores), each with its own copy of
the kernel files.  A mutant counts as killed when a suite fails or takes too long.  Exit 1 if one survives, does not
compile or link, or its text is not found exactly once.  Needs ninja.
"""
import argparse
import concurrent.futures
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "fuzz" / "mutants"))
from mutant_build import Program, run
from mutant_table import lines, plant, unescape

# The suites that a kernel file belongs to, by the start of its name, first match; they run first.
SUITES_OF = (("hip_prefill", "prefill"), ("hip_block", "prefill"), ("hip_bound", "probe"), ("hip_probe", "probe"),
             ("hip_layout", "probe"), ("hip_score", "dots score"), ("hip_exact", "dots score"),
             ("hip_filter", "dots score"), ("hip_matrix_filter", "score"), ("hip_format", "dots score"),
             ("hip_cache_insert", "score"), ("", "select"))
SUITES = tuple(f"test_simt_{name}" for name in ("select", "dots", "score", "probe", "prefill"))
# Matrix steps that err as far as they may, at random; then as published.  Some faults show under one only.
MODELS = ("any", "plausible")
SLOWER = 5  # times the slowest suite without a fault, from where on a mutant is said to hang


def build(source, folder):
    """{suite: its Program}, of the kernels' copy folder/tree/hip and without a fault."""
    tree, made = folder / "tree", folder / "build"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(source / "hip", tree / "hip")
    # A fault may leave a name unused: the suites judge it, not the compiler's warnings.
    done = run(["cmake", "-G", "Ninja", "-S", source, "-B", made, "-DM3IDX_HIP=OFF", "-DM3IDX_WERROR=OFF",
                "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", f"-DM3IDX_SIMT_KERNELS={tree / 'hip'}"])
    if done.returncode == 0:
        done = run(["cmake", "--build", made, "--target", *SUITES])
    if done.returncode != 0:
        sys.exit("run_mutants: the suites do not build without a fault\n" + (done.stdout + done.stderr)[-3000:])
    return {suite: Program(tree, made, suite) for suite in SUITES}


def judge(program, model, limit):
    """None where the suite is green, else what it said."""
    environment = {"CK_FORK": "no", "M3IDX_SIMT_FIRST": "1", "M3IDX_SIMT_MATRIX": model}
    try:
        done = run([program], timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return f"did not end in {limit:.0f} s"
    if done.returncode == 0:
        return None
    said = (done.stderr + done.stdout).strip().splitlines()
    why = [s for s in said if " differ, first at " in s or s.startswith("simt ")] or \
          [s for s in said if re.search(r":\d+:[FE]:", s)] or said
    return re.sub(r"^.*(:[FE]:|--seed \d+: )", "", why[0] if why else "no output").strip()[:140]


def kill(programs, own, row, limit):
    """Plant a fault in the copy own/tree, build and run what reads it; the verdict in words."""
    _, file, text, instead = row
    planted = own / "tree" / "hip" / file
    faulty = plant(planted.read_text(), text, instead)
    if faulty is None:
        return f"NOT FOUND exactly once in {file}"
    planted.write_text(faulty)
    objects = {}
    own_suites = [f"test_simt_{s}" for s in next(names for start, names in SUITES_OF if file.startswith(start)).split()]
    for suite in own_suites + [s for s in SUITES if s not in own_suites]:
        if not programs[suite].reads(f"hip/{file}"):
            continue
        program, why = programs[suite].faulty(f"hip/{file}", own, made_already=objects)
        if not program:
            return why
        for model in MODELS if suite == own_suites[-1] else MODELS[:1]:
            found = judge(program, model, limit)
            if found is not None:
                return f"killed: {suite}: {found}"
    return "SURVIVED"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    source, folder = given.source.resolve(), given.build.resolve()
    table = source / "tests" / "simt" / "mutants" / "mutants.tsv"
    rows = [(name, file, unescape(text), unescape(instead))
            for name, file, text, instead in ((fields + ["", ""])[:4] for fields in lines(table))]
    unknown = set(given.names) - {row[0] for row in rows}
    if unknown:
        sys.exit(f"run_mutants: no such mutant: {', '.join(sorted(unknown))}")
    rows = [row for row in rows if not given.names or row[0] in given.names]

    programs = build(source, folder)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        start = time.monotonic()
        checks = [(suite, model) for suite in SUITES for model in MODELS]
        for (suite, model), red in zip(checks, pool.map(
                lambda check: judge(programs[check[0]].file, check[1], None), checks)):
            if red is not None:
                sys.exit(f"run_mutants: {suite} is not green without a fault (matrix steps: {model}): {red}")
        limit = SLOWER * (time.monotonic() - start)
        folders = queue.SimpleQueue()
        for job in range(given.jobs):
            own = folder / f"job{job}"
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(folder / "tree", own / "tree")
            folders.put(own)

        def work(row):
            own = folders.get()
            try:
                return kill(programs, own, row, limit)
            finally:
                shutil.copytree(folder / "tree", own / "tree", dirs_exist_ok=True)
                folders.put(own)

        bad = 0
        waiting = {pool.submit(work, row): row[0] for row in rows}
        for done in concurrent.futures.as_completed(waiting):
            bad += not done.result().startswith("killed")
            print(f"{waiting[done]:28} {done.result()}", flush=True)
    print(f"{len(rows)} mutants, {bad} not killed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
