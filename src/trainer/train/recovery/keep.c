/* keep.c - owns when and what a rank copies to memory that outlives it. */
#include "train/recovery/keep.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory_left.h"
#include "base/shape.h"
#include "parallel/parallel_memory.h"
#include "train/engines/engine.h"
#include "train/recovery/keep_impl.h"
#include "train/save_behind.h"
#include "train/step.h"

#include <libdeflate.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 1 << 15, /* stays in the processor's cache until its checksum is known */
    COPIES = 2,            /* of each rank; they take turns */
    COST_LIMIT = 50        /* "auto": copies take at most 1/50 of the time */
};

/* A piece, and where its elements are. */
struct cddpi_kept_part {
    struct cddpi_kept_piece piece;
    const float *arrays[1 + CDDPI_OPTIM_MOMENTS];
};

/* What a state must have in common with this run for this run to go on from it. */
static uint64_t hash_layout(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    const uint64_t run[] = {(uint64_t)config->train.seed,
                            (uint64_t)config->train.batch_size,
                            (uint64_t)config->optimizer.type,
                            (uint64_t)config->train.precision,
                            (uint64_t)config->data.order,
                            cddpi_keep_moments(trainer),
                            trainer->data.train.data.count,
                            trainer->params.count,
                            cddpi_tensors_bytes(trainer->buffers.list, trainer->buffers.count)};
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) {
        hash = cddpi_hash_add(hash, run[i]);
    }
    for (size_t i = 0; i < trainer->params.count; i++) {
        const cddp_param *param = &trainer->params.list[i];

        hash = cddpi_hash_add(hash, cddpi_elements(param->dims, param->shape));
        hash = cddpi_hash_add(hash, (param->flags & CDDP_PARAM_FROZEN) != 0);
    }
    return hash;
}

/* Each rank must have the same model. */
bool cddpi_keep_is_possible(const struct cddpi_trainer *trainer)
{
    return trainer->config->train.recovery != CDDPI_RECOVERY_CHECKPOINT &&
           trainer->engine->has_one_model;
}

/* Map the files that this rank can read; the first is its own. */
static void open_files(struct cddpi_trainer *trainer)
{
    struct cddpi_keep *keep = &trainer->keep;
    int files[CDDPI_MACHINE_RANKS];
    int count = cddpi_kept_files(files);
    int local = (int)cddpi_env_integer(CDDPI_ENV_LOCAL_RANK, 0, INT32_MAX, 0);
    int ranks = cddpi_keep_local_ranks();

    for (int i = local; i < count && keep->count < CDDPI_KEEP_FILES; i += ranks) {
        if (cddpi_kept_open(files[i], &keep->files[keep->count]) == CDDP_OK) {
            keep->count++;
        } else if (i == local) {
            cddpi_trainer_warn(trainer, "train.recovery: %s", cddp_last_error());
            return;
        }
    }
    keep->is_on = keep->count > 0;
}

/* The number of the run that writes to train.run_dir, with its data; not 0. Rank 0 may be on
 * another machine next time, which has the folder elsewhere, so only the end of its path counts. */
static uint64_t number_run(const struct cddpi_trainer *trainer)
{
    const char *dir = trainer->config->train.run_dir;
    char here[PATH_MAX] = "";
    const char *name = dir[0] != '/' && getcwd(here, sizeof here) != NULL ? strrchr(here, '/')
                                                                          : NULL;
    uint64_t run = cddpi_hash_start;

    for (; name != NULL && *name != '\0'; name++) {
        run = cddpi_hash_add(run, (unsigned char)*name);
    }
    run = cddpi_hash_add(run, '/');
    for (; *dir != '\0'; dir++) {
        run = cddpi_hash_add(run, (unsigned char)*dir);
    }
    for (int i = 0; i < CDDPI_DATA_DIGESTS; i++) {
        run = cddpi_hash_add(run, trainer->data.digests[i]);
    }
    return run != 0 ? run : 1;
}

cddp_status cddpi_keep_open(struct cddpi_trainer *trainer)
{
    struct cddpi_keep *keep = &trainer->keep;
    uint64_t numbers[2] = {0, 0};

    if (!cddpi_keep_is_possible(trainer)) {
        return CDDP_OK;
    }
    open_files(trainer);
    if (trainer->rank == 0 && !keep->is_on &&
        trainer->config->train.recovery == CDDPI_RECOVERY_MEMORY) {
        cddpi_trainer_warn(trainer, "train.recovery = memory: no launcher holds memory for it; "
                                    "cddp-run does with --max-restarts, --elastic or --nnodes "
                                    "MIN:MAX");
    }
    keep->layout = hash_layout(trainer);
    keep->began_ns = cddpi_now_ns();
    if (trainer->rank == 0) {
        numbers[0] = number_run(trainer);
        randombytes_buf(&numbers[1], sizeof numbers[1]);
    }
    CDDPI_TRY(cddp_broadcast(trainer->group, numbers, sizeof numbers, CDDP_U8, 0, NULL));
    keep->run = numbers[0];
    keep->writer = numbers[1];
    return CDDP_OK;
}

