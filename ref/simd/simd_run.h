/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call is cut into units and run on threads.  A unit is a tile (lanes of one request) over a range of pages.
 */
#ifndef M3IDX_SIMD_RUN_H
#define M3IDX_SIMD_RUN_H

#include "backend.h"
#include "simd_short.h"
#include "simd_tile.h"

enum {
  SIMD_TILE_GROUPS = 16, /* of at most 128 dims; half as many of 256 */
  SIMD_TILE_LANES = SIMD_TILE_GROUPS * SIMD_LANES,
  SIMD_SHORT_KEYS = 17 * 1024, /* of all lanes of a tile */
  SIMD_RANGE = 16              /* page ranges begin at its multiples: 64 bytes of score */
};

typedef struct simd_unit {
  int64_t request, first_row; /* first_row: the request's, in the batch */
  int64_t first_lane;
  int lanes;
  int part, parts;    /* this range of pages, and how many the tile has; a tile's units are neighbours */
  int64_t begin, end; /* the pages */
  int64_t pages;      /* that some lane of the tile sees */
  int64_t slot;       /* lanes of all units before this one */
} simd_unit;

/* A group and page whose scores lack their second half. */
typedef struct simd_half {
  int any, g;
  int64_t block;
  simd_page page;
  simd_found found;
  simd_exact exact;
} simd_half;

/* A thread's memory, below 1 MiB beside the packed page. */
typedef struct simd_scratch {
  simd_group group[SIMD_TILE_GROUPS];
  int groups;
  simd_work work;
  simd_short list[SIMD_TILE_LANES];
  float floor[SIMD_TILE_LANES];                /* the scores of list[].best.floor */
  void *page_copy;                             /* [TOKENS][MAX_DIM] floats */
  uint64_t *key_room;                          /* [lanes of the tile][simd_short_room(K)], twice */
  uint32_t stage[SIMD_RANGE][SIMD_TILE_LANES]; /* scores on their way out */
  simd_half half;
} simd_scratch;

/* The context's state. */
typedef struct simd_state {
  const simd_isa *isa;
  int threads;
  simd_scratch **scratch; /* [threads], each used by one thread only */
} simd_state;

typedef struct simd_plan {
  int tile;             /* lanes of a tile, at most */
  int64_t count, lanes; /* units, and lanes over all of them */
  simd_unit *unit;      /* malloc'd */
} simd_plan;

typedef void simd_unit_fn(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, void *user);

/* Threads for this call: one inside the caller's parallel region. */
int simd_threads(const m3idx_context *ctx);
/* `room`: keys that a lane needs, 0 if none.  0, or -1 = no memory. */
int simd_plan_make(simd_plan *plan, const simd_call *call, int threads, int64_t room);
/* Run every unit; 0, or -1 = no memory and nothing was run. */
int simd_run(simd_state *state, const simd_call *call, const simd_plan *plan, int threads, simd_unit_fn *run,
             void *user);
void simd_scratch_free(simd_state *state);

/* ---- inside a unit (simd_walk.c) ---- */

/* Pack the tile's queries. */
void simd_tile_pack(const simd_call *call, const simd_unit *unit, simd_scratch *scratch);
/* Only this lane of it, as group 0. */
void simd_lane_pack(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int64_t lane);
/* What is done with one page of group `group`. */
typedef void simd_step_fn(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int group,
                          simd_page *page, int64_t block, void *user);
/* Every page of the unit for every packed group first .. first + groups - 1 that sees it. */
void simd_walk(const simd_call *call, const simd_unit *unit, simd_scratch *scratch, int first, int groups,
               simd_step_fn *step, void *user);
int64_t simd_page_id(const simd_call *call, const simd_unit *unit, int64_t block);
float *simd_score_row(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit, int64_t lane);
/* After the last step of a block: write out the stage where its columns are complete. */
void simd_flush(const simd_call *call, const m3idx_score_args *args, const simd_unit *unit, const simd_scratch *scratch,
                int64_t block);

m3idx_status simd_score(m3idx_context *ctx, const m3idx_score_args *args);
m3idx_status simd_topk(m3idx_context *ctx, const m3idx_topk_args *args);

#endif
