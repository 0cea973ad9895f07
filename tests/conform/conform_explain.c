/* SPDX-License-Identifier: Apache-2.0
 *
 * What a person needs to read about a difference: where, by how much, which row fed it, and what all have in common.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conform_judge.h"

/* An element of an output: where, and its bits on both sides. */
typedef struct element {
  int64_t a, b, c;
  uint64_t want, got;
} element;

typedef struct view {
  const conform_call *call;
  const conform_output *out;
  const unsigned char *want, *got; /* of the first element */
  FILE *to;
} view;

static uint64_t load(const unsigned char *at, size_t bytes) {
  uint32_t v32;
  uint64_t v64;
  uint16_t v16;
  switch (bytes) {
  case 8: memcpy(&v64, at, 8); return v64;
  case 4: memcpy(&v32, at, 4); return v32;
  case 2: memcpy(&v16, at, 2); return v16;
  default: return *at;
  }
}

static uint64_t poison_bits(size_t bytes) {
  unsigned char poison[8];
  conform_poison(poison, sizeof poison, bytes);
  return load(poison, bytes);
}

static element at(const view *v, int64_t a, int64_t b, int64_t c) {
  const conform_output *o = v->out;
  const size_t offset = (size_t)(a * o->stride[0] + b * o->stride[1] + c) * o->element_bytes;
  return (element){a, b, c, load(v->want + offset, o->element_bytes), load(v->got + offset, o->element_bytes)};
}

static bool differs(const element *e) { return e->want != e->got; }

/* ---- values ---- */

/* Floats in order: neighbours are 1 apart, -0 is 1 below +0. */
static int64_t float_rank(uint32_t bits) { return bits >> 31 ? -(int64_t)(bits & INT32_MAX) - 1 : (int64_t)bits; }

static bool is_nan(uint32_t bits) { return (bits & INT32_MAX) > UINT32_C(0x7f800000); }

