/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's one screen: the verdicts first, then the ulps, the worst rows, what it looks like, what to run next.
 */
#include <string.h>

#include "judge.h"

enum { WORST = 5 };

/* A path as a shell word. */
static void put_word(const char *path, FILE *out) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+=:,@%-";
  if (*path && strspn(path, plain) == strlen(path)) {
    fputs(path, out);
    return;
  }
  putc('\'', out);
  for (; *path; path++) *path == '\'' ? fputs("'\\''", out) : putc(*path, out);
  putc('\'', out);
}

static void put_command(const judge_report *r, const char *golden, const char *theirs, judge_arith arith,
                        const m3idx_contract *contract, const char *more, FILE *out) {
  char name[96];
  fputs("  m3idx judge ", out);
  put_word(golden, out);
  putc(' ', out);
  put_word(theirs, out);
  if (arith != JUDGE_EXACT) fprintf(out, " --arith %s", judge_arith_name(arith));
  if (r->options.k_block) fprintf(out, " --k-block %d", r->options.k_block);
  if (r->options.flush && arith == r->options.arith) fputs(" --flush", out);
  if (contract) {
    m3idx_contract_name(contract, name, sizeof name);
    fprintf(out, " --contract %s", name);
  }
  fprintf(out, "%s\n", more);
}

static void put_ulps(const judge_report *r, FILE *out) {
  char label[24];
  fputs("ulps      ", out);
  for (int i = 0; i < JUDGE_ULPS; i++) {
    if (!r->ulps[i]) continue;
    judge_ulps_label(i, label);
    fprintf(out, "  %s: %lld", label, (long long)r->ulps[i]);
  }
  putc('\n', out);
}

static void put_rows(const judge_report *r, FILE *out) {
  void (*const say[])(const judge_report *, const judge_row *, char *) = {judge_select_sentence, judge_score_sentence,
                                                                          judge_swap_sentence};
  int64_t rows[WORST];
  int n = judge_worst(r, WORST, rows);
  char sentence[JUDGE_SENTENCE];
  if (n) fputs("\nworst rows, [h][t]\n", out);
  for (int i = 0; i < n; i++) {
    const judge_row *row = &r->row[rows[i]];
    const char *const word[] = {judge_select_word(row->select), judge_score_word(row->score),
                                judge_swap_word(row->swap)};
    static const char *const verdict[] = {"selection", "scores", "end to end"};
    char place[48];
    snprintf(place, sizeof place, "[%lld][%lld]", (long long)(rows[i] / r->view.T), (long long)(rows[i] % r->view.T));
    for (int v = 0; v < 3; v++) {
      say[v](r, row, sentence);
      if (!*sentence) continue;
      fprintf(out, "  %-9s %s, %s: %s\n", place, verdict[v], word[v], sentence);
      *place = 0;
    }
  }
}

static void put_next(const judge_report *r, const char *golden, const char *theirs, FILE *out) {
  const m3idx_contract *contract = r->options.has_contract ? &r->contract : NULL;
  judge_arith arith = r->options.arith;
  fputs("\nnext\n", out);
  if (r->num_fits) put_command(r, golden, theirs, arith, &r->fits[0], "", out);
  if (arith == JUDGE_EXACT && r->view.op != CASE_SELECT && (judge_score_wrong(r) || (!r->has_score && judge_wrong(r))))
    put_command(r, golden, theirs, JUDGE_F32, contract, "    # or bf16-mma, cdna3-mfma: what it computes with", out);
  put_command(r, golden, theirs, arith, contract, judge_wrong(r) ? " --html judge.html" : " --json    # for CI", out);
}

void judge_text(const judge_report *r, const char *golden, const char *theirs, FILE *out) {
  static const char *const verdict[] = {"selection", "scores", "end to end"};
  const m3idx_case *c = &r->view;
  char name[96], sentence[JUDGE_SENTENCE];
  m3idx_contract_name(&r->contract, name, sizeof name);
  fprintf(out, "%s: %s\n", theirs, judge_wrong(r) ? "WRONG" : "nothing wrong");
  fprintf(out, "%s, %lld head%s, %lld rows, at most %lld blocks, K %lld, contract %s, arithmetic %s%s%s\n\n",
          case_op_name(c->op), (long long)c->H, c->H == 1 ? "" : "s", (long long)c->T, (long long)c->M, (long long)c->K,
          name, judge_arith_name(r->options.arith), r->options.flush ? ", subnormals flushed" : "",
          r->outputs_only ? "; their file has outputs only" : "");
  for (int v = 0; v < 3; v++) {
    const char *word = "";
    judge_verdict(r, v, &word, sentence);
    fprintf(out, "%-10s  %-14s  %s\n", verdict[v], word, sentence);
  }
  if (r->elements) put_ulps(r, out);
  if (r->num_fits) {
    fputs("\nevery row is what another contract selects:", out);
    for (int i = 0; i < r->num_fits && i < 4; i++) {
      m3idx_contract_name(&r->fits[i], name, sizeof name);
      fprintf(out, "%s %s", i ? "," : "", name);
    }
    fprintf(out, "%s\n", r->num_fits > 4 ? ", ..." : "");
  }
  put_rows(r, out);
  for (int i = 0; i < r->num_hints; i++) fprintf(out, "%shint: %s\n", i ? "" : "\n", r->hint[i]);
  put_next(r, golden, theirs, out);
}
