/* SPDX-License-Identifier: Apache-2.0
 *
 * m3idx: the MiniMax-M3 sparse-attention indexer, exact.  This is the one public header.
 *
 * What every number means is written in docs/SEMANTICS.md; "S3.2" below cites its clause 3.2.
 * Symbols: R requests, T query rows, H index heads, D head dim, P pages, B block size in tokens,
 * M = max_block (capacity of a launch in blocks), N = blocks a row sees, K = top-k.
 *
 * Conventions
 *   - Descriptors are plain structs passed by const pointer.  A zeroed field takes its default.
 *   - Dimensions and strides are int64_t; strides count elements, not bytes.
 *   - The caller owns every buffer.  Nothing is kept after a call returns.
 *   - Every call validates all its arguments before it writes.  A status other than M3IDX_OK means
 *     that no output byte changed (S7), except M3IDX_DEVICE, after which outputs are undefined;
 *     m3idx_message() then holds a sentence that names the argument, its value and the bound.
 *   - No global state.  A context is used by one thread at a time; contexts are independent.
 */
#ifndef M3IDX_H
#define M3IDX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define M3IDX_VERSION_MAJOR 0
#define M3IDX_VERSION_MINOR 1
#define M3IDX_VERSION_PATCH 0

#if defined(M3IDX_STATIC) || !defined(__GNUC__)
#define M3IDX_API
#else
#define M3IDX_API __attribute__((visibility("default")))
#endif

/* ---- lists ------------------------------------------------------------------------------------- */

typedef enum m3idx_status {
#define M3IDX_STATUS(name, value, sentence) M3IDX_##name = (value),
#include "status.def"
#undef M3IDX_STATUS
} m3idx_status;

typedef enum m3idx_dtype {
#define M3IDX_DTYPE(name, value, text, bytes, ebits, fbits, bias, specials) M3IDX_##name = (value),
#include "dtype.def"
#undef M3IDX_DTYPE
  M3IDX_DTYPE_COUNT
} m3idx_dtype;

typedef enum m3idx_op {
#define M3IDX_OP(name, what) M3IDX_OP_##name,
#include "ops.def"
#undef M3IDX_OP
  M3IDX_OP_COUNT
} m3idx_op;

/** Where the buffers of a context's calls live. */
typedef enum m3idx_memory { M3IDX_HOST = 0, M3IDX_DEVICE_MEMORY = 1 } m3idx_memory;

/* ---- selection contract (S4) ------------------------------------------------------------------- */

typedef enum m3idx_tie { M3IDX_TIE_LOWER_ID, M3IDX_TIE_HIGHER_ID } m3idx_tie;
typedef enum m3idx_nan {
  M3IDX_NAN_AS_MINUS_1E30,
  M3IDX_NAN_AS_MINUS_INF,
  M3IDX_NAN_BELOW_MINUS_INF,
  M3IDX_NAN_BY_BITS
} m3idx_nan;
typedef enum m3idx_zero { M3IDX_ZERO_EQUAL, M3IDX_ZERO_SIGNED } m3idx_zero;
typedef enum m3idx_order { M3IDX_ORDER_SCORE, M3IDX_ORDER_ID } m3idx_order;

/** How a selector orders candidates: four independent choices.  Zeroed = contract "vllm". */
typedef struct m3idx_contract {
  m3idx_tie tie;     /**< which id wins among equal scores */
  m3idx_nan nan;     /**< where a NaN score ranks */
  m3idx_zero zero;   /**< whether +0 ranks above -0 */
  m3idx_order order; /**< the order of the K ids in the output */
} m3idx_contract;

/* ---- descriptors ------------------------------------------------------------------------------- */

/** A numeric tensor of rank 3 (rank 2 and below: leading dimensions of 1).  Input strides may be any
 *  value >= 0 (0 repeats); all three strides 0 = dense row-major.  data may be NULL if a dimension is 0. */
typedef struct m3idx_tensor {
  void *data; /**< aligned to the element size; inputs are not written */
  m3idx_dtype dtype;
  int64_t shape[3];
  int64_t stride[3]; /**< elements */
} m3idx_tensor;

typedef enum m3idx_mode { M3IDX_PREFILL, M3IDX_DECODE } m3idx_mode;

/** The rows of a launch and what each may see (S2).  Row i of request r stands at position
 *  prefix_lens[r] + i (prefill) or seq_lens[r] - decode_query_len + i (decode). */
