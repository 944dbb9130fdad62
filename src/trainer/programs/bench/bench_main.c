/* bench_main.c - the program cddp-bench: one rank of a measurement, and its results: nccl-tests'
 * columns, and the same figures as JSON. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "base/log.h"
#include "base/memory_left.h"
#include "base/replace.h"
#include "base/streams.h"
#include "device/device.h"
#include "group/group_info.h"
#include "programs/bench/bench_measure.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Only the report of rank 0 prints. */
struct bench_report {
    const struct cddpi_bench *bench;
    struct json_t *root, *rows; /* NULL without --json */
    bool is_printed;            /* this process prints a table to stdout */
};

static const char *op_name(const struct cddpi_bench_options *options)
{
    return cddpi_bench_reduces(options->collective) ? cddp_op_name(options->op) : "none";
}

static const char *type_name(const struct cddpi_bench_options *options)
{
    return cddpi_bench_has_data(options->collective) ? cddp_type_name(options->type) : "none";
}

static int root_of(const struct cddpi_bench_options *options)
{
    return options->collective->has_root ? (int)options->root : -1;
}

static void print_head(const struct cddpi_bench *bench, int hosts)
{
    const struct cddpi_bench_options *options = bench->options;
    const char *carrier = cddpi_bench_carrier(bench);

    printf("# cddp-bench %s: %s, %d rank%s on %d host%s, backend %s%s%s, device %s%s%s\n",
           cddp_version(), options->collective->name, bench->world_size,
           bench->world_size == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
           cddpi_group_backend(bench->group), carrier != NULL ? ", carrier " : "",
           carrier != NULL ? carrier : "", bench->device->ops->name,
           !cddpi_bench_has_data(options->collective) ? ""
           : options->group_memory                    ? ", memory of the group"
                                                      : ", plain memory",
           options->in_place ? ", in place" : "");
    printf("#\n#%12s %12s %6s %6s %5s %10s %8s %8s %7s %10s %10s %8s\n", "size", "count", "type",
           "redop", "root", "time", "algbw", "busbw", "#wrong", "min", "median", "calls");
    printf("#%12s %12s %6s %6s %5s %10s %8s %8s %7s %10s %10s\n", "(B)", "(elements)", "", "", "",
           "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
    (void)fflush(stdout);
}

/* jansson's functions take ownership of values, and accept NULL. */
static cddp_status begin_json(struct bench_report *report, int hosts)
{
    const struct cddpi_bench *bench = report->bench;
    const struct cddpi_bench_options *options = bench->options;

    report->rows = json_array();
    report->root = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:s?, s:s, s:s, s:b, s:O}", "program",
        "cddp-bench", "version", cddp_version(), "collective", options->collective->name, "type",
        type_name(options), "op", op_name(options), "root", root_of(options), "ranks",
        bench->world_size, "hosts", hosts, "backend", cddpi_group_backend(bench->group), "carrier",
        cddpi_bench_carrier(bench), "device", bench->device->ops->name, "alloc",
        options->group_memory ? "group" : "malloc", "in_place", options->in_place ? 1 : 0, "rows",
        report->rows);
    return report->root != NULL ? CDDP_OK
                                : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the figures");
}

/* Print what will be measured. Collective, because it counts the hosts. Release with report_fini(),
 * also after a failure. */
static cddp_status report_init(const struct cddpi_bench *bench, struct bench_report *out)
{
    struct bench_report report = {.bench = bench};
    const char *json = bench->options->json;
    int32_t hosts = cddpi_group_local_rank(bench->group) == 0; /* each host has one such rank */
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddp_all_reduce(bench->group, &hosts, &hosts, 1, CDDP_I32, CDDP_OP_SUM, NULL));
    if (bench->rank == 0) {
        report.is_printed = json == NULL || strcmp(json, "-") != 0;
        if (report.is_printed) {
            print_head(bench, hosts);
        }
        if (json != NULL) {
            status = begin_json(&report, hosts);
        }
    }
    *out = report;
    return status;
}

static void report_fini(struct bench_report *report)
{
    json_decref(report->rows);
    json_decref(report->root);
    report->rows = report->root = NULL;
}

static cddp_status add_json(struct bench_report *report, const struct cddpi_bench_row *row)
{
    json_t *json = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "bytes",
                             (json_int_t)row->bytes, "count", (json_int_t)row->count, "iterations",
                             (json_int_t)row->iterations, "time_us", row->mean_us, "min_us",
                             row->min_us, "median_us", row->median_us, "algbw_gb_per_s",
                             row->algorithm_gb_per_s, "busbw_gb_per_s", row->bus_gb_per_s);
    int failed = json == NULL ||
                 json_object_set_new(json, "wrong",
                                     row->wrong < 0 ? json_null() : json_integer(row->wrong)) != 0;

    if (failed || json_array_append(report->rows, json) != 0) {
        json_decref(json);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the figures");
    }
    json_decref(json);
    return CDDP_OK;
}

static cddp_status report_row(struct bench_report *report, const struct cddpi_bench_row *row)
{
    const struct cddpi_bench_options *options = report->bench->options;
    char wrong[32] = "N/A";

    if (report->is_printed) {
        if (row->wrong >= 0) {
            (void)snprintf(wrong, sizeof wrong, "%lld", (long long)row->wrong);
        }
        printf(" %12lld %12lld %6s %6s %5d %10.2f %8.2f %8.2f %7s %10.2f %10.2f %8lld\n",
               (long long)row->bytes, (long long)row->count, type_name(options), op_name(options),
               root_of(options), row->mean_us, row->algorithm_gb_per_s, row->bus_gb_per_s, wrong,
               row->min_us, row->median_us, (long long)row->iterations);
        (void)fflush(stdout);
    }
    return report->rows != NULL ? add_json(report, row) : CDDP_OK;
}

