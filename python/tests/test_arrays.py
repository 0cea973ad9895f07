# SPDX-License-Identifier: Apache-2.0
"""What the binding itself decides: strides, outputs, element types, lengths, and that errors write nothing."""

import m3idx
import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")


@pytest.fixture
def launch():
    """A decode of two requests: q [6][2][32], index_k [9][128][32]."""
    rng = np.random.default_rng(1)
    return {
        "q": rng.standard_normal((6, 2, 32)).astype(ml_dtypes.bfloat16),
        "index_k": rng.standard_normal((9, 128, 32)).astype(ml_dtypes.float8_e4m3fn),
        "block_table": np.array([[3, 1, 4, 0, 5], [8, 2, 6, 7, -1]], np.int32),
        "seq_lens": np.array([600, 400], np.int32),
        "decode_query_len": 3,
    }


def test_no_copy_of_the_cache(launch):
    """What is read is the caller's memory: a change in place shows in the next call."""
    first = m3idx.index_score(**launch)
    launch["index_k"][3] = 1
    launch["q"][:] = 1
    second = m3idx.index_score(**launch)
    assert (second[:, :3, 0] == 32).all() and not (first[:, :3, 0] == 32).any()


def test_strided_inputs(launch):
    want = m3idx.index_score(**launch)
    wide = np.zeros((6, 3, 2, 2, 64), launch["q"].dtype)
    wide[:, 1, :, 1, ::2] = launch["q"]
    pages = np.zeros((128, 9, 2, 32), launch["index_k"].dtype)
    pages[:, :, 1] = launch["index_k"].swapaxes(0, 1)
    table = np.full((3, 9), -7, np.int32)
    table[:2, :5] = launch["block_table"]
    lens = np.zeros(4, np.int32)
    lens[::2] = launch["seq_lens"]
    views = {
        "q": wide[:, 1, :, 1, ::2],
        "index_k": pages[:, :, 1].swapaxes(0, 1),
        "block_table": table,
        "seq_lens": lens[::2],
        "max_block": 5,
    }
    assert not views["q"].flags.c_contiguous and not views["index_k"].flags.c_contiguous
    assert np.array_equal(want, m3idx.index_score(**launch | views))


def test_sequences_of_lengths(launch):
    want = m3idx.index_score(**launch)
    for lens in ([600, 400], (600, 400), range(600, 399, -200)):
        assert np.array_equal(want, m3idx.index_score(**launch | {"seq_lens": lens}))


def test_repeated_elements(launch):
    """numpy's broadcasts have strides of 0, which the library reads as "dense" when all are."""
    one = np.ones((), np.float32)
    for q in (np.broadcast_to(one, (6, 2, 32)), np.broadcast_to(np.ones((2, 32), np.float32), (6, 2, 32))):
        dense = m3idx.index_score(**launch | {"q": np.ascontiguousarray(q)})
        assert np.array_equal(dense, m3idx.index_score(**launch | {"q": q}))


def test_singleton_strides():
    """A dimension of 1 may have any stride, 0 and what is left of a slice included."""
    q, k = np.ones((1, 1, 16), np.float32), np.full((1, 16, 16), 2, np.float32)
    k[0, 9] = 3
    table = np.zeros((1, 1), np.int32)
    odd = np.lib.stride_tricks.as_strided
    for stride in (0, 4, 4096):
        q1, k1 = odd(q, strides=(stride, stride, 4)), odd(k, strides=(stride, 64, 4))
        out = odd(np.zeros((1, 1, 1), np.float32), strides=(stride, stride, stride))
        assert m3idx.index_score(q1, k1, table, [16], out=out) is out
        assert out[0, 0, 0] == 48
        cache = odd(np.zeros((1, 16, 16), np.float32), strides=(stride, 64, 4))
        m3idx.index_cache_insert(np.ones((1, 16), np.float32), cache, [15])
        assert cache.sum() == 16 and cache[0, 15].sum() == 16


