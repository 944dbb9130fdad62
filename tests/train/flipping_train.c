/* flipping_train.c - linked to a cddp-train of its own with -Wl,--wrap=cddpi_trainer_step: a memory
 * that fails. After a step, a bit of a tensor flips on some ranks, once:
 *
 *     TEST_FLIP    "STEP TENSOR ELEMENT BIT RANK[,RANK...]": of a parameter, a running statistic or
 *                  a tensor of the optimizer, with elements of 4 bytes
 *     TEST_FLIPPED a path that does not exist: files PATH-RANK say which ranks have had theirs */
#include "base/error.h"
#include "ddp/copies.h"
#include "train/step.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 200, WAIT_MS = 60000 };

cddp_status __real_cddpi_trainer_step(struct cddpi_trainer *trainer, struct cddpi_train_step *out);
cddp_status __wrap_cddpi_trainer_step(struct cddpi_trainer *trainer, struct cddpi_train_step *out);

static void *find(const cddp_param *tensors, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return tensors[i].data;
        }
    }
    return NULL;
}

static uint32_t *find_tensor(struct cddpi_trainer *trainer, const char *name)
{
    void *found = NULL;

    for (; trainer != NULL && found == NULL; trainer = trainer->next) {
        size_t count;
        const cddp_param *state = cddpi_optim_tensors(trainer->step.optim, &count);

        found = find(trainer->params.list, trainer->params.count, name);
        found = found == NULL ? find(trainer->buffers.list, trainer->buffers.count, name) : found;
        found = found == NULL ? find(state, count, name) : found;
    }
    return found;
}

static bool has_rank(const char *ranks, int rank)
{
    char *end = NULL;

    for (; *ranks != '\0'; ranks = *end == ',' ? end + 1 : end) {
        if (strtol(ranks, &end, 10) == rank) {
            return true;
        }
    }
    return false;
}

/* Whether this rank has not flipped its bit yet. */
static bool is_first(int rank)
{
    char path[4200];
    int fd;

    snprintf(path, sizeof path, "%s-%d", getenv("TEST_FLIPPED"), rank);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

/* @p words: in any memory that the trainer has. */
static cddp_status flip_bit(struct cddpi_trainer *trainer, uint32_t *words, unsigned element,
                            unsigned bit)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;
    uint32_t word;

    CDDPI_TRY(
        ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, &word, &words[element], sizeof word));
    CDDPI_TRY(ops->finish(trainer->device, WAIT_MS));
    word ^= (uint32_t)1 << bit;
    CDDPI_TRY(
        ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, &words[element], &word, sizeof word));
    return ops->finish(trainer->device, WAIT_MS);
}

static cddp_status flip(struct cddpi_trainer *trainer)
{
    const char *text = getenv("TEST_FLIP");
    unsigned long long step;
    char name[NAME_BYTES], ranks[NAME_BYTES];
    unsigned element, bit;
    uint32_t *words;

    if (text == NULL ||
        sscanf(text, "%llu %199s %u %u %199s", &step, name, &element, &bit, ranks) != 5 ||
        trainer->cursor.step != step) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_ddp_params_whole(trainer->ddp)); /* else what arrives may replace it */
    words = has_rank(ranks, trainer->rank) ? find_tensor(trainer, name) : NULL;
    return words != NULL && is_first(trainer->rank) ? flip_bit(trainer, words, element, bit)
                                                    : CDDP_OK;
}

cddp_status __wrap_cddpi_trainer_step(struct cddpi_trainer *trainer, struct cddpi_train_step *out)
{
    CDDPI_TRY(__real_cddpi_trainer_step(trainer, out));
    return flip(trainer);
}
