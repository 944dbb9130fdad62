/* csv_read.h - reads the fields of a CSV file (RFC 4180) that lies in memory, one after the other.
 * Lines end with LF or CRLF; empty lines are skipped, as is a byte order mark. */
#ifndef CDDPI_DATA_FORMATS_CSV_READ_H
#define CDDPI_DATA_FORMATS_CSV_READ_H

#include <cddp/status.h>

#include <stdbool.h>

enum { CDDPI_CSV_FIELD_MAX = 1 << 16, CDDPI_CSV_COLUMNS_MAX = 1 << 14 };

struct cddpi_rounds;

struct cddpi_csv_field {
    const char *text; /* ends with a NUL, has none inside; valid until the next field is read */
    size_t bytes;
    size_t column; /* in its line, from 1 */
    uint64_t line; /* where it begins, from 1 */
    bool quoted;
    bool last; /* of its record */
};

struct cddpi_csv {
    const char *path; /* for error texts; borrowed, like the data */
    const char *data;
    size_t bytes, at;
    char delimiter;
    uint64_t line;
    size_t column;               /* of the field before; 0: at the start of a record */
    char *text;                  /* room for a field */
    struct cddpi_rounds *rounds; /* of the ranks that wait for this one; NULL: none */
    size_t tick_at;
};

/** Begin to read @p bytes bytes at @p data.
 *  @param out  Release with cddpi_csv_fini(), which accepts a zeroed one.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_FORMAT (the file is of another kind). */
CDDP_CHECKED cddp_status cddpi_csv_init(const char *path, const void *data, size_t bytes,
                                        char delimiter, struct cddpi_csv *out);
void cddpi_csv_fini(struct cddpi_csv *csv);

/** Read the next field. Blanks around a field without quotes do not belong to it.
 *  @param out_end  Set to true after the last record; then there is no field.
 *  @return CDDP_OK, CDDP_ERR_FORMAT: the text names file, line and column; what
 *          cddpi_rounds_tick() returns. */
CDDP_CHECKED cddp_status cddpi_csv_next(struct cddpi_csv *csv, struct cddpi_csv_field *out,
                                        bool *out_end);

/** Fail with the place of @p field before the text. @p name: of its column; NULL: unknown. */
CDDP_CHECKED cddp_status cddpi_csv_fail(const struct cddpi_csv *csv,
                                        const struct cddpi_csv_field *field, const char *name,
                                        const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
