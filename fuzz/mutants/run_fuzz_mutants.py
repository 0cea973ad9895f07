#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seed one fault at a time into a copy of the checkout, build it, and hunt it with the fuzzer.

usage: run_fuzz_mutants.py SOURCE WORK [--seconds S] [--seed N] [--jobs N] [--only REGEX] [--how REGEX] [--resume] [--list]

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
import concurrent.futures
import fcntl
import math
import os
import pathlib
import queue
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading

from mutant_build import Program, run
from mutant_table import Mutant, lines, plant, unescape

# What hunts a kernel file, by the start of its name, first match: the operation that it is part of; matrix kernels, and
# loads of 16 codes, in the shape that they take; prefill's on the machine whose policy cuts launches into splits (S8.5).
KERNEL_HUNTS = (("hip_prefill", "ref,simt:gfx942 prefill model"), ("hip_bound", "ref,simt:gfx942 prefill model"),
                ("hip_matrix_filter", "ref,simt:gfx950 decode model bf16"), ("hip_format", "ref,simt:gfx950 decode model"),
                ("hip_score", "ref,simt:gfx950 decode"), ("hip_exact", "ref,simt:gfx950 decode"),
                ("hip_filter", "ref,simt:gfx950 decode"), ("hip_cache_insert", "ref,simt:gfx950 decode"),
                ("hip_sparse", "ref,simt:gfx950 decode"), ("hip_rows", "ref,simt:gfx950 prefill"),
                ("", "ref,simt:gfx950 select"))
OPS = ("select", "decode", "prefill")
FIX = {"model": "--head-dim 128 --block-size 128", "bf16": "--q-dtype bf16 --k-dtype bf16"}

SILENT_SECONDS = 10  # of each kind of hunt without a fault
HANG_SECONDS = 60
PATIENCE = 8  # more seeds at most
OPTIMISE = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O2", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"]  # kernels build slowly


def load(source):
    mutants = []
    for fields in lines(source / "fuzz" / "mutants" / "faults.tsv"):
        name, kind, file, how, text, instead, argument = (fields + [""])[:7]
        mutants.append(Mutant(name, kind, file, how, unescape(text), unescape(instead), argument))
    for fields in lines(source / "tests" / "simt" / "mutants" / "mutants.tsv"):
        name, file, text, instead, kind = (fields + ["", ""])[:5]
        how = next(how for start, how in KERNEL_HUNTS if file.startswith(start))
        mutants.append(Mutant("hip_" + name, kind or "kernel", "hip/" + file, how, unescape(text), unescape(instead), ""))
    return mutants


