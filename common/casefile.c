/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading case files (docs/CASES.md, "The file"): safetensors, of which nothing is trusted.  The header is
 * bounded before the JSON parser sees it, every offset is checked before it is used, and tensors must tile the
 * data exactly.  Little-endian files, host-order tensors.  Writing is casewrite.c.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64 /* files past 2 GiB on 32-bit hosts */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "casefail.h"
#include "casefile.h"

enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000, MAX_ENTRIES = 1 << 14, MAX_DEPTH = 3 };

/* Bytes that come once and in order: from memory, or from a file when bytes is NULL. */
typedef struct source {
  const unsigned char *bytes;
  FILE *file;
  uint64_t left;
} source;

static int take(source *s, void *out, size_t n, char *why) {
  if (n == 0) return 0;
  if (s->file) {
    errno = 0;
    if (fread(out, 1, n, s->file) != n)
      return case_fail(why, "cannot read: %s", errno ? strerror(errno) : "file shrank");
  } else {
    memcpy(out, s->bytes, n);
    s->bytes += n;
  }
  s->left -= n;
  return 0;
}

/* Bound what the JSON parser will be asked to build: a header needs three levels and few entries, a parser spends
 * memory on each, and every name is compared with those before it. */
static int scan_header(const char *text, size_t n, char *why) {
  size_t entries = 0;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (quoted) {
      if (c == '\\')
        i++;
      else if (c == '"')
        quoted = false;
      continue;
    }
    quoted = c == '"';
    entries += c == ',';
    if (c == '{' || c == '[') depth++;
    if (c == '}' || c == ']') depth--;
    if (depth > MAX_DEPTH) return case_fail(why, "header: nested deeper than %d levels at byte %zu", MAX_DEPTH, i);
    if (entries > MAX_ENTRIES) return case_fail(why, "header: more than %d entries", MAX_ENTRIES);
  }
  return 0;
}

/* The header's JSON object, or NULL and why. */
static json_t *read_header(source *s, char *why) {
  unsigned char prefix[LENGTH_BYTES];
  uint64_t n = 0;
  if (s->left < LENGTH_BYTES) {
    case_fail(why, "%llu bytes, too short for the header length", (unsigned long long)s->left);
    return NULL;
  }
  if (take(s, prefix, LENGTH_BYTES, why)) return NULL;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | prefix[i];
  if (n > MAX_HEADER || n > s->left) {
    case_fail(why, "header length %llu: must be at most %llu (%s)", (unsigned long long)n,
              n > MAX_HEADER ? (unsigned long long)MAX_HEADER : (unsigned long long)s->left,
              n > MAX_HEADER ? "the format's limit" : "the rest of the file");
    return NULL;
  }
  char *text = malloc((size_t)n + 1);
  json_t *header = NULL;
  json_error_t error;
  if (!text) {
    case_fail(why, "no memory for a header of %llu bytes", (unsigned long long)n);
  } else if (take(s, text, (size_t)n, why) || scan_header(text, (size_t)n, why)) {
    ;
  } else if (n == 0 || text[0] != '{') {
    case_fail(why, "header: must begin with '{'");
  } else if (!(header = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error))) {
    case_fail(why, "header: %.200s at byte %d", error.text, error.position);
  }
  free(text);
  return header;
}

static int read_metadata(const json_t *metadata, case_file *out, char *why) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) return case_fail(why, "__metadata__: must be an object of strings");
  json_object_foreach((json_t *)metadata, key, value) {
    if (!json_is_string(value)) return case_fail(why, "metadata %.80s: must be a string", key);
    if (case_set_metadata(out, key, json_string_value(value))) return case_fail(why, "metadata %.80s: no memory", key);
  }
  return 0;
}

/* A non-negative integer of the header. */
static int natural(const json_t *value, int64_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return -1;
  *out = json_integer_value(value);
  return 0;
}

static int read_shape(const char *name, const json_t *shape, int *rank, int64_t *dims, char *why) {
  if (!json_is_array(shape)) return case_fail(why, "tensor %.80s: shape must be an array", name);
  if (json_array_size(shape) > CASE_MAX_RANK)
    return case_fail(why, "tensor %.80s: rank %zu, must be at most %d", name, json_array_size(shape), CASE_MAX_RANK);
  *rank = (int)json_array_size(shape);
  for (int i = 0; i < *rank; i++)
    if (natural(json_array_get(shape, (size_t)i), &dims[i]))
      return case_fail(why, "tensor %.80s: shape[%d] must be an integer of at least 0", name, i);
  return 0;
}

