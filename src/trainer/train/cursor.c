/* cursor.c - reads the position of a run from the state.json of its checkpoint. */
#include "train/cursor.h"

#include "base/env.h"
#include "base/error.h"
#include "train/batch_sizes.h"
#include "train/normalize.h"
#include "train/trainer.h"

#include <cddp/checkpoint.h>
#include <inttypes.h>
#include <string.h>

/* The contents of a checkpoint's state.json. */
struct cursor_state {
    uint64_t step, epoch, position;
    int64_t seed, samples, batch_size, threads;
    int64_t micro_batch;   /* samples; 0: ranks' shares were cut */
    int64_t context;       /* tokens of a sequence; 0: unknown, or no tokens */
    const json_t *digests; /* of the data; NULL: unknown. Borrowed from the document */
    const char *order;     /* NULL: not stated */
};

const char *cddpi_cursor_order(const struct cddpi_trainer *trainer)
{
    return cddpi_config_word(trainer->config, "data.order");
}

static cddp_status read_integer(const char *path, const json_t *state, const char *field,
                                int64_t *out)
{
    const json_t *value = json_object_get(state, field);

    if (!json_is_integer(value)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s/state.json: %s is %s", path, field,
                          value == NULL ? "missing" : "not a whole number");
    }
    *out = json_integer_value(value);
    return CDDP_OK;
}

/* A number of steps, epochs or samples. */
static cddp_status read_count(const char *path, const json_t *state, const char *field,
                              uint64_t *out)
{
    int64_t value = 0;

    CDDPI_TRY(read_integer(path, state, field, &value));
    if (value < 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/state.json: %s is %" PRId64 ", but it cannot be below 0", path, field,
                          value);
    }
    *out = (uint64_t)value;
    return CDDP_OK;
}

static cddp_status read_state(const char *path, const json_t *state, struct cursor_state *out)
{
    CDDPI_TRY(read_count(path, state, "step", &out->step));
    CDDPI_TRY(read_count(path, state, "epoch", &out->epoch));
    CDDPI_TRY(read_count(path, state, "position", &out->position));
    CDDPI_TRY(read_integer(path, state, "seed", &out->seed));
    CDDPI_TRY(read_integer(path, state, "samples", &out->samples));
    CDDPI_TRY(read_integer(path, state, "batch_size", &out->batch_size));
    out->threads = 1; /* the default */
    if (json_object_get(state, "threads") != NULL) {
        CDDPI_TRY(read_integer(path, state, "threads", &out->threads));
    }
    if (json_object_get(state, "micro_batch") != NULL) {
        CDDPI_TRY(read_integer(path, state, "micro_batch", &out->micro_batch));
    }
    out->order = json_string_value(json_object_get(state, "order"));
    /* Checkpoints of earlier versions lack these. */
    out->context = json_integer_value(json_object_get(state, "context"));
    out->digests = json_object_get(state, "data");
    return CDDP_OK;
}

/* The configuration key that names the training data. */
static const char *data_key(const struct cddpi_config *config)
{
    return config->data.type == CDDPI_DATA_IDX         ? "data.train_images"
           : config->data.type == CDDPI_DATA_SYNTHETIC ? "data.samples"
                                                       : "data.train";
}

/* Training on other contents would be another training, and nothing else would show it. */
static cddp_status check_contents(struct cddpi_trainer *trainer, const char *path,
                                  const struct cursor_state *state)
{
    const struct cddpi_config *config = trainer->config;

    for (size_t i = 0; i < CDDPI_DATA_DIGESTS && i < json_array_size(state->digests); i++) {
        const char *before = json_string_value(json_array_get(state->digests, i));
        const char *key = data_key(config);
        char now[20];

        if (i == 1 && config->data.type == CDDPI_DATA_IDX) {
            key = "data.train_labels";
        } else if (i == 1 && config->data.train_targets.count > 0) {
            key = "data.train_targets";
        }
        snprintf(now, sizeof now, "%016llx", (unsigned long long)trainer->data.digests[i]);
        if (before == NULL || trainer->data.digests[i] == 0 || strcmp(before, now) == 0) {
            continue;
        }
        if (config->train.resume_data == CDDPI_RESUME_DATA_SAME) {
            return cddpi_config_fail(config, key,
                                     "the data have other contents than those that %s was made "
                                     "with, but as many samples. Continue with the old data, or "
                                     "set train.resume_data = \"any\" to continue with these",
                                     path);
        }
        cddpi_trainer_warn(trainer,
                           "%s: the data have other contents than those that %s was made with", key,
                           path);
    }
    return CDDP_OK;
}

/* Check that the number of samples is the same, and that they are cut in the same way. */
static cddp_status check_samples(const struct cddpi_trainer *trainer, const char *path,
                                 const struct cursor_state *state)
{
    const struct cddpi_config *config = trainer->config;
    bool is_text = cddpi_trainer_is_text(trainer);

    if (is_text && state->context > 0 && state->context != trainer->data.train.data.context) {
        return cddpi_config_fail(config, "model.context",
                                 "is %d, but %s was made with %" PRId64
                                 ", and sequences of another length are other samples",
                                 trainer->data.train.data.context, path, state->context);
    }
    if (state->samples < 0 || (uint64_t)state->samples != trainer->data.train.data.count) {
        return cddpi_config_fail(
            config, data_key(config), "%" PRIu64 " samples, but %s was made of %" PRId64 "%s",
            trainer->data.train.data.count, path, state->samples,
            is_text && config->data.type == CDDPI_DATA_TEXT
                ? ": other texts, or another model.context, data.vocabulary or "
                  "data.test_fraction"
            : is_text ? ": other tokens, or another model.context"
                      : "");
    }
    return CDDP_OK;
}

