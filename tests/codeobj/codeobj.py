#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judge the code objects of a HIP plugin without a GPU: what the compiler wrote into their metadata, kernel
descriptors and instructions.  For every kernel of every target: no scratch memory, no spilled register, no
call, IEEE rounding and subnormals kept, and registers, group memory, waves and promised instructions as
table.tsv says.  It does not show that a kernel is right, only that it is the program that was meant.

usage: codeobj.py --bin LLVM_BIN --table TABLE FILE            judge; exit 1 with a line for each fault
       codeobj.py --bin LLVM_BIN --print FILE                  print the rows as they are now
"""
import argparse
import fnmatch
import re
import struct
import subprocess
import sys
import tempfile

TARGETS = ("gfx942", "gfx950")
LDS_BYTES = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}  # of a compute unit, and so the most a workgroup can take
SIMDS, WAVES_PER_SIMD, VGPRS, SGPRS = 4, 8, 512, 800
WAVE = 64
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"

# An instruction that stands for a promise of table.tsv.  "arrival" is more than one: see arrival_fault().
PROMISES = {
    "mfma_bf16": r"v_mfma_f32_\w*bf16",
    "mfma_f16": r"v_mfma_f32_\w*_f16",
    "mfma_f64": r"v_mfma_f64_",
    "fma_f64": r"v_(pk_)?(fma|fmac)_f64",
    "load16": r"(global|buffer)_load_dwordx4",
}


class Kernel:
    def __init__(self, target, metadata, code, mode):
        self.target, self.code, self.mode = target, code, mode
        self.symbol = metadata["name"]
        self.vgpr = int(metadata["vgpr_count"])
        self.sgpr = int(metadata["sgpr_count"])
        self.lds = int(metadata["group_segment_fixed_size"])
        self.scratch = int(metadata["private_segment_fixed_size"])
        self.spills = int(metadata["vgpr_spill_count"])
        self.scalar_spills = int(metadata["sgpr_spill_count"])
        self.dynamic_stack = metadata["uses_dynamic_stack"] != "false"
        self.threads = int(metadata["max_flat_workgroup_size"])
        self.wave = int(metadata["wavefront_size"])
        self.name = self.symbol

    def mfma(self):
        """Matrix instructions in its code, whatever their type."""
        return sum(line.startswith("v_mfma_") for line in self.code)

    def waves(self):
        """Waves a SIMD can hold at once: the least of what registers and group memory allow."""
        by_vgpr = VGPRS // (8 * max(1, -(-self.vgpr // 8)))
        by_sgpr = SGPRS // (16 * max(1, -(-self.sgpr // 16)))
        group_waves = -(-self.threads // WAVE)
        by_lds = WAVES_PER_SIMD
        if self.lds:
            by_lds = LDS_BYTES[self.target] // self.lds * group_waves // SIMDS
        return min(WAVES_PER_SIMD, by_vgpr, by_sgpr, by_lds)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"codeobj: {command[0]}: {done.stderr.strip()}")
    return done.stdout


def code_objects(data):
    """(target, bytes) of every device entry of every bundle in a file."""
    at = data.find(MAGIC)
    while at >= 0:
        (count,), place = struct.unpack_from("<Q", data, at + len(MAGIC)), at + len(MAGIC) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, place)
            entry = data[place + 24 : place + 24 + length].decode()
            place += 24 + length
            if entry.startswith("hip") and size:
                yield entry.rsplit("-", 1)[1], data[at + offset : at + offset + size]
        at = data.find(MAGIC, at + 1)


def descriptor_modes(elf):
    """The float mode byte of each kernel's descriptor (symbol NAME.kd): rounding in bits 0-3, denormals in 4-7."""
    shoff, = struct.unpack_from("<Q", elf, 0x28)
    shentsize, shnum = struct.unpack_from("<HH", elf, 0x3A)
    # name, type, flags, address, offset, size, link, info, align, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, shoff + i * shentsize) for i in range(shnum)]
    modes = {}
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name_at, _, _, index, address, _ = struct.unpack_from("<IBBHQQ", elf, at)
            name = elf[strings + name_at : elf.index(b"\0", strings + name_at)].decode()
            if name.endswith(".kd"):
                home = sections[index]
                (rsrc1,) = struct.unpack_from("<I", elf, address - home[3] + home[4] + 48)
                modes[name[:-3]] = rsrc1 >> 12 & 0xFF
    return modes


