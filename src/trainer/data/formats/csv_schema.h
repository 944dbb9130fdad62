/* csv_schema.h - owns what the columns of CSV files mean: which are inputs and which are targets,
 * which hold numbers and which categories. A first pass over the training data finds it out. */
#ifndef CDDPI_DATA_FORMATS_CSV_SCHEMA_H
#define CDDPI_DATA_FORMATS_CSV_SCHEMA_H

#include "data/formats/csv_read.h"
#include "data/formats/csv_words.h"

struct json_t;

enum {
    CDDPI_CSV_CATEGORIES_MAX = 1000, /* of an input; each is a number of every sample */
    CDDPI_CSV_CLASSES_MAX = 1 << 16,
    CDDPI_CSV_WIDTH_MAX = 1 << 16 /* numbers of a sample */
};

/* Borrowed names of columns. */
struct cddpi_csv_list {
    char *const *values;
    size_t count;
};

struct cddpi_csv_meaning {
    struct cddpi_csv_list target;     /* one or more */
    struct cddpi_csv_list features;   /* the inputs; empty: all that are not mentioned elsewhere */
    struct cddpi_csv_list ignore;     /* neither inputs nor targets */
    struct cddpi_csv_list categories; /* categories even if all their values are numbers */
    char delimiter;
    bool classes; /* the target is a class; else real numbers */
    bool fill;    /* values of inputs may be missing */
};

enum cddpi_csv_role { CDDPI_CSV_IGNORED, CDDPI_CSV_FEATURE, CDDPI_CSV_TARGET };
enum cddpi_csv_kind { CDDPI_CSV_UNKNOWN, CDDPI_CSV_NUMBER, CDDPI_CSV_CATEGORY };

struct cddpi_csv_column {
    char *name;
    enum cddpi_csv_role role;
    enum cddpi_csv_kind kind;
    bool forced; /* listed as categories */
    struct cddpi_csv_words words;
    size_t first, width; /* where its numbers are among those of a sample, or among its targets */
};

struct cddpi_csv_schema {
    const struct cddpi_csv_meaning *meaning; /* borrowed */
    struct cddpi_csv_column *columns;
    size_t count;
    size_t width;        /* numbers of a sample */
    size_t target_count; /* numbers that are its targets */
    size_t classes;      /* 0: the targets are real */
    uint64_t rows;       /* of all files that were looked at */
};

/** The column called @p name; NULL: there is none. */
struct cddpi_csv_column *cddpi_csv_schema_find(const struct cddpi_csv_schema *schema,
                                               const char *name);

/** Whether a field has no value: nothing, or without quotes one of NA, N/A, NaN, nan, NULL, null
 *  and ?. */
bool cddpi_csv_is_missing(const struct cddpi_csv_field *field);

/** Look at a file of training data: its header, which must be the first file's, and all rows.
 *  @param out  Zeroed before the first file. Release with cddpi_csv_schema_fini(), also after a
 *              failure.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_FORMAT: the text names file, line and column;
 *          CDDP_ERR_ARGUMENT: there is no such column. */
CDDP_CHECKED cddp_status cddpi_csv_schema_look(struct cddpi_csv *csv,
                                               const struct cddpi_csv_meaning *meaning,
                                               struct cddpi_csv_schema *out);

/** Number categories and columns after the last file. */
CDDP_CHECKED cddp_status cddpi_csv_schema_finish(const char *path, struct cddpi_csv_schema *schema);

/** Read the header of the first file: the names and roles of columns.
 *  @param out  As for cddpi_csv_schema_look(), which begins with this. */
CDDP_CHECKED cddp_status cddpi_csv_schema_header(struct cddpi_csv *csv,
                                                 const struct cddpi_csv_meaning *meaning,
                                                 struct cddpi_csv_schema *out);

/** Read the header of another file, which must be the same. */
CDDP_CHECKED cddp_status cddpi_csv_schema_check(struct cddpi_csv *csv,
                                                const struct cddpi_csv_schema *schema);

/* csv_columns.c */

/** Describe the columns in JSON: {"features": [{"name": ..., "categories": [...]}, ...],
 *  "targets": [{"name": ..., "classes": [...]}]}. NULL: no memory. Release with free(). */
char *cddpi_csv_schema_text(const struct cddpi_csv_schema *schema);

/** Read the header of a file with rows for a model, and let its columns mean what @p columns, such
 * a description, says. The features may have any order; other columns are ignored.
 *  @param meaning  Of which only fill is used.
 *  @param out      As for cddpi_csv_schema_look().
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_FORMAT: a column is missing, or the description is
 *          broken. */
CDDP_CHECKED cddp_status cddpi_csv_schema_parse(struct cddpi_csv *csv,
                                                const struct cddpi_csv_meaning *meaning,
                                                const struct json_t *columns,
                                                struct cddpi_csv_schema *out);

void cddpi_csv_schema_fini(struct cddpi_csv_schema *schema);

#endif
