# SPDX-License-Identifier: Apache-2.0
"""A second meaning in pure Python, from docs/SEMANTICS.md alone: fractions for S3, a sort of tuples for S4, lists for S5.

Shares nothing with the library.  Formats are decoded from their table (S2.2), sums are Fraction, and rounding to float32
is done on integers.
"""

import random
from fractions import Fraction

import m3idx
import pytest

numpy = pytest.importorskip("numpy")

INF, NAN = "inf", "nan"
# name: bytes, exponent bits, fraction bits, bias, kind of specials (S2.2)
FORMATS = {
    "f32": (4, 8, 23, 127, "ieee"),
    "f16": (2, 5, 10, 15, "ieee"),
    "bf16": (2, 8, 7, 127, "ieee"),
    "e4m3fn": (1, 4, 3, 7, "fn"),
    "e4m3fnuz": (1, 4, 3, 8, "fnuz"),
    "e5m2": (1, 5, 2, 15, "ieee"),
    "e5m2fnuz": (1, 5, 2, 16, "fnuz"),
}


def decode(name, code):
    """A Fraction, ("inf", sign) or "nan"."""
    width, ebits, fbits, bias, kind = FORMATS[name]
    sign = -1 if code >> (8 * width - 1) else 1
    e, f = code >> fbits & (1 << ebits) - 1, code & (1 << fbits) - 1
    if kind == "fnuz" and code == 0x80 or kind == "fn" and code & 0x7F == 0x7F:
        return NAN
    if kind == "ieee" and e == (1 << ebits) - 1:
        return NAN if f else (INF, sign)
    m, shift = (f, 1 - bias - fbits) if e == 0 else (f + (1 << fbits), e - bias - fbits)
    return sign * m * Fraction(2) ** shift


def dot(q, k):
    total, infinite = Fraction(0), set()
    for a, b in zip(q, k):
        if NAN in (a, b):
            return NAN
        inf_a, inf_b = isinstance(a, tuple), isinstance(b, tuple)
        if inf_a or inf_b:
            sa, sb = (x[1] if isinstance(x, tuple) else (x > 0) - (x < 0) for x in (a, b))
            if sa * sb == 0:
                return NAN
            infinite.add(sa * sb)
        else:
            total += a * b
    return NAN if len(infinite) == 2 else (INF, infinite.pop()) if infinite else total


def round_f32(x):
    """The pattern of an exact number, ("inf", sign) or "nan", rounded once (S3.3, S3.4)."""
    if x == NAN:
        return 0x7FC00000
    if isinstance(x, tuple):
        return 0x7F800000 if x[1] > 0 else 0xFF800000
    sign, x = (1 << 31 if x < 0 else 0), abs(x)
    if x == 0:
        return 0
    e = -149
    while x / Fraction(2) ** e >= 1 << 24:
        e += 1
    scaled = x / Fraction(2) ** e
    m, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest
    m += twice > scaled.denominator or twice == scaled.denominator and m & 1
    if m >= 1 << 24:
        m, e = m >> 1, e + 1
    if m == 0:
        return 0
    bits = m if m < 1 << 23 else (e + 150) << 23 | m - (1 << 23)
    return sign | min(bits, 0x7F800000)


