# SPDX-License-Identifier: Apache-2.0
"""Programs with one fault, made from a sound build: what reads the faulty file is compiled anew and linked first.

A build folder must lie beside the copy of the checkout that it was configured from, never inside it.  Needs ninja.
"""
import os
import pathlib
import re
import subprocess


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


class Program:
    """A program of a build without a fault: its file, how its objects are made, and what each of those reads."""

    def __init__(self, tree, build, target):
        self.tree, self.build = tree, build
        *steps, self.link = run(["ninja", "-t", "commands", target], cwd=build).stdout.splitlines()
        self.file = build / re.search(r" -o (\S+) ", self.link)[1]
        self.compile = {}
        for step in steps:
            made = re.search(r" -o (\S+) -c ", step)
            if made:  # as an object of its own: no list of what it reads
                self.compile[made[1]] = re.sub(r" -MD -MT \S+ -MF \S+ ", " ", step)
        self.readers = {}
        said = run(["ninja", "-t", "deps"], cwd=build).stdout
        for made, reads in re.findall(r"^(\S+): #deps.*\n((?:    .*\n)*)", said, re.M):
            for read in reads.splitlines() if made in self.compile else ():
                self.readers.setdefault(os.path.normpath(build / read.strip()), []).append(made)

    def reads(self, file):
        return str(self.tree / file) in self.readers

    def faulty(self, file, own, unused=None, made_already=None):
        """The program whose `file` is that of the copy own/tree: (its path, "") or (None, why there is none).  Objects
        whose names hold `unused` do not run, and keep the sound file.  made_already: a dict, empty at first, through
        which the programs of one build share the objects of one fault."""
        place = re.compile(re.escape(str(self.tree)) + r"(?=[/\s\"']|$)")
        made_already = {} if made_already is None else made_already
        objects = []
        for made in self.readers.get(str(self.tree / file), ()):
            if unused and unused in made:
                continue
            if made not in made_already:
                one = own / f"{len(made_already)}.o"
                one.unlink(missing_ok=True)
                command = place.sub(str(own / "tree"), self.compile[made].replace(f" -o {made} ", f" -o {one} "))
                done = run(command, shell=True, cwd=self.build)
                if done.returncode != 0 or not one.exists():
                    return None, "does not compile: " + (done.stderr.strip().splitlines() or ["no object"])[0][:110]
                made_already[made] = one
            objects.append(made_already[made])
        if not objects:
            return None, "nothing of the program reads it"
        # What is linked first wins: the faulty objects stand before everything else.
        out = own / pathlib.Path(self.file).name
        out.unlink(missing_ok=True)
        first = f" -Wl,--allow-multiple-definition {' '.join(str(o) for o in objects)} "
        link = re.sub(r"^(: && \S+) ", lambda m: m[1] + first, self.link)
        link = re.sub(r" -o \S+ ", f" -o {out} ", link, count=1)
        done = run(link, shell=True, cwd=self.build)
        if done.returncode != 0 or not out.exists():
            return None, "does not link: " + (done.stderr.strip().splitlines() or ["no program"])[-1][:110]
        return out, ""
