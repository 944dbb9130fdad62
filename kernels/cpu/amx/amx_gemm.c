/* amx_gemm.c - owns float32 matrix products (GEMM) on AMX: factors split and packed, tiles
 * multiplied, sums written.
 *
 * C is made in squares of 32 x 32, four tiles; the other four hold parts of the factors. A block of
 * op(B), at most 128 deep and 1024 wide, is packed so that it stays in the second level of cache,
 * then one panel of op(A) after the other, 32 rows, that stays in the first. What ordinary vectors
 * have to do, splitting the next panel and writing the sums before, is done between tiles'
 * products, in portions that the processor can look beyond. */
#include "kernels/cpu/amx/amx_gemm.h"

#include "kernels/cpu/amx/pack.h"

enum {
    SQUARE = 32, /* rows and columns */
    BLOCK_DEPTH = 128,
    BLOCK_WIDTH = 1024,
};

/* The sums of a square, to be written while the tiles are at the next one. Small: it is filled in
 * while tiles are stored, and the processor should look far beyond. */
struct amx_gemm_job {
    const float *sums; /* NULL: there is none */
    float *c;
    const float *bias; /* NULL: none */
    size_t stride;
    uint32_t rows;
    uint32_t columns; /* a bit each */
    float alpha, floor;
    bool adds;
};

#define WRITE_INLINE static inline __attribute__((always_inline))

/* What the instruction LDTILECFG reads. */
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

/* What all rows of a square have in common. */
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
    value = _mm512_max_ps(columns->floor, _mm512_add_ps(value, bias)); /* this way a NaN stays */
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

/* Of both halves of a panel: the tiles of one part. */
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

/* The sums of one square over @p steps, smaller products before larger ones. While the tiles
 * are busy, the sums of the square before are written, and pieces of the next panel made. */
static __attribute__((noinline)) void multiply(size_t steps, const char *a, const char *b,
                                               float *sums, const struct amx_gemm_job *before,
                                               struct pieces *next)
{
    size_t share = before->sums != NULL ? (before->rows + steps - 1) / steps : 0;
    size_t done = 0;

    __asm__ volatile("" ::: "memory"); /* gcc does not know that tiles are loaded from memory */
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

/* A block of op(A) op(B): from column j0 of C and depth k0 on. */
struct amx_gemm_block {
    const struct cddpi_nn_matmul *matmul;
    const struct factor *a;
    size_t j0, k0, end; /* of the depth */
    size_t width, steps;
};

/* What becomes of the sums of the square in row i and column j of C. Fields are set one by one: a
 * copy of the whole, read before it is in the cache, would wait for the tiles' stores before it. */
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

/* How what is whole of the panel from row @p i of op(A) on can be made in pieces. */
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

/* What is left of that panel. */
static void finish_panel(const struct amx_gemm_block *block, size_t i, struct pieces *pieces)
{
    while (pieces->tile < pieces->tiles) {
        pack_piece(pieces);
    }
    pack_panel(block->a, i, block->k0 + pieces->tiles / 2 * STEP, block->end, pieces->turned,
               pieces->to);
}

/* All squares of a panel. */
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

/* Panel by panel of op(A) with a block of op(B), which is in @p memory. */
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

    configure(); /* other users of tiles leave them as they like, and so do we */
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
