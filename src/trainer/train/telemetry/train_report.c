/* train_report.c - writes the ranks' measurements as lines of metrics and progress. */
#include "train/telemetry/train_report.h"

#include "base/error.h"
#include "train/engines/engine.h"
#include "train/telemetry/device_memory.h"
#include "train/telemetry/mfu.h"

#include <sys/resource.h>

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
        .skipped = (uint64_t)trainer->loss_scale.skipped,
        .rate = means->predictions_per_s,
        .unit = cddpi_trainer_is_text(trainer) ? "tokens" : "samples",
        .mfu_percent = 100 * mfu,
        .exposed_percent = means->step_ms > 0 ? 100 * means->exposed_comm_ms / means->step_ms : 0,
        .seconds_left = means->step_ms * 1e-3 * (double)left,
    };

    cddpi_progress_step(&trainer->records.progress, &state);
}

static double peak_rss_mib(void)
{
    struct rusage usage = {0};

    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024.0;
}

/* Multiplications of one sample's forward in this rank's part of the model. */
static double work_of(const struct cddpi_trainer *trainer)
{
    double work = 0;

    for (int m = 0; m < trainer->model_count; m++) {
        work += cddpi_model_work(trainer->models[m].model);
    }
    return work;
}

cddp_status cddpi_trainer_report(struct cddpi_trainer *trainer, double lr, double grad_norm)
{
    struct cddpi_report_line line = {.count = 0};
    struct cddpi_interval_means means;
    double samples_per_s, mfu;

    CDDPI_TRY(
        cddpi_interval_close(&trainer->records.interval, trainer->group, trainer->ddp, &means));
    samples_per_s = means.predictions_per_s / trainer->predictions;
    mfu = cddpi_mfu(work_of(trainer), samples_per_s, 1, trainer->records.peak_flops);
    cddpi_report_line_put(&line, "loss", means.loss);
    cddpi_report_line_put(&line, "accuracy", means.accuracy);
    CDDPI_TRY(trainer->engine->add_metrics(trainer, &line));
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
    if (trainer->graphs != NULL) {
        cddpi_report_line_put(&line, "replayed_steps", (double)means.replayed_steps);
    }
    if (trainer->config->train.precision == CDDPI_PRECISION_FP16) {
        cddpi_report_line_put(&line, "skipped_steps", (double)means.skipped_steps);
    }
    cddpi_report_line_put(&line, "peak_rss_mib", peak_rss_mib());
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
    return cddpi_trainer_report_memory(trainer);
}
