/* csv_rows.h - owns the second pass over CSV files, which makes numbers of their rows. */
#ifndef CDDPI_DATA_FORMATS_CSV_ROWS_H
#define CDDPI_DATA_FORMATS_CSV_ROWS_H

#include "data/formats/csv_schema.h"
#include "data/rounding.h"

/* Where the numbers of rows go. */
struct cddpi_csv_rows {
    float *inputs;  /* rows x width; NAN: the value is missing */
    float *targets; /* rows x target_count; NULL: see classes */
    int32_t *classes;
    float *means; /* width: cddpi_csv_rows_fill() puts there what missing inputs get; or NULL */
    struct cddpi_rounding *rounding; /* of each column; or NULL */
    struct cddpi_rounds *rounds;     /* of the ranks that wait for this one; NULL: none */
    uint64_t count;                  /* rows that are read */
    uint64_t room;                   /* rows that there is room for */
};

/** Count the rows of a file with the same header. */
CDDP_CHECKED cddp_status cddpi_csv_rows_count(struct cddpi_csv *csv,
                                              const struct cddpi_csv_schema *schema, uint64_t *out);

/** Append the rows of a file to @p rows.
 *  @return CDDP_OK, CDDP_ERR_FORMAT: the text names file, line and column. */
CDDP_CHECKED cddp_status cddpi_csv_rows_read(struct cddpi_csv *csv,
                                             const struct cddpi_csv_schema *schema,
                                             struct cddpi_csv_rows *rows);

/** Warn of inputs that differ by so little that 32-bit floats cannot tell many of them apart. */
void cddpi_csv_rows_doubt(const char *path, const struct cddpi_csv_schema *schema,
                          const struct cddpi_rounding *rounding);

/** Put into each missing input the mean of its number over the @p count rows @p of (NULL: the first
 *  ones); of a category that is missing, how frequent each category is.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY, CDDP_ERR_FORMAT: a column has no value in these rows. */
CDDP_CHECKED cddp_status cddpi_csv_rows_fill(const char *path,
                                             const struct cddpi_csv_schema *schema,
                                             const uint64_t *of, uint64_t count,
                                             struct cddpi_csv_rows *rows);

#endif
