/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU path: what its files share.  Same bytes as ref_* (S3, S4), by a certified filter and an exact stage.
 *
 * Words.  A *lane* is one (row, head) of a request; a *group* is up to SIMD_LANES lanes whose queries lie side by
 * side; a *page* is one block of index keys, token after token, as the filter reads it.  The filter fills
 * score[token][lane] for one group and one page in fast arithmetic; docs/CERTIFIED-FILTER.md proves how far that
 * can be from the exact dot, and which tokens therefore need the exact stage.
 */
#ifndef M3IDX_SIMD_H
#define M3IDX_SIMD_H

#include <stdint.h>

#include "m3idx.h"
#include "simd_select.h"

enum { SIMD_LANES = 32, SIMD_TOKENS = 128, SIMD_MAX_DIM = 256, SIMD_DIM_UNIT = 16, SIMD_DIM_STEP = 32, SIMD_FEW = 4 };
enum { SIMD_STRIPS = 11 /* of 12 tokens; others are longer */, SIMD_STRIP_STEP = 16 };

/* How queries and keys reach the filter. */
typedef enum simd_form { SIMD_F32, SIMD_BF16 } simd_form;

/* Rows that will be read soon, to be brought closer meanwhile (simd_fetch() of simd_plain.h). */
typedef struct simd_next {
  const char *row;
  int64_t stride_bytes;
  int rows, bytes, at; /* rows left, of that many bytes each; where in the first of them */
  int lines;           /* cache lines to bring closer in one run of a filter */
} simd_next;

/* Keys of one block as rows in `form`; either the caller's own page or a copy. */
typedef struct simd_page {
  simd_form form;
  int few; /* bf16 keys as they are, for simd_isa.few, which finds peak and wild as well */
  const void *keys;
  int64_t stride_bytes; /* from one token to the next */
  int tokens;           /* the first `tokens` are visible to some lane */
  float peak;           /* largest |element| of the tokens that are not wild */
  double grid;          /* a power of two that divides every element of the tame tokens; 0 = not looked for */
  simd_next next;       /* of the page to come, for the filter that runs next */
  int any_wild;
  uint64_t wild[SIMD_TOKENS / 64]; /* tokens that hold an infinity or a NaN */
} simd_page;

typedef struct simd_group {
  int lanes, dim;
  int padded_dim;             /* dim rounded up as the form needs; the padding is zero */
  int64_t first_lane;         /* of lane 0, counted in its request: row * heads + head */
  int32_t keys[SIMD_LANES];   /* n: keys that the lane sees (S2.3) */
  int32_t blocks[SIMD_LANES]; /* N (S2.3) */
  int32_t min_keys, max_keys, min_blocks;
  double most_sum;         /* the largest of sum[] */
  double grid[SIMD_LANES]; /* a power of two that divides every q[d], infinite for a zero query; 0 = not looked for */
  float slope[SIMD_LANES], offset[SIMD_LANES]; /* |fast - exact| <= slope * peak + offset */
  double sum[SIMD_LANES];                      /* at least the sum of |q[d]| */
  uint32_t wild;                               /* lanes whose query holds an infinity or a NaN */
  void *q;                                     /* F32: [padded_dim][LANES]; BF16: [padded_dim / 2][LANES][2] */
  float *row;                                  /* [LANES][dim], the same queries */
} simd_group;

/* score[t][0 .. lanes - 1] for t < tokens from keys at `keys` + t * stride_bytes.  May also write lanes up to
 * SIMD_LANES and tokens up to the next multiple of 16, from whatever the memory there holds. */
typedef void simd_filter_fn(const void *q, const void *keys, int64_t stride_bytes, int tokens, int lanes,
                            int padded_dim, float *score, simd_next *next);

/* The verdict of a scan(), strip by strip of up to 32 tokens from `first` on. */
typedef struct simd_near {
  int strips, first[SIMD_STRIPS];
  float most[SIMD_STRIPS][SIMD_LANES];    /* the strip's largest dot of each lane */
  uint32_t bits[SIMD_STRIPS][SIMD_LANES]; /* bit t: that of token first + t is at least most - reach */
} simd_near;

/* Dots of an earlier page that the exact stage wants: the first `done` of dots() with SIMD_SPLIT. */
typedef struct simd_later {
  const simd_group *group;
  const simd_page *page;
  const uint16_t *list;
  const float *center;
  double *dot;
  int count, done;
} simd_later;

typedef struct simd_scan {
  float *room;     /* for the dots of 32 tokens */
  float *most;     /* the largest dot of each lane */
  simd_near *near; /* NULL = not asked */
  const float *reach;
  simd_later *later; /* a scan may do some of these beside its own; NULL = nothing */
} simd_scan;

