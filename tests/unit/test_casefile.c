/* SPDX-License-Identifier: Apache-2.0
 *
 * Case files (common/casefile.c, casewrite.c) and views of them (case.c): round trips, the canonical bytes, one
 * hostile file for each thing that can be wrong, and writes that fail without touching what was there.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "case.h"
#include "casefile.h"
#include "unit.h"

static char directory[] = "/tmp/m3idx-casefile-XXXXXX";

static const char *in_directory(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static int entries(void) {
  int count = 0;
  DIR *dir = opendir(directory);
  while (readdir(dir)) count++;
  closedir(dir);
  return count - 2;
}

/* header and `data` zero bytes as a file's bytes, with `length` in the prefix; length -1 = as it is. */
static size_t build(unsigned char *out, int64_t length, const char *header, size_t header_bytes, size_t data) {
  uint64_t n = length < 0 ? header_bytes : (uint64_t)length;
  for (int i = 0; i < 8; i++) out[i] = (unsigned char)(n >> 8 * i);
  memcpy(out + 8, header, header_bytes);
  memset(out + 8 + header_bytes, 0, data);
  return 8 + header_bytes + data;
}

/* ---- hostile files ---- */

#define T(name, dtype, shape, offsets) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
  const char *header;
  int64_t length; /* in the prefix; -1 = the truth */
  size_t data;
  const char *want; /* how the sentence begins; NULL = a good file */
} files[] = {
    {"{" T("a", "F32", "[2]", "[0,8]") "}", -1, 8, NULL},
    {"{}", -1, 0, NULL},
    {"{}   \n ", -1, 0, NULL},
    {"{" T("a", "F32", "[]", "[0,4]") "}", -1, 4, NULL},
    {"{" T("a", "F32", "[0,9]", "[0,0]") "," T("b", "U8", "[3]", "[0,3]") "}", -1, 3, NULL},
    {"{\"__metadata__\":{\"x\":\"y\"}}", -1, 0, NULL},
    /* length */
    {"{}", 3, 0, "header length 3: must be at most 2 (the rest of the file)"},
    {"{}", 100000000, 0, "header length 100000000: must be at most 2 (the rest"},
    {"{}", 100000001, 0, "header length 100000001: must be at most 100000000 (the format"},
    {"{}", INT64_MAX, 0, "header length 9223372036854775807: must be at most 100000000"},
    {"{}", 0, 0, "header: must begin with '{'"},
    /* JSON */
    {" {}", -1, 0, "header: must begin with '{'"},
    {"[]", -1, 0, "header: must begin with '{'"},
    {"{\"a\"", -1, 0, "header: "},
    {"{}{}", -1, 0, "header: "},
    {"{\"a\xff\":1}", -1, 0, "header: "},
    {"{\"\xc0\xaf\":1}", -1, 0, "header: "},
    {"{\"\xed\xa0\x80\":1}", -1, 0, "header: "},
    {"{\"a\\u0000b\":1}", -1, 0, "header: "},
    {"{\"a\\ud800\":1}", -1, 0, "header: "},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", -1, 2, "header: duplicate object key"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", -1, 1,
     "header: duplicate object key"},
    {"{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", -1, 0, "header: duplicate object key"},
    {"{\"a\":{\"b\":{\"c\":{}}}}", -1, 0, "header: nested deeper than 3 levels at byte 15"},
    {"{\"a\":[[[[[[[[", -1, 0, "header: nested deeper than 3 levels at byte 7"},
    /* metadata */
    {"{\"__metadata__\":[]}", -1, 0, "__metadata__: must be an object of strings"},
    {"{\"__metadata__\":{\"topk\":16}}", -1, 0, "metadata topk: must be a string"},
    {"{\"__metadata__\":{\"topk\":null}}", -1, 0, "metadata topk: must be a string"},
    {"{\"__metadata__\":{\"topk\":\"1\\u00006\"}}", -1, 0, "header: "},
    /* entries */
    {"{\"a\":1}", -1, 0, "tensor a: must be an object of"},
    {"{\"a\":{}}", -1, 0, "tensor a: must be an object of"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", -1, 1, "tensor a: must be an object of"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", -1, 1,
     "tensor a: must be an object"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"offsets\":[0,1]}}", -1, 1, "tensor a: must be an object of"},
    {"{\"a\":{\"dtype\":\"U8\",\"dims\":[1],\"data_offsets\":[0,1]}}", -1, 1, "tensor a: must be an object of"},
    {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", -1, 1, "tensor a: must be an object of"},
    {"{" T("a", "F8", "[1]", "[0,1]") "}", -1, 1, "tensor a: unknown dtype \"F8\""},
    {"{" T("a", "u8", "[1]", "[0,1]") "}", -1, 1, "tensor a: unknown dtype \"u8\""},
    {"{" T("a", "U8", "1", "[0,1]") "}", -1, 1, "tensor a: shape must be an array"},
    {"{" T("a", "U8", "[1.0]", "[0,1]") "}", -1, 1, "tensor a: shape[0] must be an integer"},
    {"{" T("a", "U8", "[1,-1]", "[0,1]") "}", -1, 1, "tensor a: shape[1] must be an integer"},
    {"{" T("a", "U8", "[\"1\"]", "[0,1]") "}", -1, 1, "tensor a: shape[0] must be an integer"},
    {"{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", -1, 1, "header: too big integer"},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", -1, 1, "tensor a: rank 9, must be at most 8"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", -1, 0, "tensor a: shape has more bytes than"},
    {"{" T("a", "F32", "[4611686018427387904]", "[0,0]") "}", -1, 0, "tensor a: shape has more bytes than"},
    {"{" T("a", "F32", "[2305843009213693953,2]", "[0,8]") "}", -1, 8, "tensor a: shape has more bytes than"},
    {"{" T("a", "U8", "[1]", "1") "}", -1, 1, "tensor a: data_offsets must be two integers"},
    {"{" T("a", "U8", "[1]", "[0]") "}", -1, 1, "tensor a: data_offsets must be two integers"},
    {"{" T("a", "U8", "[1]", "[0,1,2]") "}", -1, 1, "tensor a: data_offsets must be two integers"},
    {"{" T("a", "U8", "[1]", "[-1,0]") "}", -1, 1, "tensor a: data_offsets must be two integers"},
    {"{" T("a", "U8", "[1]", "[0,null]") "}", -1, 1, "tensor a: data_offsets must be two integers"},
    {"{" T("a", "U8", "[1]", "[0.0,1.0]") "}", -1, 1, "tensor a: data_offsets must be two integers"},
    /* layout */
    {"{" T("a", "F32", "[2]", "[0,4]") "}", -1, 4, "tensor a: data_offsets [0, 4], must span the 8 bytes"},
    {"{" T("a", "F32", "[1]", "[0,8]") "}", -1, 8, "tensor a: data_offsets [0, 8], must span the 4 bytes"},
    {"{" T("a", "F32", "[0]", "[0,4]") "}", -1, 4, "tensor a: data_offsets [0, 4], must span the 0 bytes"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[4,2]") "}", -1, 4,
     "tensor b: data begins at 4, must be 2"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[2,0]") "}", -1, 4,
     "tensor b: data_offsets [2, 0], must"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", -1, 4,
     "tensor b: data begins at 1, must be 2"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", -1, 4,
     "tensor b: data begins at 0, must be 2"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[3,5]") "}", -1, 5,
     "tensor b: data begins at 3, must be 2"},
    {"{" T("b", "U8", "[2]", "[2,4]") "," T("a", "U8", "[2]", "[0,2]") "}", -1, 4,
     "tensor b: data begins at 2, must be 0"},
    {"{" T("a", "U8", "[2]", "[1,3]") "}", -1, 3, "tensor a: data begins at 1, must be 0"},
    {"{" T("a", "U8", "[9]", "[0,9]") "}", -1, 8, "tensor a: 9 bytes of data, the file has 8 left"},
    {"{" T("a", "U8", "[1099511627776]", "[0,1099511627776]") "}", -1, 8, "tensor a: "},
    {"{" T("a", "U8", "[2]", "[0,2]") "}", -1, 3, "1 bytes of data that belong to no tensor"},
    {"{}", -1, 1, "1 bytes of data that belong to no tensor"},
};

