/* keep_others.c - owns what ranks do together to keep a state: they find out whether all can, and
 * each sends its part to a rank of another launcher. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "group/join/group_agree.h"
#include "recovery/keep_impl.h"

int cddpi_keep_local_ranks(void)
{
    return (int)cddpi_env_integer(CDDPI_ENV_LOCAL_WORLD_SIZE, 1, INT32_MAX, 1);
}

/* What ranks tell each other before they keep something for the first time. */
struct introduction {
    uint64_t bytes, data; /* of its part; of its pieces */
    uint64_t cover;       /* of its pieces */
    uint64_t layout;
    int32_t here; /* ranks of its launcher */
    int32_t fails;
};

/* Choose with whom this rank exchanges copies: with ranks of other launchers, which have the ranks
 * before and after its own. Where launchers have different numbers of ranks, some exchange theirs
 * inside. */
static void choose_others(struct cddpi_keep *keep, const struct introduction *ranks)
{
    int world_size = keep->world_size;
    int most = 0;

    for (int i = 0; i < world_size; i++) {
        most = ranks[i].here > most ? ranks[i].here : most;
    }
    keep->sends = most < world_size && !keep->sends_none;
    keep->to = (keep->rank + most) % world_size;
    keep->from = (keep->rank + world_size - most % world_size) % world_size;
    keep->other_bytes = ranks[keep->from].bytes;
}

/* Whether all ranks' parts are the whole of one state. Its failure is that of the rank which the
 * answer names; -1: they are. */
static int find_misfit(const struct cddpi_keep *keep, const struct introduction *ranks)
{
    uint64_t data = 0;
    uint64_t cover = 0;

    for (int i = 0; i < keep->world_size; i++) {
        if (ranks[i].layout != ranks[0].layout) {
            (void)cddpi_fail(CDDP_ERR_MISMATCH, "its state differs from that of rank 0");
            return i;
        }
        data += ranks[i].data;
        cover += ranks[i].cover;
    }
    if (keep->state.whole != 0 && data != keep->state.whole) {
        (void)cddpi_fail(CDDP_ERR_MISMATCH, "all ranks together have %llu bytes of %llu",
                         (unsigned long long)data, (unsigned long long)keep->state.whole);
        return 0;
    }
    if (keep->state.cover != 0 && cover != keep->state.cover) {
        (void)cddpi_fail(CDDP_ERR_MISMATCH, "ranks have some bytes of an array twice, others not");
        return 0;
    }
    return -1;
}

static int find_failed(const struct cddpi_keep *keep, const struct introduction *ranks)
{
    for (int i = 0; i < keep->world_size; i++) {
        if (ranks[i].fails != 0) {
            return i;
        }
    }
    return -1;
}

/* That there is no memory is said once in a job, unless it went on from memory before. */
static bool is_news(const struct cddpi_keep *keep)
{
    return keep->restored.step > 0 || cddpi_env_integer(CDDPI_ENV_GENERATION, 0, INT32_MAX, 0) == 0;
}

static void add_pieces(const struct cddpi_keep_list *list, struct introduction *own)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct cddpi_keep_piece *piece = &list->at[i].piece;

        own->data += piece->bytes;
        own->cover += cddpi_keep_cover(piece->array, piece->first, piece->bytes);
    }
}

/* Find out whether all ranks can keep their part. The failure of this rank, if any, is its last
 * error. */
static cddp_status agree(struct cddpi_keep *keep, cddp_status mine)
{
    struct introduction own = {.bytes = keep->bytes,
                               .layout = keep->layout,
                               .here = cddpi_keep_local_ranks(),
                               .fails = mine != CDDP_OK};
    struct introduction *ranks;
    void *all = NULL;
    int failed, misfit;

    add_pieces(&keep->state.keeps, &own);
    CDDPI_TRY(cddpi_all_gather_bytes(keep->group, &own, sizeof own, &all));
    ranks = all;
    choose_others(keep, ranks);
    failed = find_failed(keep, ranks);
    misfit = failed >= 0 ? -1 : find_misfit(keep, ranks);
    cddpi_free(all);
    keep->is_off = failed >= 0 || misfit >= 0;
    if (keep->rank == misfit || (keep->rank == failed && is_news(keep))) {
        cddpi_keep_warn(keep,
                        "rank %d: %s; so a rank that is lost costs the steps since the newest "
                        "checkpoint",
                        keep->rank, cddp_last_error());
    }
    return CDDP_OK;
}

/* Take memory for one more copy of the other rank, on all ranks. */
static cddp_status prepare_other(struct cddpi_keep *keep)
{
    int slot = cddpi_kept_next(&keep->files[0], CDDPI_KEPT_OTHER, keep->run);
    uint8_t fails = cddpi_kept_reserve(&keep->files[0], slot, keep->other_bytes) != CDDP_OK;
    uint8_t any = 0;

    CDDPI_TRY(cddp_all_reduce(keep->group, &fails, &any, 1, CDDP_U8, CDDP_OP_MAX, NULL));
    keep->sends_none = any != 0;
    keep->sends = any == 0;
    if (fails != 0) {
        cddpi_keep_warn(keep,
                        "rank %d: %s; so a machine that is lost costs the steps since the newest "
                        "checkpoint",
                        keep->rank, cddp_last_error());
    }
    return CDDP_OK;
}

cddp_status cddpi_keep_introduce(struct cddpi_keep *keep, cddp_status mine)
{
    CDDPI_TRY(agree(keep, mine));
    return keep->sends && !keep->is_off ? prepare_other(keep) : CDDP_OK;
}

cddp_status cddpi_keep_exchange(struct cddpi_keep *keep, int slot,
                                const struct cddpi_kept_stamp *stamp)
{
    struct cddpi_kept_memory *own = &keep->files[0];
    struct cddpi_kept_stamp other = *stamp;
    int into = cddpi_kept_next(own, CDDPI_KEPT_OTHER, keep->run);
    unsigned char *data = cddpi_kept_begin(own, into);
    cddp_work *sent = NULL;
    cddp_status status;

    CDDPI_TRY(
        cddp_send(keep->group, cddpi_kept_data(own, slot), stamp->bytes, CDDP_U8, keep->to, &sent));
    status = cddp_recv(keep->group, data, keep->other_bytes, CDDP_U8, keep->from, NULL);
    status = status == CDDP_OK ? cddp_work_wait(sent) : status;
    cddp_work_destroy(sent);
    CDDPI_TRY(status);
    other.part = (uint32_t)keep->from;
    other.bytes = keep->other_bytes;
    cddpi_kept_end(own, into, &other);
    return CDDP_OK;
}
