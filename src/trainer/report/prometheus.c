/* prometheus.c - owns the file that Prometheus reads: names in its style, values in base units. The
 * file is replaced as a whole, so that no reader sees half of it. */
#include "report/prometheus.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/replace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS, EPOCH, WORLD_SIZE, GENERATION, UPDATED }; /* rows that are not from metrics.jsonl */

static const struct {
    const char *metric; /* its name in metrics.jsonl; NULL: not in there */
    const char *name, *type, *help;
    double scale; /* to its base unit */
} rows[] = {
    [STEPS] = {NULL, "cddp_train_steps_total", "counter", "Optimizer steps done.", 1},
    [EPOCH] = {NULL, "cddp_train_epoch", "gauge", "The epoch of the last step, counted from 1.", 1},
    [WORLD_SIZE] = {NULL, "cddp_train_world_size", "gauge", "Ranks of the job.", 1},
    [GENERATION] = {NULL, "cddp_train_generation", "gauge",
                    "How often the job was restarted, or went on with other ranks.", 1},
    [UPDATED] = {NULL, "cddp_train_last_update_timestamp_seconds", "gauge",
                 "When these numbers were new, in Unix time.", 1},
    {"loss", "cddp_train_loss", "gauge", "Mean training loss since the line before.", 1},
    {"accuracy", "cddp_train_accuracy_ratio", "gauge", "Part of the predictions that was right.",
     1},
    {"lr", "cddp_train_learning_rate", "gauge", "Learning rate of the last step.", 1},
    {"grad_norm", "cddp_train_gradient_norm", "gauge", "Norm of the last step's gradient.", 1},
    {"samples_per_s", "cddp_train_samples_per_second", "gauge", "Samples of all ranks a second.",
     1},
    {"tokens_per_s", "cddp_train_tokens_per_second", "gauge", "Tokens of all ranks a second.", 1},
    {"mfu", "cddp_train_model_flop_utilisation_ratio", "gauge",
     "Part of the devices' peak that the model uses.", 1},
    {"step_ms", "cddp_train_step_seconds", "gauge", "Time of a step.", 1e-3},
    {"data_ms", "cddp_train_data_wait_seconds", "gauge", "Waiting for data in a step.", 1e-3},
    {"forward_ms", "cddp_train_forward_seconds", "gauge", "Forward in a step.", 1e-3},
    {"backward_ms", "cddp_train_backward_seconds", "gauge", "Backward in a step.", 1e-3},
    {"exposed_comm_ms", "cddp_train_exposed_communication_seconds", "gauge",
     "Communication in a step that compute did not hide.", 1e-3},
    {"slowest_rank_ms", "cddp_train_slowest_rank_seconds", "gauge",
     "The slowest rank's own time for a step, without waiting for other ranks.", 1e-3},
    {"median_rank_ms", "cddp_train_median_rank_seconds", "gauge",
     "The median of the ranks' own times for a step.", 1e-3},
    {"optimizer_ms", "cddp_train_optimizer_seconds", "gauge", "The update in a step.", 1e-3},
    {"skipped_steps", "cddp_train_skipped_steps", "gauge",
     "Steps that overflowed since the line before.", 1},
    {"peak_rss_mib", "cddp_train_peak_resident_memory_bytes", "gauge",
     "The most memory that rank 0 has had.", 1048576},
    {"gpu_memory_mib", "cddp_train_gpu_memory_bytes", "gauge",
     "The most memory in use on a rank's GPU.", 1048576},
    {"gpu_clock_mhz", "cddp_train_gpu_clock_hertz", "gauge", "The lowest clock of a rank's GPU.",
     1e6},
    {"gpu_power_w", "cddp_train_gpu_power_watts", "gauge", "The power that all GPUs take.", 1},
    {"gpu_temperature_c", "cddp_train_gpu_temperature_celsius", "gauge",
     "The temperature of the hottest GPU.", 1},
    {"throttled_ranks", "cddp_train_throttled_ranks", "gauge",
     "Ranks whose GPU is slowed down by heat or its hardware.", 1},
    {"eval_loss", "cddp_train_eval_loss", "gauge", "Loss on the test data.", 1},
    {"eval_accuracy", "cddp_train_eval_accuracy_ratio", "gauge", "Accuracy on the test data.", 1},
    {"eval_rmse", "cddp_train_eval_rmse", "gauge",
     "Root of the mean squared error on the test data.", 1},
    {"eval_mae", "cddp_train_eval_mae", "gauge", "Mean absolute error on the test data.", 1},
};