START_TEST(hostile_bytes) {
  unsigned char bytes[1024];
  char why[CASE_MESSAGE_BYTES] = "";
  size_t size = build(bytes, files[_i].length, files[_i].header, strlen(files[_i].header), files[_i].data);
  case_file file;
  int bad = casefile_parse(bytes, size, &file, why);
  if (!files[_i].want) {
    ck_assert_msg(!bad, "%s: %s", files[_i].header, why);
    case_file_free(&file);
    return;
  }
  ck_assert_int_eq(bad, -1);
  ck_assert_msg(strstr(why, files[_i].want) == why, "%s\n  want \"%s...\"\n  got  \"%s\"", files[_i].header,
                files[_i].want, why);
  ck_assert_int_eq(file.num_tensors, 0);
  /* The same bytes in a file give the same sentence, after the file's name. */
  const char *path = in_directory("hostile");
  char from_file[CASE_MESSAGE_BYTES] = "";
  FILE *out = fopen(path, "wb");
  ck_assert_uint_eq(fwrite(bytes, 1, size, out), size);
  fclose(out);
  ck_assert_int_eq(casefile_read(path, &file, from_file), -1);
  ck_assert_msg(!strncmp(from_file, path, strlen(path)), "%s", from_file);
  ck_assert_str_eq(from_file + strlen(path) + 2, why);
  unlink(path);
}
END_TEST

