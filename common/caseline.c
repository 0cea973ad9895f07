/* SPDX-License-Identifier: Apache-2.0
 *
 * Case lines: parse, canonical form and help, all from the one list in caseline.def.
 * Says what a case is (docs/CASES.md, "The case line"); makes no data (casegen.c) and reads no file.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "casefail.h"

enum { P = 1 << CASE_PREFILL, D = 1 << CASE_DECODE, S = 1 << CASE_SELECT };

typedef enum kind { OP, LIST, INT, MULTIPLE16, POW2, BOOL, DTYPE, CONTRACT, SCALE, TABLE, DATA, SEED, PUT } kind;

typedef struct option {
  const char *key;
  kind kind;
  size_t offset;
  int64_t min, max;
  const char *fallback; /* the default, as text */
  unsigned ops;
  const char *arg, *help;
} option;

static const option options[] = {
#define CASE_OPTION(key, kind, field, min, max, fallback, ops, arg, help) \
  {key, kind, offsetof(case_spec, field), min, max, fallback, ops, arg, help},
#include "caseline.def"
#undef CASE_OPTION
};
enum { OPTIONS = sizeof options / sizeof *options };

static const char *const op_words[] = {"prefill", "decode", "select", NULL};
static const char *const data_words[] = {"normal", "ties", "specials", "wide", "near", "mixed", "zeros", "drift", NULL};
static const char *const table_words[] = {"turns", "random", "prefix", NULL};
static const char *const put_words[] = {"q", "index_k", "score", "block_table", "attention_block_table", NULL};

/* What has been said so far; given[i] is the value of option i or NULL, count[i] the entries of a list. */
typedef struct parse {
  case_spec spec;
  const char *given[OPTIONS];
  int64_t count[OPTIONS];
  char *why;
} parse;

static void *field(case_spec *spec, const option *o) { return (char *)spec + o->offset; }
static const void *const_field(const case_spec *spec, const option *o) { return (const char *)spec + o->offset; }

/* ---- values ---- */

/* A decimal integer that ends at *end; values out of int64_t saturate, so that the bound check names them. */
static bool integer(const char *text, const char **end, int64_t *value) {
  const char *digits = text + (*text == '-');
  if (!isdigit((unsigned char)*digits)) return false;
  char *stop;
  errno = 0;
  *value = strtoll(text, &stop, 10);
  *end = stop;
  return true;
}

static int parse_integer(parse *p, const option *o, const char *text, int64_t *value) {
  const char *end;
  if (!integer(text, &end, value) || *end) return case_fail(p->why, "--%s %.80s: not an integer", o->key, text);
  if (*value < o->min || *value > o->max)
    return case_fail(p->why, "--%s %.80s: must be %lld..%lld", o->key, text, (long long)o->min, (long long)o->max);
  if (o->kind == MULTIPLE16 && *value % 16)
    return case_fail(p->why, "--%s %.80s: must be a multiple of 16", o->key, text);
  if (o->kind == POW2 && (*value & (*value - 1)))
    return case_fail(p->why, "--%s %.80s: must be a power of two, %lld..%lld", o->key, text, (long long)o->min,
                     (long long)o->max);
  return 0;
}

static int parse_list(parse *p, const option *o, const char *text, int32_t **list, int64_t *count) {
  int32_t *values = malloc(CASE_MAX_LIST * sizeof *values);
  if (!values) return case_fail(p->why, "--%s: out of memory", o->key);
  *list = values;
  *count = 0;
  for (const char *at = text;; at++) {
    int64_t value, times = 1;
    const char *entry = at;
    bool good = integer(at, &at, &value);
    if (good && *at == 'x') good = integer(at + 1, &at, &times);
    if (!good || (*at && *at != ','))
      return case_fail(p->why, "--%s %.80s: entry %lld is not VALUE or VALUExTIMES", o->key, text, (long long)*count);
    if (value < o->min || value > o->max)
      return case_fail(p->why, "--%s: entry %lld is %.*s, must be %lld..%lld", o->key, (long long)*count,
                       (int)strcspn(entry, "x,"), entry, (long long)o->min, (long long)o->max);
    if (times < 1 || times > CASE_MAX_LIST - *count)
      return case_fail(p->why, "--%s: entry %lld repeats %lld times, the list holds 1..%d entries", o->key,
                       (long long)*count, (long long)times, CASE_MAX_LIST);
    while (times-- > 0) values[(*count)++] = (int32_t)value;
    if (!*at) return 0;
  }
}