def metadata_of(notes):
    """amdhsa.kernels of llvm-readelf --notes: the scalar fields of each kernel."""
    kernels = []
    for line in notes.splitlines():
        if re.match(r"amdhsa\.(?!kernels)", line.strip()) and kernels:
            break
        field = re.match(r"  (?:- |  )\.(\w+):\s*(\S*)$", line)
        if line.startswith("  - ."):
            kernels.append({})
        if field and kernels:
            kernels[-1][field[1]] = field[2].strip("'\"")
    return kernels


def instructions_of(listing):
    """Mnemonic and operands of each instruction, by function."""
    functions, code = {}, None
    for line in listing.splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        if head:
            code = functions.setdefault(head[1], [])
        elif code is not None and line.startswith("\t"):
            code.append(line.split("//")[0].strip())
    return functions


def without_parameters(name):
    """A demangled function name without the parentheses that end it; those of template arguments stay."""
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at] if name[at] == "(" else name
    return name


def kernels_of(path, llvm):
    with open(path, "rb") as file:
        data = file.read()
    kernels = []
    for target, elf in code_objects(data):
        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(elf)
            file.flush()
            metadata = metadata_of(run(f"{llvm}/llvm-readelf", "--notes", file.name))
            code = instructions_of(run(f"{llvm}/llvm-objdump", "-d", file.name))
        modes = descriptor_modes(elf)
        kernels += [Kernel(target, m, code.get(m["name"], []), modes.get(m["name"], 0)) for m in metadata]
    if kernels:
        names = run(f"{llvm}/llvm-cxxfilt", *[k.symbol for k in kernels]).splitlines()
        for kernel, name in zip(kernels, names):
            kernel.name = re.sub(r"^void |\(anonymous namespace\)::", "", without_parameters(name))
    return kernels


def arrival_fault(code):
    """The arrival at a completion counter is acquire-release at the scope of the device: earlier writes leave
    the L2 of their die before the atomic, and stale lines go after it."""
    atomics = [i for i, line in enumerate(code) if re.match(r"global_atomic_add(_u32)?\b.*\bsc0\b", line)]
    if not atomics:
        return "no atomic add that returns its value"
    for i in atomics:
        # Waits and writebacks stand right before it, the wait and the invalidation right after.
        before, after = code[max(0, i - 12) : i], code[i + 1 : i + 13]
        wrote = [j for j, line in enumerate(before) if line.startswith("buffer_wbl2") and "sc1" in line]
        if not wrote or not any(line.startswith("s_waitcnt") and "vmcnt(0)" in line for line in before[wrote[-1] :]):
            return "an atomic add that is not a release at the scope of the device (buffer_wbl2 sc1, wait, then it)"
        waits = [j for j, line in enumerate(after) if line.startswith("s_waitcnt") and "vmcnt(0)" in line]
        if not waits or not any(line.startswith("buffer_inv") and "sc1" in line for line in after[waits[0] :]):
            return "an atomic add that is not an acquire at the scope of the device (it, then wait, buffer_inv sc1)"
    return None


def faults_of(kernel):
    """What no kernel may have."""
    if not kernel.code:
        yield "no instructions found"
    if kernel.scratch or kernel.dynamic_stack:
        yield f"{kernel.scratch} bytes of scratch memory a lane, must be 0"
    if kernel.spills:
        yield f"{kernel.spills} spilled registers, must be 0"
    if kernel.wave != WAVE:
        yield f"waves of {kernel.wave} lanes, must be {WAVE}"
    if kernel.lds > LDS_BYTES[kernel.target]:
        yield f"{kernel.lds} bytes of group memory, the hardware has {LDS_BYTES[kernel.target]}"
    # Rounding 0 = nearest even; denormals 3 = kept in and out; for binary32 and for binary16 and 64.
    if kernel.mode != 0xF0:
        yield f"float mode {kernel.mode:#x}, must be 0xf0: nearest even, subnormals kept"
    for line in kernel.code:
        if re.match(r"scratch_|s_swappc_b64|s_setpc_b64", line):
            yield f"instruction '{line}': scratch memory or a call"
            break


