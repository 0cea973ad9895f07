/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out and files that fail, at every place in turn: the n-th allocation of a call returns NULL, for
 * n = 0, 1, ... until the call needs no n-th.  Each such call must fail with a sentence, leave its outputs as they
 * were (S7.2) and lose nothing (the leak checks of ASan and valgrind watch), and the next one must succeed.
 * The linker sends the library's calls to the __wrap_ functions here; jansson takes its allocator from us.
 */
#define _POSIX_C_SOURCE 200809L /* setenv, struct stat */
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "casefile.h"
#include "unit.h"

/* ---- what fails ---- */

static atomic_long countdown = -1; /* allocations before the one that fails; below 0 = none will */

static bool out_of_memory(void) {
  if (atomic_load(&countdown) < 0 || atomic_fetch_sub(&countdown, 1) > 0) return false;
  errno = ENOMEM;
  return true;
}

static void arm(long n) { atomic_store(&countdown, n); }
/* Whether the armed failure happened. */
static bool disarm(void) { return atomic_exchange(&countdown, -1) < 0; }

static const char *broken_calls = ""; /* the libc functions that fail, after so many good calls */
static int broken_errno, good_calls;

static bool breaks(const char *call) {
  if (!strstr(broken_calls, call) || good_calls-- > 0) return false;
  errno = broken_errno;
  return true;
}

#define WRAP(type, name, parameters, arguments, fails, failure) \
  type __real_##name parameters;                                \
  type __wrap_##name parameters;                                \
  type __wrap_##name parameters { return (fails) ? (failure) : __real_##name arguments; }
WRAP(void *, malloc, (size_t n), (n), out_of_memory(), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), out_of_memory(), NULL)
WRAP(void *, realloc, (void *old, size_t n), (old, n), out_of_memory(), NULL)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), out_of_memory(), NULL)
WRAP(char *, strdup, (const char *text), (text), out_of_memory(), NULL)
WRAP(char *, realpath, (const char *path, char *out), (path, out), out_of_memory(), NULL)
WRAP(size_t, fwrite, (const void *bytes, size_t size, size_t n, FILE *f), (bytes, size, n, f), breaks("fwrite"), 0)
WRAP(int, fflush, (FILE * f), (f), breaks("fflush"), EOF)
WRAP(int, fsync, (int fd), (fd), breaks("fsync"), -1)
WRAP(FILE *, fdopen, (int fd, const char *mode), (fd, mode), breaks("fdopen"), NULL)
WRAP(int, rename, (const char *from, const char *to), (from, to), breaks("rename"), -1)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), breaks("fstat"), -1)
WRAP(int, fstat64, (int fd, void *st), (fd, st), breaks("fstat"), -1) /* fstat with 64-bit offsets */
WRAP(size_t, fread, (void *out, size_t size, size_t n, FILE *f), (out, size, n, f), breaks("fread"), 0)

/* A stream whose last bytes are lost is closed all the same. */
int __real_fclose(FILE *f); /* NOLINT(bugprone-reserved-identifier): the linker makes these names */
int __wrap_fclose(FILE *f); /* NOLINT(bugprone-reserved-identifier) */
int __wrap_fclose(FILE *f) {
  const int bad = __real_fclose(f);
  return breaks("fclose") ? EOF : bad;
}

/* ---- operations ---- */

typedef struct problem {
  case_file file;
  m3idx_case c;
  m3idx_batch batch;
} problem;

static problem make(const char *line) {
  problem p = {0};
  case_spec spec;
  char why[CASE_MESSAGE_BYTES] = "";
  ck_assert_msg(case_spec_parse_line(line, &spec, why) == 0, "%s", why);
  ck_assert_msg(case_generate(&spec, &p.file, why) == 0, "%s", why);
  ck_assert_msg(case_view(&p.file, &p.c, why) == 0, "%s", why);
  case_spec_free(&spec);
  case_batch(&p.c, &p.batch);
  return p;
}

static m3idx_context *open_backend(const char *backend) {
  char why[M3IDX_MESSAGE_BYTES] = "";
  m3idx_context *ctx = NULL;
  const m3idx_options options = {.backend = backend, .num_threads = 3};
  ck_assert_msg(m3idx_open(&ctx, &options, why, sizeof why) == M3IDX_OK, "%s", why);
  return ctx;
}