/* Write the JSON file. @p wrong: wrong elements of all rows; -1: not checked. */
static cddp_status report_end(struct bench_report *report, int64_t wrong)
{
    const char *path = report->bench->options->json;
    cddp_status status = CDDP_OK;
    char *text;

    if (report->is_printed && wrong >= 0) {
        printf("# wrong elements: %lld\n", (long long)wrong);
    }
    if (report->root == NULL) {
        return CDDP_OK;
    }
    (void)json_object_set_new(report->root, "wrong", wrong < 0 ? json_null() : json_integer(wrong));
    text = json_dumps(report->root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    CDDPI_TRY_MEMORY(text != NULL, "no memory for the figures");
    if (strcmp(path, "-") == 0) {
        (void)puts(text);
    } else {
        status = cddpi_file_replace_line(path, text);
    }
    free(text);
    return status;
}

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

/* Measure all sizes. @p out_wrong: wrong elements of all; -1 without --check. */
static cddp_status measure_sizes(struct cddpi_bench *bench, struct bench_report *report,
                                 int64_t *out_wrong)
{
    const struct cddpi_bench_options *options = bench->options;
    int64_t last = -1;

    *out_wrong = options->check ? 0 : -1;
    for (int64_t wanted = options->min_bytes; wanted > 0;
         wanted = wanted <= options->max_bytes / options->factor ? wanted * options->factor : 0) {
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
        CDDPI_TRY(report_row(report, &row));
    }
    return CDDP_OK;
}

static cddp_status run_group(struct cddpi_bench *bench, int64_t *out_wrong)
{
    struct bench_report report = {0};
    cddp_status status;

    CDDPI_TRY(cddpi_bench_init(bench)); /* on failure, too, the caller releases it */
    CDDPI_TRY(check_ranks(bench));
    CDDPI_TRY_GOTO(out, status, report_init(bench, &report));
    CDDPI_TRY_GOTO(out, status, measure_sizes(bench, &report, out_wrong));
    CDDPI_TRY_GOTO(out, status, report_end(&report, *out_wrong));
    status = cddp_barrier(bench->group, NULL); /* no rank leaves while another needs it */
out:
    report_fini(&report);
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
    return status != CDDP_OK ? status == CDDP_ERR_ARGUMENT ? CDDPI_EXIT_USAGE : CDDPI_EXIT_FAILED
           : wrong > 0       ? CDDPI_EXIT_FAILED
                             : 0;
}

/* A line of cddp-run: its four options with their values, "--", this program, its words, NULL. */
enum { LINE_WORDS = 10 + CDDPI_BENCH_WORDS + 2 };

/* Find this program's own path, and cddp-run's: beside it, where the build tree has it, or in
 * $PATH. */
static cddp_status find_programs(char self[PATH_MAX], char run[PATH_MAX + 32])
{
    static const char *const places[] = {"cddp-run", "../launcher/cddp-run"};
    ssize_t length = readlink("/proc/self/exe", self, PATH_MAX - 1);
    int folder_bytes;

    if (length <= 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "reading the path of cddp-bench");
    }
    self[length] = '\0';
    folder_bytes = (int)(strrchr(self, '/') - self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(run, PATH_MAX + 32, "%.*s/%s", folder_bytes, self, places[i]);
        if (access(run, X_OK) == 0) {
            return CDDP_OK;
        }
    }
    snprintf(run, PATH_MAX + 32, "cddp-run");
    return CDDP_OK;
}

/* Replace this process by cddp-run, which starts this program with options->words as each rank.
 * Returns only on failure. */
static cddp_status start_ranks(const struct cddpi_bench_options *options)
{
    const char *line[LINE_WORDS] = {"cddp-run"};
    const char *const given[][2] = {{"--hosts", options->hosts},
                                    {"--hostfile", options->hostfile},
                                    {"--ssh", options->ssh},
                                    {"--nproc", options->nproc}};
    char self[PATH_MAX];
    char run[PATH_MAX + 32];
    int count = 1;

    if (cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--hosts, --hostfile and --nproc start ranks, but this is rank %s "
                          "already: give them to who started it",
                          cddpi_env(CDDPI_ENV_RANK));
    }
    CDDPI_TRY(find_programs(self, run));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (given[i][1] != NULL) {
            line[count++] = given[i][0];
            line[count++] = given[i][1];
        }
    }
    line[count++] = "--";
    line[count++] = self;
    for (int i = 0; i < options->word_count; i++) {
        line[count++] = options->words[i];
    }
    line[count] = NULL;
    execvp(run, (char *const *)line);
    if (errno == ENOENT) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "cddp-run is neither beside cddp-bench nor in $PATH");
    }
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "starting %s", run);
}

int cddpi_bench_run(const char *const *values, char **words, int count)
{
    const struct cddpi_options *table = cddpi_bench_program.options;
    struct cddpi_bench_options options;

    cddpi_launcher_report_open();
    if (cddpi_bench_options_parse(values, words, count, &options) != CDDP_OK) {
        return cddpi_program_fail(table, CDDPI_EXIT_USAGE);
    }
    return options.word_count == 0
               ? run(&options)
               : cddpi_program_fail(table, start_ranks(&options) == CDDP_ERR_ARGUMENT
                                               ? CDDPI_EXIT_USAGE
                                               : CDDPI_EXIT_FAILED);
}

int main(int argc, char **argv)
{
    return cddpi_program_main(&cddpi_bench_program, argc, argv);
}
