/* csv_schema.c - owns the first pass over CSV files. What a column is follows from its first value,
 * and a later value of another kind is an error: a mistyped number must not make a column of
 * numbers one of categories. */
#include "data/formats/csv_schema.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { CATEGORIES_FEW = 10 };

static cddp_status no_memory(const char *path)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for what its columns are", path);
}

bool cddpi_csv_is_missing(const struct cddpi_csv_field *field)
{
    static const char *const words[] = {"NA", "N/A", "NaN", "nan", "NULL", "null", "?"};

    for (size_t i = 0; !field->quoted && i < sizeof words / sizeof *words; i++) {
        if (strcmp(field->text, words[i]) == 0) {
            return true;
        }
    }
    return field->bytes == 0;
}

static bool is_utf8(const struct cddpi_csv_field *field)
{
    for (size_t at = 0, length = 0; at < field->bytes; at += length) {
        length = cddpi_utf8_length(field->text + at, field->bytes - at);
        if (length == 0) {
            return false;
        }
    }
    return true;
}

static bool is_in(const struct cddpi_csv_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->values[i], name) == 0) {
            return true;
        }
    }
    return false;
}

struct cddpi_csv_column *cddpi_csv_schema_find(const struct cddpi_csv_schema *schema,
                                               const char *name)
{
    for (size_t i = 0; i < schema->count; i++) {
        if (strcmp(schema->columns[i].name, name) == 0) {
            return &schema->columns[i];
        }
    }
    return NULL;
}

static void set_role(const struct cddpi_csv_meaning *meaning, struct cddpi_csv_column *column)
{
    bool listed = meaning->features.count == 0 || is_in(&meaning->features, column->name);

    if (is_in(&meaning->target, column->name)) {
        column->role = CDDPI_CSV_TARGET;
    } else if (listed && !is_in(&meaning->ignore, column->name) && column->name[0] != '\0') {
        column->role = CDDPI_CSV_FEATURE;
    }
    column->forced = is_in(&meaning->categories, column->name);
    if (column->forced && column->role == CDDPI_CSV_FEATURE) {
        column->kind = CDDPI_CSV_CATEGORY;
    } else if (column->role == CDDPI_CSV_TARGET) {
        column->kind = meaning->classes ? CDDPI_CSV_CATEGORY : CDDPI_CSV_NUMBER;
    }
}

static cddp_status add_column(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                              size_t *room, struct cddpi_csv_schema *schema)
{
    struct cddpi_csv_column *columns;

    if (!is_utf8(field)) {
        return cddpi_csv_fail(csv, field, NULL,
                              "the name is not UTF-8: convert the file, for example with iconv -f "
                              "latin1 -t utf-8");
    }
    if (cddpi_csv_schema_find(schema, field->text) != NULL) {
        return cddpi_csv_fail(csv, field, field->text, "another column has the same name");
    }
    if (field->bytes == 0 && field->column > 1) {
        return cddpi_csv_fail(csv, field, NULL, "the column has no name in the header");
    }
    columns = cddpi_grow(schema->columns, room, schema->count + 1, sizeof *columns);
    if (columns == NULL) {
        return no_memory(csv->path);
    }
    schema->columns = columns;
    columns[schema->count] = (struct cddpi_csv_column){.name = cddpi_strdup(field->text)};
    if (columns[schema->count].name == NULL) {
        return no_memory(csv->path);
    }
    set_role(schema->meaning, &columns[schema->count++]);
    return CDDP_OK;
}