void cddpi_keep_close(struct cddpi_keep *keep)
{
    for (int i = 0; i < keep->count; i++) {
        cddpi_kept_close(&keep->files[i]);
    }
    keep->count = 0;
    keep->is_on = false;
    cddpi_keep_release_tensors(&keep->tensors);
    cddpi_free(keep->parts);
    keep->parts = NULL;
}

/* Where replicas are compared, a state is made of parts of several, so before a comparison damage
 * would spread from one of them to all. Of a sharded optimizer, each part is that of all anyway. */
static bool is_compared(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    uint64_t every = (uint64_t)config->train.check_replicas;

    return every == 0 || config->ddp.shard_optimizer || trainer->replicas.count == 1 ||
           ((trainer->cursor.step + 1) % every == 0 &&
            trainer->cursor.step + 1 < trainer->plan.last_step);
}

bool cddpi_keep_is_due(struct cddpi_trainer *trainer)
{
    const struct cddpi_keep *keep = &trainer->keep;

    return trainer->rank == 0 && keep->is_on && !keep->is_off && is_compared(trainer) &&
           (trainer->config->train.recovery == CDDPI_RECOVERY_MEMORY ||
            keep->spent_ns <= (cddpi_now_ns() - keep->began_ns) / COST_LIMIT);
}

/* This rank's share of @p count elements of which others have the rest, as [begin, end). */
static void find_share(const struct cddpi_trainer *trainer, uint64_t count, uint64_t *begin,
                       uint64_t *end)
{
    uint64_t rank = (uint64_t)trainer->replicas.rank;
    uint64_t ranks = (uint64_t)trainer->replicas.count;

    *begin = trainer->config->ddp.shard_optimizer ? 0 : count * rank / ranks;
    *end = trainer->config->ddp.shard_optimizer ? count : count * (rank + 1) / ranks;
}

/* List what this rank keeps: of a sharded optimizer its parts, else its share of all of them. */
static cddp_status list_parts(struct cddpi_trainer *trainer)
{
    struct cddpi_keep *keep = &trainer->keep;
    size_t count = cddpi_optim_part_count(trainer->step.optim);
    size_t moments = cddpi_keep_moments(trainer);
    uint64_t all = 0;
    uint64_t at = 0;
    uint64_t begin, end;

    cddpi_keep_release_tensors(&keep->tensors);
    CDDPI_TRY(cddpi_keep_list_tensors(trainer, &keep->tensors));
    keep->parts = cddpi_zalloc_array(count + 1, sizeof *keep->parts);
    CDDPI_TRY_MEMORY(keep->parts != NULL, "no memory for a list of %zu parts", count);
    for (size_t i = 0; i < count; i++) {
        all += cddpi_optim_part(trainer->step.optim, i).count;
    }
    find_share(trainer, all, &begin, &end);
    keep->bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(trainer->step.optim, i);
        uint64_t from = begin > at ? begin - at : 0;
        uint64_t to = end < at + part.count ? (end > at ? end - at : 0) : part.count;

        at += part.count;
        if (from < to) {
            struct cddpi_kept_part *kept = &keep->parts[keep->part_count++];

            kept->piece = (struct cddpi_kept_piece){part.param, part.first + from, to - from};
            kept->arrays[0] = (float *)keep->tensors.model[part.param].data + part.first + from;
            for (size_t m = 0; m < moments; m++) {
                kept->arrays[1 + m] = part.moments[m] + from;
            }
            keep->bytes += (to - from) * (1 + moments) * sizeof(float);
        }
    }
    keep->bytes += cddpi_keep_head_bytes(&keep->tensors, keep->part_count) +
                   CDDPI_KEPT_CHECKSUM_BYTES;
    return CDDP_OK;
}

/* Check that memory suffices for both kinds of slots of all ranks here, if they need as much more
 * as this one. */