typedef struct m3idx_batch {
  m3idx_mode mode;
  int64_t num_requests;       /**< R >= 0 */
  int64_t num_rows;           /**< T: prefill cu_seqlens[R], decode R * decode_query_len */
  int64_t max_block;          /**< M >= 0, capacity in blocks; a live N above it is an error */
  int64_t block_size;         /**< B: 16, 32, 64 or 128; 0 = 128 */
  int64_t decode_query_len;   /**< decode: rows a request, >= 1; prefill: 0 */
  const int32_t *seq_lens;    /**< [R] keys of a request, this step's included; 0 = padded request */
  const int32_t *cu_seqlens;  /**< prefill [R+1] first row of each request; decode NULL */
  const int32_t *prefix_lens; /**< prefill [R] keys before the chunk's first query; decode NULL */
} m3idx_batch;

/** Score every visible block of every row (S3). */
typedef struct m3idx_score_args {
  const m3idx_batch *batch;
  m3idx_tensor q;             /**< [T][H][D]; D a multiple of 16 in 16..256 */
  m3idx_tensor index_k;       /**< [P][B][D], one key head shared by all index heads */
  const int32_t *block_table; /**< [R][>= M] logical block -> page; only live entries are read */
  int64_t block_table_stride; /**< between requests; 0 = M */
  float scale;                /**< finite, > 0; 0 = 1 */
  int64_t init_blocks;        /**< decode only: blocks < init_blocks score 1e30f */
  int64_t local_blocks;       /**< decode only: blocks >= N - local_blocks score 1e29f, over init */
  float *score;               /**< out [H][T][M]; columns N..M-1 become -inf; never -0, NaN only 0x7fc00000 */
  int64_t score_stride_head;  /**< 0 = T * score_stride_row */
  int64_t score_stride_row;   /**< >= M; 0 = M */
} m3idx_score_args;

/** Select the K best of any float array (S4).  Rows get N from `batch` or from `num_blocks`, exactly
 *  one of them non-NULL.  Writes ids, or the sortable keys of a part, or both. */
typedef struct m3idx_select_args {
  const m3idx_batch *batch;
  const int32_t *num_blocks; /**< [T], N of each row, >= 0 */
  int64_t num_heads;         /**< H >= 1 */
  int64_t num_rows;          /**< T; must equal batch->num_rows */
  int64_t max_block;         /**< columns of score; with batch and topk_idx must equal batch->max_block */
  const float *score;        /**< [H][T][max_block]; columns at or past N are never read */
  int64_t score_stride_head; /**< 0 = T * score_stride_row */
  int64_t score_stride_row;  /**< >= max_block; 0 = max_block */
  int64_t init_blocks;       /**< ids < init_blocks count as 1e30f */
  int64_t local_blocks;      /**< ids >= N - local_blocks count as 1e29f, over init */
  int64_t topk;              /**< K: 1..128 */
  m3idx_contract contract;
  int64_t first_block;      /**< id of column 0: this call sees ids first_block .. first_block + max_block - 1.
                                 Non-zero needs topk_idx NULL.  With topk_idx, N <= max_block. */
  int32_t *topk_idx;        /**< out [H][T][K], or NULL; unused slots -1 */
  int64_t topk_stride_head; /**< 0 = T * topk_stride_row */
  int64_t topk_stride_row;  /**< >= K; 0 = K */
  uint64_t *keys;           /**< out [H][T][K] dense, descending, or NULL; unused slots 0 (S4.4) */
} m3idx_select_args;

/** Merge partial selections: the K largest keys over all parts (S4.5).  Parts must hold disjoint ids. */
typedef struct m3idx_merge_args {
  int64_t num_parts; /**< >= 1 */
  int64_t num_heads, num_rows;
  int64_t topk; /**< K: 1..128, also the keys a part holds for each row */
  m3idx_contract contract;
  const uint64_t *keys;                      /**< [num_parts][H][T][K], each row in any order, 0 = empty */
  int64_t keys_stride_part;                  /**< 0 = H * T * K */
  int32_t *topk_idx;                         /**< out [H][T][K] or NULL */
  int64_t topk_stride_head, topk_stride_row; /**< as in m3idx_select_args */
  uint64_t *merged_keys;                     /**< out [H][T][K] dense, descending, or NULL */
} m3idx_merge_args;

