/* csv_columns.c - owns the description of columns in JSON, which checkpoints keep: how it is made
 * of training data, and how rows of new files are read by it. */
#include "data/formats/csv_schema.h"

#include "base/error.h"

#include <jansson.h>
#include <string.h>

/* Append @p column to @p list; jansson's functions release what they are given if they fail. */
static bool describe_column(const struct cddpi_csv_column *column, const char *key, json_t *list)
{
    json_t *one = json_object();
    json_t *words = column->kind == CDDPI_CSV_CATEGORY ? json_array() : NULL;
    bool done = json_object_set_new(one, "name", json_string(column->name)) == 0;

    for (size_t k = 0; done && words != NULL && k < column->words.count; k++) {
        done = json_array_append_new(words, json_string(cddpi_csv_words_at(&column->words, k))) ==
               0;
    }
    if (column->kind == CDDPI_CSV_CATEGORY) {
        done = json_object_set_new(one, key, words) == 0 && done;
    }
    return json_array_append_new(list, one) == 0 && done;
}

/* Describe the columns of @p role in @p all. */
static bool describe(const struct cddpi_csv_schema *schema, enum cddpi_csv_role role,
                     const char *name, const char *key, json_t *all)
{
    json_t *list = json_array();
    bool done = list != NULL;

    for (size_t i = 0; done && i < schema->count; i++) {
        done = schema->columns[i].role != role || describe_column(&schema->columns[i], key, list);
    }
    return json_object_set_new(all, name, list) == 0 && done;
}

char *cddpi_csv_schema_text(const struct cddpi_csv_schema *schema)
{
    json_t *all = json_object();
    bool done = describe(schema, CDDPI_CSV_FEATURE, "features", "categories", all) &&
                describe(schema, CDDPI_CSV_TARGET, "targets", "classes", all);
    char *text = done ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    json_decref(all);
    return text;
}

static cddp_status fail_description(const struct cddpi_csv *csv)
{
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "%s: the columns in the checkpoint's state.json are not what cddp-train "
                      "writes",
                      csv->path);
}

/* Give a column the categories of training, which have the numbers that they had there. */
static cddp_status take_categories(const struct cddpi_csv *csv, const json_t *categories,
                                   struct cddpi_csv_column *column)
{
    size_t count = json_array_size(categories);

    column->kind = CDDPI_CSV_CATEGORY;
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(categories, i));

        if (word == NULL) {
            return fail_description(csv);
        }
        CDDPI_TRY_MEMORY(cddpi_csv_words_add(&column->words, word) == CDDP_OK, "%s: no memory",
                         csv->path);
    }
    CDDPI_TRY_MEMORY(cddpi_csv_words_finish(&column->words) == CDDP_OK, "%s: no memory", csv->path);
    for (size_t i = 0; i < count; i++) {
        if (column->words.count != count ||
            strcmp(cddpi_csv_words_at(&column->words, i),
                   json_string_value(json_array_get(categories, i))) != 0) {
            return fail_description(csv);
        }
    }
    return CDDP_OK;
}

static cddp_status take_feature(const struct cddpi_csv *csv, const json_t *feature,
                                struct cddpi_csv_schema *schema)
{
    const char *name = json_string_value(json_object_get(feature, "name"));
    const json_t *categories = json_object_get(feature, "categories");
    struct cddpi_csv_column *column = name != NULL ? cddpi_csv_schema_find(schema, name) : NULL;

    if (name == NULL || (categories != NULL && json_array_size(categories) == 0)) {
        return fail_description(csv);
    }
    if (column == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: no column is called \"%.100s\", which the model needs: the first of "
                          "its %zu columns is \"%.100s\"%s",
                          csv->path, name, schema->count, schema->columns[0].name,
                          schema->count == 1 ? "; is data.delimiter right?" : "");
    }
    if (column->role == CDDPI_CSV_FEATURE) { /* a second time */
        return fail_description(csv);
    }
    column->role = CDDPI_CSV_FEATURE;
    column->kind = CDDPI_CSV_NUMBER;
    if (categories != NULL) {
        CDDPI_TRY(take_categories(csv, categories, column));
    }
    column->first = schema->width;
    column->width = categories != NULL ? column->words.count : 1;
    schema->width += column->width;
    return CDDP_OK;
}

cddp_status cddpi_csv_schema_parse(struct cddpi_csv *csv, const struct cddpi_csv_meaning *meaning,
                                   const struct json_t *columns, struct cddpi_csv_schema *out)
{
    const json_t *features = json_object_get(columns, "features");

    CDDPI_TRY(cddpi_csv_schema_header(csv, meaning, out));
    for (size_t i = 0; i < out->count; i++) {
        out->columns[i].role = CDDPI_CSV_IGNORED;
    }
    for (size_t i = 0; i < json_array_size(features); i++) {
        CDDPI_TRY(take_feature(csv, json_array_get(features, i), out));
    }
    return out->width > 0 ? CDDP_OK : fail_description(csv);
}
