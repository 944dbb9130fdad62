/* replicas.c - owns what replicas have in common, its hash, and the comparison of all ranks.
 *
 * Pieces of the tensors have a CRC-32, which libdeflate computes about as fast as memory can be
 * read. It finds every change within 32 neighbouring bits, and others with a probability of
 * 1 - 2^-32. Ranks exchange 16 bytes: a BLAKE2b of all CRCs. */
#include "train/replicas.h"

#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "group/device/group_device.h"
#include "group/join/group_agree.h"
#include "nn/cpu/threads.h"
#include "parallel/parallel_memory.h"
#include "train/checkpoint.h"
#include "train/device/host_copy.h"
#include "train/step.h"

#include <libdeflate.h>
#include <sodium.h>
#include <string.h>

/* A piece fits into a core's cache, and gives a thread enough to do. */
enum { PIECE_BYTES = 256 << 10 };

static cddp_status add_tensors(struct cddpi_replicas_state *state, const cddp_param *tensors,
                               size_t count)
{
    cddp_param *more;

    if (count == 0) {
        return CDDP_OK;
    }
    more = cddpi_grow(state->tensors, &state->tensor_room, state->tensor_count + count,
                      sizeof *more);
    CDDPI_TRY_MEMORY(more != NULL, "replicas: no memory for a list of tensors");
    memcpy(more + state->tensor_count, tensors, count * sizeof *tensors);
    state->tensors = more;
    state->tensor_count += count;
    return CDDP_OK;
}

/* Running statistics are equal only where bits do not depend on ranks. */
static cddp_status add_model(struct cddpi_replicas_state *state,
                             const struct cddpi_trainer *trainer)
{
    void *const *copies = trainer->models.host_copy;
    size_t buffers = cddpi_trainer_has_same_bits(trainer) ? trainer->buffers.count : 0;
    size_t first = state->tensor_count;

    CDDPI_TRY(add_tensors(state, trainer->params.list, trainer->params.count));
    CDDPI_TRY(add_tensors(state, trainer->buffers.list, buffers));
    for (size_t i = first; copies != NULL && i < state->tensor_count; i++) {
        state->tensors[i].data = copies[i - first];
    }
    return CDDP_OK;
}

/* Of a sharded optimizer, a rank has only its counters in common with others. */
static cddp_status add_optimizer(struct cddpi_replicas_state *state, struct cddpi_trainer *trainer)
{
    size_t count;
    const cddp_param *tensors = cddpi_optim_tensors(trainer->step.optim, &count);

    if (trainer->config->ddp.shard_optimizer) {
        count = cddpi_optim_counters(trainer->step.optim);
    }
    CDDPI_TRY(add_tensors(state, tensors, count));
    if (!cddpi_checkpoint_has_scale(trainer)) {
        return CDDP_OK;
    }
    tensors = cddpi_loss_scale_tensors(&trainer->step.loss_scale, &count);
    return add_tensors(state, tensors, count);
}

static cddp_status list_tensors(struct cddpi_replicas_state *state, struct cddpi_trainer *trainer,
                                bool all)
{
    const struct cddpi_cursor *cursor = &trainer->cursor;
    cddp_param numbers = {.name = "cursor (step, epoch, position)",
                          .type = CDDP_I64,
                          .dims = 1,
                          .shape = {3},
                          .data = state->cursor};

    state->cursor[0] = (int64_t)cursor->step;
    state->cursor[1] = (int64_t)cursor->epoch;
    state->cursor[2] = (int64_t)cursor->position;
    CDDPI_TRY(add_tensors(state, &numbers, 1));
    for (; trainer != NULL; trainer = trainer->next) {
        CDDPI_TRY(add_model(state, trainer));
        if (all) {
            CDDPI_TRY(add_optimizer(state, trainer));
        }
    }
    return CDDP_OK;
}

static cddp_status cut_pieces(struct cddpi_replicas_state *state)
{
    size_t most = 0;

    for (size_t i = 0; i < state->tensor_count; i++) {
        most += cddpi_tensors_bytes(&state->tensors[i], 1) / PIECE_BYTES + 1;
    }
    state->pieces = cddpi_zalloc_array(most, sizeof *state->pieces);
    state->hashes = cddpi_zalloc_array(most, sizeof *state->hashes);
    CDDPI_TRY_MEMORY(state->pieces != NULL && state->hashes != NULL,
                     "replicas: no memory for %zu hashes", most);
    for (size_t i = 0; i < state->tensor_count; i++) {
        size_t bytes = cddpi_tensors_bytes(&state->tensors[i], 1);

        for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
            state->pieces[state->piece_count++] = (struct cddpi_replicas_piece){
                .data = (const unsigned char *)state->tensors[i].data + at,
                .bytes = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES,
                .tensor = i,
                .begin = at};
        }
    }
    return CDDP_OK;
}