class Lab:
    """A copy of the checkout and its builds; each job has a folder with a copy of its own to plant faults in."""

    def __init__(self, source, work, seconds, seed):
        self.source, self.work, self.seconds, self.seed = source, work, seconds, seed
        self.tree, self.build, self.targets = work / "tree", work / "build", work / "build-fuzz"
        self.programs = {}
        self.jobs = queue.SimpleQueue()

    def must(self, command, **more):
        done = run([str(c) for c in command], **more)
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
        if (self.source / ".git").exists():
            names = self.must(["git", "-C", self.source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).stdout
            wanted = {name for name in names.split("\0") if name and (self.source / name).is_file()}
        else:  # an archive
            wanted = {str(path.relative_to(self.source)) for path in self.source.rglob("*") if path.is_file()}
        for path in list(self.tree.rglob("*")):
            if path.is_file() and str(path.relative_to(self.tree)) not in wanted:
                path.unlink()
        for name in sorted(wanted):
            to, data = self.tree / name, (self.source / name).read_bytes()
            if not to.is_file() or to.read_bytes() != data:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(data)
                shutil.copymode(self.source / name, to)

    def hire(self, jobs):
        for job in range(jobs):
            own = self.work / f"job{job}"
            shutil.rmtree(own, ignore_errors=True)
            shutil.copytree(self.tree, own / "tree")
            (own / "finds").mkdir()
            self.jobs.put(own)

    def prepare(self, hows):
        """Configure and build, without a fault, what the hunts need."""
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        # A fault may leave a name unused: the hunt judges it, not the compiler's warnings.
        common = ["cmake", "-S", self.tree, "-G", "Ninja", "-DM3IDX_HIP=OFF", "-DM3IDX_WERROR=OFF", *launcher]
        wanted = {how: self.target_of(how) for how in hows}
        if any(build == self.build for build, _ in wanted.values()):
            self.must([*common, "-B", self.build, *OPTIMISE])
        if any(build == self.targets for build, _ in wanted.values()):
            self.must([*common, "-B", self.targets, "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1",
                       "-DCMAKE_CXX_FLAGS_DEBUG=-O1", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
                       "-DM3IDX_FUZZ=ON", "-DM3IDX_OPENMP=OFF", "-DM3IDX_TOOLS=OFF", "-DM3IDX_TEST_KINDS=oracle;conform;simt"])
        for build in sorted({build for build, _ in wanted.values()}):
            self.must(["cmake", "--build", build, "--target", *sorted({t for b, t in wanted.values() if b == build})])
        for build, target in set(wanted.values()):
            self.programs[target] = Program(self.tree, build, target)
        if "frozen,ref" in hows:
            sound = sorted((self.tree / "ref").glob("*.c")) + [self.tree / "common" / "names.c",
                                                               self.tree / "fuzz" / "mutants" / "frozen_plugin.c"]
            self.must(["cc", "-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic",
                       f"-I{self.tree}/common", f"-I{self.tree}/ref", "-o", self.work / "libfrozen.so", *sound])

    def target_of(self, how):
        """(build folder, target) of the program that hunts."""
        if how.startswith("target:"):
            return self.targets, "target_" + how[7:]
        return self.build, "fuzz_simt" if how.startswith("ref,simt") else "m3idx_tool"

    def program_of(self, how):
        return self.programs[self.target_of(how)[1]]

    def command(self, how, program, own, seconds, seed):
        if how.startswith("target:"):
            grown = own / "grown"
            shutil.rmtree(grown, ignore_errors=True)
            grown.mkdir()
            return [program, f"-max_total_time={seconds:.0f}", f"-seed={seed}", f"-timeout={HANG_SECONDS}",
                    f"-artifact_prefix={own}/finds/", "-max_len=600", grown, self.tree / "fuzz" / "corpus" / how[7:]]
        verb = [] if how.startswith("ref,simt") else ["fuzz"]
        backends, *more = how.replace("frozen", "hip").split()
        isas = ["--isa", "all"] if backends == "ref,cpu" else []
        fix = ["--fix", " ".join(FIX[word] for word in more if word in FIX)] if "model" in more else []
        fix += [part for word in more if word in OPS for part in ("--op", word)]
        return [program, *verb, "--backends", backends, *isas, *fix, "--threads", 3 if "x3" in more else 1, "--seconds", seconds, "--seed", seed,
                "--failures", 1, "--shrink", 0, "--hang", HANG_SECONDS, "--save", own / "finds", "--quiet"]

    def once(self, how, program, own, seconds, seed):
        """(found, processor seconds, what was said)."""
        # Matrix steps of the executor err as far as they may.
        env = dict(os.environ, OMP_NUM_THREADS="1", M3IDX_SIMT_MATRIX="any", M3IDX_HIP_PLUGIN=str(self.work / "libfrozen.so"))
        status, took, text = timed([str(c) for c in self.command(how, program, own, seconds, seed)], env, own / "said", seconds + 120)
        if status is None:
            return True, took, "did not end"
        said = [line for line in text.splitlines() if re.search(r"FAIL|is false|ERROR|runtime error", line)] or [text[-160:]]
        if status not in (0, 1) and not how.startswith("target:"):
            raise RuntimeError(f"{how} cannot run: {text[-2000:]}")
        return status != 0, took, said[0].strip().replace("\n", " ")[:160]

    def hunt(self, how, program, own, seconds):
        """The same, for so many processor seconds: a busy machine gives a process less than the clock says, so the hunt goes
        on with the next seed until it has had them."""
        spent, seed = 0.0, self.seed
        while True:
            found, took, said = self.once(how, program, own, max(1, math.ceil(seconds - spent)), seed)
            spent += took
            if found or spent > seconds - 1 or seed > self.seed + PATIENCE:
                return found, spent, said
            seed += 1

    def on_a_job(self, work, *arguments):
        own = self.jobs.get()
        try:
            return work(own, *arguments)
        finally:
            self.jobs.put(own)

    def silent(self, own, how):
        """None, or what the hunt says without a fault."""
        found, _, said = self.hunt(how, self.program_of(how).file, own, SILENT_SECONDS)
        return said if found else None

    def judge(self, own, mutant):
        path, original = own / "tree" / mutant.file, (self.tree / mutant.file).read_text()
        faulty = plant(original, mutant.text, mutant.instead)
        if faulty is None:
            return "NOT THERE", 0.0, "its text is not found exactly once"
        path.write_text(faulty)
        try:
            program, why = self.program_of(mutant.how).faulty(mutant.file, own, "simt_wave32" if ":gfx" in mutant.how else None)
        finally:
            path.write_text(original)
        if not program:
            return "NO BUILD", 0.0, why
        found, took, said = self.hunt(mutant.how, program, own, self.seconds)
        if mutant.argument:
            return ("NOT EQUIVALENT" if found else "equivalent"), took, said if found else ""
        return ("found" if found else "MISSED"), took, said


def timed(command, env, log, limit):
    """(exit status or None past the limit, processor seconds of it and of what it waited for, its output)."""
    with log.open("w+", errors="replace") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True)
        late = threading.Event()

        def stop():
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(limit, stop)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return None if late.is_set() else process.returncode, usage.ru_utime + usage.ru_stime, out.read()


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
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="hunts at a time")
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
    lab.hire(a.jobs)
    hows = sorted({m.how for m in mutants})
    lab.prepare(hows)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for how, said in zip(hows, pool.map(lambda how: lab.on_a_job(lab.silent, how), hows)):
            if said is not None:
                sys.exit(f"run_fuzz_mutants: {how}: not silent without a fault: {said}")
        results, known = [], {m.name: m for m in mutants}
        if a.resume and (work / "results.tsv").is_file():
            for name, _, _, _, verdict, took, said in lines(work / "results.tsv"):
                if name in known:
                    results.append((known.pop(name), verdict, float(took), said))
        # Kernels take longest to build.
        known = sorted(known.values(), key=lambda m: not m.how.startswith("ref,simt"))
        waiting = {pool.submit(lab.on_a_job, lab.judge, m): m for m in known}
        for done in concurrent.futures.as_completed(waiting):
            mutant, (verdict, took, said) = waiting[done], done.result()
            results.append((mutant, verdict, took, said))
            print(f"{mutant.name:38} {mutant.how:15} {verdict:14} {took:6.2f} s  {said[:90]}", flush=True)
            (work / "results.tsv").write_text("".join(
                f"{m.name}\t{m.kind}\t{m.file}\t{m.how}\t{v}\t{t:.2f}\t{s}\n" for m, v, t, s in results))
    summary(results)
    return 0 if all(verdict in ("found", "equivalent") for _, verdict, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
