/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing case files (docs/CASES.md, "The file"): one canonical spelling of a case, whole or not at all.
 * Tensors stand in order of element type, then name; metadata in order of key; the header is padded with spaces
 * so that the data is aligned to 8 bytes.
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64 /* files past 2 GiB on 32-bit hosts */
#define _XOPEN_SOURCE 700    /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "casefail.h"
#include "casefile.h"

static int compare_tensors(const void *a, const void *b) {
  const case_tensor *x = a, *y = b;
  if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int compare_pairs(const void *a, const void *b) {
  return strcmp(((const case_pair *)a)->key, ((const case_pair *)b)->key);
}

/* NULL = no memory, so that no dimension is lost. */
static json_t *entry_of(const case_tensor *t, uint64_t at) {
  json_t *shape = json_array();
  int bad = !shape;
  for (int i = 0; i < t->rank && !bad; i++) bad = json_array_append_new(shape, json_integer(t->shape[i]));
  if (bad) {
    json_decref(shape);
    return NULL;
  }
  return json_pack("{s:s, s:o, s:[I,I]}", "dtype", case_dtype_name(t->dtype), "shape", shape, "data_offsets",
                   (json_int_t)at, (json_int_t)at + (json_int_t)t->bytes);
}

/* Into memory of the size it needs: where json_dumps cannot grow its own, jansson 2.14 leaves keys out and says
 * nothing. */
static char *text_of(const json_t *header) {
  const size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER, n = json_dumpb(header, NULL, 0, flags);
  char *text = n ? malloc(n + 1) : NULL;
  if (!text) return NULL;
  if (json_dumpb(header, text, n, flags) != n) {
    free(text);
    return NULL;
  }
  text[n] = 0;
  return text;
}

/* The header as text, NULL when there is no memory or a name is not UTF-8. */
static char *header_text(const case_file *file, const case_tensor *order) {
  json_t *header = json_object(), *metadata = json_object();
  case_pair *pairs = malloc((size_t)(file->num_metadata + 1) * sizeof *pairs);
  int bad = !header || !metadata || !pairs;
  uint64_t at = 0;
  for (int64_t i = 0; !bad && i < file->num_metadata; i++) pairs[i] = file->metadata[i];
  if (!bad) qsort(pairs, (size_t)file->num_metadata, sizeof *pairs, compare_pairs);
  for (int64_t i = 0; !bad && i < file->num_metadata; i++)
    bad = json_object_set_new(metadata, pairs[i].key, json_string(pairs[i].value));
  if (!bad && file->num_metadata) bad = json_object_set(header, "__metadata__", metadata);
  for (int64_t i = 0; !bad && i < file->num_tensors; at += order[i++].bytes)
    bad = json_object_set_new(header, order[i].name, entry_of(&order[i], at));
  char *text = bad ? NULL : text_of(header);
  free(pairs);
  json_decref(metadata);
  json_decref(header);
  return text;
}

static int write_bytes(void *user, const void *bytes, size_t n) { return fwrite(bytes, 1, n, user) == n ? 0 : -1; }

static int write_stream(FILE *out, const char *header, const case_tensor *order, int64_t tensors) {
  size_t length = strlen(header), padded = (length + 7) / 8 * 8;
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
  if (write_bytes(out, prefix, 8) || write_bytes(out, header, length) || write_bytes(out, "       ", padded - length))
    return -1;
  for (int64_t i = 0; i < tensors; i++)
    if (case_tensor_le(&order[i], write_bytes, out)) return -1;
  return fflush(out) || fsync(fileno(out)) ? -1 : 0;
}

/* Where the bytes will stand in the end: through a symbolic link, and only over a regular file.  malloc'd. */
static char *resolve(const char *path, char *why) {
  struct stat st;
  char *target = NULL;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    case_fail(why, "%.200s: not a regular file", path);
  } else {
    target = lstat(path, &st) == 0 ? realpath(path, NULL) : strdup(path);
    if (!target) case_fail(why, "%.200s: %s", path, strerror(errno));
  }
  return target;
}

/* A new file beside target, in name[bytes]. */
static FILE *open_beside(const char *target, char *name, size_t bytes) {
  int fd = -1;
  for (int attempt = 0; fd < 0 && attempt < 100; attempt++) {
    snprintf(name, bytes, "%s.tmp-%ld-%d", target, (long)getpid(), attempt);
    fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) return NULL;
  }
  if (fd < 0) return NULL;
  FILE *out = fdopen(fd, "wb");
  if (!out) {
    close(fd);
    unlink(name);
  }
  return out;
}

static int write_beside(const char *target, const char *header, const case_tensor *order, int64_t tensors, char *why) {
  size_t room = strlen(target) + 64;
  char *name = malloc(room);
  FILE *out = name ? open_beside(target, name, room) : NULL;
  int bad = out ? 0 : -1;
  if (out) {
    bad = write_stream(out, header, order, tensors);
    int error = errno;
    if (fclose(out) && !bad) {
      bad = -1;
      error = errno;
    }
    if (!bad && rename(name, target)) {
      bad = -1;
      error = errno;
    }
    if (bad) unlink(name);
    errno = error;
  }
  if (bad) case_fail(why, "%.200s: cannot write: %s", target, strerror(errno));
  free(name);
  return bad;
}

int casefile_write(const char *path, const case_file *file, char *why) {
  case_tensor *order = malloc((size_t)(file->num_tensors + 1) * sizeof *order);
  char *target = resolve(path, why), *header = NULL;
  int bad = -1;
  if (order) {
    for (int64_t i = 0; i < file->num_tensors; i++) order[i] = file->tensors[i];
    qsort(order, (size_t)file->num_tensors, sizeof *order, compare_tensors);
    header = header_text(file, order);
  }
  if (target && !header) case_fail(why, "%.200s: no memory for the header, or a name that is not UTF-8", path);
  if (target && header) bad = write_beside(target, header, order, file->num_tensors, why);
  free(header);
  free(target);
  free(order);
  return bad;
}
