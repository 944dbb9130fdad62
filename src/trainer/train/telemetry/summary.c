/* summary.c - words the lines at the start and at the end of a run. */
#include "train/telemetry/summary.h"

#include "base/shape.h"
#include "group/group_info.h"
#include "train/batch_sizes.h"
#include "train/engines/engine.h"

#include <stdio.h>
#include <string.h>

uint64_t cddpi_trainer_parameters(const struct cddpi_trainer *trainer)
{
    uint64_t parameters = 0;

    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        for (size_t i = 0; i < each->params.count; i++) {
            parameters += cddpi_elements(each->params.list[i].dims, each->params.list[i].shape);
        }
    }
    return parameters;
}

/* Write @p number with commas between thousands. */
static const char *with_commas(uint64_t number, char out[32])
{
    char digits[24];
    size_t count = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) {
            out[used++] = ',';
        }
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

static void show_ranks(struct cddpi_trainer *trainer)
{
    int count = trainer->engine->device_count(trainer);
    char devices[256] = "";
    char name[32];
    size_t used = 0;

    for (int i = 0; i < count && used < sizeof devices - sizeof name - 8; i++) {
        trainer->engine->name_device(trainer, i, name, sizeof name);
        used += (size_t)snprintf(devices + used, sizeof devices - used, "%s%s", i > 0 ? ", " : "",
                                 name);
    }
    cddpi_progress_line(&trainer->records.progress, "ranks   %d%s on %s (%s); backend: %s",
                        trainer->world_size, trainer->world_size > 1 ? ", each" : "", devices,
                        trainer->device->title, cddpi_group_backend(trainer->group));
}

static void show_data(struct cddpi_trainer *trainer)
{
    const struct cddpi_dataset *train = &trainer->data.train.data;
    const char *type = cddpi_config_word(trainer->config, "data.type");
    char samples[32], tests[32];
    char kind[64] = "samples";

    with_commas(train->count, samples);
    with_commas(trainer->data.test.data.count, tests);
    if (cddpi_trainer_is_text(trainer)) {
        snprintf(kind, sizeof kind, "sequences of %d tokens", train->context);
    }
    cddpi_progress_line(&trainer->records.progress,
                        "data    %s: %s %s for training, %s for evaluation", type, samples, kind,
                        tests);
}

static void show_batch(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int replicas = trainer->replicas.count;
    long long count = (long long)cddpi_trainer_micro_batches(config, replicas);

    if (cddpi_trainer_by_position(config)) {
        long long all = (long long)cddpi_trainer_all_micro_batches(config,
                                                                   config->train.batch_size);

        cddpi_progress_line(
            &trainer->records.progress,
            "batch   %lld samples per step, in %lld micro-batch%s of at most %lld, at most %lld on "
            "each of %d %s%s",
            (long long)config->train.batch_size, all, all == 1 ? "" : "es",
            (long long)config->train.micro_batch, count, replicas,
            replicas == 1 ? "replica" : "replicas",
            cddpi_trainer_has_same_bits(trainer) ? ": the same bits on any number of them" : "");
        return;
    }
    cddpi_progress_line(&trainer->records.progress,
                        "batch   %lld samples per step, on %d %s, each with %lld micro-batch%s of "
                        "at most %lld",
                        (long long)config->train.batch_size, replicas,
                        replicas == 1 ? "replica" : "replicas", count, count == 1 ? "" : "es",
                        (long long)cddpi_trainer_micro_batch(config, replicas));
}

void cddpi_trainer_show_start(struct cddpi_trainer *trainer)
{
    struct cddpi_progress *progress = &trainer->records.progress;
    char parameters[32];

    cddpi_progress_line(progress, "model   %s: %s parameters%s, %s",
                        cddpi_config_word(trainer->config, "model.type"),
                        with_commas(cddpi_trainer_parameters(trainer), parameters),
                        trainer->replicas.count < trainer->world_size ? " on rank 0" : "",
                        cddpi_config_word(trainer->config, "train.precision"));
    show_ranks(trainer);
    show_data(trainer);
    show_batch(trainer);
    cddpi_progress_line(progress, "folder  %s", cddpi_trainer_run_dir(trainer));
    progress->shown_ns = 0; /* the first step is shown at once */
}

void cddpi_trainer_show_end(struct cddpi_trainer *trainer, bool has_failed, double earlier,
                            double seconds, bool has_page)
{
    struct cddpi_progress *progress = &trainer->records.progress;
    char before[64] = "";

    if (earlier > 0) {
        snprintf(before, sizeof before, ", %.1f of them before it was resumed", earlier);
    }
    cddpi_progress_line(progress, "the run %s %.1f seconds%s", has_failed ? "failed after" : "took",
                        earlier + seconds, before);
    if (has_page) {
        cddpi_progress_line(progress, "report: %s/report.html", cddpi_trainer_run_dir(trainer));
    }
}
