/* amx_gemm.c - owns float32 matrix products (GEMM) on AMX: splits and packs factors, multiplies
 * tiles, writes sums.
 *
 * C is computed in squares of 32 x 32, i.e. four tiles; the other four tiles hold parts of the
 * factors. A block of op(B), at most 128 deep and 1024 wide, is packed so that it stays in the L2
 * cache. Then one panel of op(A) after the other, 32 rows each, is packed and stays in the L1
 * cache. Ordinary vector instructions must split the next panel and write the previous sums. They
 * run between the tiles' products, in portions small enough for the CPU's out-of-order window. */
#include "kernels/cpu/amx/amx_gemm.h"

#include "kernels/cpu/amx/pack.h"

enum {
    SQUARE = 32, /* rows and columns */
    BLOCK_DEPTH = 128,
    BLOCK_WIDTH = 1024,
};

/* The sums of a square, which are written while the tiles compute the next one. The struct is
 * small: it is filled in while tiles are stored, and the CPU should look far ahead. */
struct amx_gemm_job {
    const float *sums; /* NULL: no square is waiting */
    float *c;
    const float *bias; /* NULL: no bias */
    size_t stride;
    uint32_t rows;
    uint32_t columns; /* a mask with one bit for each */
    float alpha, floor;
    bool adds;
};

#define WRITE_INLINE static inline __attribute__((always_inline))

/* The operand of the instruction LDTILECFG. */
struct configuration {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct amx_gemm_memory {
    char *block, *panels[2];
    float *sums[2], *edge;
};

static size_t whole(size_t count, size_t unit)
{
    return (count + unit - 1) / unit * unit;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t block_bytes(size_t n, size_t k)
{
    return whole(least(n, BLOCK_WIDTH), SQUARE) * whole(least(k, BLOCK_DEPTH), STEP) * PARTS * 2;
}

enum {
    ALIGNMENT = 64,
    PANEL_BYTES = SQUARE * BLOCK_DEPTH * PARTS * 2,
    SUMS_BYTES = SQUARE * SQUARE * sizeof(float),
    EDGE_BYTES = TILE_ROWS * STEP * sizeof(float),
};

size_t cddpi_amx_gemm_scratch(size_t n, size_t k)
{
    return ALIGNMENT + block_bytes(n, k) + 2 * PANEL_BYTES + 2 * SUMS_BYTES + EDGE_BYTES;
}

static struct amx_gemm_memory divide(const struct cddpi_nn_matmul *matmul, char *scratch)
{
    char *block = scratch + (ALIGNMENT - (uintptr_t)scratch % ALIGNMENT) % ALIGNMENT;
    char *panels = block + block_bytes(matmul->n, matmul->k);
    char *sums = panels + 2 * PANEL_BYTES;

    return (struct amx_gemm_memory){block,
                                    {panels, panels + PANEL_BYTES},
                                    {(float *)sums, (float *)(sums + SUMS_BYTES)},
                                    (float *)(sums + 2 * SUMS_BYTES)};
}

static void configure(void)
{
    static const struct configuration all = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };

    _tile_loadconfig(&all);
}

/* What all rows of a square share. */
struct columns {
    __m512 bias_left, bias_right, alpha, floor;
    bool adds;
};

WRITE_INLINE void write_half(float *c, const float *sums, __mmask16 there, __m512 bias,
                             const struct columns *columns)
{
    __m512 value = _mm512_mul_ps(_mm512_load_ps(sums), columns->alpha);

    if (columns->adds) {
        value = _mm512_add_ps(_mm512_maskz_loadu_ps(there, c), value);
    }
    /* with this order of operands, a NaN stays a NaN */
    value = _mm512_max_ps(columns->floor, _mm512_add_ps(value, bias));
    _mm512_mask_storeu_ps(c, there, value);
}

WRITE_INLINE void write_columns(const struct amx_gemm_job *job, size_t begin, size_t end,
                                __mmask16 left, __mmask16 right, bool adds)
{
    const struct columns columns = {
        .bias_left = job->bias != NULL ? _mm512_maskz_loadu_ps(left, job->bias)
                                       : _mm512_setzero_ps(),
        .bias_right = job->bias != NULL ? _mm512_maskz_loadu_ps(right, job->bias + 16)
                                        : _mm512_setzero_ps(),
        .alpha = _mm512_set1_ps(job->alpha),
        .floor = _mm512_set1_ps(job->floor),
        .adds = adds,
    };
    const float *sums = job->sums + begin * SQUARE;
    float *c = job->c + begin * job->stride;

    for (size_t r = begin; r < end; r++, c += job->stride, sums += SQUARE) {
        write_half(c, sums, left, columns.bias_left, &columns);
        if (right != 0) {
            write_half(c + 16, sums + 16, right, columns.bias_right, &columns);
        }
    }
}

WRITE_INLINE void write_rows(const struct amx_gemm_job *job, size_t begin, size_t end)
{
    if (job->columns != UINT32_MAX) {
        write_columns(job, begin, end, (__mmask16)job->columns, (__mmask16)(job->columns >> 16),
                      job->adds);
    } else if (job->adds) {
        write_columns(job, begin, end, 0xffff, 0xffff, true);
    } else {
        write_columns(job, begin, end, 0xffff, 0xffff, false);
    }
}

/* Load the tiles of one part, for both halves of a panel. */
#define LOAD_A(part)                                                                               \
    do {                                                                                           \
        _tile_loadd(4, a + (part)*TILE_BYTES, 64);                                                 \
        _tile_loadd(5, a + (PARTS + (part)) * TILE_BYTES, 64);                                     \
    } while (0)
#define LOAD_B(part)                                                                               \
    do {                                                                                           \
        _tile_loadd(6, b + (part)*TILE_BYTES, 64);                                                 \
        _tile_loadd(7, b + (PARTS + (part)) * TILE_BYTES, 64);                                     \
    } while (0)
#define MULTIPLY                                                                                   \
    do {                                                                                           \
        _tile_dpbf16ps(0, 4, 6);                                                                   \
        _tile_dpbf16ps(1, 4, 7);                                                                   \
        _tile_dpbf16ps(2, 5, 6);                                                                   \
        _tile_dpbf16ps(3, 5, 7);                                                                   \
    } while (0)

/* Compute the sums of one square over @p steps, smaller products before larger ones. While the
 * tiles are busy, write the sums of the previous square, and pack pieces of the next panel. */
static __attribute__((noinline)) void multiply(size_t steps, const char *a, const char *b,
                                               float *sums, const struct amx_gemm_job *before,
                                               struct pieces *next)
{
    size_t share = before->sums != NULL ? (before->rows + steps - 1) / steps : 0;
    size_t done = 0;