/** Page-16 sparse table and context lengths (S5); B must be 128. */
typedef struct m3idx_sparse_out {
  const int32_t *block_table; /**< [R][>= M], of attention pages */
  int64_t block_table_stride; /**< 0 = M */
  int64_t page_stride;        /**< attention pages a block id spans: 8 or 16; 0 = 8 */
  int32_t *table;             /**< out [T*H][8K], row = t*H + h */
  int64_t table_stride;       /**< >= 8K; 0 = 8K */
  int32_t *context_lens;      /**< out [T*H] */
} m3idx_sparse_out;

/** Queries and keys straight to selected blocks (S3, S4, S5); scores are never stored.
 *  Forced blocks apply in both modes. */
typedef struct m3idx_topk_args {
  const m3idx_batch *batch;
  m3idx_tensor q, index_k;    /**< as in m3idx_score_args */
  const int32_t *block_table; /**< as in m3idx_score_args */
  int64_t block_table_stride;
  float scale;
  int64_t init_blocks, local_blocks;
  int64_t topk;
  m3idx_contract contract;
  int32_t *topk_idx; /**< out [H][T][K] */
  int64_t topk_stride_head, topk_stride_row;
  const m3idx_sparse_out *sparse; /**< also write the sparse table, or NULL */
} m3idx_topk_args;

typedef struct m3idx_sparse_table_args {
  const m3idx_batch *batch;
  int64_t num_heads;       /**< H; H > 1 writes the head-minor table */
  int64_t topk;            /**< K: 1..128 */
  const int32_t *topk_idx; /**< [H][T][K]; invalid ids are skipped, a repeated tail counts once (S5.2) */
  int64_t topk_stride_head, topk_stride_row;
  m3idx_sparse_out sparse;
} m3idx_sparse_table_args;

/** cache[slot / B][slot % B] = key (S6).  Key and cache dtypes equal: bits are copied; f32, f16 or
 *  bf16 keys into an fp8 cache: nearest even, saturating, infinities too; NaN becomes 0x7f, in fnuz 0x80
 *  (S6.2).  Other pairs are M3IDX_UNSUPPORTED. */
typedef struct m3idx_cache_insert_args {
  m3idx_tensor key;            /**< [1][n][D] */
  const int64_t *slot_mapping; /**< [n]; < 0 writes nothing; no two rows may name one slot */
  m3idx_tensor cache;          /**< out [P][B][D]; last stride 1 */
} m3idx_cache_insert_args;

/* ---- context ----------------------------------------------------------------------------------- */

typedef struct m3idx_context m3idx_context;

typedef struct m3idx_options {
  const char *backend; /**< "ref", "cpu", "hip" or "auto"; NULL = "auto": hip where a device works, else cpu */
  int num_threads;     /**< CPU threads of a call; 0 = the OpenMP default */
  int device;          /**< hip: device ordinal */
} m3idx_options;

/** Open a context.  On failure *ctx is NULL and `why` (may be NULL) holds the reason. */
M3IDX_API m3idx_status m3idx_open(m3idx_context **ctx, const m3idx_options *options, char *why, size_t why_bytes);
M3IDX_API void m3idx_close(m3idx_context *ctx);

/** The sentence of the last status that was not M3IDX_OK; "" at first.  Owned by ctx, valid until its next call. */
M3IDX_API const char *m3idx_message(const m3idx_context *ctx);
/** Name of the backend in use, and why it was taken.  Owned by ctx. */
M3IDX_API const char *m3idx_backend_name(const m3idx_context *ctx);
M3IDX_API const char *m3idx_backend_reason(const m3idx_context *ctx);
/** Devices, architectures, instruction sets, or the exact reason why not.  Owned by ctx. */
M3IDX_API const char *m3idx_backend_details(const m3idx_context *ctx);
/** Name of backend i of this build, NULL past the end; listed even where it cannot work. */
M3IDX_API const char *m3idx_backend_list(int i);

/** Device contexts: stream (hipStream_t) of later calls and where their buffers live.  In device memory
 *  calls are asynchronous, allocate nothing, need a workspace, and validate shapes but not contents. */