/* One TENSOR:INDEX=BITS; where it ends, or NULL. */
static const char *parse_put(const char *text, case_put *put) {
  const char *at;
  char *end;
  for (int i = 0; put_words[i]; i++) {
    size_t n = strlen(put_words[i]);
    if (strncmp(text, put_words[i], n) != 0 || text[n] != ':') continue;
    put->tensor = (case_put_tensor)i;
    if (!integer(text + n + 1, &at, &put->index) || put->index < 0 || *at++ != '=') return NULL;
    if (!isxdigit((unsigned char)*at)) return NULL;
    errno = 0;
    unsigned long long bits = strtoull(at, &end, 16);
    if (errno || bits > UINT32_MAX || (*end && *end != ',')) return NULL;
    put->bits = (uint32_t)bits;
    return end;
  }
  return NULL;
}

static int parse_puts(parse *p, const option *o, const char *text) {
  case_put *puts = p->spec.puts = malloc(CASE_MAX_LIST * sizeof *puts);
  if (!puts) return case_fail(p->why, "--%s: out of memory", o->key);
  for (const char *at = text;; at++) {
    int64_t n = p->spec.num_puts;
    if (n == CASE_MAX_LIST) return case_fail(p->why, "--%s: more than %d entries", o->key, CASE_MAX_LIST);
    if (!(at = parse_put(at, &puts[n])))
      return case_fail(p->why, "--%s %.80s: entry %lld is not TENSOR:INDEX=BITS", o->key, text, (long long)n);
    p->spec.num_puts++;
    if (!*at) return 0;
  }
}

static int parse_word(parse *p, const option *o, const char *text, const char *const *words, int *index) {
  for (*index = 0; words[*index]; ++*index)
    if (!strcmp(text, words[*index])) return 0;
  return case_fail(p->why, "--%s %.80s: must be %s", o->key, text, o->help);
}

static int parse_value(parse *p, const option *o, const char *text, int64_t *count) {
  void *at = field(&p->spec, o);
  int64_t number = 0;
  int word = 0, bad = 0;
  char *end;
  switch (o->kind) {
  case LIST: return parse_list(p, o, text, at, count);
  case OP:
    bad = parse_word(p, o, text, op_words, &word);
    *(case_op *)at = (case_op)word;
    return bad;
  case DATA:
    bad = parse_word(p, o, text, data_words, &word);
    *(case_data *)at = (case_data)word;
    return bad;
  case TABLE:
    bad = parse_word(p, o, text, table_words, &word);
    *(case_table *)at = (case_table)word;
    return bad;
  case PUT: return parse_puts(p, o, text);
  case BOOL:
    bad = parse_integer(p, o, text, &number);
    *(bool *)at = number != 0;
    return bad;
  case INT:
  case MULTIPLE16:
  case POW2: return parse_integer(p, o, text, at);
  case DTYPE:
    if (m3idx_dtype_by_name(text, at) == M3IDX_OK) return 0;
    return case_fail(p->why, "--%s %.80s: must be f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz", o->key, text);
  case CONTRACT:
    if (m3idx_contract_by_name(text, at) == M3IDX_OK) return 0;
    return case_fail(p->why, "--%s %.80s: must be %s", o->key, text, o->help);
  case SCALE:
    if (case_scale(text, at)) return case_fail(p->why, "--%s %.80s: must be a finite number above 0", o->key, text);
    return 0;
  case SEED:
    errno = 0;
    *(uint64_t *)at = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno)
      return case_fail(p->why, "--%s %.80s: must be 0..18446744073709551615", o->key, text);
    return 0;
  }
  return 0;
}

/* ---- lines ---- */