static const struct {
  m3idx_op op;
  const char *line;
} calls[] = {
    {M3IDX_OP_score, "--op decode --seq-lens 129,300 --heads 2 --head-dim 16 --topk 4 --data ties"},
    {M3IDX_OP_score, "--op prefill --q-lens 40,1 --prefix-lens 126,0 --head-dim 16 --data specials"},
    {M3IDX_OP_topk, "--op decode --seq-lens 129,300 --heads 2 --head-dim 16 --topk 4"},
    /* in ranges of columns, which are merged */
    {M3IDX_OP_topk, "--op decode --seq-lens 40000 --head-dim 16 --topk 4 --data ties"},
    {M3IDX_OP_select, "--op select --num-blocks 40000 --topk 8 --data ties"},
};
enum { CALLS = sizeof calls / sizeof *calls };

static size_t output_bytes(const problem *p, m3idx_op op) {
  return (size_t)(p->c.H * p->c.T * (op == M3IDX_OP_score ? p->c.M : p->c.K)) * 4;
}

static m3idx_status call(m3idx_context *ctx, const problem *p, m3idx_op op, void *out) {
  if (op == M3IDX_OP_score) {
    m3idx_score_args args;
    case_score_args(&p->c, &p->batch, &args);
    args.score = out;
    return m3idx_score(ctx, &args);
  }
  if (op == M3IDX_OP_topk) {
    m3idx_topk_args args;
    case_topk_args(&p->c, &p->batch, &args);
    args.topk_idx = out;
    return m3idx_topk(ctx, &args);
  }
  m3idx_select_args args;
  case_select_args(&p->c, &p->batch, &args);
  args.topk_idx = out;
  return m3idx_select(ctx, &args);
}

/* S7.2: a call without memory writes no byte; the context works again afterwards.  The bytes wanted are ref's. */
START_TEST(test_operation) {
  problem p = make(calls[_i].line);
  const size_t bytes = output_bytes(&p, calls[_i].op);
  unsigned char *want = malloc(bytes), *got = malloc(bytes), *poison = malloc(bytes);
  ck_assert(want && got && poison);
  memset(poison, 0xa5, bytes);
  m3idx_context *ctx = open_backend("ref");
  ck_assert_int_eq(M3IDX_OK, call(ctx, &p, calls[_i].op, want));
  m3idx_close(ctx);
  m3idx_status status = M3IDX_NO_MEMORY;
  long n = 0;
  for (; status == M3IDX_NO_MEMORY; n++) {
    ctx = open_backend("cpu");
    memcpy(got, poison, bytes);
    arm(n);
    status = call(ctx, &p, calls[_i].op, got);
    ck_assert_int_eq(disarm(), status == M3IDX_NO_MEMORY);
    if (status == M3IDX_NO_MEMORY) {
      ck_assert_ptr_nonnull(strstr(m3idx_message(ctx), "no memory for "));
      ck_assert_mem_eq(poison, got, bytes);
      ck_assert_int_eq(M3IDX_OK, call(ctx, &p, calls[_i].op, got));
    }
    ck_assert_mem_eq(want, got, bytes);
    m3idx_close(ctx);
  }
  ck_assert_int_eq(M3IDX_OK, status);
  ck_assert_int_gt(n, 1); /* some allocation was made to fail */
  free(want);
  free(got);
  free(poison);
  case_file_free(&p.file);
}
END_TEST

/* S6.1: slots that do not ascend are sorted to find one named twice; without the memory for it nothing is inserted. */
START_TEST(test_slots) {
  enum { B = 16, D = 16 };
  static uint8_t key[2 * D], cache[2 * B * D], want[2 * B * D];
  const int64_t slots[] = {17, 3};
  m3idx_cache_insert_args args = {
      .key = {key, M3IDX_E5M2, {1, 2, D}, {0}}, .cache = {cache, M3IDX_E5M2, {2, B, D}, {0}}, .slot_mapping = slots};
  m3idx_context *ctx = open_backend("ref");
  memset(key, 0x11, sizeof key);
  memset(cache, 0xa5, sizeof cache);
  memset(want, 0xa5, sizeof want);
  arm(0);
  ck_assert_int_eq(M3IDX_NO_MEMORY, m3idx_cache_insert(ctx, &args));
  ck_assert(disarm());
  ck_assert_str_eq("no memory to check 2 slots", m3idx_message(ctx));
  ck_assert_mem_eq(want, cache, sizeof want);
  ck_assert_int_eq(M3IDX_OK, m3idx_cache_insert(ctx, &args));
  for (int i = 0; i < 2; i++) memset(want + slots[i] * D, 0x11, D);
  ck_assert_mem_eq(want, cache, sizeof want);
  m3idx_close(ctx);
}
END_TEST