int64_t cddpi_cursor_threads(const struct cddpi_config *config)
{
    return cddpi_trainer_by_position(config) ? 1 : cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1);
}

/* Other micro-batches are no other training, but the sums over them are rounded elsewhere. */
static void compare_micro_batches(struct cddpi_trainer *trainer, const char *path,
                                  const struct cursor_state *state)
{
    int64_t now = trainer->config->train.micro_batch;
    char before[64] = "without it";

    if (state->micro_batch == now ||
        (cddpi_trainer_by_position(trainer->config) && !cddpi_trainer_has_same_bits(trainer))) {
        return;
    }
    if (state->micro_batch != 0) {
        snprintf(before, sizeof before, "with %" PRId64, state->micro_batch);
    }
    cddpi_trainer_warn(trainer,
                       "train.micro_batch is %" PRId64 ", but %s was made %s: from here on, the "
                       "bits differ from those of that run",
                       now, path, before);
}

static cddp_status check_same(struct cddpi_trainer *trainer, const char *path,
                              const struct cursor_state *state)
{
    const struct cddpi_config *config = trainer->config;
    int64_t threads = cddpi_cursor_threads(config);

    if (state->seed != config->train.seed) {
        return cddpi_config_fail(config, "train.seed", "is %lld, but %s was made with %" PRId64,
                                 (long long)config->train.seed, path, state->seed);
    }
    if (state->order == NULL || strcmp(state->order, cddpi_cursor_order(trainer)) != 0) {
        return cddpi_config_fail(config, "data.order", "is %s, but %s was made with %s",
                                 cddpi_cursor_order(trainer), path,
                                 state->order != NULL ? state->order : "none");
    }
    if (state->batch_size != config->train.batch_size) {
        cddpi_trainer_warn(trainer, "train.batch_size is %lld, but %s was made with %" PRId64,
                           (long long)config->train.batch_size, path, state->batch_size);
    }
    compare_micro_batches(trainer, path, state);
    if (state->threads != threads && state->micro_batch == config->train.micro_batch) {
        cddpi_trainer_warn(trainer,
                           "CDDP_THREADS is %" PRId64 ", but %s was made with %" PRId64
                           ": matrix products may round differently, so the bits may differ from "
                           "those of an uninterrupted run",
                           threads, path, state->threads);
    }
    CDDPI_TRY(check_samples(trainer, path, state));
    return check_contents(trainer, path, state);
}

/* Check that a run can reach this position. Earlier batches may have had other sizes, but each step
 * took at least one sample and ended at most one epoch. */
static cddp_status check_place(const char *path, const struct cursor_state *state, uint64_t step,
                               uint64_t samples)
{
    uint64_t most; /* the most steps to that position */

    if (state->step != step) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/state.json: step is %" PRIu64 ", but the checkpoint is of step "
                          "%" PRIu64,
                          path, state->step, step);
    }
    if (state->position >= samples) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/state.json: position is %" PRIu64 ", but an epoch has %" PRIu64
                          " samples",
                          path, state->position, samples);
    }
    if (state->epoch > step || (state->epoch == step && state->position > 0)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/state.json: epoch is %" PRIu64 ", but %" PRIu64
                          " steps do not go so far",
                          path, state->epoch, step);
    }
    if (!__builtin_mul_overflow(state->epoch, samples, &most) &&
        !__builtin_add_overflow(most, state->position, &most) && step > most) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/state.json: position is %" PRIu64 ", but %" PRIu64
                          " steps go beyond sample %" PRIu64 " of epoch %" PRIu64,
                          path, state->position, step, state->position, state->epoch);
    }
    return CDDP_OK;
}

cddp_status cddpi_cursor_read(struct cddpi_trainer *trainer, const char *path,
                              struct cddpi_cursor *out)
{
    struct cursor_state state = {0};
    char *text = NULL;
    uint64_t step = 0;
    json_t *object;
    cddp_status status;

    CDDPI_TRY(cddp_snapshot_read_state(path, &text, &step));
    object = json_loads(text, 0, NULL);
    cddp_free(text);
    CDDPI_TRY_MEMORY(object != NULL, "%s: no memory for its state", path);
    CDDPI_TRY_GOTO(end, status, read_state(path, object, &state));
    CDDPI_TRY_GOTO(end, status, check_same(trainer, path, &state));
    CDDPI_TRY_GOTO(end, status, cddpi_normalize_read(trainer, path, object));
    CDDPI_TRY_GOTO(end, status, check_place(path, &state, step, trainer->data.train.data.count));
    *out = (struct cddpi_cursor){step, state.epoch, state.position};
end:
    json_decref(object);
    return status;
}
