/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of shards joined into one: what must agree agrees, no shard counts twice, numbers add up.
 */
#include <string.h>

#include "casefail.h"
#include "fuzz_report.h"

/* Adds every integer of `from` to its place in `to`, objects within objects. */
static void add_counts(json_t *to, const json_t *from) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)from, key, value) {
    json_t *there = json_object_get(to, key);
    if (json_is_object(value)) {
      if (!json_is_object(there)) json_object_set_new(to, key, there = json_object());
      add_counts(there, value);
    } else if (json_is_integer(value)) {
      json_object_set_new(to, key, json_integer(json_integer_value(there) + json_integer_value(value)));
    }
  }
}

static bool has(const json_t *array, const json_t *value) {
  size_t i;
  json_t *one;
  json_array_foreach(array, i, one) if (json_equal(one, value)) return true;
  return false;
}

/* Shards in order, whatever order the reports came in. */
static void insert_shard(json_t *shards, json_t *shard) {
  size_t i = 0;
  while (i < json_array_size(shards) && json_integer_value(json_array_get(shards, i)) < json_integer_value(shard)) i++;
  json_array_insert(shards, i, shard);
}

static bool same_value(const json_t *a, const json_t *b) {
  return (json_is_null(a) && json_is_null(b)) || json_equal(a, b);
}

static int add_report(json_t *sum, const json_t *report, const char *path, const char *first, char *why) {
  static const char *const same[] = {"version", "grammar", "seed", "fix", "shards", "ops"};
  size_t i;
  json_t *one, *shards = json_object_get(sum, "shard");
  const json_int_t all = json_integer_value(json_object_get(sum, "shards"));
  for (size_t f = 0; f < sizeof same / sizeof *same; f++)
    if (!same_value(json_object_get(sum, same[f]), json_object_get(report, same[f])))
      return case_fail(why, "%.160s: %s: not that of %.160s", path, same[f], first);
  json_array_foreach(json_object_get(report, "shard"), i, one) {
    if (!json_is_integer(one) || json_integer_value(one) < 0 || json_integer_value(one) >= all)
      return case_fail(why, "%.200s: shard: not one of 0..%lld", path, (long long)all - 1);
    if (has(shards, one))
      return case_fail(why, "%.200s: shard %lld: is in another report too", path, (long long)json_integer_value(one));
    insert_shard(shards, one);
  }
  json_array_foreach(json_object_get(report, "backends"), i, one) if (!has(json_object_get(sum, "backends"), one))
      json_array_append(json_object_get(sum, "backends"), one);
  json_array_extend(json_object_get(sum, "failures"), json_object_get(report, "failures"));
  add_counts(json_object_get(sum, "counts"), json_object_get(report, "counts"));
  add_counts(json_object_get(sum, "calls"), json_object_get(report, "calls"));
  static const char *const times[][2] = {{"seconds", "cases_per_second"}, {"cpu_seconds", "cases_per_cpu_second"}};
  const json_int_t cases =
      json_integer_value(json_object_get(sum, "cases")) + json_integer_value(json_object_get(report, "cases"));
  json_object_set_new(sum, "cases", json_integer(cases));
  json_object_set_new(sum, "passed_over",
                      json_integer(json_integer_value(json_object_get(sum, "passed_over")) +
                                   json_integer_value(json_object_get(report, "passed_over"))));
  for (int t = 0; t < 2; t++) {
    const double seconds =
        json_number_value(json_object_get(sum, times[t][0])) + json_number_value(json_object_get(report, times[t][0]));
    json_object_set_new(sum, times[t][0], json_real(seconds));
    json_object_set_new(sum, times[t][1], json_real(fuzz_rate(cases, seconds)));
  }
  return 0;
}

json_t *fuzz_report_merge(json_t *const *reports, const char *const *paths, int count, char *why) {
  json_t *sum = json_deep_copy(reports[0]);
  int bad = sum ? 0 : case_fail(why, "out of memory");
  if (!bad) {
    /* Starts empty, so that the first report is judged like the others. */
    static const char *const lists[] = {"shard", "backends", "failures"}, *const objects[] = {"counts", "calls"};
    for (int i = 0; i < 3; i++) json_array_clear(json_object_get(sum, lists[i]));
    for (int i = 0; i < 2; i++) json_object_clear(json_object_get(sum, objects[i]));
    json_object_set_new(sum, "seconds", json_real(0));
    json_object_set_new(sum, "cpu_seconds", json_real(0));
    json_object_set_new(sum, "passed_over", json_integer(0));
    json_object_set_new(sum, "cases", json_integer(0));
  }
  for (int i = 0; i < count && !bad; i++) bad = add_report(sum, reports[i], paths[i], paths[0], why);
  if (!bad) return sum;
  json_decref(sum);
  return NULL;
}
