# SPDX-License-Identifier: Apache-2.0
"""What coverage.sh measured: `llvm-cov export` on standard input, a verdict and what is left on standard output.

The figures are llvm-cov's own: a line counts once, a branch is one outcome of one condition, and a function that a header
or a .inc gives to several files has its branches in each.  The list joins those: a branch is left if no copy takes it.
"""
import collections
import json
import os
import sys

LEAST = {"lines": 98.0, "branches": 90.0}


def names(files):
    return {f["filename"]: os.path.relpath(os.path.realpath(f["filename"])) for f in files}


def missed_lines(segments):
    """Lines without a region that was entered.  A segment is line, column, count, has_count, region entry, gap."""
    most = {}
    for here, after in zip(segments, segments[1:] + segments[-1:]):
        line, _, count, has_count, entry, gap = here
        if entry and not gap and has_count:
            most[line] = max(most.get(line, 0), count)
        for other in range(line + 1, after[0] + (1 if after[1] > 1 else 0)):
            if has_count and not gap:
                most[other] = max(most.get(other, 0), count) if other == after[0] else count
    return sorted(line for line, count in most.items() if count == 0)


def missed_branches(branches):
    taken = collections.Counter()
    places = set()
    for b in branches:
        place = tuple(b[:4])
        places.add(place)
        taken[place, True] += b[4]
        taken[place, False] += b[5]
    return sorted((p[0], p[1], side) for p in places for side in (True, False) if not taken[p, side])


def main():
    data = json.load(sys.stdin)["data"][0]
    name = names(data["files"])
    for f in sorted(data["files"], key=lambda f: name[f["filename"]]):
        path = name[f["filename"]]
        with open(path, encoding="utf-8") as source:
            text = source.read().split("\n")
        left = [(line, "not executed") for line in missed_lines(f["segments"])]
        gone = {line for line, _ in left}
        left += [(line, f"column {column} never {str(side).lower()}")
                 for line, column, side in missed_branches(f["branches"]) if line not in gone]
        for line, what in sorted(left):
            print(f"{path}:{line}: {what}: {text[line - 1].strip()[:90]}")
    bad = False
    for kind, least in LEAST.items():
        total = data["totals"][kind]
        bad = bad or total["percent"] < least
        print(f"{kind}: {total['covered']} of {total['count']}, {total['percent']:.2f} %, at least {least:.0f}")
    return 1 if bad else 0


sys.exit(main())
