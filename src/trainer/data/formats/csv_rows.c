/* csv_rows.c - owns how a row of a CSV file becomes numbers: one for a number, one for each
 * category (1 for the row's own, 0 for the others). */
#include "data/formats/csv_rows.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number.h"
#include "data/rounds.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* @p rounding: of the column; or NULL. */
static cddp_status read_number(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                               const struct cddpi_csv_column *column,
                               struct cddpi_rounding *rounding, float *out)
{
    double value;

    if (!cddpi_parse_real(field->text, &value)) {
        return cddpi_csv_fail(csv, field, column->name, "\"%.60s\" is not a number%s", field->text,
                              column->role == CDDPI_CSV_TARGET
                                  ? ", but targets are real numbers with this model.loss"
                                  : ", but the column begins with one: correct it, or list the "
                                    "column in data.categories");
    }
    if (fabs(value) > (double)FLT_MAX) {
        return cddpi_csv_fail(csv, field, column->name, "%.60s does not fit into 32-bit floats",
                              field->text);
    }
    if (rounding != NULL) {
        cddpi_rounding_note(rounding, value);
    }
    *out = (float)value;
    return CDDP_OK;
}

static cddp_status find_category(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                                 const struct cddpi_csv_column *column, size_t *out)
{
    if (!cddpi_csv_words_find(&column->words, field->text, out)) {
        return cddpi_csv_fail(csv, field, column->name,
                              "\"%.60s\" is none of the %zu %s of the training data", field->text,
                              column->words.count,
                              column->role == CDDPI_CSV_TARGET ? "classes" : "categories");
    }
    return CDDP_OK;
}

static cddp_status read_target(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                               const struct cddpi_csv_schema *schema,
                               const struct cddpi_csv_column *column,
                               const struct cddpi_csv_rows *rows)
{
    size_t class = 0;

    if (cddpi_csv_is_missing(field)) {
        return cddpi_csv_fail(csv, field, column->name, "the target is missing: remove the line");
    }
    if (rows->targets != NULL) {
        return read_number(csv, field, column, NULL,
                           &rows->targets[rows->count * schema->target_count + column->first]);
    }
    CDDPI_TRY(find_category(csv, field, column, &class));
    rows->classes[rows->count] = (int32_t) class;
    return CDDP_OK;
}

static cddp_status read_input(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                              const struct cddpi_csv_schema *schema,
                              const struct cddpi_csv_column *column,
                              const struct cddpi_csv_rows *rows)
{
    float *out = &rows->inputs[rows->count * schema->width + column->first];
    bool missing = cddpi_csv_is_missing(field);
    size_t category = 0;

    if (missing && !schema->meaning->fill) {
        return cddpi_csv_fail(csv, field, column->name,
                              "the value is missing: fill it in, remove the line, name the column "
                              "in data.ignore, or set data.missing = \"mean\"");
    }
    if (missing) {
        for (size_t i = 0; i < column->width; i++) {
            out[i] = NAN;
        }
        return CDDP_OK;
    }
    if (column->kind == CDDPI_CSV_NUMBER) {
        return read_number(csv, field, column,
                           rows->rounding != NULL ? &rows->rounding[field->column - 1] : NULL, out);
    }
    CDDPI_TRY(find_category(csv, field, column, &category));
    for (size_t i = 0; i < column->width; i++) {
        out[i] = i == category ? 1.0F : 0.0F;
    }
    return CDDP_OK;
}

cddp_status cddpi_csv_rows_count(struct cddpi_csv *csv, const struct cddpi_csv_schema *schema,
                                 uint64_t *out)
{
    struct cddpi_csv_field field;
    uint64_t count = 0;
    bool end = false;

    CDDPI_TRY(cddpi_csv_schema_check(csv, schema));
    for (;;) {
        CDDPI_TRY(cddpi_csv_next(csv, &field, &end));
        if (end) {
            *out = count;
            return CDDP_OK;
        }
        count += field.last;
    }
}

cddp_status cddpi_csv_rows_read(struct cddpi_csv *csv, const struct cddpi_csv_schema *schema,
                                struct cddpi_csv_rows *rows)
{
    struct cddpi_csv_field field;
    bool end = false;

    CDDPI_TRY(cddpi_csv_schema_check(csv, schema));
    for (;;) {
        const struct cddpi_csv_column *column;

        CDDPI_TRY(cddpi_csv_next(csv, &field, &end));
        if (end) {
            return CDDP_OK;
        }
        if (field.column > schema->count || (field.last && field.column < schema->count)) {
            return cddpi_csv_fail(csv, &field, NULL,
                                  "the line %s here, but the header has %zu columns",
                                  field.last ? "ends" : "goes on", schema->count);
        }
        if (rows->count == rows->room) {
            return cddpi_fail(CDDP_ERR_IO, "%s has grown while it was read", csv->path);
        }
        column = &schema->columns[field.column - 1];
        if (column->role == CDDPI_CSV_TARGET) {
            CDDPI_TRY(read_target(csv, &field, schema, column, rows));
        } else if (column->role == CDDPI_CSV_FEATURE) {
            CDDPI_TRY(read_input(csv, &field, schema, column, rows));
        }
        rows->count += field.last;
    }
}

void cddpi_csv_rows_doubt(const char *path, const struct cddpi_csv_schema *schema,
                          const struct cddpi_rounding *rounding)
{
    for (size_t i = 0; i < schema->count; i++) {
        char what[512];

        snprintf(what, sizeof what, "%.300s: column %.100s", path, schema->columns[i].name);
        (void)cddpi_rounding_doubt(&rounding[i], what);
    }
}

static cddp_status fill_column(const char *path, const struct cddpi_csv_column *column,
                               size_t number, size_t width, const uint64_t *of, uint64_t count,
                               struct cddpi_csv_rows *rows)
{
    double sum = 0;
    uint64_t known = 0;
    float mean;

    for (uint64_t i = 0; i < count; i++) {
        float value = rows->inputs[(of != NULL ? of[i] : i) * width + number];

        if (!isnan(value)) {
            sum += (double)value;
            known++;
        }
    }
    if (known == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: column %s has no value in the rows to train on: name it in "
                          "data.ignore",
                          path, column->name);
    }
    mean = (float)(sum / (double)known);
    for (uint64_t i = 0; i < rows->count; i++) {
        float *value = &rows->inputs[i * width + number];

        *value = isnan(*value) ? mean : *value;
    }
    if (rows->means != NULL) {
        rows->means[number] = mean;
    }
    return CDDP_OK;
}

cddp_status cddpi_csv_rows_fill(const char *path, const struct cddpi_csv_schema *schema,
                                const uint64_t *of, uint64_t count, struct cddpi_csv_rows *rows)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct cddpi_csv_column *column = &schema->columns[i];

        for (size_t k = 0; column->role == CDDPI_CSV_FEATURE && k < column->width; k++) {
            CDDPI_TRY(cddpi_rounds_tick(rows->rounds));
            CDDPI_TRY(fill_column(path, column, column->first + k, schema->width, of, count, rows));
        }
    }
    return CDDP_OK;
}
