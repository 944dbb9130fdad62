/* split.c - cddp_group_split(): subgroups, which meet through their parent's collectives. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/agree.h"
#include "group/device.h"
#include "group/host/host.h"

#include <string.h>
#include <unistd.h>

/* What ranks tell each other. */
struct wish {
    int32_t color;
    int32_t key;
};
struct offer {
    uint64_t nonce;
    uint64_t start_time;
    int32_t pid;
    int32_t fd; /* -1: none */
};

/* This rank's place among those of its color. @param out_first  The rank here that becomes 0. */
static struct cddpi_seat seat_in(const cddp_group *group, const struct wish *wishes, int *out_first)
{
    const struct wish *mine = &wishes[group->rank];
    struct cddpi_seat seat = {0, 0, group->timeout_ms};
    int first = -1;

    for (int r = 0; r < group->world_size; r++) {
        const struct wish *wish = &wishes[r];

        if (wish->color != mine->color) {
            continue;
        }
        seat.world_size++;
        seat.rank += wish->key < mine->key || (wish->key == mine->key && r < group->rank);
        if (first < 0 || wish->key < wishes[first].key) {
            first = r;
        }
    }
    *out_first = first;
    return seat;
}

static cddp_status attach(cddp_group *group, const struct cddpi_seat *seat,
                          const struct offer *offer, struct cddpi_backend **out)
{
    cddp_status status;
    int fd;

    if (offer->fd < 0) {
        return CDDP_OK; /* the new rank 0 could not make the block: it says why when all agree */
    }
    status = cddpi_host_open_fd(offer->pid, offer->start_time, offer->fd, &fd);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_host_attach(seat, fd, offer->nonce, out);
    close(fd);
    if (status == CDDP_OK) {
        status = cddpi_host_meet(*out, cddpi_deadline_ns(group->timeout_ms), NULL, NULL);
    }
    return status;
}

/* All ranks take part in all exchanges, whatever happens to one, so that none waits for another. */
static cddp_status split_host(cddp_group *group, struct cddpi_seat *seat, int first, bool joins,
                              struct cddpi_backend **out)
{
    void *offers = NULL;
    struct offer mine = {0, 0, getpid(), -1};
    struct cddpi_backend *backend = NULL;
    char state;
    cddp_status own = CDDP_OK;
    cddp_status status;

    (void)cddpi_host_process(mine.pid, &state, &mine.start_time);
    if (joins && first == group->rank) {
        own = cddpi_host_block_create(seat->world_size, &mine.nonce, &mine.fd);
    }
    status = cddpi_share_records(group, &mine, sizeof mine, &offers);
    if (status == CDDP_OK) {
        if (own == CDDP_OK && joins) {
            own = attach(group, seat, (const struct offer *)offers + first, &backend);
        }
        status = cddpi_agree(group, own);
    }
    if (mine.fd >= 0) {
        close(mine.fd);
    }
    cddpi_free(offers);
    if (status == CDDP_OK) {
        *out = backend;
    } else if (backend != NULL) {
        cddpi_host_ops.close(backend);
    }
    return status;
}

cddp_status cddp_group_split(cddp_group *group, int color, int key, cddp_group **out)
{
    struct wish mine = {color < 0 ? -1 : color, key};
    struct cddpi_backend *backend = NULL;
    cddp_group *made = NULL;
    void *wishes = NULL;
    struct cddpi_seat seat;
    int first;
    int cores = 1;
    int own_cores = 1;
    cddp_status status;

    if (group == NULL || out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "split: no group or no out");
    }
    status = cddpi_share_records(group, &mine, sizeof mine, &wishes);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "split");
    }
    seat = seat_in(group, wishes, &first);
    cddpi_free(wishes);
    if (group->ops == &cddpi_host_ops) {
        status = split_host(group, &seat, first, color >= 0, &backend);
    } else if (color >= 0) {
        status = cddpi_solo_open(&backend);
    }
    if (status == CDDP_OK && color >= 0) {
        if (group->ops == &cddpi_host_ops) {
            cddpi_host_cores(backend, &cores, &own_cores);
        }
        status = cddpi_group_build(&seat, group->ops, backend, cores, own_cores, &made);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (made != NULL) {
        made->generation = group->generation;
    }
    if (made != NULL && group->device != NULL) {
        status = cddpi_device_follow(group, made);
        if (status != CDDP_OK) {
            cddp_group_destroy(made);
            return cddpi_fail_prefix(status, "split");
        }
    }
    *out = made;
    return CDDP_OK;
}