    __asm__ volatile("" ::: "memory"); /* gcc does not know that tile loads read memory */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t s = 0; s < steps; s++) {
        size_t end = least(done + share, before->rows);

        LOAD_A(2);
        LOAD_B(0);
        MULTIPLY;
        LOAD_A(1);
        MULTIPLY;
        LOAD_B(1);
        MULTIPLY;
        write_rows(before, done, end);
        done = end;
        LOAD_A(0);
        MULTIPLY;
        LOAD_B(2);
        MULTIPLY;
        pack_piece(next);
        LOAD_B(0);
        MULTIPLY;
        a += 2 * PARTS * TILE_BYTES;
        b += 2 * PARTS * TILE_BYTES;
    }
    _tile_stored(0, sums, SQUARE * sizeof *sums);
    _tile_stored(1, sums + 16, SQUARE * sizeof *sums);
    _tile_stored(2, sums + 16 * SQUARE, SQUARE * sizeof *sums);
    _tile_stored(3, sums + 16 * SQUARE + 16, SQUARE * sizeof *sums);
}

/* A block of op(A) op(B): its first column of C is j0, its first depth k0. */
struct amx_gemm_block {
    const struct cddpi_nn_matmul *matmul;
    const struct factor *a;
    size_t j0, k0, end; /* end of the depth */
    size_t width, steps;
};

/* Set what to do with the sums of the square at row i and column j of C. Fields are set one by one.
 * Copying a whole struct would load it before it is in the cache, and wait for the earlier tile
 * stores. */
static void set_job(struct amx_gemm_job *job, const struct amx_gemm_block *block, size_t i,
                    size_t j, const float *sums)
{
    const struct cddpi_nn_matmul *matmul = block->matmul;
    size_t left = matmul->n - j;
    bool last = block->end == matmul->k;

    job->sums = sums;
    job->c = matmul->c + i * matmul->ldc + j;
    job->bias = last && matmul->bias != NULL ? matmul->bias + j : NULL;
    job->stride = matmul->ldc;
    job->rows = (uint32_t)least(matmul->m - i, SQUARE);
    job->columns = left < SQUARE ? (1u << left) - 1 : UINT32_MAX;
    job->alpha = matmul->alpha;
    job->floor = last && matmul->relu ? 0 : -INFINITY;
    job->adds = matmul->adds || block->k0 > 0;
}

