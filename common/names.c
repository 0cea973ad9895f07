/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of statuses, formats, contracts and architectures, from the lists in *.def.
 */
#include <stdio.h>
#include <string.h>

#include "m3idx.h"

const char *m3idx_version(void) {
#define STR_(x) #x
#define STR(x) STR_(x)
  return STR(M3IDX_VERSION_MAJOR) "." STR(M3IDX_VERSION_MINOR) "." STR(M3IDX_VERSION_PATCH);
}

const char *m3idx_status_name(m3idx_status status) {
  switch (status) {
#define M3IDX_STATUS(name, value, sentence) \
  case M3IDX_##name:                        \
    return sentence;
#include "status.def"
#undef M3IDX_STATUS
  }
  return "unknown status";
}

static const struct {
  const char *name;
  size_t bytes;
} dtypes[M3IDX_DTYPE_COUNT] = {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) [value] = {text, bytes},
#include "dtype.def"
#undef M3IDX_DTYPE
};

static int dtype_known(m3idx_dtype dtype) { return (unsigned)dtype < (unsigned)M3IDX_DTYPE_COUNT; }

const char *m3idx_dtype_name(m3idx_dtype dtype) { return dtype_known(dtype) ? dtypes[dtype].name : NULL; }

size_t m3idx_dtype_bytes(m3idx_dtype dtype) { return dtype_known(dtype) ? dtypes[dtype].bytes : 0; }

m3idx_status m3idx_dtype_by_name(const char *name, m3idx_dtype *dtype) {
  for (unsigned i = 0; name && i < M3IDX_DTYPE_COUNT; i++)
    if (!strcmp(name, dtypes[i].name)) {
      *dtype = (m3idx_dtype)i;
      return M3IDX_OK;
    }
  return M3IDX_INVALID;
}

m3idx_arch m3idx_arch_by_name(const char *name) {
  if (name && !strcmp(name, "gfx942")) return M3IDX_GFX942;
  if (name && !strcmp(name, "gfx950")) return M3IDX_GFX950;
  return M3IDX_ARCH_OTHER;
}

static const struct {
  const char *name;
  m3idx_contract contract;
} presets[] = {
#define M3IDX_CONTRACT(name, tie, nan, zero, order) {name, {M3IDX_##tie, M3IDX_##nan, M3IDX_##zero, M3IDX_##order}},
#include "contract.def"
#undef M3IDX_CONTRACT
};

/* The free spelling: field i of a contract is one of `words[i]`, whose index is the enumerator's value. */
enum { FIELDS = 4, WORDS = 4 };
static const struct {
  const char *key;
  const char *words[WORDS];
} fields[FIELDS] = {
    {"tie=", {"lower", "higher"}},
    {"nan=", {"-1e30", "-inf", "below", "bits"}},
    {"zero=", {"equal", "signed"}},
    {"order=", {"score", "id"}},
};

m3idx_status m3idx_contract_by_name(const char *name, m3idx_contract *contract) {
  if (!name) return M3IDX_INVALID;
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
    if (!strcmp(name, presets[i].name)) {
      *contract = presets[i].contract;
      return M3IDX_OK;
    }
  unsigned value[FIELDS];
  for (int f = 0; f < FIELDS; f++) {
    size_t key = strlen(fields[f].key), word = 0;
    if (strncmp(name, fields[f].key, key) != 0) return M3IDX_INVALID;
    name += key;
    word = strcspn(name, ",");
    for (value[f] = 0; value[f] < WORDS; value[f]++) {
      const char *w = fields[f].words[value[f]];
      if (w && strlen(w) == word && !memcmp(w, name, word)) break;
    }
    if (value[f] == WORDS) return M3IDX_INVALID;
    name += word;
    if (f + 1 < FIELDS && *name++ != ',') return M3IDX_INVALID;
  }
  if (*name) return M3IDX_INVALID;
  *contract = (m3idx_contract){(m3idx_tie)value[0], (m3idx_nan)value[1], (m3idx_zero)value[2], (m3idx_order)value[3]};
  return M3IDX_OK;
}

void m3idx_contract_name(const m3idx_contract *c, char *text, size_t text_bytes) {
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
    const m3idx_contract *p = &presets[i].contract;
    if (p->tie == c->tie && p->nan == c->nan && p->zero == c->zero && p->order == c->order) {
      snprintf(text, text_bytes, "%s", presets[i].name);
      return;
    }
  }
  snprintf(text, text_bytes, "%s%s,%s%s,%s%s,%s%s", fields[0].key, fields[0].words[c->tie & 1], fields[1].key,
           fields[1].words[c->nan & 3], fields[2].key, fields[2].words[c->zero & 1], fields[3].key,
           fields[3].words[c->order & 1]);
}
