/* bench_report.c - prints rows, and collects them for a JSON file. */
#include "programs/bench/bench_report.h"

#include "base/error.h"
#include "base/replace.h"
#include "device/device.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Count the ranks with local rank 0: each host has exactly one. */
static cddp_status count_hosts(const struct cddpi_bench *bench, int *out)
{
    int32_t hosts = cddp_group_local_rank(bench->group) == 0;

    CDDPI_TRY(cddp_all_reduce(bench->group, &hosts, &hosts, 1, CDDP_I32, CDDP_OP_SUM, NULL));
    *out = hosts;
    return CDDP_OK;
}

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
           cddp_group_backend(bench->group), carrier != NULL ? ", carrier " : "",
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
static cddp_status begin_json(struct cddpi_bench_report *report, int hosts)
{
    const struct cddpi_bench *bench = report->bench;
    const struct cddpi_bench_options *options = bench->options;

    report->rows = json_array();
    report->root = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:s?, s:s, s:s, s:b, s:O}", "program",
        "cddp-bench", "version", cddp_version(), "collective", options->collective->name, "type",
        type_name(options), "op", op_name(options), "root", root_of(options), "ranks",
        bench->world_size, "hosts", hosts, "backend", cddp_group_backend(bench->group), "carrier",
        cddpi_bench_carrier(bench), "device", bench->device->ops->name, "alloc",
        options->group_memory ? "group" : "malloc", "in_place", options->in_place ? 1 : 0, "rows",
        report->rows);
    return report->root != NULL ? CDDP_OK
                                : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the figures");
}

cddp_status cddpi_bench_report_init(const struct cddpi_bench *bench, struct cddpi_bench_report *out)
{
    struct cddpi_bench_report report = {.bench = bench};
    const char *json = bench->options->json;
    int hosts = 1;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(count_hosts(bench, &hosts));
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

void cddpi_bench_report_fini(struct cddpi_bench_report *report)
{
    json_decref(report->rows);
    json_decref(report->root);
    report->rows = report->root = NULL;
}

static cddp_status add_json(struct cddpi_bench_report *report, const struct cddpi_bench_row *row)
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

cddp_status cddpi_bench_report_row(struct cddpi_bench_report *report,
                                   const struct cddpi_bench_row *row)
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

cddp_status cddpi_bench_report_end(struct cddpi_bench_report *report, int64_t wrong)
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
    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the figures");
    }
    if (strcmp(path, "-") == 0) {
        (void)puts(text);
    } else {
        status = cddpi_file_replace_line(path, text);
    }
    free(text);
    return status;
}