/* How several columns are written, if @p text names some with commas between them; else "". */
static const char *hint_list(const struct cddpi_csv_schema *schema, const char *text, char *out,
                             size_t bytes)
{
    static const char begin[] = ": several columns are written [";
    size_t used = (size_t)snprintf(out, bytes, "%s", begin);

    if (strchr(text, ',') == NULL) {
        return "";
    }
    for (;;) {
        size_t length;
        char name[64];

        text += strspn(text, " ");
        length = strcspn(text, ",");
        if (length >= sizeof name || used + length + 8 > bytes) {
            return "";
        }
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        for (size_t end = length; end > 0 && name[end - 1] == ' '; end--) {
            name[end - 1] = '\0';
        }
        if (cddpi_csv_schema_find(schema, name) == NULL) {
            return "";
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s\"%s\"",
                                 used >= sizeof begin ? ", " : "", name);
        if (text[length] == '\0') {
            snprintf(out + used, bytes - used, "]");
            return out;
        }
        text += length + 1;
    }
}

/* Check that each name of @p list is one of a column. */
static cddp_status check_names(const struct cddpi_csv *csv, const struct cddpi_csv_schema *schema,
                               const struct cddpi_csv_list *list, const char *key)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *hint;
        char room[256];

        if (cddpi_csv_schema_find(schema, list->values[i]) != NULL) {
            continue;
        }
        hint = hint_list(schema, list->values[i], room, sizeof room);
        if (hint[0] != '\0') {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: no column is called \"%s\", which %s names%s",
                              csv->path, list->values[i], key, hint);
        }
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: no column is called \"%s\", which %s names: the first of its %zu "
                          "columns is \"%s\"%s",
                          csv->path, list->values[i], key, schema->count, schema->columns[0].name,
                          schema->count == 1 ? "; is data.delimiter right?" : "");
    }
    return CDDP_OK;
}

cddp_status cddpi_csv_schema_header(struct cddpi_csv *csv, const struct cddpi_csv_meaning *meaning,
                                    struct cddpi_csv_schema *out)
{
    struct cddpi_csv_field field = {.last = false};
    size_t room = 0;
    bool end = false;

    out->meaning = meaning;
    while (!field.last) {
        CDDPI_TRY(cddpi_csv_next(csv, &field, &end));
        if (end) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: the file is empty", csv->path);
        }
        CDDPI_TRY(add_column(csv, &field, &room, out));
    }
    return CDDP_OK;
}

static cddp_status read_header(struct cddpi_csv *csv, const struct cddpi_csv_meaning *meaning,
                               struct cddpi_csv_schema *schema)
{
    CDDPI_TRY(cddpi_csv_schema_header(csv, meaning, schema));
    CDDPI_TRY(check_names(csv, schema, &meaning->target, "data.target"));
    CDDPI_TRY(check_names(csv, schema, &meaning->features, "data.features"));
    CDDPI_TRY(check_names(csv, schema, &meaning->ignore, "data.ignore"));
    return check_names(csv, schema, &meaning->categories, "data.categories");
}

cddp_status cddpi_csv_schema_check(struct cddpi_csv *csv, const struct cddpi_csv_schema *schema)
{
    struct cddpi_csv_field field = {.last = false};
    bool end = false;

    for (size_t i = 0; !field.last; i++) {
        CDDPI_TRY(cddpi_csv_next(csv, &field, &end));
        if (end) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: the file is empty", csv->path);
        }
        if (i >= schema->count || strcmp(field.text, schema->columns[i].name) != 0) {
            return cddpi_csv_fail(csv, &field, NULL,
                                  "the header has \"%.100s\", but that of the first file has "
                                  "\"%.100s\"",
                                  field.text, i < schema->count ? schema->columns[i].name : "");
        }
        if (field.last && i + 1 < schema->count) {
            return cddpi_csv_fail(csv, &field, NULL,
                                  "the header ends here, but that of the first file has %zu "
                                  "columns",
                                  schema->count);
        }
    }
    return CDDP_OK;
}

/* 3,14 as many countries write it. */
static bool has_decimal_comma(const char *text)
{
    size_t whole = strspn(text, "+-0123456789");

    return whole > 0 && text[whole] == ',' && text[whole + 1] != '\0' &&
           strspn(text + whole + 1, "0123456789") == strlen(text + whole + 1);
}

