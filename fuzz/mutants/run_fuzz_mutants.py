#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seed one fault at a time into a copy of the checkout, build it, and hunt it with the fuzzer.

usage: run_fuzz_mutants.py SOURCE WORK [--seconds S] [--seed N] [--only REGEX] [--how REGEX] [--resume] [--list]

SOURCE is the checkout (never written to), WORK a folder for the copy, the builds and results.tsv.  Tables:
fuzz/mutants/faults.tsv, and tests/simt/mutants/mutants.tsv for the kernels.  What hunts a fault (its column "how"):

  ref,cpu      m3idx fuzz: the faulty side is judged by the other one, cpu under every instruction set of this machine
  frozen,ref   the same, with a copy of ref built from the sound sources as the truth: for code that cpu takes from ref
  ref,cpu x3   the same on three threads, for code that only then runs
  ref,simt     the same with the kernels on the host executor; simt:gfx950 on one of its machines, three times as fast
  target:NAME  the coverage-guided target, from its corpus in the tree

But for that, a hunt has one thread; its time to find is the processor time from its start to the first failure, which on a core of
its own is the time on the clock.  Without a fault every kind of hunt must be silent.  Exit status: 0 every fault was found but those argued to be equivalent, which were not; else 1.
"""
import argparse
import fcntl
import math
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

from mutant_table import Mutant, lines, plant, unescape

SILENT_SECONDS = 10  # of each kind of hunt without a fault
HANG_SECONDS = 20
PATIENCE = 8  # more seeds at most
OPTIMISE = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"]  # builds quickly


def load(source):
    mutants = []
    for fields in lines(source / "fuzz" / "mutants" / "faults.tsv"):
        name, kind, file, how, text, instead, argument = (fields + [""])[:7]
        mutants.append(Mutant(name, kind, file, how, unescape(text), unescape(instead), argument))
    for fields in lines(source / "tests" / "simt" / "mutants" / "mutants.tsv"):
        name, file, text, instead, kind = (fields + ["", ""])[:5]
        mutants.append(Mutant("hip_" + name, kind or "kernel", "hip/" + file, "ref,simt:gfx950", unescape(text), unescape(instead), ""))
    return mutants


class Lab:
    """A copy of the checkout and its builds."""

    def __init__(self, source, work, seconds, seed):
        self.source, self.work, self.seconds, self.seed = source, work, seconds, seed
        self.tree, self.build, self.targets = work / "tree", work / "build", work / "build-fuzz"
        self.log = work / "log"

    def run(self, command, **more):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
        self.log.write_text(done.stdout + done.stderr)
        return done

    def must(self, command, **more):
        done = self.run(command, **more)
        if done.returncode != 0:
            sys.exit(f"run_fuzz_mutants: {' '.join(str(c) for c in command)}\n{(done.stdout + done.stderr)[-3000:]}")
        return done

    def copy(self):
        """Only files that changed are written, so that a second run builds little."""
        self.work.mkdir(parents=True, exist_ok=True)
        self.lock = (self.work / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two at once would plant into each other's sources
        except BlockingIOError:
            sys.exit(f"run_fuzz_mutants: {self.work} is in use")
        names = self.must(["git", "-C", self.source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).stdout
        wanted = {name for name in names.split("\0") if name and (self.source / name).is_file()}
        for path in list(self.tree.rglob("*")):
            if path.is_file() and str(path.relative_to(self.tree)) not in wanted:
                path.unlink()
        for name in sorted(wanted):
            to, data = self.tree / name, (self.source / name).read_bytes()
            if not to.is_file() or to.read_bytes() != data:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(data)
                shutil.copymode(self.source / name, to)

    def configure(self, hows):
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        common = ["cmake", "-S", self.tree, "-G", "Ninja", "-DM3IDX_HIP=OFF", *launcher]
        if any(not how.startswith("target:") for how in hows):
            self.must([*common, "-B", self.build, *OPTIMISE])
        if any(how.startswith("target:") for how in hows):
            self.must([*common, "-B", self.targets, *OPTIMISE, "-DCMAKE_C_COMPILER=clang",
                       "-DCMAKE_CXX_COMPILER=clang++", "-DM3IDX_FUZZ=ON", "-DM3IDX_OPENMP=OFF", "-DM3IDX_TOOLS=OFF",
                       "-DM3IDX_TEST_KINDS=oracle;conform;simt"])
        if "frozen,ref" in hows:
            sound = sorted((self.tree / "ref").glob("*.c")) + [self.tree / "common" / "names.c",
                                                               self.tree / "fuzz" / "mutants" / "frozen_plugin.c"]
            self.must(["cc", "-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic",
                       f"-I{self.tree}/common", f"-I{self.tree}/ref", "-o", self.work / "libfrozen.so", *sound])

    def build_for(self, how):
        """The programs of a hunt; False = the fault does not compile."""
        if how.startswith("target:"):
            command = ["cmake", "--build", self.targets, "--target", "target_" + how[7:]]
        else:
            command = ["cmake", "--build", self.build, "--target", "fuzz_simt" if how.startswith("ref,simt") else "m3idx_tool"]
        return self.run(command).returncode == 0

    def command(self, how, seconds, seed):
        finds = self.work / "finds"
        finds.mkdir(exist_ok=True)
        if how.startswith("target:"):
            name, grown = how[7:], self.work / "grown"
            shutil.rmtree(grown, ignore_errors=True)
            grown.mkdir()
            return [self.targets / "fuzz" / "targets" / ("target_" + name), f"-max_total_time={seconds:.0f}", f"-seed={seed}",
                    f"-timeout={HANG_SECONDS}", f"-artifact_prefix={finds}/", "-max_len=600", grown,
                    self.tree / "fuzz" / "corpus" / name]
        program = [self.build / "tests" / "simt" / "fuzz_simt"] if how.startswith("ref,simt") else [self.build / "tools" / "m3idx", "fuzz"]
        backends, _, threads = how.replace("frozen", "hip").partition(" x")
        isas = ["--isa", "all"] if backends == "ref,cpu" else []
        return [*program, "--backends", backends, *isas, "--threads", threads or 1, "--seconds", seconds, "--seed", seed,
                "--failures", 1, "--shrink", 0, "--hang", HANG_SECONDS, "--save", finds, "--quiet"]

    def once(self, how, seconds, seed):
        """(found, processor seconds, what was said)."""
        env = dict(os.environ, OMP_NUM_THREADS="1", M3IDX_HIP_PLUGIN=str(self.work / "libfrozen.so"))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            done = self.run(self.command(how, seconds, seed), env=env, timeout=seconds + 120)
        except subprocess.TimeoutExpired:
            return True, float(seconds), "did not end"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        text = done.stdout + done.stderr
        said = [line for line in text.splitlines() if re.search(r"FAIL|is false|ERROR|runtime error", line)] or [text[-160:]]
        if done.returncode not in (0, 1) and not how.startswith("target:"):
            sys.exit(f"run_fuzz_mutants: {how} cannot run: {text[-2000:]}")
        return done.returncode != 0, took, said[0].strip().replace("\n", " ")[:160]

    def hunt(self, how, seconds):
        """The same, for so many processor seconds: a busy machine gives a process less than the clock says, so the hunt goes
        on with the next seed until it has had them."""
        spent, seed = 0.0, self.seed
        while True:
            found, took, said = self.once(how, max(1, math.ceil(seconds - spent)), seed)
            spent += took
            if found or spent > seconds - 1 or seed > self.seed + PATIENCE:
                return found, spent, said
            seed += 1


def judge(lab, mutant):
    path = lab.tree / mutant.file
    original = path.read_text()  # sound: the last fault was taken out again
    faulty = plant(original, mutant.text, mutant.instead)
    if faulty is None:
        return "NOT THERE", 0.0, "its text is not found exactly once"
    path.write_text(faulty)
    try:
        if not lab.build_for(mutant.how):
            return "NO BUILD", 0.0, lab.log.read_text()[-200:].replace("\n", " ")
        found, took, said = lab.hunt(mutant.how, lab.seconds)
    finally:
        path.write_text(original)
    if mutant.argument:
        return ("NOT EQUIVALENT" if found else "equivalent"), took, said if found else ""
    return ("found" if found else "MISSED"), took, said


def summary(results):
    """Counts and times by what hunts, then in all."""
    groups = {}
    for mutant, verdict, took, _ in results:
        groups.setdefault(mutant.how, []).append((verdict, took))
        groups.setdefault("all", []).append((verdict, took))
    print(f"{'hunted by':16} {'faults':>6} {'found':>6} {'missed':>6} {'equivalent':>10} {'median s':>9} {'90 % s':>7} {'longest s':>9}")
    for how in sorted(groups, key=lambda h: (h == "all", h)):
        rows = groups[how]
        times = sorted(took for verdict, took in rows if verdict == "found")
        count = {v: sum(1 for verdict, _ in rows if verdict == v) for v in ("found", "equivalent")}
        missed = len(rows) - count["found"] - count["equivalent"]
        mid, high, most = (statistics.median(times), times[int(0.9 * (len(times) - 1))], times[-1]) if times else (0, 0, 0)
        print(f"{how:16} {len(rows):6} {count['found']:6} {missed:6} {count['equivalent']:10} {mid:9.2f} {high:7.2f} {most:9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="names that match this")
    parser.add_argument("--how", default="", help="hunts that match this")
    parser.add_argument("--resume", action="store_true", help="keep what WORK/results.tsv has; the checkout must be the same")
    parser.add_argument("--list", action="store_true", help="only list the faults, and check that each has its place")
    a = parser.parse_args()
    source, work = a.source.resolve(), a.work.resolve()
    mutants = [m for m in load(source) if re.search(a.only, m.name) and re.search(a.how, m.how)]
    if len({m.name for m in mutants}) != len(mutants):
        sys.exit("run_fuzz_mutants: a name stands twice")
    lost = [m.name for m in mutants if plant((source / m.file).read_text(), m.text, m.instead) is None]
    if a.list or lost:
        for m in mutants if a.list else ():
            print(f"{m.name:38} {m.kind:11} {m.how:15} {m.file}")
        sys.exit(f"run_fuzz_mutants: no longer in its file exactly once: {', '.join(lost)}" if lost else 0)
    lab = Lab(source, work, a.seconds, a.seed)
    lab.copy()
    hows = sorted({m.how for m in mutants})
    lab.configure(hows)
    for how in hows:
        if not lab.build_for(how):
            sys.exit(f"run_fuzz_mutants: {how}: the sound tree does not build\n{lab.log.read_text()[-3000:]}")
        found, _, said = lab.hunt(how, SILENT_SECONDS)
        if found:
            sys.exit(f"run_fuzz_mutants: {how}: not silent without a fault: {said}\n{lab.log.read_text()[-3000:]}")
    results, known = [], {m.name: m for m in mutants}
    if a.resume and (work / "results.tsv").is_file():
        for name, _, _, _, verdict, took, said in lines(work / "results.tsv"):
            if name in known:
                results.append((known.pop(name), verdict, float(took), said))
    # By file, so that a file's neighbours are rebuilt once.
    for mutant in sorted(known.values(), key=lambda m: (m.how, m.file)):
        verdict, took, said = judge(lab, mutant)
        results.append((mutant, verdict, took, said))
        print(f"{mutant.name:38} {mutant.how:15} {verdict:14} {took:6.2f} s  {said[:90]}", flush=True)
        (work / "results.tsv").write_text("".join(
            f"{m.name}\t{m.kind}\t{m.file}\t{m.how}\t{v}\t{t:.2f}\t{s}\n" for m, v, t, s in results))
    summary(results)
    return 0 if all(verdict in ("found", "equivalent") for _, verdict, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
