/* checkpoint_state.c - words the state that a checkpoint keeps beside the tensors: the cursor, and
 * what must be the same when the run goes on. */
#include "train/batch_sizes.h"
#include "train/checkpoint.h"
#include "train/normalize.h"

#include <cddp/process.h>

/* Add what identifies the training data, and for tokens how they are cut into sequences. */
static bool add_data(const struct cddpi_trainer *trainer, json_t *state)
{
    json_t *digests = json_array();
    bool done = digests != NULL;

    for (int i = 0; done && i < CDDPI_DATA_DIGESTS && trainer->data.digests[i] != 0; i++) {
        done = json_array_append_new(
                   digests,
                   json_sprintf("%016llx", (unsigned long long)trainer->data.digests[i])) == 0;
    }
    if (done && json_array_size(digests) > 0) {
        done = json_object_set(state, "data", digests) == 0;
    }
    json_decref(digests);
    return done && (!cddpi_trainer_is_text(trainer) ||
                    json_object_set_new(state, "context",
                                        json_integer(trainer->data.train.data.context)) == 0);
}

/* The text is the same in every run of the same configuration: it has no times and no names. */
char *cddpi_checkpoint_state(const struct cddpi_trainer *trainer)
{
    json_t *state = json_pack(
        "{s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:s}", "step", (json_int_t)trainer->cursor.step,
        "epoch", (json_int_t)trainer->cursor.epoch, "position",
        (json_int_t)trainer->cursor.position, "seed", (json_int_t)trainer->config->train.seed,
        "order", cddpi_cursor_order(trainer), "batch_size",
        (json_int_t)trainer->config->train.batch_size, "samples",
        (json_int_t)trainer->data.train.data.count, "cddp", cddp_version());
    int64_t threads = cddpi_cursor_threads(trainer->config);
    char *text = NULL;
    bool done = state != NULL && add_data(trainer, state) && cddpi_normalize_write(trainer, state);

    if (done && threads != 1) {
        done = json_object_set_new(state, "threads", json_integer((json_int_t)threads)) == 0;
    }
    if (done && cddpi_trainer_has_same_bits(trainer)) {
        done = json_object_set_new(state, "micro_batch",
                                   json_integer((json_int_t)trainer->config->train.micro_batch)) ==
               0;
    }
    if (done && trainer->models.heads > 0) { /* cannot be seen from any shape, and other programs
                                         that read the parameters need it */
        done = json_object_set_new(state, "heads", json_integer(trainer->models.heads)) == 0;
    }
    if (done) {
        text = json_dumps(state, JSON_SORT_KEYS | JSON_INDENT(1));
    }
    json_decref(state);
    return text;
}
