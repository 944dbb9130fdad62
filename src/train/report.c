/* report.c - turns what the ranks measured into lines of metrics and of progress. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/shape.h"
#include "train/peak.h"
#include "train/trainer.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOSS, CORRECT, COUNT, SKIPPED, DATA, FORWARD, BACKWARD, EXPOSED, OPTIMIZER, SUMS };

/* What a rank tells of its device. */
struct place {
    char unique[sizeof((struct cddpi_device *)NULL)->unique];
    double flops;
};

static bool is_first_there(const struct place *places, int rank)
{
    for (int before = 0; before < rank; before++) {
        if (strcmp(places[before].unique, places[rank].unique) == 0) {
            return false; /* they share it */
        }
    }
    return true;
}

cddp_status cddpi_trainer_find_peak(struct cddpi_trainer *trainer)
{
    struct place own = {.flops = 0};
    struct place *all;
    double sum = 0;
    bool known = true;
    cddp_status status;

    if (!cddpi_is_cuda(trainer->device)) {
        return CDDP_OK;
    }
    all = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *all);
    if (all == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory for %d places",
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
    trainer->peak_flops = known ? sum : 0;
    cddpi_free(all);
    return status;
}

static void show_progress(struct cddpi_trainer *trainer, double step_ms, double exposed_ms,
                          double predictions_per_s, double mfu)
{
    uint64_t left = trainer->last_step > trainer->at.step ? trainer->last_step - trainer->at.step
                                                          : 0;
    struct cddpi_progress_state state = {
        .epoch = trainer->at.epoch + (trainer->at.position > 0),
        .epochs = (uint64_t)trainer->config->train.epochs,
        .step = trainer->at.step,
        .steps = trainer->last_step,
        .loss = trainer->last_loss,
        .skipped = (uint64_t)trainer->loss_scale.skipped,
        .rate = predictions_per_s,
        .unit = cddpi_trainer_is_text(trainer) ? "tokens" : "samples",
        .mfu_percent = 100 * mfu,
        .exposed_percent = step_ms > 0 ? 100 * exposed_ms / step_ms : 0,
        .seconds_left = step_ms * 1e-3 * (double)left,
    };

    cddpi_progress_step(&trainer->progress, &state);
}

cddp_status cddpi_trainer_report(struct cddpi_trainer *trainer, double lr, double grad_norm)
{
    static const char *const always[] = {
        "loss",    "accuracy",   "lr",          "grad_norm",       "samples_per_s", "step_ms",
        "data_ms", "forward_ms", "backward_ms", "exposed_comm_ms", "optimizer_ms"};
    enum { ALWAYS = sizeof always / sizeof always[0], MOST = ALWAYS + 4 };
    const char *names[MOST];
    size_t count = ALWAYS;
    struct cddpi_interval *interval = &trainer->interval;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    double sums[SUMS];
    double values[MOST];
    double taken; /* predictions in steps that were not skipped */
    double rate;  /* predictions a second */
    double scale; /* nanoseconds summed over ranks and steps -> milliseconds of one step */
    double parts; /* the same of steps whose parts' times are known; NaN: of none are */
    double step_ms;
    double mfu;
    cddp_status status = cddp_ddp_get_stats(trainer->ddp, &stats);

    if (status != CDDP_OK) {
        return status;
    }
    interval->exposed_ns = (int64_t)(stats.total_exposed_ns - trainer->exposed_before_ns);
    trainer->exposed_before_ns = stats.total_exposed_ns;
    sums[LOSS] = interval->loss_sum;
    sums[CORRECT] = interval->correct;
    sums[COUNT] = interval->count;
    sums[SKIPPED] = interval->skipped_count;
    sums[DATA] = (double)interval->data_ns;
    sums[FORWARD] = (double)interval->forward_ns;
    sums[BACKWARD] = (double)interval->backward_ns;
    sums[EXPOSED] = (double)interval->exposed_ns;
    sums[OPTIMIZER] = (double)interval->optimizer_ns;
    status = cddp_all_reduce(trainer->group, sums, sums, SUMS, CDDP_F64, CDDP_OP_SUM, NULL);
    if (status != CDDP_OK) {
        return status;
    }
    scale = 1e-6 / ((double)interval->steps * trainer->world_size);
    parts = interval->steps > interval->whole
                ? scale * (double)interval->steps / (double)(interval->steps - interval->whole)
                : NAN;
    step_ms = (double)interval->step_ns * 1e-6 / (double)interval->steps;
    taken = sums[COUNT] - sums[SKIPPED];
    trainer->last_loss = taken > 0 ? sums[LOSS] / taken : NAN;
    values[0] = trainer->last_loss;
    values[1] = taken > 0 ? sums[CORRECT] / taken : NAN;
    values[2] = lr;
    values[3] = grad_norm;
    rate = interval->step_ns > 0 ? sums[COUNT] * 1e9 / (double)interval->step_ns : 0;
    values[4] = rate / trainer->predictions;
    values[5] = step_ms;
    for (int i = DATA; i < SUMS; i++) {
        values[6 + i - DATA] = sums[i] * (i == DATA ? scale : parts);
    }
    mfu = cddpi_mfu(cddpi_model_work(trainer->model), values[4], 1, trainer->peak_flops);
    memcpy(names, always, sizeof always);
    if (cddpi_trainer_is_text(trainer)) {
        names[count] = "tokens_per_s";
        values[count++] = rate;
    }
    if (trainer->peak_flops > 0) {
        names[count] = "mfu";
        values[count++] = mfu;
    }
    if (trainer->graphs != NULL) {
        names[count] = "replayed_steps";
        values[count++] = (double)interval->replayed;
    }
    if (trainer->config->train.precision == CDDPI_PRECISION_FP16) {
        names[count] = "skipped_steps";
        values[count++] = (double)interval->skipped;
    }
    if (trainer->metrics != NULL) {
        cddpi_metrics_add(trainer->metrics, "train", trainer->at.step,
                          trainer->at.epoch + (trainer->at.position > 0), names, values, count);
    }
    show_progress(trainer, step_ms, sums[EXPOSED] * parts, rate, mfu);
    memset(interval, 0, sizeof *interval);
    return CDDP_OK;
}

