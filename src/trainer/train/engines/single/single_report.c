/* single_report.c - reports results and memory of a run whose ranks have one device each. */
#include "base/streams.h"
#include "train/engines/single/single.h"
#include "train/telemetry/device_memory.h"

#include <math.h>

cddp_status cddpi_single_show_evaluation(struct cddpi_trainer *trainer, uint64_t epoch)
{
    const struct cddpi_evaluation *found = &trainer->evaluation;
    unsigned long long step = trainer->cursor.step;
    long long epochs = trainer->config->train.epochs;

    if (cddpi_trainer_is_text(trainer)) {
        cddpi_progress_line(&trainer->records.progress,
                            "epoch %llu/%lld  step %llu/%llu  val loss %.4f  perplexity %.4g",
                            (unsigned long long)epoch, epochs, step,
                            (unsigned long long)trainer->plan.last_step, found->loss,
                            exp(found->loss));
    } else {
        cddpi_progress_line(&trainer->records.progress,
                            "epoch %llu/%lld  step %llu  test loss %.4f  test accuracy %.2f %%",
                            (unsigned long long)epoch, epochs, step, found->loss,
                            found->accuracy * 100);
    }
    return CDDP_OK;
}

cddp_status cddpi_single_add_metrics(struct cddpi_trainer *trainer, struct cddpi_report_line *line)
{
    (void)trainer;
    (void)line;
    return CDDP_OK;
}

void cddpi_single_print_result(const struct cddpi_trainer *trainer, FILE *file)
{
    const struct cddpi_evaluation *found = &trainer->evaluation;
    unsigned long long step = trainer->cursor.step;

    if (cddpi_trainer_is_text(trainer)) {
        cddpi_say(file, "validation loss %.4f, perplexity %.4g after %llu steps; results: %s\n",
                  found->loss, exp(found->loss), step, cddpi_trainer_run_dir(trainer));
    } else {
        cddpi_say(file, "test accuracy %.2f %% after %llu steps; results: %s\n",
                  found->accuracy * 100, step, cddpi_trainer_run_dir(trainer));
    }
}

struct cddpi_model *cddpi_single_reader(const struct cddpi_trainer *trainer)
{
    return trainer->model;
}

int cddpi_single_device_count(const struct cddpi_trainer *trainer)
{
    (void)trainer;
    return 1;
}

void cddpi_single_name_device(const struct cddpi_trainer *trainer, int device, char *out,
                              size_t bytes)
{
    (void)device;
    snprintf(out, bytes, "%s", cddpi_device_is_async(trainer->device) ? "cuda" : "cpu");
}

void cddpi_single_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    for (int m = 0; m < trainer->model_count; m++) {
        cddpi_held_memory_add_model(all, trainer->models[m].model);
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        cddpi_trainer_add_param_memory(trainer, i, all);
    }
}
