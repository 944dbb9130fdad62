/* predict_rows.c - opens the rows that cddp-train --predict predicts, and checks that they fit the
 * model. */
#include "programs/predict_rows.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "data/formats/csv_rows.h"
#include "data/formats/npy.h"

#include <inttypes.h>
#include <math.h>

/* A CSV file that is read in several passes. */
struct predict_csv {
    struct cddpi_predict_rows *rows;
    struct cddpi_data_file file;
    struct cddpi_csv_meaning meaning;
    struct cddpi_csv_schema schema;
};

/* Begin a pass; release with cddpi_csv_fini(). */
static cddp_status begin(const struct predict_csv *from, struct cddpi_csv *out)
{
    return cddpi_csv_init(from->rows->path, from->file.data, from->file.bytes,
                          from->meaning.delimiter, out);
}

static cddp_status read_columns(struct predict_csv *from)
{
    struct cddpi_csv csv = {.text = NULL};
    cddp_status status;

    CDDPI_TRY(begin(from, &csv));
    status = cddpi_csv_schema_parse(&csv, &from->meaning, from->rows->model->columns,
                                    &from->schema);
    cddpi_csv_fini(&csv);
    return status;
}

static cddp_status count_rows(struct predict_csv *from)
{
    struct cddpi_csv csv = {.text = NULL};
    cddp_status status;

    CDDPI_TRY(begin(from, &csv));
    status = cddpi_csv_rows_count(&csv, &from->schema, &from->rows->count);
    cddpi_csv_fini(&csv);
    CDDPI_TRY(status);
    return from->rows->count > 0
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_FORMAT, "%s: there is no row after the header",
                            from->rows->path);
}

static cddp_status read_rows(struct predict_csv *from)
{
    struct cddpi_predict_rows *rows = from->rows;
    struct cddpi_csv_rows to = {.room = rows->count};
    struct cddpi_csv csv = {.text = NULL};
    uint64_t bytes = 0;
    cddp_status status;

    if (__builtin_mul_overflow(rows->count, from->schema.width * sizeof(float), &bytes)) {
        bytes = UINT64_MAX;
    }
    CDDPI_TRY(cddpi_memory_need(bytes, "%s: %" PRIu64 " rows of %zu numbers", rows->path,
                                rows->count, from->schema.width));
    rows->own = cddpi_zalloc_array(rows->count, from->schema.width * sizeof(float));
    CDDPI_TRY_MEMORY(rows->own != NULL, "%s: no memory for %" PRIu64 " rows", rows->path,
                     rows->count);
    to.inputs = rows->own;
    CDDPI_TRY(begin(from, &csv));
    status = cddpi_csv_rows_read(&csv, &from->schema, &to);
    cddpi_csv_fini(&csv);
    CDDPI_TRY(status);
    rows->numbers = (struct cddpi_numbers){rows->own, CDDPI_NUMBER_F32};
    return to.count == rows->count
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_IO, "%s: the file changed while it was read", rows->path);
}

static cddp_status open_csv(struct cddpi_predict_rows *rows)
{
    struct predict_csv from = {.rows = rows,
                               .file = CDDPI_DATA_FILE_CLOSED,
                               .meaning = {.delimiter = cddpi_config_delimiter(rows->model->config),
                                           .fill = rows->model->missing != NULL}};
    cddp_status status;

    CDDPI_TRY(cddpi_data_file_open(rows->path, false, NULL, &from.file));
    status = read_columns(&from);
    if (status == CDDP_OK && from.schema.width != (size_t)rows->model->data.width) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %zu numbers of a row, but the model takes %d",
                            rows->path, from.schema.width, rows->model->data.width);
    }
    status = status == CDDP_OK ? count_rows(&from) : status;
    status = status == CDDP_OK ? read_rows(&from) : status;
    cddpi_csv_schema_fini(&from.schema);
    return cddpi_data_file_finish(&from.file, status);
}

static cddp_status open_npy(struct cddpi_predict_rows *rows)
{
    const struct cddpi_dataset *wanted = &rows->model->data;
    struct cddpi_npy npy;
    int shape[3];

    CDDPI_TRY(cddpi_npy_open_samples(rows->path, rows->model->config->data.npz_inputs, rows->files,
                                     &npy, shape));
    if (shape[0] != wanted->channels || shape[1] != wanted->height || shape[2] != wanted->width) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: samples are %d x %d x %d, but the model takes %d x %d x %d",
                          rows->path, shape[0], shape[1], shape[2], wanted->channels,
                          wanted->height, wanted->width);
    }
    rows->numbers = npy.numbers;
    rows->count = npy.shape[0];
    return CDDP_OK;
}

cddp_status cddpi_predict_rows_open(const struct cddp_model *model, const char *path,
                                    struct cddpi_predict_rows *out)
{
    struct cddpi_predict_rows rows = {
        .path = path, .model = model, .files = {CDDPI_DATA_FILE_CLOSED, CDDPI_DATA_FILE_CLOSED}};
    cddp_status status = model->config->data.type == CDDPI_DATA_CSV ? open_csv(&rows)
                                                                    : open_npy(&rows);

    if (status != CDDP_OK) {
        cddpi_predict_rows_close(&rows);
        return status;
    }
    *out = rows;
    return CDDP_OK;
}

cddp_status cddpi_predict_rows_read(const struct cddpi_predict_rows *rows, uint64_t first,
                                    size_t count, float *out)
{
    size_t elements = rows->model->sample_elements;
    const char *from = rows->numbers.values;

    cddpi_numbers_to_f32(rows->numbers.type,
                         from + first * elements * cddpi_number_bytes(rows->numbers.type),
                         count * elements, out);
    CDDPI_TRY(rows->own == NULL ? cddpi_data_file_check(&rows->files[0]) : CDDP_OK);
    for (size_t i = 0; i < count * elements; i++) {
        if (!isfinite(out[i]) && !(isnan(out[i]) && rows->model->missing != NULL)) {
            return cddpi_fail(
                CDDP_ERR_FORMAT, "%s: number %zu of sample %" PRIu64 " is %s as float32",
                rows->path, i % elements, first + i / elements, isnan(out[i]) ? "NaN" : "infinite");
        }
    }
    return CDDP_OK;
}

void cddpi_predict_rows_close(struct cddpi_predict_rows *rows)
{
    if (rows->model != NULL) {
        cddpi_data_file_close(&rows->files[0]);
        cddpi_data_file_close(&rows->files[1]);
    }
    cddpi_free(rows->own);
    *rows = (struct cddpi_predict_rows){.path = NULL};
}
