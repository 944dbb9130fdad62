/* csv.h - owns datasets in CSV files: samples of numbers with a class or real targets each. */
#ifndef CDDPI_DATA_FORMATS_CSV_H
#define CDDPI_DATA_FORMATS_CSV_H

#include "data/dataset.h"
#include "data/formats/csv_schema.h"

struct cddpi_csv_options {
    struct cddpi_csv_meaning meaning;
    struct cddpi_csv_list train, test; /* patterns, as cddpi_paths_find() takes them; test may be
                                          empty */
    double test_fraction;              /* in (0, 1): without test, the part of the rows that is held
                                          back */
    struct cddpi_data_blame blame;
};

/** Open CSV files, plain or gzip'd, with one header. Collective in @p group: one rank of each
 * machine reads them, and the others map what it made.
 *  @param options  Borrowed for the call.
 *  @return CDDP_OK on all ranks, or an error on all ranks: as cddpi_dataset_open_idx() and
 *          cddpi_csv_schema_look(). */
CDDP_CHECKED cddp_status cddpi_dataset_open_csv(const struct cddpi_csv_options *options,
                                                cddp_group *group, struct cddpi_dataset *out,
                                                struct cddpi_dataset *out_test);

#endif