/* A NUL byte in the header itself, and every header cut short: none may read on. */
START_TEST(raw_nul_and_truncation) {
  static const char header[] = "{" T("ab", "U8", "[1]", "[0,1]") "}";
  unsigned char bytes[256];
  char why[CASE_MESSAGE_BYTES];
  case_file file;
  size_t size = build(bytes, -1, header, sizeof header - 1, 1);
  for (size_t cut = 0; cut < size; cut++) {
    unsigned char *exact = malloc(cut + !cut); /* so that a sanitizer sees a byte too many */
    memcpy(exact, bytes, cut);
    ck_assert_int_eq(casefile_parse(exact, cut, &file, why), -1);
    free(exact);
  }
  bytes[8 + 3] = 0;
  ck_assert_int_eq(casefile_parse(bytes, size, &file, why), -1);
  ck_assert_msg(!strncmp(why, "header: ", 8), "%s", why);
}
END_TEST

/* A wide header may not make the parser spend hundreds of times its size, or the reader minutes on its names. */
START_TEST(too_many_entries) {
  size_t n = (1 << 15) + 64;
  char *header = malloc(n), why[CASE_MESSAGE_BYTES];
  unsigned char *bytes = malloc(n + 8);
  memset(header, ' ', n);
  memcpy(header, "{\"a\":[1", 7);
  for (size_t i = 7; i + 2 < n; i += 2) memcpy(header + i, ",1", 2);
  case_file file;
  ck_assert_int_eq(casefile_parse(bytes, build(bytes, -1, header, n, 0), &file, why), -1);
  ck_assert_str_eq(why, "header: more than 16384 entries");
  free(header);
  free(bytes);
}
END_TEST

START_TEST(not_files) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file;
  ck_assert_int_eq(casefile_read(in_directory("absent"), &file, why), -1);
  ck_assert_msg(strstr(why, "absent: ") != NULL, "%s", why);
  ck_assert_int_eq(casefile_read(directory, &file, why), -1);
  ck_assert_int_eq(casefile_read("/dev/null", &file, why), -1);
  ck_assert_str_eq(why, "/dev/null: not a regular file");
}
END_TEST