/* A backend asked for by name fails; auto passes over it and says so. */
START_TEST(test_open) {
  static const char *const names[] = {"cpu", "ref", "auto"};
  bool happened = true;
  long n = 0;
  for (; happened; n++) {
    char why[M3IDX_MESSAGE_BYTES] = "";
    m3idx_context *ctx = NULL;
    const m3idx_options options = {.backend = names[_i]};
    arm(n);
    const m3idx_status status = m3idx_open(&ctx, &options, why, sizeof why);
    happened = disarm();
    ck_assert_int_eq(status == M3IDX_OK, ctx != NULL);
    if (!happened) {
      ck_assert_int_eq(M3IDX_OK, status);
    } else if (_i < 2 || n == 0) {
      ck_assert_int_eq(M3IDX_NO_MEMORY, status);
      ck_assert_ptr_nonnull(strstr(why, "no memory for "));
    } else {
      ck_assert_str_eq("ref", m3idx_backend_name(ctx));
      ck_assert_ptr_nonnull(strstr(m3idx_backend_reason(ctx), "cpu: no memory for "));
    }
    m3idx_close(ctx);
  }
  ck_assert_int_gt(n, 1);
}
END_TEST

/* ---- cases ---- */

static const char *const lines[] = {
    "--op decode --seq-lens 129,300 --heads 2 --head-dim 16 --topk 4 --data ties",
    "--op prefill --q-lens 3,1 --heads 2 --head-dim 16 --sparse-table 1 --attention-table 1",
    "--op prefill --q-lens 3,1 --prefix-lens 126,0 --seq-lens 130,1 --head-dim 16 --put q:0=1,index_k:3=7",
    "--op select --num-blocks 0,7,40 --max-block 44",
};
enum { LINES = sizeof lines / sizeof *lines };

/* From words to a case and back to words; a half-made case is freed by whoever failed. */
START_TEST(test_line) {
  case_spec spec = {0};
  case_file file = {0};
  char why[CASE_MESSAGE_BYTES], *text = NULL;
  long n = 0;
  for (int bad = -1; bad; n++) {
    why[0] = 0;
    arm(n);
    bad = case_spec_parse_line(lines[_i], &spec, why);
    ck_assert_int_eq(disarm(), bad != 0);
    if (bad) ck_assert_ptr_nonnull(strstr(why, "memory"));
  }
  ck_assert_int_gt(n, 1);
  for (n = 0; !text; n++) {
    arm(n);
    text = case_spec_format(&spec);
    ck_assert_int_eq(disarm(), !text);
  }
  ck_assert_int_gt(n, 1);
  ck_assert_str_eq(lines[_i], text);
  free(text);
  m3idx_status status = M3IDX_NO_MEMORY;
  for (n = 0; status; n++) {
    why[0] = 0;
    arm(n);
    status = case_generate(&spec, &file, why);
    ck_assert_int_eq(disarm() ? M3IDX_NO_MEMORY : M3IDX_OK, status);
    if (status) ck_assert_ptr_nonnull(strstr(why, "memory"));
  }
  ck_assert_int_gt(n, 10);
  case_file_free(&file);
  case_spec_free(&spec);
}
END_TEST

/* case_run leaves the file as it was: its tensors are counted, and the run after it has its outputs. */
START_TEST(test_run) {
  for (int with_score = 0; with_score < 2; with_score++) {
    problem p = make(lines[_i]);
    m3idx_context *ctx = open_backend("ref");
    const int64_t inputs = p.file.num_tensors;
    m3idx_status status = M3IDX_NO_MEMORY;
    long n = 0;
    for (; status == M3IDX_NO_MEMORY; n++) {
      char why[CASE_MESSAGE_BYTES] = "";
      arm(n);
      status = case_run(ctx, &p.file, with_score, why);
      ck_assert_int_eq(disarm(), status == M3IDX_NO_MEMORY);
      if (status) {
        ck_assert_ptr_nonnull(strstr(why, "no memory for the outputs of "));
        ck_assert_int_eq(inputs, p.file.num_tensors);
      }
    }
    ck_assert_int_eq(M3IDX_OK, status);
    ck_assert_int_gt(n, 3);
    ck_assert_ptr_nonnull(case_find(&p.file, "topk_idx"));
    m3idx_close(ctx);
    case_file_free(&p.file);
  }
}
END_TEST

