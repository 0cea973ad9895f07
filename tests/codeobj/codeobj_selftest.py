#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The liar test of codeobj.py: builds codeobj_faults.hip honest and with one fault at a time, and wants the
honest one green and each fault red with the sentence that names it.

usage: codeobj_selftest.py CLANG LLVM_BIN [FLAG...]
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROW = "gfx942\tprobe\t128\t64\t65536\t1\tarrival"
BOTH = ROW + "\n" + ROW.replace("gfx942", "gfx950")

# what is wrong, compiler flags, the table, a piece of the sentence that must come (None = green)
LIES = (
    ("nothing", [], BOTH, None),
    ("spilled registers", ["-DFAULT=1"], BOTH, "spilled registers, must be 0"),
    ("an array in scratch memory", ["-DFAULT=2"], BOTH, "bytes of scratch memory a lane, must be 0"),
    ("a called function", ["-DFAULT=3"], BOTH, "scratch memory or a call"),
    ("few waves for group memory", ["-DFAULT=4"], BOTH.replace("\t1\ta", "\t2\ta"),
     "1 waves a SIMD, table.tsv wants 2"),
    ("a relaxed arrival", ["-DFAULT=5"], BOTH, "not a release at the scope of the device"),
    ("an arrival without acquire", ["-DFAULT=6"], BOTH, "not an acquire at the scope of the device"),
    ("an arrival without release", ["-DFAULT=7"], BOTH, "not a release at the scope of the device"),
    ("an arrival of workgroup scope", ["-DFAULT=8"], BOTH, "not a release at the scope of the device"),
    ("subnormals flushed", ["-fgpu-flush-denormals-to-zero"], BOTH, "must be 0xf0: nearest even, subnormals kept"),
    ("one target only", ["--no-offload-arch=gfx950"], BOTH, "not in the code objects of both targets"),
    ("registers over the table", [], BOTH.replace("\t128\t", "\t2\t"), "3 vector registers, table.tsv allows 2"),
    ("group memory over the table", [], BOTH.replace("\t65536\t", "\t4095\t"),
     "4096 bytes of group memory, table.tsv allows 4095"),
    ("a kernel without a row", [], ROW, "no row of the table is for it"),
    ("a row without a kernel", [], BOTH + "\n" + ROW.replace("probe", "other"), "no gfx942 kernel matches other"),
    ("too few matrix instructions", [], BOTH.replace("arrival", "arrival,mfma>=1"),
     "0 matrix instructions, table.tsv wants 1"),
    ("a promise not kept", [], BOTH.replace("arrival", "mfma_bf16"), "promise mfma_bf16: no instruction matches"),
)


def main():
    clang, llvm, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        table, objects = os.path.join(folder, "table.tsv"), {}
        for what, extra, rows, want in LIES:
            key = " ".join(extra)
            if key not in objects:
                objects[key] = os.path.join(folder, f"{len(objects)}.o")
                source = f"{HERE}/codeobj_faults.hip"
                subprocess.run([clang, *flags, *extra, "-w", "-c", source, "-o", objects[key]], check=True)
            with open(table, "w", encoding="utf-8") as file:
                file.write(rows + "\n")
            done = subprocess.run([sys.executable, f"{HERE}/codeobj.py", "--bin", llvm, "--table", table, objects[key]],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            good = done.returncode == 0 if want is None else done.returncode == 1 and want in done.stdout
            failed += not good
            print(f"{'ok' if good else 'FAIL'}: {what}")
            if not good:
                print(f"  want {'green' if want is None else want!r}, got exit {done.returncode}\n{done.stdout}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