def test_outputs_in_place(launch):
    want = m3idx.index_score(**launch)
    room = np.full((6, 3, 11), 7, np.float32)
    out = room[:, :2, 3:8].swapaxes(0, 1)
    assert m3idx.index_score(**launch, out=out) is out
    assert np.array_equal(out, want)
    assert (room[:, 2] == 7).all() and (room[:, :, :3] == 7).all() and (room[:, :, 8:] == 7).all()

    ids = m3idx.index_decode(**launch, topk=3)
    room = np.full((2, 9, 5), 7, np.int32)
    tables, lens = np.full((12, 30), 7, np.int32), np.full(12, 7, np.int32)
    got = m3idx.index_decode(**launch, topk=3, out=room[:, 2:8, :3], sparse_block_table_out=tables[:, :24],
                             sparse_context_lens_out=lens)  # fmt: skip
    assert np.array_equal(room[:, 2:8, :3], ids) and np.array_equal(got.topk_idx, ids)
    assert (room[:, :2] == 7).all() and (room[:, 8] == 7).all() and (room[:, :, 3:] == 7).all()
    assert got.sparse_context_lens is lens and (tables[:, 24:] == 7).all() and (tables[:, :24] != 7).any()
    want_table, want_lens = m3idx.sparse_table(ids, launch["block_table"], [600, 400], decode_query_len=3)
    assert np.array_equal(tables[:, :24], want_table) and np.array_equal(lens, want_lens)


def test_empty_launches():
    q, k, table = np.zeros((0, 2, 16), np.float32), np.zeros((0, 128, 16), np.float32), np.zeros((0, 0), np.int32)
    assert m3idx.index_score(q, k, table, []).shape == (2, 0, 0)
    assert m3idx.index_decode(q, k, table, [], 4).shape == (2, 0, 4)
    assert m3idx.index_prefill(q, k, table, [], [0], [], 4, sparse_table=True).sparse_block_table.shape == (0, 32)
    q = np.zeros((3, 2, 16), np.float32)
    assert (m3idx.index_decode(q, k, np.zeros((3, 0), np.int32), [0, 0, 0], 4) == -1).all()


def test_contract_and_default_capacity(launch):
    score = np.zeros((1, 1, 20), np.float32)
    pick = lambda contract: m3idx.index_topk(score, 3, num_blocks=[20], contract=contract).tolist()[0][0]
    assert pick("vllm") == [0, 1, 2] and pick("aiter") == [19, 18, 17]
    assert pick("tie=higher,nan=below,zero=equal,order=id") == [17, 18, 19]
    assert m3idx.index_score(**launch).shape == (2, 6, 5)
    assert m3idx.index_score(**launch | {"max_block": np.int64(5)}).shape == (2, 6, 5)


