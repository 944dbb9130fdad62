/* train_report.c - writes lines of metrics and progress: about the run as a whole, the memory that
 * training holds on each device of all ranks, and the ranks' measurements. */
#include "train/telemetry/train_report.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "group/group_info.h"
#include "report/metrics.h"
#include "report/report_page.h"
#include "report/run_generations.h"
#include "train/batch_sizes.h"
#include "train/engines/engine.h"
#include "train/telemetry/device_report.h"
#include "train/telemetry/mfu.h"
#include "train/telemetry/pace_report.h"
#include "train/telemetry/summary.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void cddpi_trainer_add_param_memory(const struct cddpi_trainer *trainer, size_t index,
                                    struct cddpi_held_memory *out)
{
    out->gradients += cddpi_tensors_bytes(&trainer->params.list[index], 1);
    out->optimizer += cddpi_optim_state_bytes(trainer->step.optim, index);
}

/* @p device is one of this rank's: all ranks have devices of the same names. */
static json_t *describe_memory(const struct cddpi_trainer *trainer, int rank, int device,
                               const struct cddpi_held_memory *held)
{
    char name[32];

    trainer->engine->name_device(trainer, device, name, sizeof name);
    return json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "rank", rank, "device", name,
                     "parameters_bytes", (json_int_t)held->parameters, "gradients_bytes",
                     (json_int_t)held->gradients, "optimizer_bytes", (json_int_t)held->optimizer,
                     "activations_bytes", (json_int_t)held->activations, "edges_bytes",
                     (json_int_t)held->edges, "outputs_bytes", (json_int_t)held->outputs);
}

/* Rank 0 writes the line {"kind": "memory", "devices": [...]} for all ranks. */
static cddp_status report_memory(struct cddpi_trainer *trainer)
{
    int count = trainer->engine->device_count(trainer);
    int rows = count * trainer->world_size;
    struct cddpi_held_memory *own = cddpi_zalloc_array((size_t)count, sizeof *own);
    struct cddpi_held_memory *all = cddpi_zalloc_array((size_t)rows, sizeof *all);
    json_t *devices;
    cddp_status status;

    if (own == NULL || all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "metrics: no memory for %d devices", rows);
        goto end;
    }
    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        each->engine->add_memory(each, own);
    }
    CDDPI_TRY_GOTO(
        end, status,
        cddp_gather(trainer->group, own, all, (size_t)count * sizeof *own, CDDP_U8, 0, NULL));
    if (trainer->records.metrics != NULL) {
        devices = json_array();
        for (int i = 0; i < rows; i++) { /* a row per device of each rank */
            (void)json_array_append_new(devices,
                                        describe_memory(trainer, i / count, i % count, &all[i]));
        }
        cddpi_metrics_add_object(trainer->records.metrics,
                                 json_pack("{s:s, s:I, s:o}", "kind", "memory", "step",
                                           (json_int_t)trainer->cursor.step, "devices", devices));
    }
end:
    cddpi_free(all);
    cddpi_free(own);
    return status;
}

/* What a rank reports about its device. */
struct report_run_place {
    char unique[sizeof((struct cddpi_device *)NULL)->unique];
    double flops;
};

