/* SPDX-License-Identifier: Apache-2.0
 *
 * The one form of parallelism in the reference: a loop whose iterations write disjoint outputs.
 *
 *   REF_PARALLEL_FOR(ctx)
 *   for (int64_t i = 0; i < n; i++) ...
 *
 * runs on ctx->num_threads threads (0 = the OpenMP default), or on one in a build without OpenMP.
 */
#ifndef M3IDX_REF_PARALLEL_H
#define M3IDX_REF_PARALLEL_H

#ifdef _OPENMP
#include <omp.h>
#define REF_PRAGMA(text) _Pragma(#text)
#define REF_THREADS(ctx) ((ctx)->num_threads > 0 ? (ctx)->num_threads : omp_get_max_threads())
#define REF_PARALLEL_FOR(ctx) REF_PRAGMA(omp parallel for schedule(dynamic) num_threads(REF_THREADS(ctx)))
#else
#define REF_PARALLEL_FOR(ctx) (void)(ctx);
#endif

#endif
