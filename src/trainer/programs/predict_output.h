/* predict_output.h - the file of cddp-train --predict --output: NumPy's .npy or CSV, by its name.
 */
#ifndef CDDPI_PROGRAMS_PREDICT_OUTPUT_H
#define CDDPI_PROGRAMS_PREDICT_OUTPUT_H

#include "base/replace.h"

#include <stdbool.h>

/* One row for each sample, one column for each output of the model. All zeros: closed. */
struct cddpi_predict_output {
    struct cddpi_replacement file;
    bool is_csv;
    int columns;
    uint64_t rows;
};

/** Check that the name @p path ends in .npy or .csv. */
CDDP_CHECKED cddp_status cddpi_predict_output_check(const char *path);

/** Begin the file, of rows of @p columns numbers. It appears when it is finished.
 *  @param has_class  Rows have a class; else they are real targets. */
CDDP_CHECKED cddp_status cddpi_predict_output_open(const char *path, int columns, bool has_class,
                                                   struct cddpi_predict_output *out);
/** Name the columns in their order, before the first row; .npy has no place for names. */
CDDP_CHECKED cddp_status cddpi_predict_output_column(struct cddpi_predict_output *output,
                                                     const char *name);
/** Put a row: of sample @p sample, for which the model chose @p class_name; NULL: it has no class.
 */
CDDP_CHECKED cddp_status cddpi_predict_output_row(struct cddpi_predict_output *output,
                                                  const char *sample, const char *class_name,
                                                  const float *values);
/** Close the file: in place if @p status is CDDP_OK, else removed. Accepts a closed one.
 *  @return @p status, or why the file could not be completed. */
CDDP_CHECKED cddp_status cddpi_predict_output_finish(struct cddpi_predict_output *output,
                                                     cddp_status status);

#endif