cddp_status cddpi_trainer_find_peak_flops(struct cddpi_trainer *trainer)
{
    struct report_run_place own = {.flops = 0};
    struct report_run_place *all;
    double sum = 0;
    bool known = true;
    int first;
    cddp_status status;

    if (!cddpi_device_is_async(trainer->device)) {
        return CDDP_OK;
    }
    cddpi_devices_begin(trainer);
    all = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *all);
    CDDPI_TRY_MEMORY(all != NULL, "trainer: no memory to describe the devices of %d ranks",
                     trainer->world_size);
    memcpy(own.unique, trainer->device->unique, sizeof own.unique);
    own.flops = cddpi_peak_flops(trainer->device->title,
                                 (enum cddpi_precision)trainer->config->train.precision);
    status = cddp_all_gather(trainer->group, &own, all, sizeof own, CDDP_U8, NULL);
    for (int rank = 0; status == CDDP_OK && rank < trainer->world_size; rank++) {
        known = known && all[rank].flops > 0;
        first = 0;
        while (strcmp(all[first].unique, all[rank].unique) != 0) {
            first++;
        }
        sum += first == rank ? all[rank].flops : 0; /* else ranks share this device */
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

/* Say, once in a run, that its bits depend on the number of ranks, which has changed. */
static void tell_ranks(struct cddpi_trainer *trainer)
{
    int before = cddpi_metrics_earlier_ranks(trainer->records.metrics);

    if (before > 0 && before != trainer->world_size &&
        !cddpi_trainer_by_position(trainer->config)) {
        cddpi_progress_line(&trainer->records.progress,
                            "the run goes on with %d rank%s instead of %d: without "
                            "train.micro_batch, its bits depend on the number of ranks",
                            trainer->world_size, trainer->world_size == 1 ? "" : "s", before);
    }
}

void cddpi_trainer_report_begin(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const char *threads = cddpi_env(CDDPI_ENV_THREADS);
    char host[256] = "";
    json_t *line;

    if (trainer->records.metrics == NULL) {
        return;
    }
    (void)gethostname(host, sizeof host - 1);
    line = json_pack(
        "{s:s, s:I, s:I, s:s, s:s*, s:i, s:s, s:s, s:s, s:s*, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
        "kind", "run", "step", (json_int_t)trainer->cursor.step, "epoch",
        (json_int_t)trainer->cursor.epoch, "version", cddp_version(), "job",
        cddpi_env(CDDPI_ENV_JOB), "world_size", trainer->world_size, "backend",
        cddpi_group_backend(trainer->group), "device", trainer->device->title, "host", host,
        "threads", threads, "products", cddpi_model_matmul_note(trainer->model), "seed",
        (json_int_t)config->train.seed, "batch_size", (json_int_t)config->train.batch_size,
        "accumulate", (json_int_t)config->train.accumulate, "parameters",
        (json_int_t)cddpi_trainer_parameters(trainer), "train_samples",
        (json_int_t)trainer->data.train.data.count, "test_samples",
        (json_int_t)trainer->data.test.data.count);
    add_jobs(line);
    cddpi_generation_describe(line);
    if (config->train.micro_batch > 0) {
        (void)json_object_set_new(line, "micro_batch",
                                  json_integer((json_int_t)config->train.micro_batch));
    }
    if (trainer->records.peak_flops > 0) {
        (void)json_object_set_new(line, "peak_tflops",
                                  json_real(trainer->records.peak_flops * 1e-12));
    }
    cddpi_metrics_add_object(trainer->records.metrics, line);
    cddpi_metrics_add_generation(trainer->records.metrics, trainer->cursor.step, cddpi_generation(),
                                 trainer->world_size);
    tell_ranks(trainer);
    cddpi_trainer_show_start(trainer);
}

/* Write the run's page. A run does not need it, so a failure only prints a warning, and the run's
 * own failure stays this thread's last one. Returns whether there is a page. */
static bool write_page(struct cddpi_trainer *trainer)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    char *dir = cddpi_strdup(cddpi_trainer_run_dir(trainer));
    char *path = dir != NULL ? cddpi_format("%s/report.html", dir) : NULL;
    bool written = path != NULL && cddpi_report_page_write(&dir, 1, path) == CDDP_OK;

    if (path != NULL && !written) {
        cddpi_trainer_warn(trainer, "no report: %s", cddp_last_error());
    }
    cddpi_free(path);
    cddpi_free(dir);
    (void)cddpi_fail_again((cddp_status)failure.status, &failure);
    return written;
}

static double peak_rss_mib(void)
{
    struct rusage usage = {0};

    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024.0;
}

void cddpi_trainer_report_end(struct cddpi_trainer *trainer, bool has_failed)
{
    double seconds = (double)(cddpi_now_ns() - trainer->records.began_ns) * 1e-9;
    double earlier;

    cddpi_progress_end(&trainer->records.progress);
    if (trainer->records.metrics == NULL) {
        return;
    }
    earlier = cddpi_metrics_earlier_seconds(trainer->records.metrics);
    cddpi_metrics_add_object(trainer->records.metrics,
                             json_pack("{s:s, s:I, s:I, s:b, s:f, s:f, s:f}", "kind", "end", "step",
                                       (json_int_t)trainer->cursor.step, "epoch",
                                       (json_int_t)trainer->cursor.epoch, "stopped",
                                       trainer->step.stopped, "seconds", seconds, "run_seconds",
                                       earlier + seconds, "peak_rss_mib", peak_rss_mib()));
    cddpi_trainer_show_end(trainer, has_failed, earlier, seconds, write_page(trainer));
}

void cddpi_report_line_put(struct cddpi_report_line *line, const char *name, double value)
{
    line->names[line->count] = name;
    line->values[line->count++] = value;
}

static void show_progress(struct cddpi_trainer *trainer, const struct cddpi_interval_means *means,
                          double mfu)
{
    uint64_t left = trainer->plan.last_step > trainer->cursor.step
                        ? trainer->plan.last_step - trainer->cursor.step
                        : 0;
    struct cddpi_progress_state state = {
        .epoch = trainer->cursor.epoch + (trainer->cursor.position > 0),
        .epochs = (uint64_t)trainer->config->train.epochs,
        .step = trainer->cursor.step,
        .steps = trainer->plan.last_step,
        .loss = means->loss,
        .skipped = (uint64_t)trainer->step.loss_scale.skipped,
        .rate = means->predictions_per_s,
        .unit = cddpi_trainer_is_text(trainer) ? "tokens" : "samples",
        .mfu_percent = 100 * mfu,
        .exposed_percent = means->step_ms > 0 ? 100 * means->exposed_comm_ms / means->step_ms : 0,
        .seconds_left = means->step_ms * 1e-3 * (double)left,
    };

    cddpi_progress_step(&trainer->records.progress, &state);
}

