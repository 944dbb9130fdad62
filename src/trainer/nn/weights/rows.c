/* rows.c - owns the list of a GPT-2's tensors and their places in a file, and converts their
 * elements between layouts and types, a few rows at a time. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "kernels/cpu/reduce.h"
#include "nn/weights/weights_file.h"

#include <stdio.h>
#include <string.h>

enum {
    STAGE = 1024, /* elements converted at a time */
    TILE = 16,
    STRIP = 256, /* columns and rows that are transposed at a time: f32s of a cache line */
    PANEL_ELEMENTS = 1 << 18 /* rows that are collected before they are written */
};

const char *const cddpi_gpt2_dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};

/* A block's tensors; sizes in units of embed. */
static const struct {
    const char *name;
    int dims, rows, columns;
} block_rows[CDDPI_GPT2_ROWS] = {
    {"ln_1.weight", 1, 0, 1},      {"ln_1.bias", 1, 0, 1},          {"attn.c_attn.weight", 2, 3, 1},
    {"attn.c_attn.bias", 1, 0, 3}, {"attn.c_proj.weight", 2, 1, 1}, {"attn.c_proj.bias", 1, 0, 1},
    {"ln_2.weight", 1, 0, 1},      {"ln_2.bias", 1, 0, 1},          {"mlp.c_fc.weight", 2, 4, 1},
    {"mlp.c_fc.bias", 1, 0, 4},    {"mlp.c_proj.weight", 2, 1, 4},  {"mlp.c_proj.bias", 1, 0, 1},
};

size_t cddpi_gpt2_tensor_count(const struct cddpi_gpt2_shape *shape)
{
    return CDDPI_GPT2_HEAD + CDDPI_GPT2_ROWS * (size_t)shape->blocks + CDDPI_GPT2_TAIL;
}

void cddpi_gpt2_tensor_at(const struct cddpi_gpt2_shape *shape, size_t index,
                          struct cddpi_gpt2_tensor *out)
{
    size_t block = (index - CDDPI_GPT2_HEAD) / CDDPI_GPT2_ROWS;
    size_t row = (index - CDDPI_GPT2_HEAD) % CDDPI_GPT2_ROWS;

    memset(out, 0, sizeof *out);
    if (index < CDDPI_GPT2_HEAD) {
        snprintf(out->name, sizeof out->name, "%s", index == 0 ? "wte.weight" : "wpe.weight");
        out->dims = 2;
        out->rows = index == 0 ? shape->vocab : shape->context;
        out->columns = shape->embed;
    } else if (block >= (size_t)shape->blocks) {
        snprintf(out->name, sizeof out->name, "%s", row == 0 ? "ln_f.weight" : "ln_f.bias");
        out->dims = 1;
        out->rows = 1;
        out->columns = shape->embed;
    } else {
        snprintf(out->name, sizeof out->name, "h.%zu.%s", block, block_rows[row].name);
        out->dims = block_rows[row].dims;
        out->linear = out->dims == 2;
        out->rows = out->linear ? block_rows[row].rows * shape->embed : 1;
        out->columns = block_rows[row].columns * shape->embed;
    }
}

size_t cddpi_gpt2_llmc_index(const struct cddpi_gpt2_shape *shape, size_t place)
{
    size_t blocks = (size_t)shape->blocks;
    size_t inside = place - CDDPI_GPT2_HEAD;

    if (place < CDDPI_GPT2_HEAD || inside >= CDDPI_GPT2_ROWS * blocks) {
        return place;
    }
    return CDDPI_GPT2_HEAD + inside % blocks * CDDPI_GPT2_ROWS + inside / blocks;
}

cddp_status cddpi_weights_make_views(struct cddpi_weights *weights, const char *path)
{
    weights->count = cddpi_gpt2_tensor_count(&weights->shape);
    weights->views = cddpi_zalloc_array(weights->count, sizeof *weights->views);
    CDDPI_TRY_MEMORY(weights->views != NULL, "%s: no memory for %zu tensors", path, weights->count);
    return CDDP_OK;
}

cddp_status cddpi_weights_checked(const struct cddpi_weights *weights, cddp_status status)
{
    cddp_status whole = weights->files.count > 0 ? cddpi_weights_files_look(&weights->files)
                                                 : cddpi_mapped_file_look(weights->mapped);

    return whole == CDDP_OK ? status : whole;
}

/* Load @p count elements from element @p at on. 16-bit elements are copied first, because they may
 * be at odd addresses. */
static void load(const struct cddpi_weights_view *view, size_t at, size_t count, float *out)
{
    size_t bytes = cddp_type_bytes(view->type);
    uint16_t stage[STAGE];

    if (view->type == CDDP_F32) {
        memcpy(out, view->data + at * bytes, count * bytes);
        return;
    }
    for (size_t done = 0; done < count; done += STAGE) {
        size_t n = count - done < STAGE ? count - done : STAGE;

        memcpy(stage, view->data + (at + done) * bytes, n * bytes);
        cddpi_cast(out + done, CDDP_F32, stage, view->type, n);
    }
}

