/* split.c - cddp_group_split(): subgroups, whose ranks find each other through their parent's
 * collectives. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/device/group_device.h"
#include "group/join/group_agree.h"
#include "group/transports.h"
#include "group/watch/dump.h"

#include <string.h>

/* What ranks tell each other. */
struct split_choice {
    int32_t color;
    int32_t key;
};

/* Whether a rank of the same color as @p b's comes before it. */
static bool comes_before(const struct split_choice *a, int a_rank, const struct split_choice *b,
                         int b_rank)
{
    return a->color == b->color && (a->key < b->key || (a->key == b->key && a_rank < b_rank));
}

/* This rank's place among those of its color.
 * @param out_first  The rank of @p group that becomes rank 0. */
static struct cddpi_open_params params_in(const cddp_group *group,
                                          const struct split_choice *choices, int *out_first)
{
    const struct split_choice *mine = &choices[group->rank];
    struct cddpi_open_params params = {0, 0, group->timeout_ms, NULL};
    int first = -1;

    for (int r = 0; r < group->world_size; r++) {
        const struct split_choice *choice = &choices[r];

        if (choice->color != mine->color) {
            continue;
        }
        params.world_size++;
        params.rank += comes_before(choice, r, mine, group->rank);
        if (first < 0 || choice->key < choices[first].key) {
            first = r;
        }
    }
    *out_first = first;
    return params;
}

/* The ranks in the job of the ranks of this one's color; NULL: the same numbers, or no memory, and
 * then errors name only the part's ranks. */
static int *ranks_of_job(const cddp_group *group, const struct split_choice *choices,
                         const struct cddpi_open_params *params)
{
    int *ranks = cddpi_zalloc_array((size_t)params->world_size, sizeof *ranks);
    bool same = true;

    for (int r = 0; ranks != NULL && r < group->world_size; r++) {
        int place = 0;

        if (choices[r].color != choices[group->rank].color) {
            continue;
        }
        for (int other = 0; other < group->world_size; other++) {
            place += comes_before(&choices[other], other, &choices[r], r);
        }
        ranks[place] = group->ranks_of_job != NULL ? group->ranks_of_job[r] : r;
        same = same && ranks[place] == place;
    }
    if (same) {
        cddpi_free(ranks);
        return NULL;
    }
    return ranks;
}

static cddp_status split(cddp_group *group, int color, int key, cddp_group **out)
{
    struct split_choice mine = {color < 0 ? -1 : color, key};
    struct cddpi_backend *backend = NULL;
    cddp_group *made = NULL;
    void *choices = NULL;
    int *ranks;
    struct cddpi_open_params params;
    int first;
    cddp_status status;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group_split: out is NULL");
    }
    status = cddpi_all_gather_bytes(group, &mine, sizeof mine, &choices);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "split");
    }
    params = params_in(group, choices, &first);
    ranks = ranks_of_job(group, choices, &params);
    cddpi_free(choices);
    status = group->transport->cpu.split(group, &params, first, color >= 0, &backend);
    if (status == CDDP_OK && color >= 0) {
        status = cddpi_group_build(&params, group->transport, backend, &made);
    }
    if (status != CDDP_OK) {
        cddpi_free(ranks);
        return status;
    }
    if (made == NULL) {
        cddpi_free(ranks);
        *out = NULL;
        return CDDP_OK;
    }
    made->generation = group->generation;
    made->host = group->host;
    made->ranks_of_job = ranks;
    memcpy(made->token, group->token, sizeof made->token);
    if (cddpi_group_has_device(group)) {
        status = cddpi_group_device_split(group, made);
        if (status != CDDP_OK) {
            cddp_group_destroy(made);
            return cddpi_fail_prefix(status, "split");
        }
    }
    cddpi_dump_publish(made);
    *out = made;
    return CDDP_OK;
}

cddp_status cddp_group_split(cddp_group *group, int color, int key, cddp_group **out)
{
    cddp_status status = cddpi_group_enter(group, "group_split");

    return status == CDDP_OK ? cddpi_group_leave(group, split(group, color, key, out)) : status;
}
