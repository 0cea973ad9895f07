# SPDX-License-Identifier: Apache-2.0
"""Every operation against goldens that the m3idx command makes with the reference backend, byte for byte."""

import m3idx
import pytest

numpy = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

LINES = [
    "--op decode --seq-lens 0,7,129,1025 --decode-query-len 3 --heads 2 --topk 5 --local 1 --sparse-table 1",
    "--op decode --seq-lens 300,513 --heads 4 --head-dim 64 --topk 16 --init 1 --local 2 --data specials --scale 0.125",
    "--op decode --seq-lens 640,1,127 --q-dtype f32 --k-dtype f16 --heads 1 --block-size 64 --max-block 12 --data near",
    "--op decode --seq-lens 900 --q-dtype e4m3fnuz --k-dtype e5m2fnuz --heads 2 --data wide --contract sglang",
    "--op decode --seq-lens 500,77 --q-dtype bf16 --k-dtype e4m3fn --heads 2 --sparse-table 1 --attention-table 1"
    " --page-stride 16 --contract atom --data ties",
    "--op prefill --q-lens 5,0,130 --prefix-lens 0,9,1024 --heads 2 --topk 4 --local 1 --sparse-table 1",
    "--op prefill --q-lens 17,3 --prefix-lens 250,0 --q-dtype f16 --k-dtype e5m2 --block-size 32 --head-dim 16"
    " --contract aiter --data specials",
    "--op prefill --q-lens 40 --prefix-lens 1000 --q-dtype e4m3fn --k-dtype f32 --data ties --contract flashinfer",
]  # fmt: skip
SELECTS = [
    f"--op select --num-blocks 0,1,74,128,129,3 --heads 2 --topk {topk} --contract {contract} --data {data} --init 1 --local 1"
    for topk, contract, data in [
        (16, "vllm", "specials"),
        (128, "aiter", "ties"),
        (1, "atom", "specials"),
        (7, "sglang", "near"),
        (16, "flashinfer", "specials"),
        (16, "tie=higher,nan=bits,zero=equal,order=id", "specials"),
    ]
]
TYPES = {
    "f32": numpy.float32,
    "f16": numpy.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


def typed(case, name):
    return case.tensors[name].view(TYPES[case.formats[name]])


def launch(case):
    """The arguments that score, selection and fusion share."""
    if case.op == "decode":
        return {"seq_lens": case.seq_lens, "decode_query_len": int(case.decode_query_len)}
    return {"seq_lens": case.seq_lens, "cu_seqlens": case.cu_seqlens, "prefix_lens": case.prefix_lens}


def forced(case):
    return {"init_blocks": int(case.init_blocks), "local_blocks": int(case.local_blocks)}


def same(want, got):
    assert want.dtype == got.dtype
    assert want.shape == got.shape
    assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize("backend", ["ref", "cpu"])
@pytest.mark.parametrize("line", LINES)
def test_score(golden, line, backend):
    case = golden(line)
    given = launch(case) | (forced(case) if case.op == "decode" else {})
    common = {"max_block": int(case.max_block), "scale": float(case.metadata.get("scale", 1)), "backend": backend}
    same(case.score, m3idx.index_score(typed(case, "q"), typed(case, "index_k"), case.block_table, **given, **common))
    # The same patterns in raw integers, under the names of their formats.
    raw = {"q_dtype": case.formats["q"], "k_dtype": case.formats["index_k"]}
    q, k = (case.tensors[n].view(f"u{case.tensors[n].itemsize}") for n in ("q", "index_k"))
    same(case.score, m3idx.index_score(q, k, case.block_table, **given, **common, **raw))


@pytest.mark.parametrize("line", LINES)
def test_topk_of_scores(golden, line):
    case = golden(line)
    block_size = case.index_k.shape[1]
    got = m3idx.index_topk(case.score, int(case.topk), **launch(case), **forced(case), block_size=block_size,
                           contract=case.metadata.get("contract", "vllm"))  # fmt: skip
    same(case.topk_idx, got)


@pytest.mark.parametrize("line", LINES)
def test_fused_and_sparse_table(golden, line):
    case = golden(line)
    function = m3idx.index_decode if case.op == "decode" else m3idx.index_prefill
    sparse = case.metadata.get("sparse_table") == "1"
    page_stride = int(case.metadata.get("page_stride", 8))
    attention = case.tensors.get("attention_block_table", case.block_table)
    got = function(typed(case, "q"), typed(case, "index_k"), case.block_table, **launch(case), **forced(case),
                   topk=int(case.topk), max_block=int(case.max_block), scale=float(case.metadata.get("scale", 1)),
                   contract=case.metadata.get("contract", "vllm"), sparse_table=sparse, page_stride=page_stride,
                   attention_block_table=attention if sparse else None)  # fmt: skip
    if not sparse:
        return same(case.topk_idx, got)
    same(case.topk_idx, got.topk_idx)
    same(case.sparse_block_table, got.sparse_block_table)
    same(case.sparse_context_lens, got.sparse_context_lens)
    table, lens = m3idx.sparse_table(case.topk_idx, attention, **launch(case), max_block=int(case.max_block),
                                     page_stride=page_stride)  # fmt: skip
    same(case.sparse_block_table, table)
    same(case.sparse_context_lens, lens)


@pytest.mark.parametrize("line", SELECTS)
def test_select_and_merge(golden, line):
    case = golden(line)
    common = {"num_blocks": case.num_blocks, "contract": case.contract, **forced(case)}
    topk = int(case.topk)
    same(case.topk_idx, m3idx.index_topk(case.score, topk, **common))
    parts = [
        m3idx.index_topk_keys(case.score[..., first:last], topk, first_block=first, **common)
        for first, last in ((0, 1), (1, 60), (60, 60), (60, case.score.shape[2]))
    ]
    same(case.topk_idx, m3idx.merge(numpy.stack(parts), contract=case.contract))
    same(case.topk_idx, m3idx.merge(numpy.stack(parts[::-1]).view(numpy.int64), contract=case.contract))
