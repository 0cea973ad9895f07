/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx judge: another implementation's outputs against a case, in three verdicts (docs/JUDGE.md).  judge.c runs
 * the case and the rows; one file judges each subject; three files say the result.  No verdict has a tolerance.
 */
#ifndef M3IDX_JUDGE_H
#define M3IDX_JUDGE_H

#include <jansson.h>

#include "case.h"
#include "judge_bound.h"

typedef struct judge_options {
  judge_arith arith;
  bool flush;
  int k_block;
  bool has_contract; /* judge by `contract`, not by the case's */
  m3idx_contract contract;
} judge_options;

/* ---- selection: a row of topk_idx against scores that are taken as they are; the worst is the last ---- */
typedef enum judge_select_kind {
  SELECT_RIGHT,
  SELECT_ORDER,   /* the right ids in another order */
  SELECT_TIE,     /* other ids of equal rank */
  SELECT_MISSING, /* a better block was left out */
  SELECT_FORCED,  /* a block was left out that is better for its forced value (S3.7) */
  SELECT_TAIL,    /* a slot past min(K, N) is not -1 */
  SELECT_HOLE,    /* a slot before that is negative */
  SELECT_DUPLICATE,
  SELECT_CAUSAL, /* an id at or past N, within the capacity */
  SELECT_RANGE,  /* no block id of this launch at all */
  SELECT_KINDS
} judge_select_kind;

/* ---- scores: a row of scores, by its worst element ---- */
typedef enum judge_score_kind {
  SCORE_RIGHT,
  SCORE_OUTSIDE, /* a number further from the exact one than the arithmetic can get */
  SCORE_SPECIAL, /* NaN or infinity where it cannot be, or a number where only those can */
  SCORE_FORCED,  /* a forced block that is not its value */
  SCORE_MASKED,  /* a column at or past N that is not -inf */
  SCORE_KINDS
} judge_score_kind;

/* ---- end to end: what a row selected against what the golden has ---- */
typedef enum judge_swap_kind {
  SWAP_SAME,
  SWAP_ORDER_LEGITIMATE, /* the golden's ids in an order that the arithmetic can explain */
  SWAP_LEGITIMATE,       /* other ids that the arithmetic can explain */
  SWAP_ORDER,            /* an order that nothing explains */
  SWAP_TIE,              /* exact equals, taken by another tie rule */
  SWAP_FORCED,           /* another rule for forced blocks */
  SWAP_WRONG,
  SWAP_KINDS
} judge_swap_kind;

enum { JUDGE_ULPS = 35 }; /* ulps 0, 1, 2, 3-4, 5-8, ...; the last counts what has no distance */

typedef struct judge_row {
  int64_t blocks; /* N */
  judge_select_kind select;
  int32_t select_slot, select_id, select_want; /* the slot and ids that show it */
  float select_score, select_best;             /* of select_id and select_want */
  judge_score_kind score;
  int64_t score_block, outside; /* the worst column, and how many are wrong */
  float score_want, score_got, score_low, score_high;
  double use; /* the largest share of the bound that a right score used up */
  judge_swap_kind swap;
  int32_t taken, missed; /* the worst swap */
  float taken_score, missed_score;
  double apart, allowed; /* how far their exact scores are apart, and how far they may be */
} judge_row;

enum { JUDGE_HINTS = 5, JUDGE_CONTRACTS = 32 };

typedef struct judge_report {
  judge_options options;
  judge_bound bound;
  m3idx_case view;
  m3idx_contract contract;
  bool outputs_only; /* their file has no inputs to compare */
  bool has_score, has_topk;
  bool has_table; /* their file has a sparse table or its lengths, which no verdict covers */
  bool by_exact;  /* selection judged for its form only: their file has no scores */
  judge_row *row; /* [H][T] */
  int64_t select_count[SELECT_KINDS], score_count[SCORE_KINDS], swap_count[SWAP_KINDS]; /* rows */
  int64_t elements, outside, ulps[JUDGE_ULPS];
  double use;      /* the largest of all rows, at: */
  int64_t use_row; /* -1 = none */
  int num_fits;    /* contracts that explain every row if the declared one does not, nearest first */
  m3idx_contract fits[JUDGE_CONTRACTS];
  int num_hints;
  char hint[JUDGE_HINTS][CASE_MESSAGE_BYTES];
} judge_report;

/* Judge `theirs` by `golden`, whose outputs are checked too.  0, or -1 and why nothing can be said.  Frees with
 * judge_free(). */
int judge_run(const judge_options *options, const case_file *golden, const case_file *theirs, judge_report *out,
              char *why);
void judge_free(judge_report *report);
bool judge_select_wrong(const judge_report *r);
bool judge_score_wrong(const judge_report *r);
bool judge_swap_wrong(const judge_report *r);
bool judge_wrong(const judge_report *r);

/* ---- what the parts share ---- */

/* The problem as each part sees it. */
typedef struct judge_case {
  const judge_report *report;
  const float *exact;        /* [H][T][M], the right scores */
  const float *score;        /* [H][T][M], theirs, or NULL */
  const int32_t *want, *got; /* [H][T][K], the right selection and theirs (or NULL) */
} judge_case;

/* judge_select.c */
uint64_t judge_key(const m3idx_contract *contract, float score, int64_t id); /* S4.3 */
/* The value of a forced block (S3.7): false = it is none. */
bool judge_forced(const m3idx_case *c, int64_t blocks, int64_t id, float *value);
void judge_select_row(const judge_case *j, int64_t h, int64_t t, judge_row *row);
/* Contracts under which their scores give their selection. */
int judge_select_fits(const judge_case *j, m3idx_context *ctx, judge_report *out, char *why);
/* judge_score.c; sets [N], exact [N] */
void judge_score_row(const judge_case *j, int64_t h, int64_t t, const judge_set *sets, judge_row *row, int64_t *ulps);
/* judge_swap.c */
void judge_swap_row(const judge_case *j, int64_t h, int64_t t, const judge_set *sets, judge_row *row);
/* judge_hints.c */
void judge_hints(const judge_case *j, judge_report *out);

/* ---- words (judge_words.c) ---- */
const char *judge_select_word(judge_select_kind kind);
const char *judge_score_word(judge_score_kind kind);
const char *judge_swap_word(judge_swap_kind kind);
/* What a row shows, as one sentence each; "" where it is right. */
enum { JUDGE_SENTENCE = 320 };
void judge_select_sentence(const judge_report *r, const judge_row *row, char *out);
void judge_score_sentence(const judge_report *r, const judge_row *row, char *out);
void judge_swap_sentence(const judge_report *r, const judge_row *row, char *out);
/* One word and a sentence for each verdict: 0 selection, 1 scores, 2 end to end. */
void judge_verdict(const judge_report *r, int which, const char **word, char *sentence);
void judge_ulps_label(int bucket, char *out); /* 24 bytes */
/* How bad a row is, to show the worst first; 0 = not worth showing. */
int judge_badness(const judge_row *row);
/* Rows by badness, the worst first; at most `most`.  Returns how many. */
int judge_worst(const judge_report *r, int most, int64_t *rows);

/* ---- outputs; paths are shown only ---- */
void judge_text(const judge_report *r, const char *golden, const char *theirs, FILE *out);
json_t *judge_json(const judge_report *r, const char *golden, const char *theirs);
int judge_html(const judge_report *r, const char *golden, const char *theirs, const char *path, char *why);

#endif
