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


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


class Sound:
    """The build without a fault: its folder, and how each object and suite is made."""

    def __init__(self, source, folder):
        self.kernels, self.build = folder / "hip", folder / "build"
        shutil.rmtree(self.kernels, ignore_errors=True)
        shutil.copytree(source / "hip", self.kernels)
        # A fault may leave a name unused: the suites judge it, not the compiler's warnings.
        made = run(["cmake", "-G", "Ninja", "-S", source, "-B", self.build, "-DM3IDX_HIP=OFF", "-DM3IDX_WERROR=OFF",
                    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1",
                    f"-DM3IDX_SIMT_KERNELS={self.kernels}"])
        if made.returncode == 0:
            made = run(["cmake", "--build", self.build, "--target", *SUITES])
        if made.returncode != 0:
            sys.exit("run_mutants: the suites do not build without a fault\n" + (made.stdout + made.stderr)[-3000:])
        self.compile, self.link = {}, {}
        for suite in SUITES:
            *steps, self.link[suite] = run(["ninja", "-t", "commands", suite], cwd=self.build).stdout.splitlines()
            for step in steps:
                made = re.search(r" -o (\S+) -c ", step)
                if made: # as an object of its own: no list of what it reads
                    self.compile[made[1]] = re.sub(r" -MD -MT \S+ -MF \S+ ", " ", step)
        self.readers = {}
        said = run(["ninja", "-t", "deps"], cwd=self.build).stdout
        for target, reads in re.findall(r"^(\S+): #deps.*\n((?:    .*\n)*)", said, re.M):
            for read in reads.split():
                path = pathlib.Path(os.path.normpath(self.build / read))
                if path.parent == self.kernels:
                    self.readers.setdefault(path.name, []).append(target)


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


def kill(sound, own, row, limit):
    """Plant a fault in the copy `own`, build and run what reads it; the verdict in words."""
    _, file, text, instead = row
    original = (sound.kernels / file).read_text()
    faulty = plant(original, text, instead)
    if faulty is None:
        return f"NOT FOUND exactly once in {file}"
    (own / "hip" / file).write_text(faulty)
    objects = {}
    for number, target in enumerate(sound.readers.get(file, ())):
        objects[target] = own / f"{number}.o"
        command = sound.compile[target].replace(f" -o {target} ", f" -o {objects[target]} ")
        for flag in ("-I", "-c "): # not in the target's name, which holds the folder as well
            command = command.replace(f" {flag}{sound.kernels}", f" {flag}{own / 'hip'}")
        done = run(command, shell=True, cwd=sound.build)
        if done.returncode != 0 or not objects[target].exists():
            return "DOES NOT COMPILE: " + (done.stderr.strip().splitlines() or ["no object"])[0][:110]
    (own / "hip" / file).write_text(original)
    own_suites = [f"test_simt_{s}" for s in next(names for start, names in SUITES_OF if file.startswith(start)).split()]
    for suite in own_suites + [s for s in SUITES if s not in own_suites]:
        mine = [str(path) for target, path in objects.items() if "/test_" not in target or f"/{suite}.dir/" in target]
        if not mine:
            continue
        # What is linked first wins: the faulty objects stand before everything else.
        linked = sound.link[suite].replace(f" -o tests/simt/{suite} ",
                                           f" -Wl,--allow-multiple-definition -o {own / 'mutant'} ")
        linked = linked.replace(" tests/simt/CMakeFiles/", f" {' '.join(mine)} tests/simt/CMakeFiles/", 1)
        (own / "mutant").unlink(missing_ok=True)
        done = run(linked, shell=True, cwd=sound.build)
        if done.returncode != 0 or not (own / "mutant").exists():
            return "DOES NOT LINK: " + (done.stderr.strip().splitlines() or ["no program"])[-1][:110]
        for model in MODELS if suite == own_suites[-1] else MODELS[:1]:
            found = judge(own / "mutant", model, limit)
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

    sound = Sound(source, folder)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        start = time.monotonic()
        checks = [(suite, model) for suite in SUITES for model in MODELS]
        for (suite, model), red in zip(checks, pool.map(
                lambda check: judge(sound.build / "tests" / "simt" / check[0], check[1], None), checks)):
            if red is not None:
                sys.exit(f"run_mutants: {suite} is not green without a fault (matrix steps: {model}): {red}")
        limit = SLOWER * (time.monotonic() - start)
        folders = queue.SimpleQueue()
        for job in range(given.jobs):
            own = folder / f"job{job}"
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(sound.kernels, own / "hip")
            folders.put(own)

        def work(row):
            own = folders.get()
            try:
                return kill(sound, own, row, limit)
            finally:
                shutil.copytree(sound.kernels, own / "hip", dirs_exist_ok=True)
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
