/* predict_rows.h - the rows of a CSV file or of NumPy's, as a model of numbers takes them. */
#ifndef CDDPI_PROGRAMS_PREDICT_ROWS_H
#define CDDPI_PROGRAMS_PREDICT_ROWS_H

#include "data/files/data_file.h"
#include "data/numbers.h"
#include "infer/infer.h"

/* All zeros: closed. */
struct cddpi_predict_rows {
    const char *path; /* borrowed, like the model */
    const struct cddp_model *model;
    struct cddpi_numbers numbers;    /* count x what a sample has */
    uint64_t count;                  /* > 0 */
    float *own;                      /* the numbers of a CSV file */
    struct cddpi_data_file files[2]; /* the numbers of NumPy's files */
};

/** Open the file @p path, of the kind that data.type of the model is.
 *  @param out  Release with cddpi_predict_rows_close(), which accepts a closed one.
 *  @return CDDP_OK, or why the file does not fit the model: the text names the place. */
CDDP_CHECKED cddp_status cddpi_predict_rows_open(const struct cddp_model *model, const char *path,
                                                 struct cddpi_predict_rows *out);

/** Write @p count rows from @p first on to @p out, as float32. Those of CSV files may be NaN where
 *  the model knows what it puts there. */
CDDP_CHECKED cddp_status cddpi_predict_rows_read(const struct cddpi_predict_rows *rows,
                                                 uint64_t first, size_t count, float *out);

void cddpi_predict_rows_close(struct cddpi_predict_rows *rows);

#endif
