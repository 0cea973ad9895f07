#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the matrix loops of a HIP plugin's kernels are made of: for each kernel that matches, the outermost loop with
matrix instructions, its instructions by kind, and what llvm-mca thinks of one pass, for docs/PERFORMANCE.md.

usage: loops.py --bin LLVM_BIN [--kernel GLOB] FILE        exit 1 unless every kernel that matches has such a loop

llvm-mca counts in units of four clocks, in which a SIMD issues one vector instruction.  It runs the listing straight
through, branches taken as they lie in memory, one wave alone: no other wave to fill its gaps, loads at their shortest,
no barriers, no banks.
"""
import argparse
import fnmatch
import re
import subprocess
import sys
import tempfile

from codeobj import code_objects, run, without_parameters

KINDS = (  # the first that matches the mnemonic
    ("matrix", r"v_mfma_"),
    ("agpr moves", r"v_accvgpr_"),
    ("vector f64", r"v_\w*f64"),
    ("vector", r"v_"),
    ("LDS reads", r"ds_(read|bpermute)"),
    ("LDS writes", r"ds_write"),
    ("global", r"(global|buffer|flat)_"),
    ("waits", r"s_(waitcnt|nop|barrier)"),
    ("scalar", r"s_"),
)


def functions_of(listing):
    """(symbol, [(address, instruction, branch target or None)]) of each function."""
    functions, start = {}, 0
    for line in listing.splitlines():
        head = re.match(r"([0-9a-f]+) <(.+)>:$", line)
        if head:
            start, code = int(head[1], 16), functions.setdefault(head[2], [])
            continue
        part = re.match(r"\t(\S.*?)\s*// ([0-9A-F]+):[^<]*(?:<.+?(?:\+0x([0-9a-f]+))?>)?$", line)
        if part:
            branch = re.match(r"s_(c?branch)", part[1])
            target = start + int(part[3] or "0", 16) if branch else None
            code.append((int(part[2], 16), part[1], target))
    return functions


def matrix_loop(code):
    """First and last index of the longest backward branch's range that has matrix instructions, or None."""
    at = {address: i for i, (address, _, _) in enumerate(code)}
    best = None
    for i, (_, _, target) in enumerate(code):
        first = at.get(target)
        if first is None or first > i:
            continue
        if any(text.startswith("v_mfma_") for _, text, _ in code[first : i + 1]):
            if best is None or i - first > best[1] - best[0]:
                best = (first, i)
    return best


def mix_of(body):
    counts = dict.fromkeys((kind for kind, _ in KINDS), 0)
    for text in body:
        for kind, pattern in KINDS:
            if re.match(pattern, text):
                counts[kind] += 1
                break
    return counts


def mca_of(llvm, target, body):
    """Units of four clocks that one pass takes, and that its matrix instructions alone take."""
    def cycles(lines):
        with tempfile.NamedTemporaryFile("w", suffix=".s") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            said = subprocess.run([f"{llvm}/llvm-mca", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-iterations=20",
                                   file.name], capture_output=True, text=True, check=False)
        found = re.search(r"Total Cycles:\s+(\d+)", said.stdout)
        return int(found[1]) / 20 if found else float("nan")

    straight = [t for t in body if not re.match(r"s_(c?branch|barrier|endpgm)", t)]
    return cycles(straight), cycles([t for t in straight if t.startswith("v_mfma_")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="folder of llvm-objdump, llvm-mca and llvm-cxxfilt")
    parser.add_argument("--kernel", default="hipk::prefill_tiles<*", help="a glob over the demangled name")
    parser.add_argument("file", help="the plugin, or any object with offload bundles")
    options = parser.parse_args()
    print("| target | kernel |", " | ".join(kind for kind, _ in KINDS), "| llvm-mca | matrix alone |")
    print("|---|---|" + "---|" * (len(KINDS) + 2))
    found = 0
    with open(options.file, "rb") as file:
        data = file.read()
    for target, elf in code_objects(data):
        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(elf)
            file.flush()
            functions = functions_of(run(f"{options.bin}/llvm-objdump", "-d", file.name))
        for symbol, code in functions.items():
            name = without_parameters(run(f"{options.bin}/llvm-cxxfilt", symbol).strip()).removeprefix("void ")
            if not fnmatch.fnmatchcase(name, options.kernel):
                continue
            loop = matrix_loop(code)
            if loop is None:
                sys.exit(f"loops: {target} {name} has no loop with matrix instructions")
            found += 1
            body = [text for _, text, _ in code[loop[0] : loop[1] + 1]]
            one, matrix = mca_of(options.bin, target, body)
            cells = [str(n) for n in mix_of(body).values()] + [f"{one:.0f}", f"{matrix:.0f}"]
            print(f"| {target} | `{name}` |", " | ".join(cells), "|")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