/* ---- round trips ---- */

static const char *const lines[] = {
    "--op decode --seq-lens 7,129 --heads 2 --head-dim 32 --data specials --q-dtype f32 --k-dtype e4m3fnuz",
    "--op decode --seq-lens 7,129 --head-dim 16 --data wide --q-dtype e5m2 --k-dtype f16 --sparse-table 1",
    "--op prefill --q-lens 3,0,2 --prefix-lens 1,2,300 --head-dim 16 --q-dtype e5m2fnuz --k-dtype e4m3fn",
    "--op select --num-blocks 0,5,9 --data specials",
    "--op decode --seq-lens 0",
};

static case_file generated(const char *line) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_spec spec;
  case_file file;
  ck_assert_msg(!case_spec_parse_line(line, &spec, why), "%s", why);
  ck_assert_msg(!case_generate(&spec, &file, why), "%s", why);
  case_spec_free(&spec);
  return file;
}

static void same_files(const case_file *a, const case_file *b) {
  ck_assert_int_eq(a->num_tensors, b->num_tensors);
  for (int64_t i = 0; i < a->num_tensors; i++) {
    const case_tensor *x = &a->tensors[i], *y = case_find(b, x->name);
    ck_assert_ptr_nonnull(y);
    ck_assert_int_eq(x->dtype, y->dtype);
    ck_assert_int_eq(x->rank, y->rank);
    ck_assert_mem_eq(x->shape, y->shape, sizeof x->shape);
    ck_assert_uint_eq(x->bytes, y->bytes);
    ck_assert_int_eq(memcmp(x->data, y->data, x->bytes), 0);
  }
  ck_assert_int_eq(a->num_metadata, b->num_metadata);
  for (int64_t i = 0; i < a->num_metadata; i++)
    ck_assert_str_eq(case_metadata(b, a->metadata[i].key), a->metadata[i].value);
}

static size_t slurp(const char *path, char *out, size_t room) {
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  size_t n = fread(out, 1, room, file);
  fclose(file);
  return n;
}

START_TEST(round_trip) {
  char why[CASE_MESSAGE_BYTES] = "", *first = malloc(1 << 20), *second = malloc(1 << 20);
  case_file file = generated(lines[_i]), back;
  ck_assert_int_eq(case_set_metadata(&file, "note \"\\ \xc3\xa9\n", "kept: \xe2\x82\xac \x01"), 0);
  ck_assert_msg(!casefile_write(in_directory("case"), &file, why), "%s", why);
  size_t size = slurp(in_directory("case"), first, 1 << 20);
  ck_assert_uint_eq((unsigned char)first[0] % 8, 0); /* data aligned to 8 bytes */
  ck_assert_msg(!casefile_read(in_directory("case"), &back, why), "%s", why);
  same_files(&file, &back);
  for (int64_t i = 0; i < back.num_tensors; i++) ck_assert_uint_eq((uintptr_t)back.tensors[i].data % 64, 0);
  /* Canonical: written again, over itself, the bytes are the same. */
  ck_assert_msg(!casefile_write(in_directory("case"), &back, why), "%s", why);
  ck_assert_uint_eq(slurp(in_directory("case"), second, 1 << 20), size);
  ck_assert_mem_eq(first, second, size);
  unlink(in_directory("case"));
  ck_assert_int_eq(entries(), 0);
  case_file_free(&back);
  case_file_free(&file);
  free(first);
  free(second);
}
END_TEST

