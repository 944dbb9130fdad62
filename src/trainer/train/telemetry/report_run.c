/* report_run.c - owns the metrics about a run as a whole. */
#include "train/telemetry/report_run.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/shape.h"
#include "report/metrics.h"
#include "report/report_page.h"
#include "train/telemetry/mfu.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What a rank reports about its device. */
struct report_run_place {
    char unique[sizeof((struct cddpi_device *)NULL)->unique];
    double flops;
};

static bool is_first_there(const struct report_run_place *places, int rank)
{
    for (int before = 0; before < rank; before++) {
        if (strcmp(places[before].unique, places[rank].unique) == 0) {
            return false; /* ranks share this device */
        }
    }
    return true;
}

cddp_status cddpi_trainer_find_peak_flops(struct cddpi_trainer *trainer)
{
    struct report_run_place own = {.flops = 0};
    struct report_run_place *all;
    double sum = 0;
    bool known = true;
    cddp_status status;

    if (!cddpi_device_is_async(trainer->device)) {
        return CDDP_OK;
    }
    all = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *all);
    if (all == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "trainer: no memory to describe the devices of %d ranks",
                          trainer->world_size);
    }
    memcpy(own.unique, trainer->device->unique, sizeof own.unique);
    own.flops = cddpi_peak_flops(trainer->device->title,
                                 (enum cddpi_precision)trainer->config->train.precision);
    status = cddp_all_gather(trainer->group, &own, all, sizeof own, CDDP_U8, NULL);
    for (int rank = 0; status == CDDP_OK && rank < trainer->world_size; rank++) {
        known = known && all[rank].flops > 0;
        sum += is_first_there(all, rank) ? all[rank].flops : 0;
    }
    trainer->records.peak_flops = known ? sum : 0;
    cddpi_free(all);
    return status;
}

/* Add the names by which a launcher will start the job again; "job" alone if the launcher is
 * cddp-run. */
static void add_jobs(json_t *line)
{
    struct cddpi_job_name names[CDDPI_JOB_NAMES];
    int count = cddpi_job_names(names);
    json_t *all = json_array();

    for (int i = 0; i < count; i++) {
        (void)json_array_append_new(all, json_string(names[i].text));
    }
    if (count > (cddpi_env(CDDPI_ENV_JOB) != NULL ? 1 : 0)) {
        (void)json_object_set(line, "jobs", all);
    }
    json_decref(all);
}

void cddpi_trainer_report_begin(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const char *threads = cddpi_env(CDDPI_ENV_THREADS);
    char host[256] = "";
    size_t parameters = 0;
    json_t *line;

    if (trainer->records.metrics == NULL) {
        return;
    }
    (void)gethostname(host, sizeof host - 1);
    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        for (size_t i = 0; i < each->param_count; i++) {
            parameters += cddpi_elements(each->params[i].dims, each->params[i].shape);
        }
    }
    line = json_pack(
        "{s:s, s:I, s:I, s:s, s:s*, s:i, s:s, s:s, s:s, s:s*, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
        "kind", "run", "step", (json_int_t)trainer->cursor.step, "epoch",
        (json_int_t)trainer->cursor.epoch, "version", cddp_version(), "job",
        cddpi_env(CDDPI_ENV_JOB), "world_size", trainer->world_size, "backend",
        cddp_group_backend(trainer->group), "device", trainer->device->title, "host", host,
        "threads", threads, "products", cddpi_model_matmul_note(trainer->model), "seed",
        (json_int_t)config->train.seed, "batch_size", (json_int_t)config->train.batch_size,
        "accumulate", (json_int_t)config->train.accumulate, "parameters", (json_int_t)parameters,
        "train_samples", (json_int_t)trainer->train.data.count, "test_samples",
        (json_int_t)trainer->test.data.count);
    add_jobs(line);
    if (trainer->records.peak_flops > 0) {
        (void)json_object_set_new(line, "peak_tflops",
                                  json_real(trainer->records.peak_flops * 1e-12));
    }
    cddpi_metrics_add_object(trainer->records.metrics, line);
}

/* Write the run's page. A run does not need it, so a failure only prints a warning, and the run's
 * own failure stays this thread's last one. */
static void write_page(struct cddpi_trainer *trainer)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    char *dir = cddpi_strdup(cddpi_trainer_run_dir(trainer));
    char *path = dir != NULL ? cddpi_format("%s/report.html", dir) : NULL;

    if (path != NULL && cddpi_report_page_write(&dir, 1, path) != CDDP_OK) {
        cddpi_trainer_warn(trainer, "no report: %s", cddp_last_error());
    }
    cddpi_free(path);
    cddpi_free(dir);
    (void)cddpi_fail_again((cddp_status)failure.status, &failure);
}

void cddpi_trainer_report_end(struct cddpi_trainer *trainer)
{
    struct rusage usage = {0};

    cddpi_progress_end(&trainer->records.progress);
    if (trainer->records.metrics == NULL) {
        return;
    }
    (void)getrusage(RUSAGE_SELF, &usage);
    cddpi_metrics_add_object(trainer->records.metrics,
                             json_pack("{s:s, s:I, s:I, s:b, s:f, s:f}", "kind", "end", "step",
                                       (json_int_t)trainer->cursor.step, "epoch",
                                       (json_int_t)trainer->cursor.epoch, "stopped",
                                       trainer->stopped, "seconds",
                                       (double)(cddpi_now_ns() - trainer->records.began_ns) * 1e-9,
                                       "peak_rss_mib", (double)usage.ru_maxrss / 1024.0));
    write_page(trainer);
}