/* ---- case files ---- */

static void *json_allocate(size_t n) { return __wrap_malloc(n); }

static char directory[] = "/tmp/m3idx-no-memory-XXXXXX";
static char path[64];

static size_t slurp(unsigned char *out, size_t room) {
  FILE *f = fopen(path, "rb");
  ck_assert_ptr_nonnull(f);
  const size_t n = __real_fread(out, 1, room, f);
  ck_assert_int_eq(0, __real_fclose(f));
  return n;
}

/* Written whole or not at all, and nothing left beside it; read whole or not at all.  jansson can do without some of
 * what it asks for. */
START_TEST(test_file) {
  enum { ROOM = 1 << 16 };
  static unsigned char want[ROOM], got[ROOM];
  problem p = make(lines[_i]);
  char why[CASE_MESSAGE_BYTES];
  json_set_alloc_funcs(json_allocate, free);
  ck_assert_msg(casefile_write(path, &p.file, why) == 0, "%s", why);
  const size_t bytes = slurp(want, ROOM);
  ck_assert_uint_lt(bytes, ROOM);
  long n = 0;
  int failures = 0;
  for (bool happened = true; happened; n++) {
    why[0] = 0;
    arm(n);
    const int bad = casefile_write(path, &p.file, why);
    happened = disarm();
    failures += bad != 0;
    ck_assert(happened || !bad);
    if (bad) ck_assert_ptr_nonnull(strstr(why, path));
    ck_assert_msg(bytes == slurp(got, ROOM) && !memcmp(want, got, bytes), "allocation %ld moved the file", n);
  }
  ck_assert_int_gt(failures, 10);
  n = failures = 0;
  for (bool happened = true; happened; n++) {
    case_file back;
    why[0] = 0;
    arm(n);
    const int bad = casefile_parse(want, bytes, &back, why);
    happened = disarm();
    failures += bad != 0;
    ck_assert(happened || !bad);
    ck_assert_int_eq(bad ? 0 : p.file.num_tensors, back.num_tensors);
    if (bad) ck_assert_str_ne("", why);
    for (int64_t i = 0; i < back.num_tensors; i++) {
      const case_tensor *t = case_find(&p.file, back.tensors[i].name);
      ck_assert_msg(t && t->bytes == back.tensors[i].bytes && !memcmp(t->data, back.tensors[i].data, t->bytes),
                    "allocation %ld moved tensor %s", n, back.tensors[i].name);
    }
    case_file_free(&back);
  }
  ck_assert_int_gt(failures, 10);
  json_set_alloc_funcs(malloc, free);
  case_file_free(&p.file);
  ck_assert_int_eq(0, unlink(path));
  ck_assert_int_eq(0, rmdir(directory)); /* nothing else in it */
  ck_assert_int_eq(0, mkdir(directory, 0700));
}
END_TEST

static const struct {
  const char *calls;
  int error, good;
  bool reading;
} broken[] = {
    {"fstat", EIO, 0, true},
    {"fread", EIO, 0, true},
    {"fread", 0, 0, true}, /* 0: the file became shorter */
    {"fread", EIO, 1, true},
    {"fread", 0, 2, true},
    {"fdopen", ENOMEM, 0, false},
    {"fwrite", ENOSPC, 0, false}, /* the length, the header, its padding, the first tensor */
    {"fwrite", ENOSPC, 1, false},
    {"fwrite", ENOSPC, 2, false},
    {"fwrite", ENOSPC, 3, false},
    {"fflush", ENOSPC, 0, false},
    {"fflush, fclose", ENOSPC, 0, false},
    {"fsync", EIO, 0, false},
    {"fclose", EIO, 0, false},
    {"rename", EIO, 0, false},
};
enum { BROKEN = sizeof broken / sizeof *broken };

