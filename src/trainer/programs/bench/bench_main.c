/* bench_main.c - the program cddp-bench: one rank of a measurement. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/log.h"
#include "base/memory_left.h"
#include "base/streams.h"
#include "programs/bench/bench_measure.h"
#include "programs/bench/bench_report.h"
#include "programs/bench/start.h"

#include <stdlib.h>
#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Print "cddp-bench: rank 1: ..." with the rank only once, because many error texts name it
 * themselves. Before that, report the line and the faulty rank to the launcher. */
static void print_failure(const cddp_group *group)
{
    const struct cddpi_failure *failure = cddpi_last_failure();
    int rank = group != NULL ? cddp_group_rank(group) : -1;
    int culprit = cddpi_error_culprit();
    char *line = rank < 0 || rank == failure->rank
                     ? cddpi_format("cddp-bench: %s\n", failure->text)
                     : cddpi_format("cddp-bench: rank %d: %s\n", rank, failure->text);

    if (rank >= 0 && culprit >= 0 && culprit != rank) {
        cddpi_launcher_report_culprit(rank, culprit);
    }
    if (line != NULL && rank >= 0) {
        cddpi_launcher_report_failure(rank, line,
                                      strlen(line) - 1 - strlen(failure->text) + failure->unnamed);
    }
    cddpi_print(line != NULL ? line : "cddp-bench: no memory\n");
    cddpi_free(line);
}

/* Check the options that depend on the number of ranks. */
static cddp_status check_ranks(const struct cddpi_bench *bench)
{
    const struct cddpi_bench_options *options = bench->options;

    if (options->root >= bench->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--root %lld: the group has only %d rank%s",
                          (long long)options->root, bench->world_size,
                          bench->world_size == 1 ? "" : "s");
    }
    if (options->collective->source == CDDPI_BENCH_FROM_PARTNER && bench->world_size < 2) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s needs two ranks: start it as in cddp-run --nproc 2 -- cddp-bench %s",
                          options->collective->name, options->collective->name);
    }
    if (options->carrier != NULL && cddpi_bench_carrier(bench) == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--transport: %s carries nothing, as all ranks share one host's memory: "
                          "name several by --hosts, or tell ranks apart by CDDP_HOST_ID",
                          options->carrier);
    }
    return CDDP_OK;
}

/* The size after @p bytes; 0: no more sizes. */
static int64_t next_size(const struct cddpi_bench_options *options, int64_t bytes)
{
    return bytes <= options->max_bytes / options->factor ? bytes * options->factor : 0;
}

/* Measure all sizes. @p out_wrong: wrong elements of all; -1 without --check. */
static cddp_status measure_sizes(struct cddpi_bench *bench, struct cddpi_bench_report *report,
                                 int64_t *out_wrong)
{
    const struct cddpi_bench_options *options = bench->options;
    int64_t last = -1;

    *out_wrong = options->check ? 0 : -1;
    for (int64_t wanted = options->min_bytes; wanted > 0; wanted = next_size(options, wanted)) {
        int64_t bytes = cddpi_bench_bytes(bench, wanted);
        struct cddpi_bench_row row;

        if (bytes == last) { /* both sizes were rounded to one element per block */
            continue;
        }
        last = bytes;
        CDDPI_TRY(cddpi_bench_measure(bench, bytes, &row));
        if (options->check) {
            *out_wrong += row.wrong;
        }
        CDDPI_TRY(cddpi_bench_report_row(report, &row));
    }
    return CDDP_OK;
}

static cddp_status run_group(struct cddpi_bench *bench, int64_t *out_wrong)
{
    struct cddpi_bench_report report = {0};
    cddp_status status;

    CDDPI_TRY(cddpi_bench_init(bench)); /* on failure, too, the caller releases it */
    CDDPI_TRY(check_ranks(bench));
    CDDPI_TRY_GOTO(out, status, cddpi_bench_report_init(bench, &report));
    CDDPI_TRY_GOTO(out, status, measure_sizes(bench, &report, out_wrong));
    CDDPI_TRY_GOTO(out, status, cddpi_bench_report_end(&report, *out_wrong));
    status = cddp_barrier(bench->group, NULL); /* no rank leaves while another needs it */
out:
    cddpi_bench_report_fini(&report);
    return status;
}

static int run(const struct cddpi_bench_options *options)
{
    struct cddpi_bench bench = {.options = options};
    cddp_group_options how = CDDP_GROUP_OPTIONS_INIT;
    int64_t wrong = -1;
    cddp_status status;

    how.backend = options->backend;
    how.device = options->device;
    how.deterministic = options->check;
    if (options->carrier != NULL) {
        setenv("CDDP_CARRIER", options->carrier, 1);
    }
    status = cddp_group_create(&how, &bench.group);
    if (status == CDDP_OK) {
        status = run_group(&bench, &wrong);
    }
    if (status != CDDP_OK) {
        print_failure(bench.group);
        if (bench.group != NULL) {
            cddp_group_abort(bench.group, cddp_last_error());
        }
    }
    cddpi_bench_fini(&bench);
    cddp_group_destroy(bench.group);
    return status != CDDP_OK ? status == CDDP_ERR_ARGUMENT ? EXIT_USAGE : EXIT_FAILED
           : wrong > 0       ? EXIT_FAILED
                             : 0;
}

int main(int argc, char **argv)
{
    struct cddpi_bench_options options;
    int result = 0;

    cddpi_streams_open();
    cddpi_launcher_report_open();
    if (cddpi_stack_ensure() != CDDP_OK) {
        fprintf(stderr, "cddp-bench: %s\n", cddp_last_error());
        return EXIT_FAILED;
    }
    if (cddpi_bench_options_parse(argc, argv, &options) != CDDP_OK) {
        fprintf(stderr, "cddp-bench: %s\n", cddp_last_error());
        return EXIT_USAGE;
    }
    if (options.mode == CDDPI_BENCH_HELP) {
        cddpi_bench_options_help(stdout);
    } else if (options.mode == CDDPI_BENCH_VERSION) {
        printf("cddp-bench %s\n", cddp_version());
    } else if (options.mode == CDDPI_BENCH_START) {
        result = cddpi_bench_start(&options) == CDDP_ERR_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
        fprintf(stderr, "cddp-bench: %s\n", cddp_last_error());
    } else {
        result = run(&options);
    }
    return cddpi_streams_end("cddp-bench", result);
}
