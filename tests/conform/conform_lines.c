/* SPDX-License-Identifier: Apache-2.0
 *
 * Case lines from files and from the grammar of the full level.
 *
 * The grammar walks the axes that must all be met (49 pairs of formats; every block size and head dim; every contract
 * of the four fields; every data kind; lengths at the borders of blocks, tiles and policies) and draws the rest of
 * each line from its own number, so that line i is the same whatever stands before it.
 */
#include "conform_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "casedata.h"
#include "conform_memory.h"

void conform_lines_add(conform_lines *lines, const char *line) {
  if (lines->count % 256 == 0) {
    char **grown = realloc(lines->line, (size_t)(lines->count + 256) * sizeof *grown);
    if (!grown) {
      fprintf(stderr, "conform: no memory for %d lines\n", lines->count);
      exit(2);
    }
    lines->line = grown;
  }
  char *copy = conform_alloc(strlen(line) + 1);
  strcpy(copy, line);
  lines->line[lines->count++] = copy;
}

void conform_lines_free(conform_lines *lines) {
  for (int i = 0; i < lines->count; i++) free(lines->line[i]);
  free(lines->line);
  *lines = (conform_lines){0};
}

int conform_lines_read(conform_lines *lines, const char *path) {
  static char text[1 << 18]; /* a line of single elements may be long */
  FILE *in = fopen(path, "r");
  if (!in) return -1;
  while (fgets(text, sizeof text, in)) {
    text[strcspn(text, "\r\n")] = 0;
    const char *line = text + strspn(text, " ");
    if (*line && *line != '#') conform_lines_add(lines, line);
  }
  const int failed = ferror(in);
  fclose(in);
  return failed ? -1 : 0;
}

/* ---- the grammar ---- */

typedef struct draw {
  uint64_t key, next;
} draw;

static int64_t below(draw *d, int64_t n) { return (int64_t)(case_word(d->key, d->next++) % (uint64_t)n); }
static int64_t in(draw *d, int64_t low, int64_t high) { return low + below(d, high - low + 1); }

typedef struct text {
  char line[4096];
  size_t length;
} text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
say(text *t, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  const int n = vsnprintf(t->line + t->length, sizeof t->line - t->length, format, ap);
  va_end(ap);
  if (n > 0) t->length += (size_t)n;
}

static const char *const kinds[] = {"normal", "ties", "specials", "wide", "near"};
static const int64_t ks[] = {16, 16, 16, 1, 2, 4, 13, 32, 64, 128};

/* Any of the 32 contracts: four fields. */
static void say_contract(text *t, int64_t number) {
  static const char *const nans[] = {"-1e30", "-inf", "below", "bits"};
  say(t, " --contract tie=%s,nan=%s,zero=%s,order=%s", number & 1 ? "higher" : "lower", nans[number >> 1 & 3],
      number >> 3 & 1 ? "signed" : "equal", number >> 4 & 1 ? "id" : "score");
}

/* Keys of a request: at the borders of blocks of B, or anything. */
static int64_t length(draw *d, int64_t B, int64_t most_blocks) {
  static const int64_t offsets[] = {-1, 0, 1};
  if (below(d, 10) == 0) return 0;
  const int64_t blocks = in(d, 0, most_blocks);
  const int64_t border = blocks * B + offsets[below(d, 3)];
  return border > 0 && below(d, 3) ? border : in(d, 1, most_blocks * B);
}

static void say_rest(text *t, draw *d, int64_t i, int64_t B) {
  static const char *const scales[] = {"", "", "", " --scale 0.08838834764", " --scale 1e-30", " --scale 3e38"};
  say(t, " --topk %ld", (long)ks[below(d, 10)]);
  if (below(d, 3) == 0) say(t, " --init %ld", (long)in(d, 0, 3));
  if (below(d, 2) == 0) say(t, " --local %ld", (long)in(d, 0, 2));
  if (below(d, 2) == 0) say_contract(t, i % 32);
  if (B == 128 && below(d, 2) == 0) {
    say(t, " --sparse-table 1");
    if (below(d, 2)) say(t, " --attention-table 1");
    if (below(d, 3) == 0) say(t, " --page-stride 16");
  }
  say(t, "%s", scales[below(d, 6)]);
  if (below(d, 6) == 0) say(t, " --num-pages %ld", (long)in(d, 1, 2));
  say(t, " --data %s --seed %ld", kinds[i / 3 % 5], (long)i);
}