/* The dots of a filter, of more than SIMD_LANES / 2 lanes and a multiple of SIMD_STRIP_STEP tokens, judged at once and
 * not kept. */
typedef void simd_scan_fn(const simd_group *group, simd_page *page, int tokens, const simd_scan *scan);

typedef struct simd_filter {
  simd_filter_fn *run;       /* NULL = this ISA has no filter of this form */
  int (*roundings)(int dim); /* the most roundings a product meets on its way into a dot */
  int flushes;               /* subnormal inputs and results become zero */
  simd_scan_fn *scan;        /* NULL = run, peak and pick do it */
} simd_filter;

/* How exactly dots() sums products (docs/CERTIFIED-FILTER.md, Theorems 3 and 5).  Each allows what those before do. */
typedef enum simd_sum {
  SIMD_DOUBLE, /* products and sums in double, in any order */
  SIMD_NARROW, /* products may be taken in binary32: exact but for underflow */
  SIMD_SPLIT   /* and cut at a grid, both halves summed in binary32, each in simd_isa.chains chains along d */
} simd_sum;

/* The number of the lowest set bit; mask != 0. */
static inline int simd_lowest(uint32_t mask) {
#if defined(__GNUC__)
  return __builtin_ctz(mask);
#else
  int bit = 0;
  while (!(mask >> bit & 1)) bit++;
  return bit;
#endif
}

/* One instruction set.  Every function is called between enter() and leave() on the same thread. */
typedef struct simd_isa {
  const char *name, *what;
  int (*present)(void);
  int (*slow)(void);                   /* where it is present but never chosen unless asked for; NULL = nowhere */
  void (*enter)(void), (*leave)(void); /* NULL = nothing to do */
  simd_filter f32, bf16;
  /* The dots of at most SIMD_FEW lanes, from group->row and bf16 keys, in binary32: what streams a page from memory
   * where packing, or only looking at it first, would cost more than the dots.  No more roundings than f32's, no
   * flushing.  Returns what load() would.  NULL = use a filter. */
  uint32_t (*few)(const simd_group *group, const void *keys, int64_t stride_bytes, int tokens, float *score,
                  simd_next *next);

  /* `tokens` rows of `dim` elements of `dtype`, to `to` (NULL = only look).  Strides: from row to row in bytes,
   * from element to element in elements.  Returns the largest |element| as a binary32 pattern, 0x7f800000 or
   * more iff one is not finite.  BF16 takes bf16 and the fp8 formats. */
  uint32_t (*load)(m3idx_dtype dtype, const void *from, int64_t row_bytes, int64_t stride, int tokens, int dim,
                   simd_form form, void *to, int64_t to_bytes);
  /* most[l] = the largest score[t][l], t < visible[l] (NULL = all tokens); score of a hidden token becomes -inf. */
  void (*peak)(float *score, int tokens, const int32_t *visible, float *most);
  /* Every t, l with score[t][l] >= least[l] (never where that is NaN) as t << 8 | l, by rising t; their number. */
  int (*pick)(const float *score, int tokens, const float *least, uint16_t *list);
  /* The same from a scan's verdict, with least = most - reach; of strips that reach it, all tokens near the strip's
   * largest.  one_each: every lane has one, and they are listed by lanes.  NULL = no filter scans. */
  int (*sift)(const simd_near *near, const float *least, uint16_t *list, int *one_each);
  /* dot[i] of query and key list[i].  center: of SIMD_SPLIT, a lane's.  doubles: otherwise, group->row in double, or
   * NULL. */
  int chains; /* 8 or 16; where no such sums are made, 16 */
  void (*dots)(const simd_group *group, const simd_page *page, const uint16_t *list, int count, simd_sum sum,
               const float *center, const double *doubles, double *dot);
  /* low[l] = the float nearest to best[l] - reach, reach = unit * sum[l] + tiny.  Lanes of which best[l] + reach has
   * another. */
  uint32_t (*ends)(const double *best, const double *sum, double unit, double tiny, float *low);
  /* Of each lane most -+ error, scaled, with +0 for -0.  Lanes whose upper end is not below the floor. */
  uint32_t (*bounds)(const float *most, const float *error, float scale, const float *floor, float *low, float *high);
  simd_select_fn *select; /* from an array of scores */
  simd_rank_fn *rank;
} simd_isa;

extern const simd_isa simd_scalar;
extern const simd_isa simd_avx2, simd_avx512, simd_avx512bf16, simd_amx; /* x86-64 builds */
extern const simd_isa simd_neon;                                         /* AArch64 builds */

#endif