/* How the complete part of the panel at row @p i of op(A) can be packed in pieces. */
static struct pieces pieces_of(const struct amx_gemm_block *block, size_t i, char *panel,
                               float *turned)
{
    const struct factor *a = block->a;
    bool whole = i + SQUARE <= a->length;

    return (struct pieces){
        .from = a->data + (whole ? factor_offset(a, i, block->k0) : 0),
        .stride = a->stride,
        .deep = a->deep,
        .tiles = whole ? (uint32_t)(2 * ((block->end - block->k0) / STEP)) : 0,
        .to = panel,
        .turned = turned,
    };
}

/* Pack the rest of that panel. */
static void finish_panel(const struct amx_gemm_block *block, size_t i, struct pieces *pieces)
{
    while (pieces->tile < pieces->tiles) {
        pack_piece(pieces);
    }
    pack_panel(block->a, i, block->k0 + pieces->tiles / 2 * STEP, block->end, pieces->turned,
               pieces->to);
}

/* Compute all squares of a panel. */
static void run_panel(const struct amx_gemm_block *block, size_t i,
                      const struct amx_gemm_memory *memory, const char *panel, struct pieces *next,
                      struct amx_gemm_job *before)
{
    const char *columns = memory->block;

    for (size_t j = block->j0; j < block->j0 + block->width; j += SQUARE) {
        float *sums = before->sums == memory->sums[0] ? memory->sums[1] : memory->sums[0];

        multiply(block->steps, panel, columns, sums, before, next);
        set_job(before, block, i, j, sums);
        columns += block->steps * 2 * PARTS * TILE_BYTES;
    }
}

/* Multiply each panel of op(A) with a block of op(B), which is packed in @p memory. */
static void run_block(const struct amx_gemm_block *block, const struct amx_gemm_memory *memory,
                      struct amx_gemm_job *before)
{
    const struct factor *a = block->a;

    pack_panel(a, 0, block->k0, block->end, memory->edge, memory->panels[0]);
    for (size_t i = 0; i < a->length; i += SQUARE) {
        char *other = memory->panels[i / SQUARE % 2 == 0];
        struct pieces next = pieces_of(block, i + SQUARE, other, memory->edge);

        run_panel(block, i, memory, memory->panels[i / SQUARE % 2], &next, before);
        if (i + SQUARE < a->length) {
            finish_panel(block, i + SQUARE, &next);
        }
    }
}

static void pack_block(const struct amx_gemm_block *block, const struct factor *b,
                       const struct amx_gemm_memory *memory)
{
    char *panel = memory->block;

    for (size_t j = 0; j < block->width; j += SQUARE) {
        pack_panel(b, block->j0 + j, block->k0, block->end, memory->edge, panel);
        panel += block->steps * 2 * PARTS * TILE_BYTES;
    }
}

void cddpi_amx_gemm(const struct cddpi_nn_matmul *matmul, void *scratch)
{
    const struct factor a = {matmul->a, matmul->lda,          matmul->m,
                             matmul->k, !matmul->transpose_a, false};
    const struct factor b = {matmul->b, matmul->ldb,         matmul->n,
                             matmul->k, matmul->transpose_b, true};
    const struct amx_gemm_memory memory = divide(matmul, scratch);
    struct amx_gemm_job last = {0};

    configure(); /* other users of tiles leave any configuration behind, and so do we */
    for (size_t j0 = 0; j0 < matmul->n; j0 += BLOCK_WIDTH) {
        for (size_t k0 = 0; k0 < matmul->k; k0 += BLOCK_DEPTH) {
            size_t depth = least(matmul->k - k0, BLOCK_DEPTH);
            const struct amx_gemm_block block = {.matmul = matmul,
                                                 .a = &a,
                                                 .j0 = j0,
                                                 .k0 = k0,
                                                 .end = k0 + depth,
                                                 .width = least(matmul->n - j0, BLOCK_WIDTH),
                                                 .steps = (depth + STEP - 1) / STEP};

            pack_block(&block, &b, &memory);
            run_block(&block, &memory, &last);
        }
    }
    write_rows(&last, 0, last.rows);
    _tile_release();
}
