/* split.c - owns cddp_group_split(): creates subgroups, whose ranks find each other through their
 * parent's collectives. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/join/group_agree.h"
#include "group/transports.h"
#include "group/watch/dump.h"

#include <string.h>

/* What ranks send to each other. */
struct split_choice {
    int32_t color;
    int32_t key;
};

/* Whether rank @p a_rank has the same color as @p b's rank and comes before it. */
static bool comes_before(const struct split_choice *a, int a_rank, const struct split_choice *b,
                         int b_rank)
{
    return a->color == b->color && (a->key < b->key || (a->key == b->key && a_rank < b_rank));
}

/* The open parameters of this rank within its color.
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

/* The job's rank of each rank with this rank's color; NULL: the numbers are equal. */
static cddp_status find_ranks_of_job(const cddp_group *group, const struct split_choice *choices,
                                     const struct cddpi_open_params *params, int **out)
{
    int *ranks = cddpi_zalloc_array((size_t)params->world_size, sizeof *ranks);
    bool same = true;

    if (ranks == NULL) {
        return cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "split: no memory for %d ranks",
                               params->world_size);
    }
    for (int r = 0; r < group->world_size; r++) {
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
        ranks = NULL;
    }
    *out = ranks;
    return CDDP_OK;
}

/* Create the part for this rank's color; NULL if it has no color. All ranks of @p group take
 * part. */
static cddp_status make_part(cddp_group *group, const struct split_choice *choices,
                             cddp_group **out)
{
    bool joins = choices[group->rank].color >= 0;
    struct cddpi_backend *backend = NULL;
    struct cddpi_open_params params;
    cddp_group *made;
    cddp_status status;
    int first;

    params = params_in(group, choices, &first);
    CDDPI_TRY(group->transport->cpu.split(group, &params, first, joins, &backend));
    if (!joins) {
        *out = NULL;
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_group_build(&params, group->transport, backend, &made));
    status = find_ranks_of_job(group, choices, &params, &made->ranks_of_job);
    if (status != CDDP_OK) {
        cddp_group_destroy(made);
        return status;
    }
    made->job = group->job;
    made->generation = group->generation;
    made->host = group->host;
    memcpy(made->token, group->token, sizeof made->token);
    *out = made;
    return CDDP_OK;
}

cddp_status cddp_group_split(cddp_group *group, int color, int key, cddp_group **out)
{
    struct split_choice mine = {color < 0 ? -1 : color, key};
    cddp_group *made = NULL;
    void *choices = NULL;
    cddp_status status;

    CDDPI_ENTER_GROUP(group, "group_split");
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group_split: out is NULL");
    }
    status = cddpi_all_gather_bytes(group, &mine, sizeof mine, &choices);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "split");
    }
    status = make_part(group, choices, &made);
    cddpi_free(choices);
    CDDPI_TRY(status);
    if (made != NULL && cddpi_group_has_device(group)) {
        status = cddpi_group_device_split(group, made);
        if (status != CDDP_OK) {
            cddp_group_destroy(made);
            return cddpi_fail_prefix(status, "split");
        }
    }
    if (made != NULL) {
        cddpi_dump_publish(made);
    }
    *out = made;
    return CDDP_OK;
}
