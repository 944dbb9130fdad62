/* bench_report.h - prints cddp-bench's results: nccl-tests' columns, and the same figures as
 * JSON. */
#ifndef CDDPI_PROGRAMS_BENCH_REPORT_H
#define CDDPI_PROGRAMS_BENCH_REPORT_H

#include "programs/bench/bench_measure.h"

/* Only the report of rank 0 prints. */
struct cddpi_bench_report {
    const struct cddpi_bench *bench;
    struct json_t *root, *rows; /* NULL without --json */
    bool is_printed;            /* this process prints a table to stdout */
};

/** Print what will be measured. Collective, because it counts the hosts. Release with
 *  cddpi_bench_report_fini(), also after a failure. */
cddp_status cddpi_bench_report_init(const struct cddpi_bench *bench,
                                    struct cddpi_bench_report *out);
void cddpi_bench_report_fini(struct cddpi_bench_report *report);

cddp_status cddpi_bench_report_row(struct cddpi_bench_report *report,
                                   const struct cddpi_bench_row *row);
/** Write the JSON file. @p wrong: wrong elements of all rows; -1: not checked. */
cddp_status cddpi_bench_report_end(struct cddpi_bench_report *report, int64_t wrong);

#endif