static cddp_status check_memory(const struct cddpi_trainer *trainer)
{
    const struct cddpi_keep *keep = &trainer->keep;
    int here = cddpi_keep_local_ranks();
    uint64_t bytes = (here < trainer->world_size ? 4 : 2) * keep->bytes;
    uint64_t there = cddpi_kept_room(&keep->files[0]);
    uint64_t missing = bytes > there ? (bytes - there) * (uint64_t)here : 0;
    bool is_auto = trainer->config->train.recovery == CDDPI_RECOVERY_AUTO;
    char size[CDDPI_SIZE_TEXT], rest[CDDPI_SIZE_TEXT];
    struct cddpi_memory_left left;

    cddpi_memory_left(&left);
    if (missing == 0 ||
        (is_auto ? cddpi_save_behind_fits(missing, left.bytes) : missing <= left.bytes)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "it takes %s of memory, and %s are left (%s)",
                      cddpi_print_size(missing, size), cddpi_print_size(left.bytes, rest),
                      left.limit);
}

/* Take memory for one more slot. */
static cddp_status prepare(struct cddpi_trainer *trainer, int slot)
{
    struct cddpi_keep *keep = &trainer->keep;

    if (!keep->is_on) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the launcher holds no memory for it");
    }
    if (keep->parts == NULL) {
        CDDPI_TRY(list_parts(trainer));
        CDDPI_TRY(check_memory(trainer));
    }
    return cddpi_kept_reserve(&keep->files[0], slot, keep->bytes);
}

/* A copy under way. */
struct copy {
    unsigned char *to;
    uint32_t checksum; /* of what is copied */
};

static void put(struct copy *copy, const void *from, size_t bytes)
{
    const unsigned char *next = from;

    while (bytes > 0) {
        size_t count = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;

        memcpy(copy->to, next, count);
        copy->checksum = libdeflate_crc32(copy->checksum, copy->to, count);
        copy->to += count;
        next += count;
        bytes -= count;
    }
}

static void copy_state(const struct cddpi_trainer *trainer, unsigned char *to)
{
    struct copy copy = {.to = to};
    const struct cddpi_keep *keep = &trainer->keep;
    const struct cddpi_interval *interval = &trainer->records.interval;
    const struct cddpi_kept_sums sums = {.loss = interval->loss_sum,
                                         .correct = interval->correct,
                                         .count = interval->count,
                                         .skipped_count = interval->skipped_count,
                                         .skipped = interval->skipped,
                                         .unsaved_ns = cddpi_now_ns() - trainer->folder.whole_ns};
    const uint64_t pieces = keep->part_count;
    size_t moments = cddpi_keep_moments(trainer);

    put(&copy, &pieces, sizeof pieces);
    for (size_t i = 0; i < keep->part_count; i++) {
        put(&copy, &keep->parts[i].piece, sizeof keep->parts[i].piece);
    }
    put(&copy, &sums, sizeof sums);
    for (size_t i = 0; i < keep->tensors.count; i++) {
        const cddp_param *tensor = &keep->tensors.list[i];

        put(&copy, tensor->data, cddpi_tensors_bytes(tensor, 1));
    }
    for (size_t i = 0; i < keep->part_count; i++) {
        for (size_t k = 0; k <= moments; k++) {
            put(&copy, keep->parts[i].arrays[k], keep->parts[i].piece.count * sizeof(float));
        }
    }
    put(&copy, &copy.checksum, CDDPI_KEPT_CHECKSUM_BYTES);
}

cddp_status cddpi_keep_step(struct cddpi_trainer *trainer)
{
    struct cddpi_keep *keep = &trainer->keep;
    struct cddpi_kept_memory *own = &keep->files[0];
    int slot = keep->is_on ? cddpi_kept_next(own, CDDPI_KEPT_OWN, keep->run) : 0;
    struct cddpi_kept_stamp stamp;
    int64_t begun_ns;

    if (!keep->is_off && keep->copies < COPIES) {
        CDDPI_TRY(cddpi_keep_introduce(trainer, prepare(trainer, slot)));
    }
    if (keep->is_off) {
        return CDDP_OK;
    }
    stamp = (struct cddpi_kept_stamp){.step = trainer->cursor.step,
                                      .epoch = trainer->cursor.epoch,
                                      .position = trainer->cursor.position,
                                      .run = keep->run,
                                      .writer = keep->writer,
                                      .layout = keep->layout,
                                      .bytes = keep->bytes,
                                      .part = (uint32_t)trainer->rank,
                                      .parts = (uint32_t)trainer->world_size};
    CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL)); /* a device may still compute */
    begun_ns = cddpi_now_ns();
    CDDPI_TRY(cddpi_keep_fetch(trainer));
    copy_state(trainer, cddpi_kept_begin(own, slot));
    cddpi_kept_end(own, slot, &stamp);
    if (keep->sends) {
        CDDPI_TRY(cddpi_keep_exchange(trainer, slot, &stamp));
    }
    keep->spent_ns += cddpi_now_ns() - begun_ns;
    keep->copies++;
    return CDDP_OK;
}
