/* last_save.c - writes the checkpoint at the end of a run: checks that all replicas are equal, and
 * retries for a while if the disk is full or if the error may pass. */
#include "train/last_save.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/launcher_report.h"
#include "base/shape.h"
#include "group/watch/stop.h"
#include "train/checkpoint.h"
#include "train/engines/engine.h"

#include <time.h>

/* Seconds between two tries; each pause is twice the previous one, because each try may write many
 * bytes before the disk is full. Meanwhile, ranks communicate every ROUND_MS milliseconds. */
enum { FIRST_PAUSE_S = 1, LONGEST_PAUSE_S = 30, ROUND_MS = 250 };

#define NS_OF_S(seconds) ((int64_t)((seconds)*1e9))

/* The state of retrying, on rank 0. */
struct patience {
    int64_t end_ns;
    int64_t next_ns; /* when to try again */
    int64_t pause_ns;
    bool was_stopped; /* before the first try: a later request to stop ends the retries */
    bool has_reported;
};

/* A hash of the parameters' 32-bit words. */
static uint64_t parameters_hash(const struct cddpi_trainer *trainer)
{
    uint64_t hash = cddpi_hash_start;

    for (; trainer != NULL; trainer = trainer->next) {
        for (size_t i = 0; i < trainer->param_count; i++) {
            const cddp_param *param = &trainer->params[i];
            const uint32_t *words = trainer->host_copy != NULL ? trainer->host_copy[i]
                                                               : param->data;
            size_t count = cddpi_elements(param->dims, param->shape) *
                           cddp_type_bytes(param->type) / sizeof *words;

            for (size_t k = 0; k < count; k++) {
                hash = cddpi_hash_add(hash, words[k]);
            }
        }
    }
    return hash;
}

/* Check that replicas are equal bit for bit. Nothing else would show a difference, because only
 * rank 0's parameters are kept. */
static cddp_status check_replicas(struct cddpi_trainer *trainer)
{
    uint64_t hash = parameters_hash(trainer);
    int64_t bounds[2] = {(int64_t)hash, ~(int64_t)hash}; /* minimum; ~maximum */

    CDDPI_TRY(cddp_all_reduce(trainer->replicas, bounds, bounds, 2, CDDP_I64, CDDP_OP_MIN, NULL));
    return bounds[0] == ~bounds[1]
               ? CDDP_OK
               : cddpi_fail_rank(CDDP_ERR_MISMATCH, trainer->rank,
                                 "after step %llu the parameters differ between ranks",
                                 (unsigned long long)trainer->cursor.step);
}

/* Whether to retry after a failure of kind @p why. Prints a warning once. */
static bool is_patient(struct cddpi_trainer *trainer, struct patience *patience, int64_t now_ns,
                       enum cddpi_save_again why)
{
    if (why == CDDPI_SAVE_NEVER || now_ns >= patience->end_ns ||
        (cddpi_stop_requested() && !patience->was_stopped)) {
        return false;
    }
    if (!patience->has_reported) {
        cddpi_trainer_warn(
            trainer,
            why == CDDPI_SAVE_WITH_ROOM
                ? "%s. Free disk space: retrying for %g s (train.full_disk_seconds)%s"
                : "%s. Retrying for %g s (train.full_disk_seconds)%s",
            cddp_last_error(), trainer->config->train.full_disk_seconds,
            patience->was_stopped ? "" : ", or until the run is asked to stop");
    }
    patience->has_reported = true;
    return true;
}

/* Rank 0: try if the pause is over, else wait for one round. @p out_again: not done yet. */
static cddp_status try_once(struct cddpi_trainer *trainer, struct patience *patience,
                            uint8_t *out_again)
{
    static const struct timespec round = {.tv_nsec = ROUND_MS * 1000000L};
    bool stops = cddpi_stop_requested() && !patience->was_stopped;
    enum cddpi_save_again why = CDDPI_SAVE_NEVER;
    cddp_status status;

    *out_again = trainer->folder.saved_step != trainer->cursor.step;
    cddpi_launcher_report_alive();
    if (*out_again == 0) {
        return CDDP_OK;
    }
    if (cddpi_now_ns() < patience->next_ns && !stops) {
        nanosleep(&round, NULL);
        return CDDP_OK;
    }
    status = cddpi_trainer_save(trainer, true, &why);
    if (status == CDDP_OK) {
        *out_again = 0;
    } else if (is_patient(trainer, patience, cddpi_now_ns(), why)) {
        patience->next_ns = cddpi_now_ns() + patience->pause_ns;
        if (patience->pause_ns < NS_OF_S(LONGEST_PAUSE_S)) {
            patience->pause_ns *= 2;
        }
        return CDDP_OK;
    }
    return status;
}

/* After each round, rank 0 tells the others whether it will try again, so that its waiting does not
 * look like a failure. */
static cddp_status save_patiently(struct cddpi_trainer *trainer)
{
    struct patience patience = {
        .end_ns = cddpi_now_ns() + NS_OF_S(trainer->config->train.full_disk_seconds),
        .pause_ns = NS_OF_S(FIRST_PAUSE_S),
        .was_stopped = cddpi_stop_requested(),
    };
    uint8_t again = 1;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && again != 0) {
        if (trainer->rank == 0) {
            status = try_once(trainer, &patience, &again);
        }
        if (status == CDDP_OK) {
            status = trainer->engine->end_save(trainer);
        }
        if (status == CDDP_OK) {
            status = cddp_broadcast(trainer->group, &again, 1, CDDP_U8, 0, NULL);
        }
    }
    return status;
}

cddp_status cddpi_trainer_save_last(struct cddpi_trainer *trainer)
{
    cddp_status status = cddpi_trainer_assemble(trainer, true);

    if (status == CDDP_OK) {
        status = check_replicas(trainer);
    }
    if (status == CDDP_OK && trainer->config->train.checkpoint_at_end) {
        status = save_patiently(trainer);
    }
    cddpi_trainer_end_assembled(trainer);
    return status == CDDP_OK ? cddp_barrier(trainer->group, NULL) : status;
}