static cddp_status look_at_category(const struct cddpi_csv *csv,
                                    const struct cddpi_csv_field *field,
                                    struct cddpi_csv_column *column)
{
    bool is_target = column->role == CDDPI_CSV_TARGET;
    size_t most = is_target ? CDDPI_CSV_CLASSES_MAX : CDDPI_CSV_CATEGORIES_MAX;
    int64_t integer;
    double real;

    if (!is_utf8(field)) {
        return cddpi_csv_fail(csv, field, column->name,
                              "the text is not UTF-8: convert the file, for example with iconv -f "
                              "latin1 -t utf-8");
    }
    if (!column->forced && has_decimal_comma(field->text)) {
        return cddpi_csv_fail(csv, field, column->name,
                              "%.40s has a decimal comma: write a point, or list the column in "
                              "data.categories",
                              field->text);
    }
    if (is_target && !column->forced && cddpi_parse_real(field->text, &real) &&
        !cddpi_parse_integer(field->text, INT64_MIN, INT64_MAX, &integer)) {
        return cddpi_csv_fail(csv, field, column->name,
                              "%.40s is no whole number, so no class: for real targets set "
                              "model.loss = \"mse\"; or list the column in data.categories",
                              field->text);
    }
    if (cddpi_csv_words_add(&column->words, field->text) != CDDP_OK) {
        return no_memory(csv->path);
    }
    if (column->words.count > most) {
        return cddpi_csv_fail(csv, field, column->name,
                              is_target ? "more than %zu different classes"
                                        : "more than %zu different texts, so they are no "
                                          "categories: name the column in data.ignore",
                              most);
    }
    return CDDP_OK;
}

/* Find out what the column is by its first value. Numbers are converted in the second pass, which
 * refuses what is none. */
static cddp_status look_at(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                           struct cddpi_csv_column *column)
{
    double value;

    if (column->role == CDDPI_CSV_IGNORED || cddpi_csv_is_missing(field)) {
        return CDDP_OK;
    }
    if (column->kind == CDDPI_CSV_UNKNOWN) {
        column->kind = cddpi_parse_real(field->text, &value) ? CDDPI_CSV_NUMBER
                                                             : CDDPI_CSV_CATEGORY;
    }
    return column->kind == CDDPI_CSV_CATEGORY ? look_at_category(csv, field, column) : CDDP_OK;
}

cddp_status cddpi_csv_schema_look(struct cddpi_csv *csv, const struct cddpi_csv_meaning *meaning,
                                  struct cddpi_csv_schema *out)
{
    struct cddpi_csv_field field;
    bool end = false;

    if (out->columns == NULL) {
        CDDPI_TRY(read_header(csv, meaning, out));
    } else {
        CDDPI_TRY(cddpi_csv_schema_check(csv, out));
    }
    for (;;) {
        CDDPI_TRY(cddpi_csv_next(csv, &field, &end));
        if (end) {
            return CDDP_OK;
        }
        if (field.column > out->count) {
            return cddpi_csv_fail(csv, &field, NULL, "the header has only %zu columns", out->count);
        }
        CDDPI_TRY(look_at(csv, &field, &out->columns[field.column - 1]));
        if (field.last && field.column < out->count) {
            return cddpi_csv_fail(csv, &field, NULL,
                                  "the line ends here, but the header has %zu columns", out->count);
        }
        out->rows += field.last;
    }
}

/* A column whose first value is mistyped, or a mark for a missing one, is no column of
 * categories. */
static cddp_status check_categories(const char *path, const struct cddpi_csv_column *column)
{
    const char *odd = "";
    size_t numbers = 0;

    for (size_t i = 0; i < column->words.count; i++) {
        const char *word = column->words.values[i];
        double value;

        if (cddpi_parse_real(word, &value)) {
            numbers++;
        } else {
            odd = word;
        }
    }
    if (column->forced || column->role == CDDPI_CSV_TARGET ||
        column->words.count - numbers >= numbers) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "%s: column %.100s: \"%.60s\" is not a number, but %zu of its %zu different "
                      "values are: correct it, leave it empty, or list the column in "
                      "data.categories",
                      path, column->name, odd, numbers, column->words.count);
}