def row_faults(kernel, row):
    bounds = (
        ("vector registers", kernel.vgpr, row["vgpr"]),
        ("scalar registers", kernel.sgpr, row["sgpr"]),
        ("bytes of group memory", kernel.lds, row["lds"]),
    )
    for what, have, most in bounds:
        if have > most:
            yield f"{have} {what}, table.tsv allows {most}"
    # A spilled scalar lives in a lane of a vector register; without scratch memory it never reaches memory.
    if kernel.scalar_spills > row["scalar_spills"]:
        yield f"{kernel.scalar_spills} spilled scalar registers, table.tsv allows {row['scalar_spills']}"
    if kernel.waves() < row["waves"]:
        yield f"{kernel.waves()} waves a SIMD, table.tsv wants {row['waves']}"
    if kernel.mfma() < row["mfma"]:
        yield f"{kernel.mfma()} matrix instructions, table.tsv wants {row['mfma']}"
    for promise in row["promises"]:
        if promise == "arrival":
            fault = arrival_fault(kernel.code)
            if fault:
                yield f"promise arrival: {fault}"
        elif not any(re.match(PROMISES[promise], line) for line in kernel.code):
            yield f"promise {promise}: no instruction matches {PROMISES[promise]}"


def read_table(path):
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            cells = line.split("\t")
            if len(cells) != 7 or cells[0] not in TARGETS:
                sys.exit(f"codeobj: {path}:{number}: want target, kernel, vgpr, sgpr, lds, waves, promises")
            promises = [] if cells[6] == "-" else cells[6].split(",")
            spills = [p for p in promises if p.startswith("scalar_spills<=")]
            mfma = [p for p in promises if p.startswith("mfma>=")]
            promises = [p for p in promises if p not in spills + mfma]
            unknown = [p for p in promises if p != "arrival" and p not in PROMISES]
            if unknown:
                sys.exit(f"codeobj: {path}:{number}: no promise is called {unknown[0]}")
            row = dict(zip(("vgpr", "sgpr", "lds", "waves"), map(int, cells[2:6])))
            row.update(at=f"{path}:{number}", target=cells[0], kernel=cells[1], promises=promises, used=False)
            row["scalar_spills"] = int(spills[0].split("=")[1]) if spills else 0
            row["mfma"] = int(mfma[0].split("=")[1]) if mfma else 0
            rows.append(row)
    return rows


def judge(kernels, rows):
    faults = []
    for kernel in kernels:
        found = list(faults_of(kernel))
        fits = [r for r in rows if r["target"] == kernel.target and fnmatch.fnmatchcase(kernel.name, r["kernel"])]
        row = fits[0] if fits else None
        if row is None:
            found.append("no row of the table is for it")
        else:
            row["used"] = True
            found += row_faults(kernel, row)
        faults += [f"{kernel.target} {kernel.name}: {fault}" for fault in found]
    faults += [f"{r['at']}: no {r['target']} kernel matches {r['kernel']}" for r in rows if not r["used"]]
    names = {t: {k.name for k in kernels if k.target == t} for t in TARGETS}
    for name in sorted(names[TARGETS[0]] ^ names[TARGETS[1]]):
        faults.append(f"{name}: not in the code objects of both targets")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="folder of llvm-readelf, llvm-objdump and llvm-cxxfilt")
    parser.add_argument("--table", help="bounds and promises, one kernel a row")
    parser.add_argument("--print", action="store_true", help="print what is there as rows of a table")
    parser.add_argument("file", help="the plugin, or any object with offload bundles")
    options = parser.parse_args()
    kernels = kernels_of(options.file, options.bin)
    if options.print:
        for k in kernels:
            kept = ["arrival"] if arrival_fault(k.code) is None else []
            kept += [p for p, pattern in PROMISES.items() if any(re.match(pattern, line) for line in k.code)]
            if k.mfma():
                kept.append(f"mfma>={k.mfma()}")
            print(k.target, k.name, k.vgpr, k.sgpr, k.lds, k.waves(), ",".join(kept) or "-", sep="\t")
        return 0
    if not options.table:
        parser.error("one of --table and --print is needed")
    if not kernels:
        sys.exit(f"codeobj: {options.file} carries no code object with a kernel")
    faults = judge(kernels, read_table(options.table))
    for fault in faults:
        print(fault)
    print(f"codeobj: {len(kernels)} kernels, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
