/* fuzz_csv.c - CSV files of strangers: byte 0 says how they are read, the rest is the file. */
#include "data/formats/csv_rows.h"
#include "fuzz/fuzz.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static char *target[] = {"y", "z"};
static char *categories[] = {"c"};

/* A file fits a model that was trained on it. */
static void describe(const struct cddpi_csv_schema *schema, const uint8_t *data, size_t size)
{
    char *text = cddpi_csv_schema_text(schema);
    struct cddpi_csv_schema again = {.count = 0};
    struct cddpi_csv csv = {.path = NULL};
    json_t *columns;

    fuzz_check(text != NULL, "no description");
    columns = json_loads(text, 0, NULL);
    fuzz_check(columns != NULL, "the description is no JSON");
    fuzz_check(cddpi_csv_init("a.csv", data, size, schema->meaning->delimiter, &csv) == CDDP_OK,
               "the third time");
    fuzz_check(cddpi_csv_schema_parse(&csv, schema->meaning, columns, &again) == CDDP_OK &&
                   again.width == schema->width,
               "the description is not the file's");
    cddpi_csv_fini(&csv);
    cddpi_csv_schema_fini(&again);
    json_decref(columns);
    free(text);
}

static void use(const struct cddpi_csv_schema *schema, const struct cddpi_csv_rows *rows)
{
    fuzz_check(rows->count == schema->rows, "rows");
    for (uint64_t i = 0; i < rows->count * schema->width; i++) {
        fuzz_check(isfinite(rows->inputs[i]), "an input is not finite");
    }
    for (uint64_t i = 0; rows->targets == NULL && i < rows->count; i++) {
        fuzz_check(rows->classes[i] >= 0 && (size_t)rows->classes[i] < schema->classes, "a class");
    }
    for (uint64_t i = 0; rows->targets != NULL && i < rows->count * schema->target_count; i++) {
        fuzz_check(isfinite(rows->targets[i]), "a target is not finite");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_csv_meaning meaning = {.target = {target, 1}, .categories = {categories, 0}};
    struct cddpi_csv_schema schema = {.count = 0};
    struct cddpi_csv_rows rows = {.inputs = NULL};
    struct cddpi_csv csv = {.path = NULL};
    cddp_status status;

    if (size < 1) {
        return 0;
    }
    meaning.classes = (data[0] & 1) != 0;
    meaning.fill = (data[0] & 2) != 0;
    meaning.delimiter = (data[0] & 4) != 0 ? ';' : (data[0] & 8) != 0 ? '\t' : ',';
    meaning.categories.count = (data[0] & 16) != 0;
    meaning.target.count = (data[0] & 32) != 0 ? 2 : 1;
    if (cddpi_csv_init("a.csv", data + 1, size - 1, meaning.delimiter, &csv) != CDDP_OK) {
        return 0;
    }
    status = cddpi_csv_schema_look(&csv, &meaning, &schema);
    cddpi_csv_fini(&csv);
    if (status == CDDP_OK && cddpi_csv_schema_finish("a.csv", &schema) == CDDP_OK) {
        rows.room = schema.rows;
        rows.inputs = calloc(rows.room * schema.width, sizeof *rows.inputs);
        rows.classes = calloc(rows.room, sizeof *rows.classes);
        rows.targets = schema.classes > 0
                           ? NULL
                           : calloc(rows.room * schema.target_count, sizeof *rows.targets);
        fuzz_check(cddpi_csv_init("a.csv", data + 1, size - 1, meaning.delimiter, &csv) == CDDP_OK,
                   "the second time");
        if (cddpi_csv_rows_read(&csv, &schema, &rows) == CDDP_OK &&
            cddpi_csv_rows_fill("a.csv", &schema, NULL, rows.count, &rows) == CDDP_OK) {
            describe(&schema, data + 1, size - 1);
            use(&schema, &rows);
        }
        cddpi_csv_fini(&csv);
    }
    free(rows.inputs);
    free(rows.classes);
    free(rows.targets);
    cddpi_csv_schema_fini(&schema);
    return 0;
}