CHANGES = {
    "q of rank 2": ({"q": np.zeros((6, 32), np.float32)}, m3idx.InvalidError, r"q has shape \(6, 32\); 3 dimensions"),
    "q of doubles": ({"q": np.zeros((6, 2, 32))}, TypeError, "q has elements float64; a float format is needed"),
    "q of integers": ({"q": np.zeros((6, 2, 32), np.uint8)}, TypeError, "raw integers and the name of their format"),
    "contradiction": ({"q_dtype": "f16"}, TypeError, "q has elements bfloat16, which contradicts .* 'f16'"),
    "wrong carrier": ({"q": np.zeros((6, 2, 32), np.uint16), "q_dtype": "e5m2"}, TypeError, "uint16, which cannot carry 1-byte"),
    "unknown format": ({"k_dtype": "fp8"}, m3idx.InvalidError, "dtype of index_k = 'fp8' is none of f32, f16"),
    "foreign bytes": ({"q": np.zeros((6, 2, 32), ">f4")}, TypeError, "foreign byte order"),
    "list": ({"q": [[[1.0]]]}, TypeError, "q is a list; a numpy array or a torch CPU tensor is needed"),
    "odd strides": ({"q": np.zeros((6, 2, 32), [("a", "<f4"), ("b", "u1")])["a"]}, m3idx.InvalidError,
                    "are not multiples of its 4-byte elements"),
    "int64 table": ({"block_table": np.zeros((2, 5), np.int64)}, TypeError, "block_table has elements int64; int32"),
    "few rows": ({"block_table": np.zeros((1, 5), np.int32)}, m3idx.InvalidError, "block_table has 1 rows; seq_lens has 2"),
    "few columns": ({"max_block": 6}, m3idx.InvalidError, "block_table has 5 columns; max_block = 6 are needed"),
    "table across": ({"block_table": np.zeros((5, 2), np.int32).T}, m3idx.InvalidError, "stride 2 along its last dimension"),
    "table repeats": ({"block_table": np.broadcast_to(np.zeros(5, np.int32), (2, 5))}, m3idx.InvalidError, "row stride 0"),
    "int64 lengths": ({"seq_lens": np.array([600, 400])}, TypeError, "seq_lens has elements int64; int32 is needed"),
    "long length": ({"seq_lens": [600, 2**31]}, m3idx.InvalidError, "seq_lens is not a sequence of int32"),
    "real length": ({"seq_lens": [600, 400.0]}, m3idx.InvalidError, "seq_lens is not a sequence of int32"),
    "too long": ({"seq_lens": [600, 641]}, m3idx.InvalidError, r"seq_lens\[1\] = 641 exceeds max_block \* block_size = 640"),
    "dead page": ({"seq_lens": [600, 513]}, m3idx.InvalidError, r"block_table\[1\]\[4\] = -1"),
    "cu alone": ({"cu_seqlens": [0, 3, 6]}, m3idx.InvalidError, "cu_seqlens and prefix_lens go together"),
    "both modes": ({"cu_seqlens": [0, 3, 6], "prefix_lens": [0, 0]}, m3idx.InvalidError, "decode_query_len is for decode"),
    "few cu": ({"cu_seqlens": [0, 6], "prefix_lens": [0, 0], "decode_query_len": None}, m3idx.InvalidError,
               "cu_seqlens has 2 elements; 3 are needed"),
    "few prefix": ({"cu_seqlens": [0, 3, 6], "prefix_lens": [0], "decode_query_len": None}, m3idx.InvalidError,
                   "prefix_lens has 1 elements; 2 are needed"),
    "wrapped": ({"local_blocks": 2**64}, m3idx.InvalidError, f"local_blocks = {2**64} does not fit 64 bits"),
    "half a block": ({"init_blocks": 0.5}, TypeError, "integer"),
    "negative M": ({"max_block": -1}, m3idx.InvalidError, "max_block = -1 is below 0"),
    "no scale": ({"scale": 0}, m3idx.InvalidError, "scale = 0 is not a finite binary32 number above 0"),
    "lost scale": ({"scale": 1e-60}, m3idx.InvalidError, "scale = 1e-60 is not"),
    "nan scale": ({"scale": float("nan")}, m3idx.InvalidError, "scale = nan is not"),
    "threads": ({"num_threads": -1}, m3idx.InvalidError, "num_threads = -1 is below 0"),
    "backend": ({"backend": "gpu"}, m3idx.InvalidError, "gpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_bad_input_is_named_and_writes_nothing(launch, name):
    change, error, sentence = CHANGES[name]
    out = np.full((2, 6, 5), 7, np.float32)
    with pytest.raises(error, match=sentence):
        m3idx.index_score(**launch | {"out": out} | change)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("out", "error", "sentence"),
    [
        (np.zeros((2, 6, 4), np.float32), m3idx.InvalidError, r"out has shape \(2, 6, 4\); \(2, 6, 5\) is needed"),
        (np.zeros((2, 6, 5)), TypeError, "out has elements float64; float32 is needed"),
        (np.zeros((2, 6, 10), np.float32)[..., ::2], m3idx.InvalidError, "out has stride 2 along its last dimension"),
        (np.zeros((2, 6, 5), np.float32)[:, ::-1], m3idx.InvalidError, "score_stride_row = -5"),
        (np.zeros((2, 6, 5, 2), np.int16)[..., 0].view(np.int16), TypeError, "out has elements int16"),
        (np.broadcast_to(np.zeros((6, 5), np.float32), (2, 6, 5)), m3idx.InvalidError, "read-only"),
        (np.lib.stride_tricks.as_strided(np.zeros((6, 5), np.float32), (2, 6, 5), (0, 20, 4)), m3idx.InvalidError,
         "repeats its elements along dimension 0"),
        ([0], TypeError, "out is a list"),
    ],
)  # fmt: skip
def test_bad_outputs(launch, out, error, sentence):
    with pytest.raises(error, match=sentence):
        m3idx.index_score(**launch, out=out)


def test_overlap_is_refused(launch):
    room = np.zeros(1000, np.float32)
    launch["q"] = room[:384].reshape(6, 2, 32)
    with pytest.raises(m3idx.InvalidError, match="score"):
        m3idx.index_score(**launch, out=room[380:440].reshape(2, 6, 5))


def test_bad_selections():
    score = np.zeros((1, 2, 5), np.float32)
    for given, sentence in [
        ({}, "exactly one of num_blocks and seq_lens"),
        ({"num_blocks": [1, 1], "seq_lens": [1]}, "exactly one of num_blocks and seq_lens"),
        ({"num_blocks": [1, 1], "decode_query_len": 1}, "go with seq_lens"),
        ({"num_blocks": [1]}, "num_blocks has 1 elements; 2 are needed"),
        ({"num_blocks": [1, 6]}, r"num_blocks\[1\] = 6 exceeds max_block = 5"),
        ({"num_blocks": [1, 1], "topk": 0}, r"topk = 0 is outside 1..128"),
        ({"num_blocks": [1, 1], "topk": 10**12}, r"topk = 1000000000000 is outside 1..128"),
        ({"num_blocks": [1, 1], "contract": "best"}, "contract = 'best' is neither vllm"),
        ({"num_blocks": [1, 1], "contract": None}, "contract = None is neither vllm"),
    ]:
        with pytest.raises(m3idx.InvalidError, match=sentence):
            m3idx.index_topk(score, **{"topk": 2} | given)
    with pytest.raises(TypeError, match="score has elements float64"):
        m3idx.index_topk(np.zeros((1, 2, 5)), 2, num_blocks=[1, 1])
    with pytest.raises(m3idx.InvalidError, match="each part must be dense"):
        m3idx.merge(np.zeros((2, 1, 4, 6), np.uint64)[..., ::2])
    with pytest.raises(TypeError, match="keys has elements float32"):
        m3idx.merge(np.zeros((2, 1, 4, 6), np.float32))
    with pytest.raises(m3idx.InvalidError, match="keys"):  # the part of another tie rule holds no id
        m3idx.merge(np.full((1, 1, 1, 1), 1 << 32, np.uint64), contract="aiter")


def test_errors_are_what_python_calls_them():
    assert issubclass(m3idx.InvalidError, (m3idx.Error, ValueError)) and issubclass(m3idx.InvalidError, ValueError)
    assert issubclass(m3idx.UnavailableError, RuntimeError) and issubclass(m3idx.UnsupportedError, NotImplementedError)
    assert issubclass(m3idx.OutOfMemoryError, MemoryError) and issubclass(m3idx.DeviceError, m3idx.Error)
    cache = np.zeros((1, 16, 16), np.float16)
    with pytest.raises(m3idx.UnsupportedError):
        m3idx.index_cache_insert(np.zeros((1, 16), np.float32), cache, [0])
    with pytest.raises(m3idx.InvalidError, match="slot_mapping"):
        m3idx.index_cache_insert(np.zeros((2, 16), np.float16), cache, [3, 3])
    with pytest.raises(m3idx.UnavailableError, match="HIP plugin could not be loaded"):
        m3idx.backend_info("hip")
