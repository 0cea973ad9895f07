# SPDX-License-Identifier: Apache-2.0
"""torch tensors and the custom operators: the same bytes as numpy, opcheck, torch.compile, and vLLM's call sites."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import m3idx
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
np = pytest.importorskip("numpy")
import m3idx.torch as ops  # noqa: E402
from m3idx import vllm  # noqa: E402

EIGHT = {
    "e4m3fn": torch.float8_e4m3fn,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2": torch.float8_e5m2,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}
INT = torch.int32


def decode(dtype=torch.bfloat16, k_dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(3)
    return {
        "q": torch.randn(6, 2, 64, generator=generator).to(dtype),
        "index_k": torch.randn(9, 128, 64, generator=generator).to(k_dtype),
        "block_table": torch.tensor([[3, 1, 4, 0, 5], [8, 2, 6, 7, -1]], dtype=INT),
        "seq_lens": torch.tensor([600, 400], dtype=INT),
        "decode_query_len": 3,
    }


def prefill():
    launch = decode()
    del launch["decode_query_len"]
    return launch | {
        "cu_seqlens": torch.tensor([0, 2, 6], dtype=INT),
        "prefix_lens": torch.tensor([500, 130], dtype=INT),
    }


def raw(tensor):
    """Patterns as a numpy array of integers, with the format's name."""
    size = tensor.element_size()
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).numpy()


NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", **{v: k for k, v in EIGHT.items()}}


@pytest.mark.parametrize("k_dtype", list(NAMES))
def test_tensors_give_the_bytes_of_arrays(k_dtype):
    q_dtype = list(NAMES)[::-1][list(NAMES).index(k_dtype)]
    launch = decode(q_dtype, k_dtype)
    arrays = {
        "q": raw(launch["q"]), "index_k": raw(launch["index_k"]), "q_dtype": NAMES[q_dtype], "k_dtype": NAMES[k_dtype],
        "block_table": launch["block_table"].numpy(), "seq_lens": launch["seq_lens"].numpy(), "decode_query_len": 3,
    }  # fmt: skip
    score, ids = m3idx.index_score(**launch), m3idx.index_decode(**launch, topk=3)
    assert isinstance(score, torch.Tensor) and isinstance(ids, torch.Tensor)
    assert score.numpy().tobytes() == m3idx.index_score(**arrays).tobytes()
    assert ids.numpy().tobytes() == m3idx.index_decode(**arrays, topk=3).tobytes()


def test_strided_tensors_and_outputs():
    launch = decode()
    want = m3idx.index_score(**launch)
    q = torch.zeros(2, 64, 6, dtype=torch.bfloat16).permute(2, 0, 1)
    q.copy_(launch["q"])
    room = torch.full((6, 2, 9), 7.0)
    out = room[:, :, 2:7].transpose(0, 1)
    for module in (m3idx, ops):
        room.fill_(7)
        assert module.index_score(**launch | {"q": q}, out=out) is out
        assert torch.equal(out, want) and (room[:, :, :2] == 7).all() and (room[:, :, 7:] == 7).all()
    wide = torch.ones(1, 1, 1).expand(6, 2, 64)  # all strides 0
    assert torch.equal(
        m3idx.index_score(**launch | {"q": wide}), m3idx.index_score(**launch | {"q": wide.contiguous()})
    )


def test_operators_are_the_functions():
    for launch, fused in ((decode(), "index_decode"), (prefill(), "index_prefill")):
        score = m3idx.index_score(**launch)
        assert torch.equal(score, ops.index_score(**launch))
        rows = {name: value for name, value in launch.items() if name not in ("q", "index_k", "block_table")}
        ids = m3idx.index_topk(score, 3, **rows, local_blocks=1)
        assert torch.equal(ids, ops.index_topk(score, 3, **rows, local_blocks=1))
        one = getattr(m3idx, fused)(**launch, topk=3, local_blocks=1, sparse_table=True, page_stride=16)
        two = getattr(ops, fused)(**launch, topk=3, local_blocks=1, sparse_table=True, page_stride=16)
        outs = [torch.empty_like(t) for t in one]
        names = ("out", "sparse_block_table_out", "sparse_context_lens_out")
        three = getattr(ops, fused)(**launch, topk=3, local_blocks=1, page_stride=16, **dict(zip(names, outs)))
        for a, b, c, d in zip(one, two, three, outs):
            assert torch.equal(a, b) and torch.equal(a, c) and c is d
        assert torch.equal(ids, one.topk_idx)
        four = ops.sparse_table(ids, launch["block_table"], page_stride=16, **rows)
        assert torch.equal(four[0], one.sparse_block_table) and torch.equal(four[1], one.sparse_context_lens)