enum { ROWS = sizeof rows / sizeof rows[0] };
enum { PERIOD_NS = 1000000000 };

struct cddpi_prometheus {
    char *path, *run;
    double values[ROWS]; /* NaN: unknown */
    int64_t written_ns;
    bool is_new; /* a value has changed since the file was written */
    bool failed; /* the user was warned */
};

cddp_status cddpi_prometheus_open(const char *path, const char *run, int world_size, int generation,
                                  struct cddpi_prometheus **out)
{
    struct cddpi_prometheus *made = cddpi_zalloc(sizeof *made);

    if (made != NULL) {
        made->path = cddpi_strdup(path);
        made->run = cddpi_strdup(run);
    }
    if (made == NULL || made->path == NULL || made->run == NULL) {
        cddpi_prometheus_close(made);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", path);
    }
    for (int i = 0; i < ROWS; i++) {
        made->values[i] = NAN;
    }
    made->values[WORLD_SIZE] = world_size;
    made->values[GENERATION] = generation;
    *out = made;
    return CDDP_OK;
}

/* Write a label's value with backslash, quote and newline escaped. */
static void put_label(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') {
            fputc('\\', file);
        }
        if (*text == '\n') {
            fputs("\\n", file);
        } else {
            fputc(*text, file);
        }
    }
}

static void put_rows(const struct cddpi_prometheus *prometheus, FILE *file)
{
    for (int i = 0; i < ROWS; i++) {
        if (!isfinite(prometheus->values[i])) {
            continue;
        }
        fprintf(file, "# HELP %s %s\n# TYPE %s %s\n%s{run=\"", rows[i].name, rows[i].help,
                rows[i].name, rows[i].type, rows[i].name);
        put_label(file, prometheus->run);
        fprintf(file, "\"} %.15g\n", prometheus->values[i]);
    }
}

static cddp_status put_text(void *context, struct cddpi_writer *writer)
{
    return cddpi_writer_put(writer, context, strlen(context));
}

/* The file is not flushed to the disk: a training step would wait for that, and the next file comes
 * within a second. */
static void write_file(struct cddpi_prometheus *prometheus)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    cddp_status status;

    if (memory != NULL) {
        put_rows(prometheus, memory);
    }
    status = memory != NULL && fclose(memory) == 0
                 ? cddpi_file_replace_quickly(prometheus->path, put_text, text)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", prometheus->path);
    free(text);
    if (status != CDDP_OK && !prometheus->failed) {
        cddpi_log(CDDPI_LOG_WARN, "train.prometheus is not written: %s", cddp_last_error());
    }
    prometheus->failed = prometheus->failed || status != CDDP_OK;
    prometheus->is_new = false;
    prometheus->written_ns = cddpi_now_ns();
}

void cddpi_prometheus_update(struct cddpi_prometheus *prometheus, uint64_t step, uint64_t epoch,
                             const char *const *names, const double *values, size_t count)
{
    struct timespec now;

    if (prometheus == NULL) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    prometheus->values[STEPS] = (double)step;
    prometheus->values[EPOCH] = (double)epoch;
    prometheus->values[UPDATED] = (double)now.tv_sec;
    for (size_t i = 0; i < count; i++) {
        for (int r = 0; r < ROWS; r++) {
            if (rows[r].metric != NULL && strcmp(rows[r].metric, names[i]) == 0) {
                prometheus->values[r] = values[i] * rows[r].scale;
            }
        }
    }
    prometheus->is_new = true;
    if (prometheus->written_ns == 0 || cddpi_now_ns() - prometheus->written_ns >= PERIOD_NS) {
        write_file(prometheus);
    }
}

void cddpi_prometheus_close(struct cddpi_prometheus *prometheus)
{
    if (prometheus == NULL) {
        return;
    }
    if (prometheus->is_new) {
        write_file(prometheus);
    }
    cddpi_free(prometheus->path);
    cddpi_free(prometheus->run);
    cddpi_free(prometheus);
}