static void hash_piece(void *context, size_t item)
{
    struct cddpi_replicas_state *state = context;
    const struct cddpi_replicas_piece *piece = &state->pieces[item];

    state->hashes[item] = libdeflate_crc32(0, piece->data, piece->bytes);
}

static void release_state(struct cddpi_replicas_state *state)
{
    cddpi_free(state->tensors);
    cddpi_free(state->pieces);
    cddpi_free(state->hashes);
}

/* Find the first part of the model with a rank that differs from most of its replicas, and the
 * lowest of these ranks. */
static struct cddpi_replicas_verdict
judge(const unsigned char (*digests)[CDDPI_REPLICAS_DIGEST_BYTES], int world_size, int parts)
{
    struct cddpi_replicas_verdict verdict = {.parts = parts, .culprit = -1};

    for (int part = 0; part < verdict.parts && verdict.culprit < 0; part++) {
        int right = part;
        int lead = 0;
        int equal = 0;

        /* Boyer and Moore: if any digest has a majority, then this one. */
        for (int r = part; r < world_size; r += verdict.parts) {
            right = lead == 0 ? r : right;
            lead += memcmp(digests[r], digests[right], sizeof *digests) == 0 ? 1 : -1;
        }
        for (int r = world_size - verdict.parts + part; r >= 0; r -= verdict.parts) {
            if (memcmp(digests[r], digests[right], sizeof *digests) == 0) {
                right = r; /* the lowest, after this loop */
                equal++;
            }
        }
        verdict.has_majority = 2 * equal > world_size / parts;
        verdict.right = verdict.has_majority ? right : part;
        for (int r = world_size - verdict.parts + part; r >= 0; r -= verdict.parts) {
            if (memcmp(digests[r], digests[verdict.right], sizeof *digests) != 0) {
                verdict.culprit = r;
            }
        }
    }
    return verdict;
}

/* @p all: not only parameters, running statistics and cursor. */
static cddp_status compare(struct cddpi_trainer *trainer, bool all)
{
    struct cddpi_replicas_state state = {.tensors = NULL};
    struct cddpi_replicas_verdict verdict;
    void *digests = NULL;
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, list_tensors(&state, trainer, all));
    CDDPI_TRY_GOTO(end, status, cut_pieces(&state));
    cddpi_for_each(state.piece_count, hash_piece, &state);
    crypto_generichash(state.digest, sizeof state.digest, (const unsigned char *)state.hashes,
                       state.piece_count * sizeof *state.hashes, NULL, 0);
    CDDPI_TRY_GOTO(
        end, status,
        cddpi_all_gather_bytes(trainer->group, state.digest, sizeof state.digest, &digests));
    verdict = judge(digests, trainer->world_size, cddpi_trainer_parts(trainer));
    if (verdict.culprit >= 0) {
        status = cddpi_replicas_differ(trainer, &state, &verdict, digests);
    }
end:
    cddpi_free(digests);
    release_state(&state);
    return status;
}

/* Bring the optimizer's state from the device to host memory, where each rank has all of it. */
static cddp_status fetch_optimizers(const struct cddpi_trainer *trainer)
{
    for (; trainer != NULL; trainer = trainer->next) {
        if (!trainer->config->ddp.shard_optimizer) {
            CDDPI_TRY(cddpi_optim_fetch(trainer->step.optim));
        }
    }
    return CDDP_OK;
}

void cddpi_replicas_warn(struct cddpi_trainer *trainer)
{
    if (trainer->config->train.check_replicas > 0 && trainer->replicas.count > 1 &&
        trainer->config->ddp.shard_optimizer && trainer->rank == 0) {
        cddpi_trainer_warn(trainer,
                           "train.check_replicas: with ddp.shard_optimizer, each moment exists on "
                           "one rank, and each update overwrites the parameters of the others. So "
                           "only damage in the last step before a comparison is found; with "
                           "ddp.shard_optimizer=false, all of it, and the results are the same");
    }
}

cddp_status cddpi_replicas_check(struct cddpi_trainer *trainer, bool saves)
{
    uint64_t every = (uint64_t)trainer->config->train.check_replicas;

    if (every == 0 || trainer->replicas.count == 1 ||
        (!saves && trainer->cursor.step % every != 0)) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL)); /* so that counters are right */
    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        CDDPI_TRY(cddpi_ddp_params_whole(each->ddp));
    }
    CDDPI_TRY(fetch_optimizers(trainer));
    CDDPI_TRY(cddpi_trainer_copy_to_host(trainer));
    if (cddpi_device_is_async(trainer->device)) {
        /* a failure of the group, which ends reductions early, is not damage */
        CDDPI_TRY(cddpi_group_verify(trainer->group));
    }
    return compare(trainer, true);
}

cddp_status cddpi_replicas_check_last(struct cddpi_trainer *trainer)
{
    bool all = trainer->config->train.check_replicas > 0;

    if (trainer->replicas.count == 1) {
        return CDDP_OK;
    }
    if (all) {
        CDDPI_TRY(fetch_optimizers(trainer));
    }
    return compare(trainer, all);
}