def value_of(bits):
    """Sortable value of a score under contract vllm: a NaN is -1e30, zeros are equal."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        bits = 0xF149F2CA
    x = decode("f32", bits)
    return (x[1], 0) if isinstance(x, tuple) else (0, x)


def score_and_select(q, k, table, rows, block, m, topk, init, local, forced_in_score):
    """score patterns and ids of one head: rows is [(request, position, seq_len)]."""
    scores, ids = [], []
    for row, (request, p, seq) in zip(q, rows):
        n = max(0, min(p + 1, seq))
        blocks = -(-n // block)
        line = []
        for b in range(blocks):
            dots = [dot(row, k[table[request][b]][t - b * block]) for t in range(b * block, min(n, (b + 1) * block))]
            finite = [x for x in dots if x != NAN]
            key = lambda x: (x[1], 0) if isinstance(x, tuple) else (0, x)  # noqa: E731
            line.append(round_f32(max(finite, key=key) if finite else NAN))
        forced = [0x6FA18F08 if b >= blocks - local else 0x7149F2CA if b < init else s for b, s in enumerate(line)]
        order = sorted(range(blocks), key=lambda b: (value_of(forced[b]), -b), reverse=True)[:topk]
        scores.append((forced if forced_in_score else line) + [0xFF800000] * (m - blocks))
        ids.append(order + [-1] * (topk - len(order)))
    return scores, ids


def random_code(rng, name):
    width = FORMATS[name][0]
    code = rng.getrandbits(8 * width)
    if rng.random() < 0.98:  # mostly moderate numbers, so that sums round
        while decode(name, code) == NAN or isinstance(decode(name, code), tuple):
            code = rng.getrandbits(8 * width)
    return code


@pytest.mark.parametrize("seed", range(14))
def test_against_fractions(seed):
    rng = random.Random(seed)
    names = list(FORMATS)
    qf, kf = names[seed % 7], rng.choice(names)
    heads, dim, block, topk = rng.choice([1, 2]), 16, 16, rng.choice([1, 3, 16])
    init, local = rng.choice([0, 1]), rng.choice([0, 1, 2])
    prefill = seed % 2
    if prefill:
        q_lens, prefix = [2, 0, 1], [rng.randrange(40), 3, 0]
        lens = [p + n + rng.randrange(3) for p, n in zip(prefix, q_lens)]
        rows = [(r, prefix[r] + i, lens[r]) for r in range(3) for i in range(q_lens[r])]
        cu = [0, 2, 2, 3]
    else:
        lens = [0, 1, rng.randrange(17, 60)]
        rows = [(r, lens[r] - 2 + i, lens[r]) for r in range(3) for i in range(2)]
    m = max(-(-n // block) for n in lens) + 1
    pages = list(range(sum(-(-n // block) for n in lens)))
    rng.shuffle(pages)
    table = [[pages.pop() for _ in range(-(-n // block))] for n in lens]
    count = sum(map(len, table))
    q = [[[random_code(rng, qf) for _ in range(dim)] for _ in range(heads)] for _ in rows]
    k = [[[random_code(rng, kf) for _ in range(dim)] for _ in range(block)] for _ in range(count)]

    carrier = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32}
    arrays = {
        "q": numpy.array(q, carrier[FORMATS[qf][0]]),
        "index_k": numpy.array(k, carrier[FORMATS[kf][0]]).reshape(count, block, dim),
        "block_table": numpy.array([row + [-1] * (m - len(row)) for row in table], numpy.int32),
        "seq_lens": lens,
        "q_dtype": qf,
        "k_dtype": kf,
    }
    if prefill:
        batch = {"cu_seqlens": cu, "prefix_lens": prefix}
        score = m3idx.index_score(**arrays, **batch)
        ids = m3idx.index_prefill(**arrays, **batch, topk=topk, init_blocks=init, local_blocks=local)
    else:
        batch = {"decode_query_len": 2}
        score = m3idx.index_score(**arrays, **batch, init_blocks=init, local_blocks=local)
        ids = m3idx.index_decode(**arrays, **batch, topk=topk, init_blocks=init, local_blocks=local)
    again = m3idx.index_topk(
        score, topk, seq_lens=lens, **batch, block_size=block, init_blocks=init, local_blocks=local
    )

    keys = [[[decode(kf, c) for c in token] for token in page] for page in k]
    for h in range(heads):
        queries = [[decode(qf, c) for c in row[h]] for row in q]
        want = score_and_select(queries, keys, table, rows, block, m, topk, init, local, not prefill)
        assert (want[0], want[1]) == (score[h].view(numpy.uint32).tolist(), ids[h].tolist())
        assert want[1] == again[h].tolist()


def test_sparse_table_by_hand():
    # S5 with K = 3, page_stride 8: row 0 at p = 300 (self = 2): ids 2 (tail), 0 (full), 9 (beyond self, invalid).
    ids = numpy.array([[[2, 0, 9], [1, -1, -1]]], numpy.int32)
    table = numpy.array([[7, 5, 3, -1]], numpy.int32)
    got, lens = m3idx.sparse_table(ids, table, [302], decode_query_len=2)
    page = lambda p: [8 * p + j for j in range(8)]  # noqa: E731
    assert got.tolist() == [page(7) + page(3) + [0] * 8, page(5) + [0] * 16]
    assert lens.tolist() == [128 + 301 - 256, 128]


def test_cache_insert_by_hand():
    cache = numpy.full((2, 16, 16), 0xAA, numpy.uint8)
    key = numpy.zeros((3, 16), numpy.float32)
    key[0, :6] = [1.0, -1.0, 1e9, -numpy.inf, 0.0, -0.0]  # e4m3fnuz: bias 8, largest 240 = 0x7f, no -0
    key[2, 0] = numpy.nan
    m3idx.index_cache_insert(key, cache, [17, -1, 3], cache_dtype="e4m3fnuz")
    want = numpy.full((2, 16, 16), 0xAA, numpy.uint8)
    want[1, 1] = [0x40, 0xC0, 0x7F, 0xFF] + [0] * 12
    want[0, 3] = [0x80] + [0] * 15
    assert numpy.array_equal(want, cache)
