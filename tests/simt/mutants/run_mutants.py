#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the kernel files with one fault each (mutants.tsv), run the simt tests, and demand that they fail.

usage: run_mutants.py SOURCE BUILD [NAME...]     SOURCE: the checkout, BUILD: a folder for the builds; all or the named

A mutant counts as killed when a test fails, a test takes too long, or the mutant does not compile (which says
so: a table line that no longer compiles is worth nothing).  Exit 1 if one survives, does not compile, or its
text is not found exactly once.
"""
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "fuzz" / "mutants"))
from mutant_table import lines, plant, unescape

SUITES = ("test_simt_select", "test_simt_score", "test_simt_probe", "test_simt_prefill")
SLOWER = 20  # times the slowest suite without a fault, from where on a mutant is said to hang


def load(path):
    rows = ((fields + ["", ""])[:4] for fields in lines(path))
    return [(name, file, unescape(text), unescape(instead)) for name, file, text, instead in rows]


def build(folder):
    return subprocess.run(["cmake", "--build", str(folder), "-j2", "--target", *SUITES], capture_output=True, text=True, check=False)


def verdict(folder, first, limit):
    """How the suites took it; the one the file belongs to first, and the first red one ends it."""
    for suite in sorted(SUITES, key=lambda s: s != first):
        try:
            done = subprocess.run([folder / "tests" / "simt" / suite], capture_output=True, text=True, check=False,
                                  timeout=limit, env={"CK_FORK": "no", "M3IDX_SIMT_FIRST": "1"})
        except subprocess.TimeoutExpired:
            return f"killed: {suite} did not end in {limit:.0f} s"
        if done.returncode != 0:
            said = (done.stderr + done.stdout).strip().splitlines()
            wanted = [s for s in said if " differ, first at " in s or "simt " in s] or said or ["no output"]
            return f"killed: {suite}: {wanted[0].strip()[:110]}"
    return "SURVIVED"


def main():
    source, folder = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    rows = load(source / "tests" / "simt" / "mutants" / "mutants.tsv")
    names = sys.argv[3:] or [row[0] for row in rows]
    kernels = folder / "hip"
    shutil.rmtree(kernels, ignore_errors=True)
    shutil.copytree(source / "hip", kernels)
    subprocess.run(["cmake", "-S", source, "-B", folder / "build", "-DM3IDX_HIP=OFF", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCMAKE_CXX_FLAGS_RELEASE=-O1", f"-DM3IDX_SIMT_KERNELS={kernels}"],
                   check=True, capture_output=True)
    clean = build(folder / "build")
    start = time.monotonic()
    if clean.returncode != 0 or verdict(folder / "build", SUITES[0], None) != "SURVIVED":
        sys.exit("run_mutants: the suites are not green without a fault\n" + clean.stdout[-2000:])
    limit = SLOWER * (time.monotonic() - start)
    bad = 0
    for name, file, text, instead in rows:
        if name not in names:
            continue
        original = (source / "hip" / file).read_text()
        faulty = plant(original, text, instead)
        if faulty is None:
            result = f"NOT FOUND exactly once in {file}"
        else:
            (kernels / file).write_text(faulty)
            done = build(folder / "build")
            suite = "test_simt_score" if file.split(".")[0] in (
                "hip_score", "hip_exact", "hip_filter", "hip_format", "hip_cache_insert") else "test_simt_select"
            if file.startswith(("hip_prefill", "hip_block")):
                suite = "test_simt_prefill"
            elif file.startswith(("hip_bound", "hip_probe", "hip_layout")):
                suite = "test_simt_probe"
            result = verdict(folder / "build", suite, limit) if done.returncode == 0 else "DOES NOT COMPILE"
            (kernels / file).write_text(original)
        bad += not result.startswith("killed")
        print(f"{name:28} {result}", flush=True)
    print(f"{len(names)} mutants, {bad} not killed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
