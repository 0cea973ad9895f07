/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a call in host memory and, where the backend has memory of its own, in that: with a workspace of exactly the
 * planned bytes, twice, the second time with the counters as the first launch left them.
 */
#include "conform_judge.h"

#include <stdlib.h>
#include <string.h>

/* ---- images ---- */

static conform_image image_make(const conform_output *out) {
  size_t elements = 0;
  if (out->shape[0] && out->shape[1] && out->shape[2]) {
    elements = 1;
    for (int i = 0; i < 3; i++) elements += (size_t)((out->shape[i] - 1) * out->stride[i]);
  }
  conform_image image = {.bytes = elements * out->element_bytes};
  image.all_bytes = image.bytes + 2 * CONFORM_GUARD_BYTES;
  image.all = conform_alloc(image.all_bytes);
  conform_poison(image.all, image.all_bytes, out->element_bytes);
  return image;
}

/* What memory holds after a right call: wanted elements, all else poison. */
static conform_image image_wanted(const conform_output *out) {
  conform_image image = image_make(out);
  const unsigned char *next = out->want;
  unsigned char *to = image.all + CONFORM_GUARD_BYTES;
  const size_t row = (size_t)out->shape[2] * out->element_bytes;
  for (int64_t a = 0; a < out->shape[0]; a++)
    for (int64_t b = 0; b < out->shape[1] && row; b++, next += row)
      memcpy(to + (size_t)(a * out->stride[0] + b * out->stride[1]) * out->element_bytes, next, row);
  return image;
}

static void point(void *at, const void *to) { memcpy(at, &to, sizeof to); }

/* ---- failures ---- */

typedef struct verdict {
  conform_run *run;
  const conform_call *call;
  const char *where; /* "host memory", "device memory, launch 2", ... */
  bool failed;
} verdict;

static void headline(const verdict *v, char *text, size_t bytes) {
  snprintf(text, bytes, "%s %s (%s): %s", v->run->backend, v->call->variant, v->where, v->call->on->line);
}