/* A file system that fails half-way: the sentence names the file and the reason, and what was there stays. */
START_TEST(test_broken) {
  static unsigned char want[1 << 16], got[1 << 16];
  problem p = make(lines[0]), other = make(lines[3]);
  case_file back;
  char why[CASE_MESSAGE_BYTES] = "";
  ck_assert_msg(casefile_write(path, &p.file, why) == 0, "%s", why);
  const size_t bytes = slurp(want, sizeof want);
  broken_calls = broken[_i].calls;
  broken_errno = broken[_i].error;
  good_calls = broken[_i].good;
  const int bad = broken[_i].reading ? casefile_read(path, &back, why) : casefile_write(path, &other.file, why);
  broken_calls = "";
  ck_assert_int_eq(-1, bad);
  ck_assert_ptr_nonnull(strstr(why, path));
  ck_assert_ptr_nonnull(strstr(why, broken[_i].error ? strerror(broken[_i].error) : "file shrank"));
  ck_assert_uint_eq(bytes, slurp(got, sizeof got));
  ck_assert_mem_eq(want, got, bytes);
  if (broken[_i].reading) ck_assert_int_eq(0, back.num_tensors);
  case_file_free(&p.file);
  case_file_free(&other.file);
  ck_assert_int_eq(0, unlink(path));
  ck_assert_int_eq(0, rmdir(directory));
  ck_assert_int_eq(0, mkdir(directory, 0700));
}
END_TEST

/* All names beside the file are taken: they stay, and nothing is written. */
START_TEST(test_taken) {
  enum { NAMES = 100 };
  problem p = make(lines[0]);
  char why[CASE_MESSAGE_BYTES] = "", name[128];
  for (int i = 0; i < NAMES; i++) {
    snprintf(name, sizeof name, "%s.tmp-%ld-%d", path, (long)getpid(), i);
    FILE *f = fopen(name, "wx");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(0, __real_fclose(f));
  }
  ck_assert_int_eq(-1, casefile_write(path, &p.file, why));
  ck_assert_ptr_nonnull(strstr(why, strerror(EEXIST)));
  ck_assert_int_ne(0, access(path, F_OK));
  for (int i = 0; i < NAMES; i++) {
    snprintf(name, sizeof name, "%s.tmp-%ld-%d", path, (long)getpid(), i);
    ck_assert_int_eq(0, unlink(name));
  }
  case_file_free(&p.file);
}
END_TEST

/* Nothing but tensors, in any order: the file has no metadata, and what comes back is what went in. */
START_TEST(test_bare) {
  case_file file = {0}, back;
  char why[CASE_MESSAGE_BYTES] = "";
  const int64_t shape[] = {3};
  memcpy(case_add_tensor(&file, "b", CASE_U8, 1, shape)->data, "xyz", 3);
  memcpy(case_add_tensor(&file, "a", CASE_U8, 1, shape)->data, "abc", 3);
  ck_assert_msg(casefile_write(path, &file, why) == 0, "%s", why);
  ck_assert_msg(casefile_read(path, &back, why) == 0, "%s", why);
  ck_assert_int_eq(2, back.num_tensors);
  ck_assert_int_eq(0, back.num_metadata);
  ck_assert_mem_eq("abc", case_find(&back, "a")->data, 3);
  ck_assert_mem_eq("xyz", case_find(&back, "b")->data, 3);
  case_file_free(&file);
  case_file_free(&back);
  ck_assert_int_eq(0, unlink(path));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("no_memory");
  TCase *operations = tcase_create("operations"), *cases = tcase_create("cases"), *files = tcase_create("files");
  tcase_add_loop_test(operations, test_operation, 0, CALLS);
  tcase_add_test(operations, test_slots);
  tcase_add_loop_test(operations, test_open, 0, 3);
  tcase_add_loop_test(cases, test_line, 0, LINES);
  tcase_add_loop_test(cases, test_run, 0, LINES);
  tcase_add_loop_test(files, test_file, 0, LINES);
  tcase_add_loop_test(files, test_broken, 0, BROKEN);
  tcase_add_test(files, test_taken);
  tcase_add_test(files, test_bare);
  suite_add_tcase(suite, operations);
  suite_add_tcase(suite, cases);
  suite_add_tcase(suite, files);
  if (!mkdtemp(directory)) return EXIT_FAILURE;
  snprintf(path, sizeof path, "%s/case.safetensors", directory);
  const int status = unit_run(suite);
  rmdir(directory);
  return status;
}