def test_keys_and_merge():
    score = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(1))
    blocks = torch.tensor([40, 3, 0], dtype=INT)
    want = ops.index_topk(score, 5, num_blocks=blocks)
    parts = [
        ops.index_topk_keys(score[..., a:b].contiguous(), 5, num_blocks=blocks, first_block=a)
        for a, b in ((0, 7), (7, 40))
    ]
    assert parts[0].dtype == torch.int64
    out = torch.empty_like(want)
    assert torch.equal(want, ops.merge(torch.stack(parts))) and torch.equal(
        want, ops.merge(torch.stack(parts), out=out)
    )
    assert torch.equal(want, m3idx.merge(torch.stack(parts)))


def test_cache_insert_mutates():
    key = torch.randn(3, 64).bfloat16()
    for dtype in (torch.bfloat16, *EIGHT.values()):
        cache, want = (torch.zeros(2, 128, 64).to(dtype) for _ in range(2))
        slots = torch.tensor([130, -1, 5])
        version = cache._version
        ops.index_cache_insert(key, cache, slots)
        m3idx.index_cache_insert(key, want, slots)
        assert torch.equal(cache.view(torch.uint8), want.view(torch.uint8)) and cache._version > version
        assert (
            torch.equal(cache[1, 2].float(), key[0].to(dtype).float())
            and cache.float().abs().sum(-1).count_nonzero() == 2
        )


def calls():
    """One call of each operator."""
    d, p = decode(), prefill()
    four = lambda x: (x["q"], x["index_k"], x["block_table"], x["seq_lens"])
    rows = lambda x: (x.get("cu_seqlens"), x.get("prefix_lens"), x.get("decode_query_len"))
    m3 = torch.ops.m3idx
    score = m3idx.index_score(**d)
    ids = m3idx.index_decode(**d, topk=3)
    keys = torch.stack([m3idx.index_topk_keys(score, 3, num_blocks=[5] * 6)])
    for name, x in (("decode", d), ("prefill", p)):
        args = (*four(x), *rows(x), None, 1.0, 0, 0, None, None, 1, "cpu")
        yield name, m3.index_score, args
        yield name, m3.index_score_out, (*args, torch.empty(2, 6, 5))
        args = (score, 3, None, x["seq_lens"], *rows(x), 128, 0, 1, "vllm", 1, "cpu")
        yield name, m3.index_topk, args
        yield name, m3.index_topk_out, (*args, torch.empty(2, 6, 3, dtype=INT))
        args = (*four(x), 3, *rows(x), None, 1.0, 0, 1, "vllm", None, None, 1, "cpu")
        table, lens = torch.empty(12, 24, dtype=INT), torch.empty(12, dtype=INT)
        yield name, m3.index_select, args
        yield name, m3.index_select_out, (*args, torch.empty(2, 6, 3, dtype=INT))
        yield name, m3.index_select_sparse, (*args, None, 8)
        yield name, m3.index_select_sparse_out, (*args, None, 8, torch.empty(2, 6, 3, dtype=INT), table, lens)
        args = (ids, x["block_table"], x["seq_lens"], *rows(x), None, 8, 1, "cpu")
        yield name, m3.sparse_table, args
        yield name, m3.sparse_table_out, (*args, table, lens)
    yield "", m3.index_topk_keys, (score, 3, torch.full((6,), 5, dtype=INT), 0, 0, 0, "vllm", 1, "cpu")
    yield "", m3.merge, (keys, "vllm", 1, "cpu")
    yield "", m3.merge_out, (keys, "vllm", 1, "cpu", torch.empty(2, 6, 3, dtype=INT))
    insert = (torch.randn(2, 64), torch.zeros(2, 128, 64), torch.tensor([5, -1]), None, None, 1, "cpu")
    yield "", m3.index_cache_insert, insert


@pytest.mark.parametrize(("mode", "operator", "args"), [pytest.param(*c, id=f"{c[1]}-{c[0]}") for c in calls()])
def test_opcheck(mode, operator, args):
    torch.library.opcheck(operator.default, args)


def test_every_operator_is_checked():
    checked = {str(operator).rpartition(".")[2] for _, operator, _ in calls()}
    made = {name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if name.startswith("m3idx::")}
    assert checked == made


BACKENDS = ["aot_eager"] + (["inductor"] if shutil.which("g++") else [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_compile_of_a_vllm_call_site(backend):
    """A step as vLLM writes it: insert the keys, select, with outputs at fixed addresses; no graph break."""
    d = decode()
    ids_room, table, lens = torch.zeros(2, 8, 3, dtype=INT), torch.zeros(20, 24, dtype=INT), torch.zeros(20, dtype=INT)

    def step(q, key, cache, slots, ids_room, table, lens):
        ops.index_cache_insert(key * 2, cache, slots)
        ids = vllm.minimax_m3_index_decode(
            q, cache, d["block_table"], d["seq_lens"], 600, 3, 0, 1, 2, 3, 3, ids_room,
            sparse_block_table_out=table, sparse_context_lens_out=lens,
        )  # fmt: skip
        return ids + 1, q.float().sum()

    key, slots = torch.randn(2, 64).bfloat16(), torch.tensor([5 * 128 + 87, 2])
    arguments = [
        [d["q"], key, d["index_k"].clone(), slots, ids_room.clone(), table.clone(), lens.clone()] for _ in range(2)
    ]
    want = step(*arguments[0])
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for _ in range(2):
        got = compiled(*arguments[1])
        assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1])
        for a, b in zip(*arguments):
            assert torch.equal(a, b)
    assert (arguments[1][4][:, 6:] == 0).all() and (arguments[1][5][12:] == 0).all()
    assert arguments[1][4].any() and arguments[1][5].any() and arguments[1][6].any()


