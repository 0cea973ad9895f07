/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx info: version, build, and every backend with what it runs on or why it cannot.
 */
#include <jansson.h>
#include <stdlib.h>

#include "tool.h"

enum { JSON = TOOL_FIRST_OPTION };

#define STR_(x) #x
#define STR(x) STR_(x)

#if defined(__clang__)
static const char compiler[] = "clang " __clang_version__;
#elif defined(__GNUC__)
static const char compiler[] = "gcc " __VERSION__;
#else
static const char compiler[] = "unknown";
#endif

#ifdef _OPENMP
static const char openmp[] = STR(_OPENMP);
#else
static const char openmp[] = "off";
#endif

static json_t *describe(const char *name) {
  char why[CASE_MESSAGE_BYTES] = "";
  m3idx_context *ctx;
  m3idx_status status = m3idx_open(&ctx, &(m3idx_options){.backend = name}, why, sizeof why);
  json_t *entry = status
                      ? json_pack("{s:s, s:b, s:s}", "name", name, "works", 0, "reason", why)
                      : json_pack("{s:s, s:b, s:s}", "name", name, "works", 1, "details", m3idx_backend_details(ctx));
  m3idx_close(ctx);
  return entry;
}

static json_t *gather(void) {
  json_t *backends = json_array();
  for (int i = 0; m3idx_backend_list(i); i++) json_array_append_new(backends, describe(m3idx_backend_list(i)));
  char why[CASE_MESSAGE_BYTES] = "";
  m3idx_context *ctx;
  bool found = m3idx_open(&ctx, NULL, why, sizeof why) == M3IDX_OK;
  json_t *info = json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:s?, s:s}}", "version", m3idx_version(), "build", "compiler",
                           compiler, "openmp", openmp, "backends", backends, "auto", "name",
                           found ? m3idx_backend_name(ctx) : NULL, "reason", found ? m3idx_backend_reason(ctx) : why);
  m3idx_close(ctx);
  return info;
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "none";
}

static void print_text(const json_t *info) {
  const json_t *build = json_object_get(info, "build"), *chosen = json_object_get(info, "auto");
  printf("m3idx %s\nbuilt with %s, OpenMP %s\n", text_of(info, "version"), text_of(build, "compiler"),
         text_of(build, "openmp"));
  size_t i;
  const json_t *backend;
  json_array_foreach(json_object_get(info, "backends"), i, backend) {
    bool works = json_is_true(json_object_get(backend, "works"));
    printf("backend %s: %s%s\n", text_of(backend, "name"),
           works ? "" : "cannot: ", text_of(backend, works ? "details" : "reason"));
  }
  printf("%s\n", text_of(chosen, "reason"));
}

int verb_info(int argc, const char **argv) {
  bool json = false;
  const struct poptOption options[] = {
      {"json", 'j', POPT_ARG_NONE, NULL, JSON, "print one JSON object", NULL}, TOOL_HELP_OPTION, POPT_TABLEEND};
  tool_args a;
  tool_begin(&a, argc, argv, options, "", NULL);
  while (tool_next(&a, 0) >= 0) json = true;
  if (!tool_leave(&a)) {
    json_t *info = gather();
    if (!info)
      a.status = tool_fail(argv[0], EXIT_BACKEND, "out of memory, or a backend's words are not UTF-8");
    else if (!json)
      print_text(info);
    else if (json_dumpf(info, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER) == 0)
      putchar('\n');
    json_decref(info);
  }
  tool_end(&a);
  return a.status;
}
