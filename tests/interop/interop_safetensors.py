# SPDX-License-Identifier: Apache-2.0
"""Case files and the safetensors package of PyPI read each other (docs/CASES.md, "The file").

Usage: interop_safetensors.py M3IDX.  Exit status 77 where the package or numpy cannot be imported.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as error:
    print(f"SKIP: {error}; python3 -m pip install safetensors numpy makes this test run")
    sys.exit(77)

M3IDX = str(pathlib.Path(sys.argv[1]).resolve())
FORMATS = ["f32", "f16", "bf16", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"]
# The file's names and those that safetensors.serialize takes.
SERIALIZE = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
             "U8": "uint8", "I32": "int32"}


def m3idx(*arguments):
    done = subprocess.run([M3IDX, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"m3idx {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def parse(path):
    """The file by its definition: header and data, with no library."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def serialize(tensors, metadata):
    """Theirs, by either of its signatures; tensors is name: (dtype, shape, bytes)."""
    if not hasattr(safetensors, "TensorSpec"):
        keys = ("dtype", "shape", "data")
        return safetensors.serialize({n: dict(zip(keys, t)) for n, t in tensors.items()}, metadata)
    alive = {name: numpy.frombuffer(data, dtype=numpy.uint8) for name, (_, _, data) in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=alive[name].ctypes.data, data_len=alive[name].nbytes
        )
        for name, (dtype, shape, _) in tensors.items()
    }
    return bytes(safetensors.serialize(specs, metadata=metadata))


def ours_to_theirs(path):
    header, data = parse(path)
    metadata = header.pop("__metadata__")
    theirs = dict(safetensors.deserialize(path.read_bytes()))
    assert list(theirs) and set(theirs) == set(header)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert theirs[name]["dtype"] == entry["dtype"], name
        assert list(theirs[name]["shape"]) == entry["shape"], name
        assert bytes(theirs[name]["data"]) == data[begin:end], name
    with safetensors.safe_open(path, framework="numpy") as opened:
        assert opened.metadata() == metadata
        assert opened.get_tensor("topk_idx").dtype == numpy.int32
    return header, metadata, theirs


def theirs_to_ours(golden, header, metadata, theirs, directory):
    path = directory / "theirs.safetensors"
    tensors = {
        name: (SERIALIZE[header[name]["dtype"]], entry["shape"], bytes(entry["data"]))
        for name, entry in theirs.items()
    }
    path.write_bytes(serialize(tensors, metadata))
    # The same layout: their header lists the tensors in our order, at our offsets.
    again = parse(path)[0]
    again.pop("__metadata__")
    assert list(again.items()) == list(header.items())
    m3idx("verify", str(golden), str(path))
    rerun = directory / "rerun.safetensors"
    m3idx("run", str(path), "-o", str(rerun), "--backend", "ref")
    assert rerun.read_bytes() == golden.read_bytes()
    assert m3idx("digest", str(path)) == m3idx("digest", str(golden))


def built_in_numpy(directory):
    """A select case that a user builds: all scores differ, so the answer is a sort."""
    rng = numpy.random.default_rng(7)
    heads, rows, blocks, topk = 3, 5, 200, 16
    score = rng.permuted(numpy.arange(heads * rows * blocks, dtype=numpy.float32)).reshape(heads, rows, blocks)
    score = score - 1000
    num_blocks = numpy.array([200, 0, 7, 16, 129], dtype=numpy.int32)
    want = numpy.full((heads, rows, topk), -1, dtype=numpy.int32)
    for h in range(heads):
        for t in range(rows):
            best = numpy.argsort(-score[h, t, : num_blocks[t]])[:topk]
            want[h, t, : len(best)] = best
    metadata = {"format": "m3idx-case/1", "op": "select", "topk": str(topk), "max_block": str(blocks),
                "init_blocks": "0", "local_blocks": "0"}
    path, out = directory / "numpy.safetensors", directory / "selected.safetensors"
    safetensors.numpy.save_file({"score": score, "num_blocks": num_blocks}, path, metadata)
    m3idx("run", str(path), "-o", str(out), "--backend", "ref")
    got = safetensors.numpy.load_file(out)
    assert numpy.array_equal(got["topk_idx"], want)
    assert numpy.array_equal(got["score"], score)


def main():
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        case, golden = directory / "case.safetensors", directory / "golden.safetensors"
        for i, q in enumerate(FORMATS):
            k = FORMATS[-1 - i]
            m3idx("gen", "--op", "decode", "--seq-lens", "0,7,300", "--heads", "2", "--head-dim", "16", "--topk", "3",
                  "--q-dtype", q, "--k-dtype", k, "--data", "specials", "--sparse-table", "1", "-o", str(case))
            m3idx("run", str(case), "-o", str(golden), "--backend", "ref")
            theirs_to_ours(golden, *ours_to_theirs(golden), directory)
        built_in_numpy(directory)
    print(f"safetensors {safetensors.__version__}, numpy {numpy.__version__}: {len(FORMATS)} goldens both ways, 1 numpy case")


main()