bool cddpi_weights_same(const struct cddpi_weights_view *a, const struct cddpi_weights_view *b,
                        size_t count)
{
    float left[STAGE];
    float right[STAGE];

    for (size_t at = 0; at < count; at += STAGE) {
        size_t n = count - at < STAGE ? count - at : STAGE;

        load(a, at, n, left);
        load(b, at, n, right);
        if (memcmp(left, right, n * sizeof *left) != 0) {
            return false;
        }
    }
    return true;
}

/* Load up to STRIP rows of the transpose of the stored matrix, whose rows have @p line elements. */
static void load_strip(const struct cddpi_weights_view *view, size_t line, size_t first,
                       size_t rows, size_t columns, float *out)
{
    float tile[TILE][STRIP];

    for (size_t c = 0; c < columns; c += TILE) {
        size_t n = columns - c < TILE ? columns - c : TILE;

        for (size_t k = 0; k < n; k++) {
            load(view, (c + k) * line + first, rows, tile[k]);
        }
        for (size_t r = 0; r < rows; r++) {
            for (size_t k = 0; k < n; k++) {
                out[r * columns + c + k] = tile[k][r];
            }
        }
    }
}

/* Rows and columns in the output's layout. */
static void size_of(const struct cddpi_weights *weights, size_t index, bool transposed,
                    size_t *out_rows, size_t *out_columns)
{
    struct cddpi_gpt2_tensor tensor;

    cddpi_gpt2_tensor_at(&weights->shape, index, &tensor);
    *out_rows = (size_t)(transposed ? tensor.columns : tensor.rows);
    *out_columns = (size_t)(transposed ? tensor.rows : tensor.columns);
}

void cddpi_weights_rows(const struct cddpi_weights *weights, size_t index, bool transposed,
                        int64_t first, int64_t rows, float *out)
{
    const struct cddpi_weights_view *view = &weights->views[index];
    size_t from = (size_t)first;
    size_t end = from + (size_t)rows;
    size_t line;
    size_t columns;

    size_of(weights, index, transposed, &line, &columns);
    if (view->transposed == transposed) {
        load(view, from * columns, (end - from) * columns, out);
        return;
    }
    for (; from < end; from += STRIP) {
        size_t n = end - from < STRIP ? end - from : STRIP;

        load_strip(view, line, from, n, columns, out);
        out += n * columns;
    }
}

/* Write in panels of rows. */
static cddp_status put_panels(const struct cddpi_weights *weights, size_t index, bool transposed,
                              cddp_type type, struct cddpi_writer *writer, float *panel, void *cast,
                              size_t panel_rows)
{
    size_t rows;
    size_t columns;

    size_of(weights, index, transposed, &rows, &columns);
    for (size_t first = 0; first < rows; first += panel_rows) {
        size_t n = rows - first < panel_rows ? rows - first : panel_rows;

        cddpi_weights_rows(weights, index, transposed, (int64_t)first, (int64_t)n, panel);
        if (type != CDDP_F32) {
            cddpi_cast(cast, type, panel, CDDP_F32, n * columns);
        }
        CDDPI_TRY(cddpi_writer_put(writer, type == CDDP_F32 ? panel : cast,
                                   n * columns * cddp_type_bytes(type)));
    }
    return CDDP_OK;
}

static cddp_status put_tensor(const struct cddpi_weights *weights, size_t index, bool transposed,
                              cddp_type type, struct cddpi_writer *writer)
{
    const struct cddpi_weights_view *view = &weights->views[index];
    size_t rows;
    size_t columns;
    size_t panel_rows;
    float *panel;
    void *cast;
    cddp_status status;

    size_of(weights, index, transposed, &rows, &columns);
    if (view->type == type && (view->transposed == transposed || rows == 1)) {
        return cddpi_writer_put(writer, view->data, rows * columns * cddp_type_bytes(type));
    }
    panel_rows = columns < PANEL_ELEMENTS ? PANEL_ELEMENTS / columns : 1;
    panel_rows = panel_rows < rows ? panel_rows : rows;
    panel = cddpi_alloc_aligned(panel_rows * columns * sizeof *panel);
    cast = cddpi_alloc_aligned(panel_rows * columns * cddp_type_bytes(type));
    if (panel == NULL || cast == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu elements", writer->shown,
                            panel_rows * columns);
    } else {
        status = put_panels(weights, index, transposed, type, writer, panel, cast, panel_rows);
    }
    cddpi_free(panel);
    cddpi_free(cast);
    return status;
}

cddp_status cddpi_weights_put(const struct cddpi_weights *weights, size_t index, bool transposed,
                              cddp_type type, struct cddpi_writer *writer)
{
    return cddpi_weights_checked(weights, put_tensor(weights, index, transposed, type, writer));
}