const char *case_op_name(case_op op) { return op_words[op]; }
const char *case_data_name(case_data data) { return data_words[data]; }
const char *case_table_name(case_table table) { return table_words[table]; }

const char *case_spec_option(int i) { return i >= 0 && i < OPTIONS ? options[i].key : NULL; }
unsigned case_spec_option_ops(int i) { return options[i].ops; }

void case_spec_free(case_spec *spec) {
  free(spec->q_lens);
  free(spec->prefix_lens);
  free(spec->seq_lens);
  free(spec->num_blocks);
  free(spec->puts);
  *spec = (case_spec){0};
}

static int find(const char *key, size_t length) {
  for (int i = 0; i < OPTIONS; i++)
    if (strlen(options[i].key) == length && !memcmp(options[i].key, key, length)) return i;
  return -1;
}

/* Sort argv into given[]: every word must be an option of the list, with its value, once. */
static int collect(parse *p, int argc, const char *const *argv) {
  for (int i = 0; i < argc; i++) {
    const char *key = argv[i];
    if (strncmp(key, "--", 2) != 0) return case_fail(p->why, "%.80s: not an option of a case line", key);
    key += 2;
    size_t length = strcspn(key, "=");
    int o = find(key, length);
    if (o < 0) return case_fail(p->why, "--%.*s: no such option of a case line", (int)(length < 80 ? length : 80), key);
    if (p->given[o]) return case_fail(p->why, "--%s: given twice", options[o].key);
    if (key[length])
      p->given[o] = key + length + 1;
    else if (++i < argc)
      p->given[o] = argv[i];
    else
      return case_fail(p->why, "--%s: needs a value", options[o].key);
  }
  return 0;
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t case_spec_least_blocks(const case_spec *spec) {
  int64_t most = 0;
  for (int64_t i = 0; i < (spec->op == CASE_SELECT ? spec->num_rows : spec->num_requests); i++) {
    int64_t blocks = spec->op == CASE_SELECT ? spec->num_blocks[i] : ceil_div(spec->seq_lens[i], spec->block_size);
    if (blocks > most) most = blocks;
  }
  return most;
}

/* One list must be there and have as many entries as the op's first list. */
static int expect_count(parse *p, const char *key, int64_t want, const char *first) {
  int o = find(key, strlen(key));
  if (!p->given[o]) return case_fail(p->why, "--%s: missing, --op %s needs it", key, op_words[p->spec.op]);
  if (p->count[o] != want)
    return case_fail(p->why, "--%s: %lld entries, --%s has %lld", key, (long long)p->count[o], first, (long long)want);
  return 0;
}

static int derive_prefill(parse *p) {
  case_spec *s = &p->spec;
  s->num_requests = p->count[find("q-lens", 6)];
  if (expect_count(p, "q-lens", s->num_requests, "q-lens")) return -1;
  size_t count = (size_t)s->num_requests;
  if (s->prefix_lens) {
    if (expect_count(p, "prefix-lens", s->num_requests, "q-lens")) return -1;
  } else {
    s->prefix_lens = calloc(count, sizeof *s->prefix_lens);
    if (!s->prefix_lens) return case_fail(p->why, "--prefix-lens: out of memory");
  }
  bool given = s->seq_lens != NULL;
  if (given && expect_count(p, "seq-lens", s->num_requests, "q-lens")) return -1;
  if (!given && !(s->seq_lens = calloc(count, sizeof *s->seq_lens)))
    return case_fail(p->why, "--seq-lens: out of memory");
  for (int64_t r = 0; r < s->num_requests; r++) {
    int64_t least = (int64_t)s->prefix_lens[r] + s->q_lens[r];
    s->num_rows += s->q_lens[r];
    if (least > INT32_MAX)
      return case_fail(p->why, "--prefix-lens: entry %lld plus its queries is %lld, must be at most %lld", (long long)r,
                       (long long)least, (long long)INT32_MAX);
    if (given && s->seq_lens[r] < least)
      return case_fail(p->why, "--seq-lens: entry %lld is %lld, must be at least prefix + queries = %lld", (long long)r,
                       (long long)s->seq_lens[r], (long long)least);
    if (!given) s->seq_lens[r] = (int32_t)least;
  }
  if (s->num_rows > INT32_MAX)
    return case_fail(p->why, "--q-lens: %lld rows in all, must be at most %lld", (long long)s->num_rows,
                     (long long)INT32_MAX);
  return 0;
}

/* What follows from the lists, and what no single option can break. */
static int derive(parse *p) {
  case_spec *s = &p->spec;
  if (s->op == CASE_PREFILL) {
    if (derive_prefill(p)) return -1;
  } else if (s->op == CASE_DECODE) {
    s->num_requests = p->count[find("seq-lens", 8)];
    if (expect_count(p, "seq-lens", s->num_requests, "seq-lens")) return -1;
    s->num_rows = s->num_requests * s->decode_query_len;
  } else {
    s->num_rows = p->count[find("num-blocks", 10)];
    if (expect_count(p, "num-blocks", s->num_rows, "num-blocks")) return -1;
  }
  int64_t least = case_spec_least_blocks(s);
  if (s->max_block && s->max_block < least)
    return case_fail(p->why, "--max-block %lld: must be at least %lld, the blocks of the longest row",
                     (long long)s->max_block, (long long)least);
  if (s->sparse_table && s->block_size != 128)
    return case_fail(p->why, "--sparse-table 1: needs --block-size 128, which is %lld", (long long)s->block_size);
  if (s->attention_table && !s->sparse_table) return case_fail(p->why, "--attention-table 1: needs --sparse-table 1");
  return 0;
}

static int parse_options(parse *p, int argc, const char *const *argv) {
  if (collect(p, argc, argv)) return -1;
  if (!p->given[0]) return case_fail(p->why, "--op: missing, must be %s", options[0].help);
  for (int i = 0; i < OPTIONS; i++) {
    const option *o = &options[i];
    if (p->given[i] && i && !(o->ops & 1u << p->spec.op))
      return case_fail(p->why, "--%s: means nothing with --op %s", o->key, op_words[p->spec.op]);
    const char *text = p->given[i] ? p->given[i] : o->fallback;
    if ((p->given[i] || *text) && parse_value(p, o, text, &p->count[i])) return -1;
  }
  return derive(p);
}

int case_spec_parse(int argc, const char *const *argv, case_spec *out, char *why) {
  parse p = {.why = why};
  int bad = parse_options(&p, argc, argv);
  if (bad) case_spec_free(&p.spec);
  *out = p.spec;
  return bad;
}

int case_spec_parse_line(const char *line, case_spec *out, char *why) {
  enum { WORDS = 2 * OPTIONS + 1 }; /* as many words name some option twice, whatever follows them */
  const char *argv[WORDS];
  int argc = 0;
  *out = (case_spec){0};
  size_t bytes = strlen(line) + 1;
  char *copy = malloc(bytes);
  if (!copy) return case_fail(why, "out of memory");
  memcpy(copy, line, bytes);
  for (char *word = copy + strspn(copy, " \t\r\n"); *word && argc < WORDS;) {
    argv[argc++] = word;
    word += strcspn(word, " \t\r\n");
    if (*word) *word++ = 0;
    word += strspn(word, " \t\r\n");
  }
  int bad = case_spec_parse(argc, argv, out, why);
  free(copy);
  return bad;
}

/* ---- canonical form ---- */

typedef struct text {
  char *bytes;
  size_t length, room;
  bool broken;
} text;

static void append(text *t, const char *piece) {
  size_t n = strlen(piece);
  if (!t->broken && t->room - t->length <= n) {
    size_t room = 2 * (t->room + n + 1);
    char *bytes = realloc(t->bytes, room);
    if (bytes) {
      t->bytes = bytes;
      t->room = room;
    } else {
      t->broken = true;
    }
  }
  if (t->broken) return;
  memcpy(t->bytes + t->length, piece, n + 1);
  t->length += n;
}

static void append_list(text *t, const int32_t *list, int64_t count) {
  for (int64_t i = 0, run; i < count; i += run) {
    char piece[64];
    for (run = 1; i + run < count && list[i + run] == list[i];) run++;
    int n = snprintf(piece, sizeof piece, "%s%ld", i ? "," : "", (long)list[i]);
    if (run > 1) snprintf(piece + n, sizeof piece - (size_t)n, "x%lld", (long long)run);
    append(t, piece);
  }
}

static void append_puts(text *t, const case_spec *s) {
  for (int64_t i = 0; i < s->num_puts; i++) {
    char piece[80];
    snprintf(piece, sizeof piece, "%s%s:%lld=%lx", i ? "," : "", put_words[s->puts[i].tensor],
             (long long)s->puts[i].index, (unsigned long)s->puts[i].bits);
    append(t, piece);
  }
}

/* A list that the parser would derive is left out, and so is one of no elements. */
static bool derived(const case_spec *s, const option *o) {
  if (o->kind == PUT) return s->num_puts == 0;
  if (s->op != CASE_PREFILL) return false;
  if (o->offset == offsetof(case_spec, prefix_lens)) {
    for (int64_t r = 0; r < s->num_requests; r++)
      if (s->prefix_lens[r]) return false;
    return true;
  }
  if (o->offset != offsetof(case_spec, seq_lens)) return false;
  for (int64_t r = 0; r < s->num_requests; r++)
    if (s->seq_lens[r] != (int64_t)s->prefix_lens[r] + s->q_lens[r]) return false;
  return true;
}

static void value_text(const case_spec *s, const option *o, char *value, size_t bytes) {
  const void *at = const_field(s, o);
  switch (o->kind) {
  case OP: snprintf(value, bytes, "%s", op_words[*(const case_op *)at]); break;
  case DATA: snprintf(value, bytes, "%s", data_words[*(const case_data *)at]); break;
  case BOOL: snprintf(value, bytes, "%d", *(const bool *)at); break;
  case INT:
  case MULTIPLE16:
  case POW2: snprintf(value, bytes, "%lld", (long long)*(const int64_t *)at); break;
  case DTYPE: snprintf(value, bytes, "%s", m3idx_dtype_name(*(const m3idx_dtype *)at)); break;
  case CONTRACT: m3idx_contract_name(at, value, bytes); break;
  case SCALE: snprintf(value, bytes, "%.9g", (double)*(const float *)at); break;
  case SEED: snprintf(value, bytes, "%llu", (unsigned long long)*(const uint64_t *)at); break;
  case TABLE: snprintf(value, bytes, "%s", table_words[*(const case_table *)at]); break;
  case PUT:
  case LIST: break;
  }
}

char *case_spec_format(const case_spec *spec) {
  text t = {0};
  for (int i = 0; i < OPTIONS; i++) {
    const option *o = &options[i];
    char value[96] = "";
    if (!(o->ops & 1u << spec->op) || derived(spec, o)) continue;
    const bool listed = o->kind == LIST || o->kind == PUT;
    if (!listed) value_text(spec, o, value, sizeof value);
    if (!listed && !strcmp(value, o->fallback)) continue;
    append(&t, i ? " --" : "--");
    append(&t, o->key);
    append(&t, " ");
    append(&t, value);
    if (o->kind == PUT) append_puts(&t, spec);
    if (o->kind == LIST)
      append_list(&t, *(int32_t *const *)const_field(spec, o),
                  spec->op == CASE_SELECT ? spec->num_rows : spec->num_requests);
  }
  if (t.broken) {
    free(t.bytes);
    return NULL;
  }
  return t.bytes;
}

void case_spec_help(FILE *out) {
  for (int i = 0; i < OPTIONS; i++) {
    const option *o = &options[i];
    unsigned ops = o->ops;
    fprintf(out, "  --%s %s\n        %s", o->key, o->arg, o->help);
    if (*o->fallback) fprintf(out, " (default %s)", o->fallback);
    if (ops != (P | D | S))
      fprintf(out, "; only %s%s%s%s", ops & P ? "prefill" : "", (ops & P) && (ops & D) ? " and " : "",
              ops & D ? "decode" : "", ops & S ? "select" : "");
    fputc('\n', out);
  }
}