static bool are_integers(const struct cddpi_csv_words *words)
{
    int64_t value;

    for (size_t i = 0; i < words->count; i++) {
        if (!cddpi_parse_integer(words->values[i], INT64_MIN, INT64_MAX, &value)) {
            return false;
        }
    }
    return true;
}

/* Warn of classes and categories that nobody can have meant, unless data.categories lists the
 * column. Few of them may be meant whatever the number of rows. */
static void doubt(const char *path, const struct cddpi_csv_schema *schema,
                  const struct cddpi_csv_column *column)
{
    unsigned long long rows = schema->rows;
    size_t count = column->words.count;

    if (column->forced || count <= CATEGORIES_FEW) {
        return;
    }
    if (column->role == CDDPI_CSV_TARGET && count > rows / 10 && are_integers(&column->words)) {
        cddpi_log(CDDPI_LOG_WARN,
                  "%s: column %.100s, the target, has %zu different whole numbers in %llu rows, "
                  "and each is a class: to predict numbers, set model.loss = \"mse\"; if they are "
                  "classes, list the column in data.categories",
                  path, column->name, count, rows);
    } else if (column->role == CDDPI_CSV_FEATURE && count > rows / 2) {
        cddpi_log(CDDPI_LOG_WARN,
                  "%s: column %.100s has %zu different texts in %llu rows, and each becomes a "
                  "number of every sample: a model can hardly learn from them, so name the column "
                  "in data.ignore, or list it in data.categories to keep it",
                  path, column->name, count, rows);
    }
}

static cddp_status finish_column(const char *path, struct cddpi_csv_schema *schema,
                                 struct cddpi_csv_column *column)
{
    bool is_target = column->role == CDDPI_CSV_TARGET;
    size_t *used = is_target ? &schema->target_count : &schema->width;

    if (column->role == CDDPI_CSV_IGNORED) {
        return CDDP_OK;
    }
    if (cddpi_csv_words_finish(&column->words) != CDDP_OK) {
        return no_memory(path);
    }
    if (!is_target && (column->kind == CDDPI_CSV_UNKNOWN ||
                       (column->kind == CDDPI_CSV_CATEGORY && column->words.count == 0))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: column %s has no value in any row: name it in data.ignore", path,
                          column->name);
    }
    if (column->kind == CDDPI_CSV_CATEGORY) {
        CDDPI_TRY(check_categories(path, column));
        doubt(path, schema, column);
    }
    column->first = *used;
    column->width = is_target || column->kind == CDDPI_CSV_NUMBER ? 1 : column->words.count;
    *used += column->width;
    if (is_target && column->kind == CDDPI_CSV_CATEGORY) {
        schema->classes = column->words.count;
        if (schema->classes == 1) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: column %s, the target, is \"%.100s\" in all rows", path,
                              column->name, column->words.values[0]);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_csv_schema_finish(const char *path, struct cddpi_csv_schema *schema)
{
    if (schema->rows == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: there is no row after the header", path);
    }
    for (size_t i = 0; i < schema->count; i++) {
        CDDPI_TRY(finish_column(path, schema, &schema->columns[i]));
    }
    if (schema->width == 0 || schema->width > CDDPI_CSV_WIDTH_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: a sample is made of %zu numbers, but 1 to %d are possible", path,
                          schema->width, CDDPI_CSV_WIDTH_MAX);
    }
    return CDDP_OK;
}

void cddpi_csv_schema_fini(struct cddpi_csv_schema *schema)
{
    for (size_t i = 0; i < schema->count; i++) {
        cddpi_free(schema->columns[i].name);
        cddpi_csv_words_fini(&schema->columns[i].words);
    }
    cddpi_free(schema->columns);
    *schema = (struct cddpi_csv_schema){.count = 0};
}