M3IDX_API m3idx_status m3idx_set_stream(m3idx_context *ctx, void *stream, m3idx_memory memory);
/** Bytes of workspace that op needs with these args (an m3idx_<op>_args). */
M3IDX_API m3idx_status m3idx_plan(m3idx_context *ctx, m3idx_op op, const void *args, size_t *workspace_bytes);
/** Lend a workspace, aligned to 8 bytes, to later calls.  It must be zeroed once, before the first launch, and not
 *  be shared by launches that overlap; every launch leaves its completion counters zero. */
M3IDX_API m3idx_status m3idx_set_workspace(m3idx_context *ctx, void *workspace, size_t workspace_bytes);

/* ---- operations -------------------------------------------------------------------------------- */

M3IDX_API m3idx_status m3idx_score(m3idx_context *ctx, const m3idx_score_args *args);
M3IDX_API m3idx_status m3idx_select(m3idx_context *ctx, const m3idx_select_args *args);
M3IDX_API m3idx_status m3idx_merge(m3idx_context *ctx, const m3idx_merge_args *args);
M3IDX_API m3idx_status m3idx_topk(m3idx_context *ctx, const m3idx_topk_args *args);
M3IDX_API m3idx_status m3idx_sparse_table(m3idx_context *ctx, const m3idx_sparse_table_args *args);
M3IDX_API m3idx_status m3idx_cache_insert(m3idx_context *ctx, const m3idx_cache_insert_args *args);

/* ---- names --------------------------------------------------------------------------------------- */

/** The general sentence of a status; never NULL. */
M3IDX_API const char *m3idx_status_name(m3idx_status status);
M3IDX_API const char *m3idx_dtype_name(m3idx_dtype dtype); /**< NULL if unknown */
M3IDX_API m3idx_status m3idx_dtype_by_name(const char *name, m3idx_dtype *dtype);
M3IDX_API size_t m3idx_dtype_bytes(m3idx_dtype dtype); /**< 0 if unknown */
/** "vllm", "aiter", "atom", "sglang", "flashinfer", or four free fields:
 *  "tie=lower|higher,nan=-1e30|-inf|below|bits,zero=equal|signed,order=score|id". */
M3IDX_API m3idx_status m3idx_contract_by_name(const char *name, m3idx_contract *contract);
/** The preset's name, else the four-field spelling, into text (>= 64 bytes). */
M3IDX_API void m3idx_contract_name(const m3idx_contract *contract, char *text, size_t text_bytes);

/* ---- launch policies: pure integers, from shape constants and capacity (docs/SEMANTICS.md S8) ---- */

typedef enum m3idx_arch { M3IDX_ARCH_OTHER, M3IDX_GFX942, M3IDX_GFX950 } m3idx_arch;
/** "gfx942", "gfx950"; anything else is M3IDX_ARCH_OTHER. */
M3IDX_API m3idx_arch m3idx_arch_by_name(const char *name);

typedef struct m3idx_decode_topk_geometry {
  int64_t chunks, block, warps, stages;
  int single_tile, adaptive_merge;
} m3idx_decode_topk_geometry;
M3IDX_API m3idx_status m3idx_decode_topk_policy(int64_t max_block, int64_t rows, int64_t heads, int64_t topk,
                                                m3idx_arch arch, m3idx_decode_topk_geometry *out);

/** Programs of the balanced decode map, 0 = no budget (use the split). */
M3IDX_API m3idx_status m3idx_decode_score_budget(int64_t reqs, int64_t head_dim, m3idx_dtype q, m3idx_dtype k,
                                                 m3idx_arch arch, int64_t *budget);

typedef struct m3idx_decode_score_geometry {
  int64_t chunks;
  int high_batch;
} m3idx_decode_score_geometry;
M3IDX_API m3idx_status m3idx_decode_score_split(int64_t reqs, int64_t head_dim, m3idx_dtype q, m3idx_dtype k,
                                                m3idx_arch arch, m3idx_decode_score_geometry *out);

typedef struct m3idx_prefill_score_geometry {
  int64_t block_q, splits;
} m3idx_prefill_score_geometry;
M3IDX_API m3idx_status m3idx_prefill_score_policy(int64_t max_query_len, int64_t max_seq_len, int64_t reqs,
                                                  int64_t heads, int64_t compute_units, m3idx_arch arch,
                                                  m3idx_prefill_score_geometry *out);

/** Library version, "major.minor.patch". */
M3IDX_API const char *m3idx_version(void);

#ifdef __cplusplus
}
#endif
#endif