void cddpi_trainer_report_begin(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const char *threads = cddpi_env(CDDPI_ENV_THREADS);
    char host[256] = "";
    size_t parameters = 0;
    json_t *line;

    if (trainer->metrics == NULL) {
        return;
    }
    (void)gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < trainer->param_count; i++) {
        parameters += cddpi_elements(trainer->params[i].dims, trainer->params[i].shape);
    }
    line = json_pack(
        "{s:s, s:I, s:I, s:s, s:s*, s:i, s:s, s:s, s:s, s:s*, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
        "kind", "run", "step", (json_int_t)trainer->at.step, "epoch", (json_int_t)trainer->at.epoch,
        "version", cddp_version(), "job", cddpi_env(CDDPI_ENV_JOB), "world_size",
        trainer->world_size, "backend", cddp_group_backend(trainer->group), "device",
        trainer->device->title, "host", host, "threads", threads, "products",
        cddpi_model_products(trainer->model), "seed", (json_int_t)config->train.seed, "batch_size",
        (json_int_t)config->train.batch_size, "accumulate", (json_int_t)config->train.accumulate,
        "parameters", (json_int_t)parameters, "train_samples",
        (json_int_t)trainer->train_data.count, "test_samples",
        (json_int_t)trainer->test_data.count);
    if (trainer->peak_flops > 0) {
        (void)json_object_set_new(line, "peak_tflops", json_real(trainer->peak_flops * 1e-12));
    }
    cddpi_metrics_add_object(trainer->metrics, line);
}

void cddpi_trainer_report_end(struct cddpi_trainer *trainer)
{
    struct rusage usage = {0};

    cddpi_progress_end(&trainer->progress);
    if (trainer->metrics == NULL) {
        return;
    }
    (void)getrusage(RUSAGE_SELF, &usage);
    cddpi_metrics_add_object(
        trainer->metrics,
        json_pack("{s:s, s:I, s:I, s:b, s:f, s:f}", "kind", "end", "step",
                  (json_int_t)trainer->at.step, "epoch", (json_int_t)trainer->at.epoch, "stopped",
                  trainer->stopped, "seconds", (double)(cddpi_now_ns() - trainer->began_ns) * 1e-9,
                  "peak_rss_mib", (double)usage.ru_maxrss / 1024.0));
}

void cddpi_trainer_warn(struct cddpi_trainer *trainer, const char *format, ...)
{
    char text[4096];
    size_t length = (size_t)snprintf(text, sizeof text, "cddp-train: warning: ");
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - length - 1, format, arguments);
    va_end(arguments);
    length = strlen(text);
    if (text[length - 1] != '\n') {
        memcpy(text + length, "\n", 2);
    }
    cddpi_progress_end(&trainer->progress);
    cddpi_print(text);
}