/* The bytes of a small file, by hand: wider types first, then names; keys sorted; padded to 8; little-endian. */
START_TEST(canonical_bytes) {
  static const char header[] = "{\"__metadata__\":{\"a\":\"1\",\"b\":\"2\"},"
                               "\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                               "\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[4,8]},"
                               "\"c\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[8,10]}}";
  char want[512] = "", got[512], why[CASE_MESSAGE_BYTES] = "";
  size_t padded = (sizeof header - 1 + 7) / 8 * 8;
  memset(want, ' ', 8 + padded);
  memset(want, 0, 8);
  want[0] = (char)padded;
  want[1] = (char)(padded >> 8);
  memcpy(want + 8, header, sizeof header - 1);
  memcpy(want + 8 + padded, "\x00\x00\x80\x3f\x04\x03\x02\x01\x07\x08", 10);
  case_file file = {0};
  uint8_t *c = case_add_tensor(&file, "c", CASE_U8, 2, (int64_t[]){1, 2})->data;
  int32_t *a = case_add_tensor(&file, "a", CASE_I32, 0, NULL)->data;
  float *z = case_add_tensor(&file, "z", CASE_F32, 1, (int64_t[]){1})->data;
  c[0] = 7;
  c[1] = 8;
  *a = 0x01020304;
  *z = 1;
  case_set_metadata(&file, "b", "2");
  case_set_metadata(&file, "a", "1");
  ck_assert_msg(!casefile_write(in_directory("bytes"), &file, why), "%s", why);
  ck_assert_uint_eq(slurp(in_directory("bytes"), got, sizeof got), 8 + padded + 10);
  ck_assert_mem_eq(got, want, 8 + padded + 10);
  unlink(in_directory("bytes"));
  case_file_free(&file);
}
END_TEST

/* ---- writes that fail, and where a write ends up ---- */

START_TEST(failed_writes) {
  char why[CASE_MESSAGE_BYTES] = "";
  case_file file = generated(lines[3]);
  ck_assert_int_eq(casefile_write(in_directory("no/such/place"), &file, why), -1);
  ck_assert_msg(strstr(why, "no/such/place") != NULL, "%s", why);
  ck_assert_int_eq(casefile_write("/dev/null", &file, why), -1);
  ck_assert_str_eq(why, "/dev/null: not a regular file");
  ck_assert_int_eq(casefile_write(directory, &file, why), -1);
  case_set_metadata(&file, "k", "\xff");
  ck_assert_int_eq(casefile_write(in_directory("bad"), &file, why), -1);
  ck_assert_int_eq(entries(), 0);
  case_file_free(&file);
}
END_TEST

START_TEST(through_a_link) {
  char why[CASE_MESSAGE_BYTES] = "", real[256];
  struct stat st;
  case_file file = generated(lines[3]);
  snprintf(real, sizeof real, "%s", in_directory("real"));
  ck_assert_msg(!casefile_write(real, &file, why), "%s", why);
  ck_assert_int_eq(symlink(real, in_directory("link")), 0);
  case_set_metadata(&file, "more", "1");
  ck_assert_msg(!casefile_write(in_directory("link"), &file, why), "%s", why);
  ck_assert_int_eq(lstat(in_directory("link"), &st), 0);
  ck_assert(S_ISLNK(st.st_mode));
  case_file back;
  ck_assert_msg(!casefile_read(real, &back, why), "%s", why);
  same_files(&file, &back);
  ck_assert_int_eq(entries(), 2);
  unlink(real);
  unlink(in_directory("link"));
  case_file_free(&back);
  case_file_free(&file);
}
END_TEST

int main(void) {
  if (!mkdtemp(directory)) return EXIT_FAILURE;
  Suite *suite = suite_create("casefile");
  TCase *tcase = tcase_create("casefile");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, hostile_bytes, 0, sizeof files / sizeof *files);
  tcase_add_test(tcase, raw_nul_and_truncation);
  tcase_add_test(tcase, too_many_entries);
  tcase_add_test(tcase, not_files);
  tcase_add_loop_test(tcase, round_trip, 0, sizeof lines / sizeof *lines);
  tcase_add_test(tcase, canonical_bytes);
  tcase_add_test(tcase, failed_writes);
  tcase_add_test(tcase, through_a_link);
  int result = unit_run(suite);
  rmdir(directory);
  return result;
}
