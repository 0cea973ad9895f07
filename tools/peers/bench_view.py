#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show a benchmark's JSON: tables as text, or with --svg a plot of its ratios over context length.

The plot reads the shapes NAME-8, NAME-32, ... whose NAME ends in "context" and draws each contender's speed over that of
the contender named by --base.
"""
import argparse
import json
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 190, 60, 56
COLORS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#b8860b", "#444444")


def number(row, key, form):
    return format(row[key], form) if key in row else ""


def tables(run):
    print(f"m3idx {run['m3idx']}, {run['processor']}, {run['threads']} threads, medians of {run['repeats']}")
    shape = None
    for row in run["results"]:
        if row["shape"] != shape:
            shape = row["shape"]
            print(f"\n{shape}\n  {'':22} thr           ms    GFLOP/s     GB/s       rows/s")
        if "absent" in row:
            print(f"  {row['contender']:22} absent: {row['absent']}")
            continue
        print(f"  {row['contender']:22} {row['threads']:3} {1e3 * row['median_s']:12.3f} {number(row, 'gflops', '.1f'):>10} "
              f"{number(row, 'gbytes_s', '.2f'):>8} {row['rows_s']:12.0f}  {row['detail']}")
    print("\nbars: got, and what was to be got")
    for bar in run["bars"]:
        name = f"{bar['shape']}: {bar['ours']} / {bar['other']}"
        if "absent" in bar:
            print(f"  {name:68} -  absent: {bar['absent']}")
        else:
            sign = "<=" if bar["kind"] == "at most" else ">="
            print(f"  {name:68} {bar['got']:8.3f}  bar {sign} {bar['bar']:<5g} {'reached' if bar['reached'] else 'MISSED'}")


def markdown(run):
    """The bars that this run could judge, as rows of a table."""
    print("| shape | ratio | got | bar |\n|---|---|---|---|")
    for bar in run["bars"]:
        if "absent" in bar:
            continue
        at_most = bar["kind"] == "at most"
        ratio = f"time of {bar['ours']} / {bar['other']}" if at_most else f"speed of {bar['ours']} / {bar['other']}"
        got = f"{bar['got']:.2f}" if bar["reached"] else f"**{bar['got']:.2f}**"
        print(f"| {bar['shape']} | {ratio} | {got} | {'<=' if at_most else '>='} {bar['bar']:g} |")


def curves(run, base):
    """{contender: [(pages, ratio)]} over the context shapes."""
    rates = {}
    for row in run["results"]:
        stem, _, pages = row["shape"].rpartition("-")
        if stem.endswith("context") and "gflops" in row:
            rates.setdefault(int(pages), {})[row["contender"]] = row["gflops"]
    result = {}
    for pages in sorted(rates):
        for name, rate in rates[pages].items():
            if base in rates[pages] and name != base:
                result.setdefault(name, []).append((pages, rate / rates[pages][base]))
    return result


def plural(count, word):
    return f"{count} {word}" + ("s" if count != 1 else "")


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def svg(run, base):
    lines = curves(run, base)
    if not lines:
        sys.exit(f"bench_view: no context shapes with {base}")
    pages = sorted({p for line in lines.values() for p, _ in line})
    top = max(1.0, max(r for line in lines.values() for _, r in line)) * 1.1
    span = max(len(pages) - 1, 1)

    def x(p):
        return LEFT + (WIDTH - LEFT - RIGHT) * pages.index(p) / span

    def y(r):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * r / top

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           "<!-- SPDX-License-Identifier: Apache-2.0 -->",
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">Speed over {escape(base)}: 512 query rows, bf16, D 128</text>',
           f'<text x="{LEFT}" y="40">{escape(run["processor"])}, {plural(run["threads"], "thread")}, '
           f'medians of {run["repeats"]}</text>']
    step = next(s for s in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100) if top / s <= 8)
    for i in range(int(top / step) + 1):
        level = y(i * step)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(1):.1f}" y2="{y(1):.1f}" stroke="#888" stroke-dasharray="5 4"/>')
    for p in pages:
        out.append(f'<text x="{x(p):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{p * 128 // 1024}k</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">context, tokens</text>')
    for (name, line), color, row in zip(lines.items(), COLORS, range(len(COLORS))):
        points = " ".join(f"{x(p):.1f},{y(r):.1f}" for p, r in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x(p):.1f}" cy="{y(r):.1f}" r="3" fill="{color}"/>' for p, r in line]
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 18 * row + 8}" fill="{color}">{escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="what m3idx bench --json printed")
    parser.add_argument("--markdown", action="store_true", help="print the bars as a table, those missed in bold")
    parser.add_argument("--svg", metavar="OUT", help="write the plot there")
    parser.add_argument("--base", default="oneDNN bf16+max", help="the contender at 1 (default: %(default)s)")
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as file:
        run = json.load(file)
    if not args.svg:
        (markdown if args.markdown else tables)(run)
        return
    with open(args.svg, "w", encoding="utf-8") as file:
        file.write(svg(run, args.base))


if __name__ == "__main__":
    main()