/* One tensor: its entry judged in full, then its bytes, which must begin where the last tensor's ended. */
static int read_tensor(source *s, const char *name, const json_t *entry, int64_t *at, case_file *out, char *why) {
  case_dtype dtype;
  int rank = 0;
  int64_t shape[CASE_MAX_RANK] = {0}, begin, end;
  size_t bytes;
  const json_t *offsets = json_object_get(entry, "data_offsets");
  const char *type = json_string_value(json_object_get(entry, "dtype"));
  if (json_object_size(entry) != 3 || !type || !offsets || !json_object_get(entry, "shape"))
    return case_fail(why, "tensor %.80s: must be an object of dtype (a string), shape and data_offsets", name);
  if (case_dtype_by_name(type, &dtype)) return case_fail(why, "tensor %.80s: unknown dtype \"%.40s\"", name, type);
  if (read_shape(name, json_object_get(entry, "shape"), &rank, shape, why)) return -1;
  if (case_tensor_bytes(dtype, rank, shape, &bytes))
    return case_fail(why, "tensor %.80s: shape has more bytes than memory can address", name);
  if (json_array_size(offsets) != 2 || natural(json_array_get(offsets, 0), &begin) ||
      natural(json_array_get(offsets, 1), &end))
    return case_fail(why, "tensor %.80s: data_offsets must be two integers of at least 0", name);
  if (begin != *at)
    return case_fail(why, "tensor %.80s: data begins at %lld, must be %lld, where the tensor before it ends", name,
                     (long long)begin, (long long)*at);
  if (end < begin || (uint64_t)(end - begin) != bytes)
    return case_fail(why, "tensor %.80s: data_offsets [%lld, %lld], must span the %zu bytes of its shape", name,
                     (long long)begin, (long long)end, bytes);
  if (bytes > s->left)
    return case_fail(why, "tensor %.80s: %zu bytes of data, the file has %llu left", name, bytes,
                     (unsigned long long)s->left);
  case_tensor *tensor = case_add_tensor(out, name, dtype, rank, shape);
  if (!tensor) return case_fail(why, "tensor %.80s: no memory for %zu bytes", name, bytes);
  *at = end;
  return take(s, tensor->data, bytes, why);
}

/* Little-endian data in place to host order. */
static void to_host_order(case_tensor *tensor) {
  const uint16_t probe = 1;
  size_t width = case_dtype_bytes(tensor->dtype);
  unsigned char *bytes = tensor->data;
  if (*(const unsigned char *)&probe == 1) return;
  for (size_t at = 0; at < tensor->bytes; at += width)
    for (size_t i = 0; i < width / 2; i++) {
      unsigned char held = bytes[at + i];
      bytes[at + i] = bytes[at + width - 1 - i];
      bytes[at + width - 1 - i] = held;
    }
}

static int read_source(source *s, case_file *out, char *why) {
  json_t *header = read_header(s, why), *entry;
  const char *name;
  int64_t at = 0;
  int bad = header ? 0 : -1;
  if (header && (entry = json_object_get(header, "__metadata__"))) bad = read_metadata(entry, out, why);
  json_object_foreach(header, name, entry) {
    if (bad) break;
    if (strcmp(name, "__metadata__") != 0) bad = read_tensor(s, name, entry, &at, out, why);
  }
  json_decref(header);
  if (!bad && s->left) bad = case_fail(why, "%llu bytes of data that belong to no tensor", (unsigned long long)s->left);
  for (int64_t i = 0; !bad && i < out->num_tensors; i++) to_host_order(&out->tensors[i]);
  if (bad) case_file_free(out);
  return bad;
}

int casefile_parse(const void *bytes, size_t size, case_file *out, char *why) {
  source s = {.bytes = bytes, .left = size};
  *out = (case_file){0};
  return read_source(&s, out, why);
}

int casefile_read(const char *path, case_file *out, char *why) {
  char reason[CASE_MESSAGE_BYTES];
  struct stat st;
  source s = {.file = fopen(path, "rb")};
  *out = (case_file){0};
  if (!s.file) return case_fail(why, "%.200s: %s", path, strerror(errno));
  int bad = 0;
  if (fstat(fileno(s.file), &st))
    bad = case_fail(reason, "%s", strerror(errno));
  else if (!S_ISREG(st.st_mode))
    bad = case_fail(reason, "not a regular file");
  else
    s.left = (uint64_t)st.st_size;
  if (!bad) bad = read_source(&s, out, reason);
  fclose(s.file);
  return bad ? case_fail(why, "%.200s: %.300s", path, reason) : 0;
}
