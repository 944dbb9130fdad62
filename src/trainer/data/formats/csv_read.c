/* csv_read.c - owns the syntax of CSV files. A file that breaks it is refused at the place of the
 * fault: a guess would shift columns unseen. */
#include "data/formats/csv_read.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/utf8.h"
#include "data/rounds.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TICK_BYTES = 1 << 16 };

cddp_status cddpi_csv_init(const char *path, const void *data, size_t bytes, char delimiter,
                           struct cddpi_csv *out)
{
    const char *kind = cddpi_foreign_to_text(data, bytes);
    char *text;

    if (kind != NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: not CSV: it is %s", path, kind);
    }
    text = cddpi_zalloc(CDDPI_CSV_FIELD_MAX + 1);
    CDDPI_TRY_MEMORY(text != NULL, "%s: no memory", path);
    *out = (struct cddpi_csv){.path = path,
                              .data = data,
                              .bytes = bytes,
                              .at = cddpi_utf8_mark(data, bytes),
                              .delimiter = delimiter,
                              .line = 1,
                              .text = text};
    return CDDP_OK;
}

void cddpi_csv_fini(struct cddpi_csv *csv)
{
    cddpi_free(csv->text);
    csv->text = NULL;
}

cddp_status cddpi_csv_fail(const struct cddpi_csv *csv, const struct cddpi_csv_field *field,
                           const char *name, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    assert(format != NULL); /* gcc 12 with -fsanitize=undefined warns otherwise */
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cddpi_text_clean(text, sizeof text, true);
    return cddpi_fail(CDDP_ERR_FORMAT, "%s:%llu: column %zu%s%.200s%s: %s", csv->path,
                      (unsigned long long)field->line, field->column, name != NULL ? " (" : "",
                      name != NULL ? name : "", name != NULL ? ")" : "", text);
}

/* The bytes of the end of line here: 0 (none), 1 or 2. */
static size_t line_end(const struct cddpi_csv *csv)
{
    const char *data = csv->data + csv->at;
    size_t left = csv->bytes - csv->at;

    if (left > 0 && data[0] == '\n') {
        return 1;
    }
    return left > 1 && data[0] == '\r' && data[1] == '\n' ? 2 : 0;
}

static cddp_status add_byte(const struct cddpi_csv *csv, struct cddpi_csv_field *field, char byte)
{
    if (field->bytes == CDDPI_CSV_FIELD_MAX) {
        return cddpi_csv_fail(csv, field, NULL,
                              "longer than %d bytes: is a quotation mark missing?",
                              CDDPI_CSV_FIELD_MAX);
    }
    if (byte == '\0') {
        return cddpi_csv_fail(csv, field, NULL, "a byte that is 0, which text has not");
    }
    csv->text[field->bytes++] = byte;
    return CDDP_OK;
}

/* Read from the opening quotation mark to the closing one. */
static cddp_status read_quoted(struct cddpi_csv *csv, struct cddpi_csv_field *field)
{
    field->quoted = true;
    for (csv->at++; csv->at < csv->bytes; csv->at++) {
        char byte = csv->data[csv->at];

        if (byte == '"') {
            if (csv->at + 1 == csv->bytes || csv->data[csv->at + 1] != '"') {
                csv->at++;
                return CDDP_OK;
            }
            csv->at++; /* two stand for one */
        }
        csv->line += byte == '\n';
        CDDPI_TRY(add_byte(csv, field, byte));
    }
    return cddpi_csv_fail(csv, field, NULL, "the quotation mark here is never closed");
}

static bool is_blank(const struct cddpi_csv *csv, char byte)
{
    return (byte == ' ' || byte == '\t') && byte != csv->delimiter;
}

static void skip_blanks(struct cddpi_csv *csv)
{
    while (csv->at < csv->bytes && is_blank(csv, csv->data[csv->at])) {
        csv->at++;
    }
}

static bool at_end_of_field(const struct cddpi_csv *csv)
{
    return csv->at == csv->bytes || csv->data[csv->at] == csv->delimiter || line_end(csv) > 0;
}

static cddp_status read_plain(struct cddpi_csv *csv, struct cddpi_csv_field *field)
{
    for (; !at_end_of_field(csv); csv->at++) {
        char byte = csv->data[csv->at];

        if (byte == '"') {
            return cddpi_csv_fail(csv, field, NULL,
                                  "a quotation mark inside a field that does not begin with one: "
                                  "quote the field, and write the mark twice");
        }
        if (byte == '\r') {
            return cddpi_csv_fail(csv, field, NULL,
                                  "a carriage return that no line feed follows: lines end with LF "
                                  "or CRLF");
        }
        CDDPI_TRY(add_byte(csv, field, byte));
    }
    while (field->bytes > 0 && is_blank(csv, csv->text[field->bytes - 1])) {
        field->bytes--;
    }
    return CDDP_OK;
}

static void skip_empty_lines(struct cddpi_csv *csv)
{
    for (size_t bytes = line_end(csv); bytes > 0; bytes = line_end(csv)) {
        csv->at += bytes;
        csv->line++;
    }
}

/* Once for many bytes, since a look at the clock takes as long as a field. */
static cddp_status tick(struct cddpi_csv *csv)
{
    if (csv->at < csv->tick_at) {
        return CDDP_OK;
    }
    csv->tick_at = csv->at + TICK_BYTES;
    return cddpi_rounds_tick(csv->rounds);
}

cddp_status cddpi_csv_next(struct cddpi_csv *csv, struct cddpi_csv_field *out, bool *out_end)
{
    struct cddpi_csv_field field = {.text = csv->text};

    if (csv->column == 0) {
        skip_empty_lines(csv);
        if (csv->at == csv->bytes) {
            *out_end = true;
            return CDDP_OK;
        }
        CDDPI_TRY(tick(csv));
    }
    field.line = csv->line;
    field.column = csv->column + 1;
    if (field.column > CDDPI_CSV_COLUMNS_MAX) {
        return cddpi_csv_fail(csv, &field, NULL, "more than %d columns", CDDPI_CSV_COLUMNS_MAX);
    }
    skip_blanks(csv);
    if (csv->at < csv->bytes && csv->data[csv->at] == '"') {
        CDDPI_TRY(read_quoted(csv, &field));
        skip_blanks(csv);
        if (!at_end_of_field(csv)) {
            return cddpi_csv_fail(csv, &field, NULL,
                                  "text after the closing quotation mark: inside quotes, the mark "
                                  "is written twice");
        }
    } else {
        CDDPI_TRY(read_plain(csv, &field));
    }
    csv->text[field.bytes] = '\0';
    field.last = csv->at == csv->bytes || csv->data[csv->at] != csv->delimiter;
    csv->column = field.last ? 0 : field.column;
    if (!field.last) {
        csv->at++;
    } else if (csv->at < csv->bytes) {
        csv->at += line_end(csv);
        csv->line++;
    }
    *out = field;
    *out_end = false;
    return CDDP_OK;
}