static void fail(verdict *v) {
  char text[4096];
  headline(v, text, sizeof text);
  if (!v->failed && v->run->out) fprintf(v->run->out, "FAIL %s\n", text);
  v->failed = true;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
say(const verdict *v, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  if (v->run->out) vfprintf(v->run->out, format, ap);
  va_end(ap);
}

/* The status is what ref's was, or a refusal. */
static conform_outcome judge_status(verdict *v, m3idx_status status) {
  if (status == v->call->status) return CONFORM_PASS;
  if (status == M3IDX_UNSUPPORTED) return CONFORM_UNSUPPORTED;
  fail(v);
  say(v, "  status: want %s got %s: %s\n", m3idx_status_name(v->call->status), m3idx_status_name(status),
      m3idx_message(v->run->ctx));
  return CONFORM_FAIL;
}

/* S7.2: after anything but OK every byte is as it was. */
static void judge_image(verdict *v, const conform_output *out, const conform_image *got, m3idx_status status) {
  conform_image want = status == M3IDX_OK ? image_wanted(out) : image_make(out);
  if (memcmp(want.all, got->all, want.all_bytes) != 0) {
    fail(v);
    if (status != M3IDX_OK)
      say(v, "  refused (%s: %s) and wrote:\n", m3idx_status_name(status), m3idx_message(v->run->ctx));
    if (v->run->out) conform_explain(v->run->out, v->call, out, &want, got);
  }
  free(want.all);
}

/* ---- host memory ---- */

static conform_outcome run_host(conform_run *run, conform_call *call) {
  verdict v = {.run = run, .call = call, .where = "host memory"};
  conform_image got[3];
  char text[4096];
  headline(&v, text, sizeof text);
  conform_memory_note(text, run->repeat);
  for (int i = 0; i < call->num_outputs; i++) {
    got[i] = image_make(&call->outputs[i]);
    point(call->outputs[i].at, got[i].all + CONFORM_GUARD_BYTES);
  }
  const m3idx_status status = conform_invoke(run->ctx, call);
  const conform_outcome outcome = judge_status(&v, status);
  for (int i = 0; i < call->num_outputs; i++) {
    if (outcome != CONFORM_FAIL) judge_image(&v, &call->outputs[i], &got[i], status);
    free(got[i].all);
  }
  if (status != M3IDX_OK) snprintf(run->reason, sizeof run->reason, "%s", m3idx_message(run->ctx));
  if (v.failed) say(&v, "  repeat: %s\n", run->repeat);
  return v.failed ? CONFORM_FAIL : outcome;
}

/* ---- device memory ---- */

typedef struct device {
  verdict v;
  void *inputs[12], *outputs[3], *workspace;
  size_t workspace_bytes;
} device;

/* A status of the harness's own steps. */
static bool step(device *d, const char *what, m3idx_status status) {
  if (status == M3IDX_OK) return true;
  fail(&d->v);
  say(&d->v, "  %s: %s: %s\n", what, m3idx_status_name(status), m3idx_message(d->v.run->ctx));
  return false;
}

static void *lend(device *d, const char *name, const void *from, size_t bytes) {
  m3idx_context *ctx = d->v.run->ctx;
  void *p = ctx->backend->alloc(ctx, bytes);
  if (!p)
    step(d, name, M3IDX_NO_MEMORY);
  else if (bytes)
    step(d, name, ctx->backend->upload(ctx, p, from, bytes));
  return p;
}

/* Inputs go to the device once, with guards; the workspace holds zeros between guards. */
static conform_outcome prepare(device *d, conform_call *call) {
  enum { G = CONFORM_GUARD_BYTES };
  m3idx_context *ctx = d->v.run->ctx;
  for (int i = 0; i < call->num_inputs; i++) {
    const conform_input *in = call->inputs[i].input;
    unsigned char *all = conform_alloc(in->bytes + 2 * G);
    conform_poison(all, in->bytes + 2 * G, sizeof(uint32_t));
    if (in->bytes) memcpy(all + G, in->data, in->bytes);
    d->inputs[i] = lend(d, in->name, all, in->bytes + 2 * G);
    free(all);
    if (d->inputs[i]) point(call->inputs[i].at, (unsigned char *)d->inputs[i] + G);
  }
  for (int i = 0; i < call->num_outputs; i++) {
    conform_image image = image_make(&call->outputs[i]);
    d->outputs[i] = lend(d, call->outputs[i].name, image.all, image.all_bytes);
    free(image.all);
    if (d->outputs[i]) point(call->outputs[i].at, (unsigned char *)d->outputs[i] + G);
  }
  if (d->v.failed) return CONFORM_FAIL;
  const m3idx_status status = m3idx_plan(ctx, call->op, &call->args, &d->workspace_bytes);
  if (status == M3IDX_UNSUPPORTED) snprintf(d->v.run->reason, sizeof d->v.run->reason, "%s", m3idx_message(ctx));
  if (status == M3IDX_UNSUPPORTED) return call->status == status ? CONFORM_PASS : CONFORM_UNSUPPORTED;
  if (!step(d, "plan", status)) return CONFORM_FAIL;
  unsigned char *all = conform_alloc(d->workspace_bytes + 2 * G);
  conform_poison(all, d->workspace_bytes + 2 * G, sizeof(uint32_t));
  memset(all + G, 0, d->workspace_bytes);
  d->workspace = lend(d, "workspace", all, d->workspace_bytes + 2 * G);
  free(all);
  if (d->v.failed ||
      !step(d, "set_workspace", m3idx_set_workspace(ctx, (unsigned char *)d->workspace + G, d->workspace_bytes)))
    return CONFORM_FAIL;
  return CONFORM_PASS;
}

static bool download(device *d, const char *name, void *to, const void *from, size_t bytes) {
  m3idx_context *ctx = d->v.run->ctx;
  return step(d, name, ctx->backend->download(ctx, to, from, bytes));
}

static conform_outcome launch(device *d, conform_call *call) {
  m3idx_context *ctx = d->v.run->ctx;
  char text[4096];
  headline(&d->v, text, sizeof text);
  conform_memory_note(text, d->v.run->repeat);
  const m3idx_status status = conform_invoke(ctx, call);
  const conform_outcome outcome = judge_status(&d->v, status);
  for (int i = 0; i < call->num_outputs; i++) {
    conform_image got = image_make(&call->outputs[i]), fresh = image_make(&call->outputs[i]);
    if (download(d, call->outputs[i].name, got.all, d->outputs[i], got.all_bytes) && outcome != CONFORM_FAIL)
      judge_image(&d->v, &call->outputs[i], &got, status);
    step(d, call->outputs[i].name, ctx->backend->upload(ctx, d->outputs[i], fresh.all, fresh.all_bytes));
    free(got.all);
    free(fresh.all);
  }
  return outcome;
}

/* Inputs are as they were, guards of the inputs and of the workspace too. */
static void judge_rest(device *d, const conform_call *call) {
  enum { G = CONFORM_GUARD_BYTES };
  for (int i = 0; i <= call->num_inputs; i++) {
    const conform_input *in = i < call->num_inputs ? call->inputs[i].input : NULL;
    const char *name = in ? in->name : "workspace";
    const size_t bytes = in ? in->bytes : d->workspace_bytes;
    const void *from = in ? d->inputs[i] : d->workspace;
    unsigned char *all = conform_alloc(bytes + 2 * G);
    if (from && download(d, name, all, from, bytes + 2 * G)) {
      size_t at = 0;
      while (in && at < bytes && all[G + at] == in->data[at]) at++;
      if (in && at < bytes) {
        fail(&d->v);
        say(&d->v, "  input %s: byte %lu of %lu was written\n", name, (unsigned long)at, (unsigned long)bytes);
      }
      unsigned char *expected = conform_alloc(bytes + 2 * G);
      conform_poison(expected, bytes + 2 * G, sizeof(uint32_t));
      if (memcmp(all, expected, G) != 0 || memcmp(all + G + bytes, expected + G + bytes, G) != 0) {
        fail(&d->v);
        say(&d->v, "  %s: a guard byte was written\n", name);
      }
      free(expected);
    }
    free(all);
  }
}

static conform_outcome run_device(conform_run *run, conform_call *call) {
  device d = {.v = {.run = run, .call = call, .where = "device memory"}};
  m3idx_context *ctx = run->ctx;
  conform_outcome outcome = CONFORM_FAIL;
  if (step(&d, "set_stream", m3idx_set_stream(ctx, NULL, M3IDX_DEVICE_MEMORY))) outcome = prepare(&d, call);
  if (d.workspace && outcome == CONFORM_PASS) {
    d.v.where = "device memory, launch 1";
    outcome = launch(&d, call);
    judge_rest(&d, call);
    d.v.where = "device memory, launch 2 with the same workspace";
    if (!d.v.failed && outcome == CONFORM_PASS) {
      outcome = launch(&d, call);
      judge_rest(&d, call);
    }
  }
  for (int i = 0; i < call->num_inputs; i++) {
    if (d.inputs[i]) ctx->backend->free(ctx, d.inputs[i]);
    point(call->inputs[i].at, call->inputs[i].input->data);
  }
  for (int i = 0; i < call->num_outputs; i++)
    if (d.outputs[i]) ctx->backend->free(ctx, d.outputs[i]);
  if (d.workspace) ctx->backend->free(ctx, d.workspace);
  m3idx_set_workspace(ctx, NULL, 0);
  m3idx_set_stream(ctx, NULL, M3IDX_HOST);
  if (d.v.failed) say(&d.v, "  repeat: %s\n", run->repeat);
  return d.v.failed ? CONFORM_FAIL : outcome;
}

bool conform_shares_ref(const m3idx_backend *table, m3idx_op op) {
  if (table == &m3idx_backend_ref) return false; /* threads, strides and guards still count there */
  switch (op) {
#define M3IDX_OP(name, what) \
  case M3IDX_OP_##name:      \
    return table->name == m3idx_backend_ref.name;
#include "ops.def"
#undef M3IDX_OP
  case M3IDX_OP_COUNT: break;
  }
  return false;
}

conform_outcome conform_judge(conform_run *run, conform_call *call) {
  conform_outcome outcome = CONFORM_PASS;
  run->reason[0] = 0;
  if (conform_shares_ref(run->ctx->backend, call->op)) {
    snprintf(run->reason, sizeof run->reason, "the operation is ref's own function, judged as ref");
    return CONFORM_SKIP;
  }
  for (int i = 0; i < run->times && outcome == CONFORM_PASS; i++) outcome = run_host(run, call);
  for (int i = 0; i < run->times && outcome == CONFORM_PASS && run->ctx->backend->alloc; i++)
    outcome = run_device(run, call);
  if (outcome != CONFORM_PASS || !call->weak) return outcome;
  snprintf(run->reason, sizeof run->reason, "%s", call->weak);
  return CONFORM_WEAK;
}
