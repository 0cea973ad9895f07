/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening backends.  The cpu backend reads M3IDX_ISA when it opens, and what it says of a word it does not know lists
 * those it does; so no list of instruction sets is kept here.
 */
#define _POSIX_C_SOURCE 200809L
#include "conform_backends.h"

#include <stdlib.h>
#include <string.h>

#include "conform_memory.h"

enum { MOST_BACKENDS = 64 };

typedef struct list {
  const char *wanted;
  int num_threads, count;
  conform_opened *at;
} list;

/* wanted = "all", the whole name, or what stands before its colon. */
static bool is_wanted(const list *l, const char *name) {
  const size_t n = strlen(l->wanted);
  return !strcmp(l->wanted, "all") || !strcmp(l->wanted, name) || (!strncmp(l->wanted, name, n) && name[n] == ':');
}

static conform_opened *add(list *l, const char *name) {
  if (!is_wanted(l, name) || l->count == MOST_BACKENDS) return NULL;
  conform_opened *o = &l->at[l->count++];
  snprintf(o->name, sizeof o->name, "%s", name);
  return o;
}

static void open_named(conform_opened *o, const char *backend, int num_threads) {
  const m3idx_options options = {.backend = backend, .num_threads = num_threads};
  m3idx_open(&o->ctx, &options, o->reason, sizeof o->reason);
}

static void open_isa(list *l, const char *isa) {
  char name[64];
  snprintf(name, sizeof name, "cpu:%.32s", isa);
  conform_opened *o = add(l, name);
  if (!o) return;
  setenv("M3IDX_ISA", isa, 1);
  open_named(o, "cpu", l->num_threads);
}

/* Once under each instruction set, or under the one that the environment asks for. */
static void open_cpu(list *l) {
  char why[M3IDX_MESSAGE_BYTES], kept[64] = "";
  const char *given = getenv("M3IDX_ISA");
  m3idx_context *ctx = NULL;
  if (given && *given) {
    snprintf(kept, sizeof kept, "%.60s", given);
    open_isa(l, kept);
    return;
  }
  setenv("M3IDX_ISA", "?", 1);
  m3idx_open(&ctx, &(m3idx_options){.backend = "cpu"}, why, sizeof why);
  m3idx_close(ctx);
  char *words = strstr(why, "none of ");
  if (!words) {
    conform_opened *o = add(l, "cpu:?");
    if (o) snprintf(o->reason, sizeof o->reason, "%.500s", why);
  }
  for (char *word = words ? strtok(words + strlen("none of "), ", ") : NULL; word; word = strtok(NULL, ", "))
    open_isa(l, word);
  unsetenv("M3IDX_ISA");
}

static void open_extra(list *l, const conform_backend *extra) {
  conform_opened *o = add(l, extra->name);
  if (!o) return;
  m3idx_context *ctx = conform_alloc(sizeof *ctx);
  *ctx = (m3idx_context){.backend = extra->table, .num_threads = l->num_threads};
  if (extra->table->open(ctx) == M3IDX_OK) {
    o->ctx = ctx;
    return;
  }
  snprintf(o->reason, sizeof o->reason, "%s", ctx->message);
  m3idx_close(ctx);
}

int conform_open_all(const char *wanted, int num_threads, const conform_backend *extra, int num_extra,
                     conform_opened **out) {
  list l = {.wanted = wanted, .num_threads = num_threads};
  l.at = conform_alloc(MOST_BACKENDS * sizeof *l.at);
  memset(l.at, 0, MOST_BACKENDS * sizeof *l.at);
  const char *name;
  for (int i = 0; (name = m3idx_backend_list(i)); i++) {
    if (!strcmp(name, "cpu")) {
      open_cpu(&l);
    } else {
      conform_opened *o = add(&l, name);
      if (o) open_named(o, name, num_threads);
    }
  }
  for (int i = 0; i < num_extra; i++) open_extra(&l, &extra[i]);
  *out = l.at;
  return l.count;
}

void conform_close_all(conform_opened *opened, int count) {
  for (int i = 0; i < count; i++) m3idx_close(opened[i].ctx);
  free(opened);
}
