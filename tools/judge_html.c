/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's report as one page without scripts or outside resources: verdicts, histogram of ulps, a map of the
 * rows, the worst rows.  Light or dark as the reader's system is.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "casefail.h"
#include "judge.h"

enum { WORST = 50, MAP_COLUMNS = 100, MAP_LINES = 256 };

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--line:#d0d7de;--faint:#57606a;--good:#1a7f37;"
    "--legit:#9a6700;--bad:#cf222e;--bar:#0969da}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--line:#30363d;--faint:#8d96a0;"
    "--good:#3fb950;--legit:#d29922;--bad:#f85149;--bar:#4493f8}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70em;margin:2em auto;"
    "padding:0 1em}\n"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}table{border-collapse:collapse}"
    "td,th{border-bottom:1px solid var(--line);padding:.3em .8em .3em 0;text-align:left;vertical-align:top}\n"
    "code,.n{font-family:ui-monospace,monospace}.faint{color:var(--faint)}.good{color:var(--good)}"
    ".legit{color:var(--legit)}.bad{color:var(--bad)}svg text{font:12px ui-monospace,monospace;fill:var(--ink)}\n"
    "rect.good,.key.good{fill:var(--good)}rect.legit,.key.legit{fill:var(--legit)}rect.bad,.key.bad{fill:var(--bad)}"
    "rect.bar{fill:var(--bar)}rect.good{opacity:.45}svg{max-width:100%;height:auto}td.n{white-space:nowrap}\n";

/* Text with what HTML takes as markup escaped. */
static void put(FILE *out, const char *text) {
  for (; *text; text++) switch (*text) {
    case '&': fputs("&amp;", out); break;
    case '<': fputs("&lt;", out); break;
    case '>': fputs("&gt;", out); break;
    case '"': fputs("&quot;", out); break;
    default: putc(*text, out);
    }
}

static void put_verdicts(FILE *out, const judge_report *r) {
  static const char *const verdict[] = {"selection", "scores", "end to end"};
  const bool wrong[] = {judge_select_wrong(r), judge_score_wrong(r), judge_swap_wrong(r)};
  char sentence[JUDGE_SENTENCE];
  fputs("<table>\n", out);
  for (int v = 0; v < 3; v++) {
    const char *word = "", *class = "good";
    judge_verdict(r, v, &word, sentence);
    if (!strcmp(word, "none")) class = "faint";
    if (!strcmp(word, "legitimate")) class = "legit";
    fprintf(out, "<tr><th>%s</th><td class=\"%s\"><b>%s</b></td><td>", verdict[v], wrong[v] ? "bad" : class, word);
    put(out, sentence);
    fputs("</td></tr>\n", out);
  }
  fputs("</table>\n", out);
}

static void put_histogram(FILE *out, const judge_report *r) {
  enum { LINE = 20, WIDE = 600, LEFT = 170 };
  int64_t most = 1;
  int lines = 0, y = 0;
  char label[24];
  for (int i = 0; i < JUDGE_ULPS; i++) {
    lines += r->ulps[i] > 0;
    if (r->ulps[i] > most) most = r->ulps[i];
  }
  if (!lines) return;
  fprintf(out,
          "<h2>Distance of the scores from the exact ones, in ulps</h2>\n"
          "<svg role=\"img\" aria-label=\"histogram of ulps\" width=\"%d\" viewBox=\"0 0 %d %d\">\n",
          LEFT + WIDE + 120, LEFT + WIDE + 120, lines * LINE);
  for (int i = 0; i < JUDGE_ULPS; i++) {
    if (!r->ulps[i]) continue;
    judge_ulps_label(i, label);
    int width = (int)((double)r->ulps[i] / (double)most * WIDE);
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text><rect class=\"bar\" x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/><text x=\"%d\" y=\"%d\">%lld</text>\n",
            LEFT - 8, y + 14, label, LEFT, y + 3, width > 1 ? width : 1, LINE - 6, LEFT + width + 6, y + 14,
            (long long)r->ulps[i]);
    y += LINE;
  }
  fputs("</svg>\n", out);
}

/* 0 right, 1 legitimate, 2 wrong. */
static int shade(const judge_row *row) {
  if (row->select != SELECT_RIGHT || row->score != SCORE_RIGHT || row->swap >= SWAP_ORDER) return 2;
  return row->swap != SWAP_SAME;
}