/* Products of one line stay near this many: ref takes about a tenth of a second for them. */
enum { PRODUCTS = 600000 };

static void attention(conform_lines *lines, int64_t i) {
  static const int64_t block_sizes[] = {128, 128, 16, 32, 64};
  draw d = {.key = case_word(UINT64_C(0x636f6e66), (uint64_t)i)};
  text t = {.length = 0};
  const bool decode = below(&d, 2);
  const int64_t B = block_sizes[i % 5], D = 16 * (i % 16 + 1), H = in(&d, 1, 4), R = in(&d, 1, 4);
  const int64_t query_len = decode ? in(&d, 1, 4) : 1;
  int64_t most = PRODUCTS / (D * H * B * R * (decode ? query_len : 6));
  if (most < 2) most = 2;
  if (most > 40) most = 40;
  int64_t longest = 0;
  say(&t, "--op %s --%s ", decode ? "decode" : "prefill", decode ? "seq-lens" : "prefix-lens");
  for (int64_t r = 0; r < R; r++) {
    const int64_t n = length(&d, B, most);
    if (longest < n) longest = n;
    say(&t, "%s%ld", r ? "," : "", (long)n);
  }
  if (decode && query_len > 1) say(&t, " --decode-query-len %ld", (long)query_len);
  if (!decode) {
    say(&t, " --q-lens ");
    for (int64_t r = 0; r < R; r++) say(&t, "%s%ld", r ? "," : "", (long)in(&d, 0, 6));
  }
  say(&t, " --heads %ld --head-dim %ld --block-size %ld", (long)H, (long)D, (long)B);
  if (decode && below(&d, 2)) say(&t, " --max-block %ld", (long)(longest / B + 1 + below(&d, 5)));
  say(&t, " --q-dtype %s --k-dtype %s", m3idx_dtype_name((m3idx_dtype)(i % 7)),
      m3idx_dtype_name((m3idx_dtype)(i / 7 % 7)));
  say_rest(&t, &d, i, B);
  conform_lines_add(lines, t.line);
}

/* Selection alone: long rows, every contract, borders of tiles and of the policies (S8.1). */
static void selection(conform_lines *lines, int64_t i) {
  static const int64_t borders[] = {0,   1,   15,  16,   17,   127,  128,  129,  255,
                                    511, 512, 513, 1023, 2760, 4097, 8191, 8192, 8193};
  enum { BORDERS = sizeof borders / sizeof *borders };
  draw d = {.key = case_word(UINT64_C(0x73656c65), (uint64_t)i)};
  text t = {.length = 0};
  const int64_t border = borders[i % BORDERS];
  int64_t longest = border;
  say(&t, "--op select --num-blocks %ld", (long)border);
  for (int64_t r = below(&d, 4); r > 0; r--) {
    const int64_t n = below(&d, 2) ? borders[below(&d, i % BORDERS + 1)] : below(&d, border + 2);
    if (longest < n) longest = n;
    say(&t, ",%ld", (long)n);
  }
  say(&t, " --heads %ld --topk %ld", (long)in(&d, 1, 3), (long)ks[below(&d, 10)]);
  if (below(&d, 3) == 0) say(&t, " --max-block %ld", (long)(longest + in(&d, 1, 200)));
  if (below(&d, 3) == 0) say(&t, " --init %ld", (long)in(&d, 1, 20));
  if (below(&d, 3) == 0) say(&t, " --local %ld", (long)in(&d, 1, 3));
  say_contract(&t, i / BORDERS % 32);
  say(&t, " --data %s --seed %ld", kinds[below(&d, 5)], (long)i);
  conform_lines_add(lines, t.line);
}

void conform_lines_grammar(conform_lines *lines) {
  enum { ATTENTION = 7 * 7 * 5 * 8, SELECTION = 18 * 32 * 2 };
  for (int64_t i = 0; i < ATTENTION; i++) attention(lines, i);
  for (int64_t i = 0; i < SELECTION; i++) selection(lines, i);
}