/* Add the slowest rank to @p line, on rank 0. */
static cddp_status report_pace(struct cddpi_trainer *trainer, struct cddpi_report_line *line)
{
    struct cddpi_pace_result result;

    CDDPI_TRY(cddpi_pace_compare(trainer, &result));
    if (result.slowest >= 0) {
        cddpi_report_line_put(line, "slowest_rank", result.slowest);
        cddpi_report_line_put(line, "slowest_rank_ms", result.slowest_ms);
        cddpi_report_line_put(line, "median_rank_ms", result.median_ms);
    }
    return CDDP_OK;
}

static void put_known(struct cddpi_report_line *line, const char *name, double value)
{
    if (isfinite(value)) {
        cddpi_report_line_put(line, name, value);
    }
}

/* Add what the ranks' devices measure to @p line, on rank 0. */
static cddp_status report_devices(struct cddpi_trainer *trainer, struct cddpi_report_line *line)
{
    struct cddpi_device_extremes extremes;

    CDDPI_TRY(cddpi_devices_report(trainer, &extremes));
    put_known(line, "gpu_memory_mib", extremes.most_memory_mib);
    put_known(line, "gpu_clock_mhz", extremes.least_clock_mhz);
    put_known(line, "gpu_power_w", extremes.all_power_w);
    put_known(line, "gpu_temperature_c", extremes.most_temperature_c);
    put_known(line, "throttled_ranks", extremes.throttled);
    return CDDP_OK;
}

cddp_status cddpi_trainer_report(struct cddpi_trainer *trainer, double lr, double grad_norm)
{
    struct cddpi_report_line line = {.count = 0};
    struct cddpi_interval_means means;
    double work = 0; /* multiplications of a sample's forward in this rank's part of the model */
    double samples_per_s, mfu;

    cddpi_pace_note(trainer);
    cddpi_devices_note(trainer);
    CDDPI_TRY(
        cddpi_interval_close(&trainer->records.interval, trainer->group, trainer->ddp, &means));
    samples_per_s = means.predictions_per_s / trainer->models.predictions;
    for (int m = 0; m < trainer->models.count; m++) {
        work += cddpi_model_work(trainer->models.list[m].model);
    }
    mfu = cddpi_mfu(work, samples_per_s, 1, trainer->records.peak_flops);
    cddpi_report_line_put(&line, "loss", means.loss);
    if (!cddpi_trainer_is_regression(trainer)) {
        cddpi_report_line_put(&line, "accuracy", means.accuracy);
    }
    if (trainer->engine->add_metrics != NULL) {
        CDDPI_TRY(trainer->engine->add_metrics(trainer, &line));
    }
    cddpi_report_line_put(&line, "lr", lr);
    cddpi_report_line_put(&line, "grad_norm", grad_norm);
    cddpi_report_line_put(&line, "samples_per_s", samples_per_s);
    cddpi_report_line_put(&line, "step_ms", means.step_ms);
    cddpi_report_line_put(&line, "data_ms", means.data_ms);
    cddpi_report_line_put(&line, "forward_ms", means.forward_ms);
    cddpi_report_line_put(&line, "backward_ms", means.backward_ms);
    cddpi_report_line_put(&line, "exposed_comm_ms", means.exposed_comm_ms);
    cddpi_report_line_put(&line, "peer_wait_ms", means.peer_wait_ms);
    cddpi_report_line_put(&line, "optimizer_ms", means.optimizer_ms);
    if (cddpi_trainer_is_text(trainer)) {
        cddpi_report_line_put(&line, "tokens_per_s", means.predictions_per_s);
    }
    if (trainer->records.peak_flops > 0) {
        cddpi_report_line_put(&line, "mfu", mfu);
    }
    if (trainer->step.graphs != NULL) {
        cddpi_report_line_put(&line, "replayed_steps", (double)means.replayed_steps);
    }
    if (trainer->config->train.precision == CDDPI_PRECISION_FP16) {
        cddpi_report_line_put(&line, "skipped_steps", (double)means.skipped_steps);
    }
    cddpi_report_line_put(&line, "peak_rss_mib", peak_rss_mib());
    if (means.compares) {
        CDDPI_TRY(report_pace(trainer, &line));
    }
    if (means.measures) {
        CDDPI_TRY(report_devices(trainer, &line));
    }
    if (trainer->rank == 0) {
        (void)cddpi_trainer_keep_run_dir(trainer); /* it has warned about its failure */
    }
    if (trainer->records.metrics != NULL) {
        cddpi_metrics_add(trainer->records.metrics, "train", trainer->cursor.step,
                          trainer->cursor.epoch + (trainer->cursor.position > 0), line.names,
                          line.values, line.count);
    }
    show_progress(trainer, &means, mfu);
    if (trainer->records.told_memory) {
        return CDDP_OK;
    }
    trainer->records.told_memory = true;
    return report_memory(trainer);
}