/* One cell for a row, or for as many rows as keep the map readable: then the worst of them. */
static void put_map(FILE *out, const judge_report *r) {
  enum { CELL = 9 };
  static const char *const classes[] = {"good", "legit", "bad"};
  int64_t rows = r->view.H * r->view.T, each = (rows + MAP_COLUMNS * MAP_LINES - 1) / (MAP_COLUMNS * MAP_LINES);
  if (each < 1) each = 1;
  int64_t per_head = (r->view.T + each - 1) / each, lines = 0;
  fputs("<h2>Rows</h2>\n<p class=\"faint\">Each head begins on a line of its own, rows from left to right", out);
  if (each > 1) fprintf(out, ", %lld rows a cell, coloured by the worst", (long long)each);
  fputs(". <span class=\"good\">&#9632; right</span> <span class=\"legit\">&#9632; explained by the arithmetic</span> "
        "<span class=\"bad\">&#9632; wrong</span></p>\n",
        out);
  int64_t head_lines = (per_head + MAP_COLUMNS - 1) / MAP_COLUMNS;
  if (head_lines < 1) head_lines = 1;
  fprintf(out, "<svg role=\"img\" aria-label=\"map of rows\" width=\"%d\" viewBox=\"0 0 %d %lld\">\n",
          60 + MAP_COLUMNS * CELL, 60 + MAP_COLUMNS * CELL, (long long)(r->view.H * (head_lines * CELL + 6) + 6));
  for (int64_t h = 0; h < r->view.H; h++, lines += head_lines) {
    int64_t top = lines * CELL + h * 6;
    fprintf(out, "<text x=\"0\" y=\"%lld\">h %lld</text>\n", (long long)top + CELL + 1, (long long)h);
    for (int64_t i = 0; i < per_head; i++) {
      int worst = 0;
      for (int64_t t = i * each; t < (i + 1) * each && t < r->view.T; t++)
        if (shade(&r->row[h * r->view.T + t]) > worst) worst = shade(&r->row[h * r->view.T + t]);
      fprintf(
          out,
          "<rect class=\"%s\" x=\"%lld\" y=\"%lld\" width=\"%d\" height=\"%d\"><title>[%lld][%lld]</title></rect>\n",
          classes[worst], (long long)(50 + i % MAP_COLUMNS * CELL), (long long)(top + i / MAP_COLUMNS * CELL + 2),
          CELL - 1, CELL - 1, (long long)h, (long long)(i * each));
    }
  }
  fputs("</svg>\n", out);
}

static void put_cell(FILE *out, const char *word, const char *sentence, bool bad) {
  fprintf(out, "<td><b class=\"%s\">%s</b><br>", bad ? "bad" : "faint", word);
  put(out, sentence);
  fputs("</td>", out);
}

static void put_worst(FILE *out, const judge_report *r) {
  int64_t rows[WORST];
  int n = judge_worst(r, WORST, rows);
  char sentence[JUDGE_SENTENCE];
  if (!n) return;
  fputs("<h2>Worst rows</h2>\n<table><tr><th>[h][t]</th><th>N</th><th>selection</th><th>scores</th><th>end to end</th>"
        "</tr>\n",
        out);
  for (int i = 0; i < n; i++) {
    const judge_row *row = &r->row[rows[i]];
    fprintf(out, "<tr><td class=\"n\">[%lld][%lld]</td><td class=\"n\">%lld</td>", (long long)(rows[i] / r->view.T),
            (long long)(rows[i] % r->view.T), (long long)row->blocks);
    judge_select_sentence(r, row, sentence);
    put_cell(out, judge_select_word(row->select), sentence, row->select != SELECT_RIGHT);
    judge_score_sentence(r, row, sentence);
    put_cell(out, judge_score_word(row->score), sentence, row->score != SCORE_RIGHT);
    judge_swap_sentence(r, row, sentence);
    put_cell(out, judge_swap_word(row->swap), sentence, row->swap >= SWAP_ORDER);
    fputs("</tr>\n", out);
  }
  fputs("</table>\n", out);
}

static void put_page(FILE *out, const judge_report *r, const char *golden, const char *theirs) {
  char name[96];
  m3idx_contract_name(&r->contract, name, sizeof name);
  fprintf(out,
          "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>m3idx judge: %s</title>\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n%s</style>\n</head>\n<body>\n",
          judge_wrong(r) ? "wrong" : "nothing wrong", style);
  fprintf(out, "<h1><code>");
  put(out, theirs);
  fprintf(out, "</code>: <span class=\"%s\">%s</span></h1>\n<p class=\"faint\">Against <code>",
          judge_wrong(r) ? "bad" : "good", judge_wrong(r) ? "wrong" : "nothing wrong");
  put(out, golden);
  fprintf(out, "</code>: %s, %lld heads, %lld rows, at most %lld blocks, K %lld, contract %s, arithmetic %s%s.</p>\n",
          case_op_name(r->view.op), (long long)r->view.H, (long long)r->view.T, (long long)r->view.M,
          (long long)r->view.K, name, judge_arith_name(r->options.arith),
          r->options.flush ? ", subnormals flushed" : "");
  put_verdicts(out, r);
  for (int i = 0; i < r->num_fits && i < 4; i++) {
    m3idx_contract_name(&r->fits[i], name, sizeof name);
    fprintf(out, "<p>Every row is what contract <code>%s</code> selects.</p>\n", name);
  }
  for (int i = 0; i < r->num_hints; i++) {
    fputs("<p>Hint: ", out);
    put(out, r->hint[i]);
    fputs("</p>\n", out);
  }
  put_histogram(out, r);
  put_map(out, r);
  put_worst(out, r);
  fprintf(out,
          "<p class=\"faint\">m3idx %s. What the verdicts mean and why the bounds hold: docs/JUDGE.md.</p>\n"
          "</body>\n</html>\n",
          m3idx_version());
}

int judge_html(const judge_report *r, const char *golden, const char *theirs, const char *path, char *why) {
  FILE *out = fopen(path, "w");
  if (!out) return case_fail(why, "%.400s: %s", path, strerror(errno));
  put_page(out, r, golden, theirs);
  int bad = ferror(out);
  bad |= fclose(out);
  return bad ? case_fail(why, "%.400s: cannot write it", path) : 0;
}