def test_compile_with_dynamic_shapes():
    d = decode()
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, **rest: ops.index_score(q, **rest).amax(-1), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for rows in (3, 2, 1):
        given = d | {"q": d["q"][: 2 * rows], "decode_query_len": rows}
        assert torch.equal(compiled(**given), m3idx.index_score(**given).amax(-1))


def test_vllm_prefill_is_the_fused_prefill():
    p = prefill()
    order = (p["q"], p["index_k"], p["block_table"], p["cu_seqlens"], p["seq_lens"], p["prefix_lens"], 4, 600, 2)
    score = vllm.minimax_m3_index_score(*order)
    assert torch.equal(score, m3idx.index_score(**p))
    room = torch.full((2, 9, 3), 7, dtype=INT)
    ids = vllm.minimax_m3_index_topk(score, p["cu_seqlens"], p["prefix_lens"], 4, 3, 0, 1, room)
    assert torch.equal(ids, m3idx.index_prefill(**p, topk=3, local_blocks=1))
    assert torch.equal(room[:, :6], ids) and (room[:, 6:] == 7).all()
    with pytest.raises(m3idx.InvalidError, match="num_kv_heads = 4"):
        vllm.minimax_m3_index_score(*order[:-1], 4)


def test_bad_tensors():
    d = decode()
    for change, error, sentence in [
        ({"q": d["q"].to("meta")}, m3idx.InvalidError, "q is on device meta; m3idx reads CPU tensors"),
        ({"q": d["q"].to_sparse()}, m3idx.InvalidError, "q has layout torch.sparse_coo"),
        ({"q": d["q"].double()}, TypeError, "q has elements float64"),
        ({"seq_lens": d["seq_lens"].long()}, TypeError, "seq_lens has elements int64; int32 is needed"),
        ({"seq_lens": d["seq_lens"] + 100}, m3idx.InvalidError, "exceeds max_block"),
    ]:
        with pytest.raises(error, match=sentence):
            m3idx.index_score(**d | change)
    with pytest.raises(m3idx.InvalidError, match="exceeds max_block"):  # the same exception through an operator
        ops.index_score(**d | {"seq_lens": d["seq_lens"] + 100})


def test_takes_the_threads_of_torch():
    code = """
import torch, m3idx
from m3idx import _context
real, asked = _context.Context, []
_context.Context = lambda backend, threads: (asked.append(threads), real(backend, threads))[1]
torch.set_num_threads(3)
m3idx.index_topk(torch.zeros(1, 1, 1), 1, num_blocks=[1])
m3idx.set_num_threads(0)
m3idx.index_topk(torch.zeros(1, 1, 1), 1, num_blocks=[1])
print(asked)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[3, 0]", done.stderr


def test_gradients_stop_here():
    d = decode(torch.float32, torch.float32)
    d["q"].requires_grad_()
    assert not m3idx.index_score(**d).requires_grad
    with pytest.raises(RuntimeError):
        ops.index_score(**d).sum().backward()


EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "judge_torch.py"


def test_the_example_judges_a_torch_implementation(tool):
    """Its float32 implementation is honest under --arith f32 and is not exact."""
    pytest.importorskip("safetensors")
    command = [sys.executable, EXAMPLE, "--m3idx", tool.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([*command, "--arith", "exact"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def test_the_tutorial_prints_what_it_shows():
    """The indented blocks of docs/TUTORIAL-SERVER.md, from each program to its output."""
    page = (EXAMPLE.parents[2] / "docs" / "TUTORIAL-SERVER.md").read_text()
    blocks, program, shown = re.findall(r"(?:^    .*\n|^\n)+", page, flags=re.M), "", ""
    for block in re.split(r"\n(?=    (?:request 0|in place:|import ))", "\n".join(blocks)):
        if re.match(r"    import (torch, m3idx|m3idx\.torch)\n", block):
            program += textwrap.dedent(block) + "\n"
        elif re.match(r"    (request 0|in place)", block):
            shown += "".join(textwrap.dedent(line + "\n") for line in block.split("\n\n")[0].splitlines())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.count("\n") == 5
    assert done.stdout == shown, done.stderr