static double float_value(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

static void print_value(const view *v, uint64_t bits) {
  switch (v->out->kind) {
  case CONFORM_SCORE: fprintf(v->to, "0x%08" PRIx64 " (%.9g)", bits, float_value((uint32_t)bits)); break;
  case CONFORM_IDS:
  case CONFORM_TABLE:
  case CONFORM_CONTEXT: fprintf(v->to, "%" PRId32, (int32_t)(uint32_t)bits); break;
  case CONFORM_KEYS: fprintf(v->to, "0x%016" PRIx64, bits); break;
  case CONFORM_CACHE: fprintf(v->to, "0x%0*" PRIx64, (int)(2 * v->out->element_bytes), bits); break;
  }
}

/* Query row and head of an element; false for a cache, which has none. */
static bool row_of(const view *v, const element *e, int64_t *row, int64_t *head) {
  const int64_t heads = v->call->on->c.H;
  switch (v->out->kind) {
  case CONFORM_SCORE:
  case CONFORM_IDS:
  case CONFORM_KEYS: *row = e->b, *head = e->a; return true;
  case CONFORM_TABLE: *row = e->b / heads, *head = e->b % heads; return true;
  case CONFORM_CONTEXT: *row = e->c / heads, *head = e->c % heads; return true;
  case CONFORM_CACHE: break;
  }
  return false;
}

static void print_place(const view *v, const element *e) {
  int64_t row, head;
  if (!row_of(v, e, &row, &head))
    fprintf(v->to, "[page %" PRId64 "][token %" PRId64 "][%" PRId64 "]", e->a, e->b, e->c);
  else if (v->out->kind == CONFORM_CONTEXT)
    fprintf(v->to, "[row %" PRId64 "][head %" PRId64 "]", row, head);
  else
    fprintf(v->to, "[row %" PRId64 "][head %" PRId64 "][%s %" PRId64 "]", row, head,
            v->out->kind == CONFORM_SCORE ? "block" : "slot", e->c);
}

static void print_element(const view *v, const char *which, const element *e) {
  fprintf(v->to, "    %s %s", which, v->out->name);
  print_place(v, e);
  fprintf(v->to, ": want ");
  print_value(v, e->want);
  fprintf(v->to, " got ");
  print_value(v, e->got);
  const uint32_t want = (uint32_t)e->want, got = (uint32_t)e->got;
  if (v->out->kind == CONFORM_SCORE && got != CONFORM_POISON && !is_nan(want) && !is_nan(got)) {
    const int64_t ulps = float_rank(got) - float_rank(want);
    fprintf(v->to, ", %+" PRId64 " ulp%s", ulps, ulps == 1 || ulps == -1 ? "" : "s");
  } else if (v->out->kind == CONFORM_CONTEXT) {
    fprintf(v->to, ", %+" PRId64, (int64_t)(int32_t)got - (int32_t)want);
  }
  fprintf(v->to, "\n");
}

static void print_row(const view *v, const element *e) {
  int64_t row, head;
  if (!row_of(v, e, &row, &head)) return;
  const conform_row *r = &v->call->on->rows[row];
  if (r->request < 0)
    fprintf(v->to, "    row %" PRId64 ": N %" PRId64 "\n", row, r->blocks);
  else
    fprintf(v->to, "    row %" PRId64 ": request %" PRId64 ", position %" PRId64 ", n %" PRId64 ", N %" PRId64 "\n",
            row, r->request, r->position, r->keys, r->blocks);
}

/* ---- what the differences have in common ---- */

typedef struct summary {
  int64_t elements, unwritten, signs, last_blocks, stale, least_block, most_id_want, most_id_got;
  element first, last;
} summary;

static bool is_stale(const view *v, const element *e) { return e->b > 0 && e->got == at(v, e->a, e->b - 1, e->c).want; }

static void count(const view *v, const element *e, summary *s) {
  int64_t row, head;
  if (!s->elements++) s->first = *e;
  s->last = *e;
  s->unwritten += e->got == poison_bits(v->out->element_bytes);
  s->signs += v->out->kind == CONFORM_SCORE && (e->want ^ e->got) == UINT32_C(0x80000000) && !(e->want << 33);
  s->stale += is_stale(v, e);
  if (!row_of(v, e, &row, &head)) return;
  s->last_blocks += v->out->kind == CONFORM_SCORE && e->c == v->call->on->rows[row].blocks - 1;
  if (s->least_block < 0 || e->c < s->least_block) s->least_block = e->c;
}

static summary summarize(const view *v) {
  const conform_output *o = v->out;
  summary s = {.least_block = -1, .most_id_want = -1, .most_id_got = -1};
  for (int64_t a = 0; a < o->shape[0]; a++)
    for (int64_t b = 0; b < o->shape[1]; b++)
      for (int64_t c = 0; c < o->shape[2]; c++) {
        const element e = at(v, a, b, c);
        const int32_t want = (int32_t)(uint32_t)e.want, got = (int32_t)(uint32_t)e.got;
        if (differs(&e)) count(v, &e, &s);
        if (o->kind == CONFORM_IDS && want > s.most_id_want) s.most_id_want = want;
        if (o->kind == CONFORM_IDS && (uint32_t)got != CONFORM_POISON && got > s.most_id_got) s.most_id_got = got;
      }
  return s;
}

/* The row of the first difference holds the wanted ids in another order. */
static bool same_ids(const view *v, const element *e) {
  for (int64_t i = 0; i < v->out->shape[2]; i++) {
    int64_t wanted = 0, there = 0;
    const uint64_t id = at(v, e->a, e->b, i).want;
    for (int64_t j = 0; j < v->out->shape[2]; j++) {
      wanted += at(v, e->a, e->b, j).want == id;
      there += at(v, e->a, e->b, j).got == id;
    }
    if (wanted != there) return false;
  }
  return true;
}

static void hint_ids(const view *v, const element *e) {
  const m3idx_case *c = &v->call->on->c;
  const int32_t want = (int32_t)(uint32_t)e->want, got = (int32_t)(uint32_t)e->got;
  if (same_ids(v, e)) fprintf(v->to, "    that row has the same blocks in another order\n");
  if (!v->call->score || want < 0 || got < 0 || want >= c->M || got >= c->M) return;
  const float *line = v->call->score + (e->a * c->T + e->b) * c->M;
  uint32_t want_bits, got_bits;
  memcpy(&want_bits, line + want, sizeof want_bits);
  memcpy(&got_bits, line + got, sizeof got_bits);
  fprintf(v->to,
          "    score of block %" PRId32 ": 0x%08" PRIx32 " (%.9g), of block %" PRId32 ": 0x%08" PRIx32 " (%.9g)%s\n",
          want, want_bits, float_value(want_bits), got, got_bits, float_value(got_bits),
          want_bits == got_bits ? ": equal, so the tie rule decides" : "");
}

static void hints(const view *v, const summary *s) {
  if (s->unwritten == s->elements) fprintf(v->to, "    all of them were never written\n");
  if (s->signs == s->elements) fprintf(v->to, "    only the sign of zero differs\n");
  if (s->last_blocks == s->elements) fprintf(v->to, "    every difference is in the last block that its row sees\n");
  if (s->elements > 1 && s->stale == s->elements)
    fprintf(v->to, "    every difference holds what the row before should\n");
  if (v->out->kind == CONFORM_SCORE && s->least_block >= 128)
    fprintf(v->to, "    no block below %" PRId64 " differs\n", s->least_block);
  if (v->out->kind == CONFORM_IDS && s->most_id_got < s->most_id_want)
    fprintf(v->to, "    no id above %" PRId64 " was chosen anywhere, %" PRId64 " should be\n", s->most_id_got,
            s->most_id_want);
  if (v->out->kind == CONFORM_IDS) hint_ids(v, &s->first);
}

/* ---- bytes that nobody may write ---- */

static bool is_element(const conform_output *o, int64_t unit) {
  const bool outer_first = o->stride[0] >= o->stride[1];
  const int64_t big = outer_first ? o->stride[0] : o->stride[1], small = outer_first ? o->stride[1] : o->stride[0];
  const int64_t i = big ? unit / big : 0, rest = big ? unit % big : unit;
  const int64_t j = small ? rest / small : 0, k = small ? rest % small : rest;
  return i < o->shape[outer_first ? 0 : 1] && j < o->shape[outer_first ? 1 : 0] && k < o->shape[2];
}

static void explain_padding(const view *v, const conform_image *want, const conform_image *got) {
  const conform_output *o = v->out;
  int64_t written = 0, first = 0;
  for (size_t i = 0; i < want->bytes; i++) {
    const int64_t unit = (int64_t)(i / o->element_bytes);
    const size_t byte = CONFORM_GUARD_BYTES + i;
    if (want->all[byte] != got->all[byte] && !is_element(o, unit) && written++ == 0) first = unit;
  }
  if (written)
    fprintf(v->to,
            "  %s: %" PRId64 " bytes of row padding were written, the first at element %" PRId64 " of the buffer\n",
            o->name, written, first);
  for (int side = 0; side < 2; side++) {
    const size_t start = side ? CONFORM_GUARD_BYTES + want->bytes : 0;
    size_t i = 0;
    while (i < CONFORM_GUARD_BYTES && want->all[start + i] == got->all[start + i]) i++;
    if (i < CONFORM_GUARD_BYTES)
      fprintf(v->to, "  %s: the guard %s the buffer was written, byte %lu of it first\n", o->name,
              side ? "after" : "before", (unsigned long)i);
  }
}

void conform_explain(FILE *to, const conform_call *call, const conform_output *out, const conform_image *want,
                     const conform_image *got) {
  const view v = {call, out, want->all + CONFORM_GUARD_BYTES, got->all + CONFORM_GUARD_BYTES, to};
  const summary s = summarize(&v);
  explain_padding(&v, want, got);
  if (!s.elements) return;
  fprintf(to, "  %s: %" PRId64 " of %" PRId64 " elements differ\n", out->name, s.elements,
          out->shape[0] * out->shape[1] * out->shape[2]);
  print_element(&v, "first", &s.first);
  print_row(&v, &s.first);
  if (s.elements > 1) print_element(&v, "last ", &s.last);
  hints(&v, &s);
}
