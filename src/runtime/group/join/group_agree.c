/* group_agree.c - owns the small exchanges by which ranks reach a common decision after independent
 * work: every rank gets the data of all ranks, so all decide the same. */
#include "group/join/group_agree.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/engine/group_state.h"
#include "group/group.h"

#include <stdio.h>
#include <string.h>

static cddp_status gather_in_group(void *context, const void *own, size_t bytes, void *out_all)
{
    return cddp_all_gather(context, own, out_all, bytes, CDDP_U8, NULL);
}

static struct cddpi_exchange exchange_of(cddp_group *group)
{
    return (struct cddpi_exchange){.context = group,
                                   .world_size = cddp_group_world_size(group),
                                   .all_gather = gather_in_group};
}

/* Without memory, a group is aborted. */
static cddp_status share(const struct cddpi_exchange *exchange, const void *record, size_t bytes,
                         void **out)
{
    void *all = cddpi_zalloc_array((size_t)exchange->world_size, bytes);
    cddp_status status;

    if (all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for what %d ranks say: %zu bytes each",
                            exchange->world_size, bytes);
        if (exchange->all_gather == gather_in_group) {
            cddp_group_abort(exchange->context, cddp_last_error());
        }
        return status;
    }
    status = exchange->all_gather(exchange->context, record, bytes, all);
    if (status != CDDP_OK) {
        cddpi_free(all);
        return status;
    }
    *out = all;
    return CDDP_OK;
}

cddp_status cddpi_all_gather_bytes(cddp_group *group, const void *record, size_t bytes, void **out)
{
    struct cddpi_exchange exchange = exchange_of(group);

    return share(&exchange, record, bytes, out);
}

/* Store the first failure of @p all. The texts of other failures are appended, for at most @p most
 * in total. */
static cddp_status word(const struct cddpi_failure *all, int world_size, int most)
{
    struct cddpi_failure first;
    int failed = 0;

    for (int rank = 0; rank < world_size; rank++) {
        cddp_status status = (cddp_status)all[rank].status;

        if (status == CDDP_OK || failed++ >= most) {
            continue;
        }
        if (failed > 1) {
            first = *cddpi_last_failure();
        }
        (void)cddpi_fail_again(status, &all[rank]);
        (void)cddpi_fail_name(status, rank);
        if (failed > 1) {
            size_t length = strlen(first.text);

            snprintf(first.text + length, sizeof first.text - length, "; %s", cddp_last_error());
            (void)cddpi_fail_again((cddp_status)first.status, &first);
        }
    }
    if (failed == 0) {
        return CDDP_OK;
    }
    if (most > 1 && failed > most) {
        (void)cddpi_fail_suffix((cddp_status)cddpi_last_failure()->status,
                                "; and %d more ranks failed", failed - most);
    }
    return (cddp_status)cddpi_last_failure()->status;
}

/* Choose the reason after the exchange failed with @p status. A rank that had failed before keeps
 * its own reason, since the failed exchange may only be a consequence. */
static cddp_status reason(cddp_status status, const struct cddpi_failure *own)
{
    return own->status != CDDP_OK ? cddpi_fail_again((cddp_status)own->status, own) : status;
}

static cddp_status share_failures(const struct cddpi_exchange *exchange,
                                  const struct cddpi_failure *own, int most)
{
    void *all = NULL;
    cddp_status status = share(exchange, own, sizeof *own, &all);

    if (status != CDDP_OK) {
        return reason(status, own);
    }
    status = word(all, exchange->world_size, most);
    cddpi_free(all);
    return status;
}

static cddp_status agree(const struct cddpi_exchange *exchange, const struct cddpi_failure *own)
{
    void *all = NULL;
    bool failed = false;
    cddp_status status = share(exchange, &own->status, sizeof own->status, &all);

    if (status != CDDP_OK) {
        return reason(status, own);
    }
    for (int rank = 0; rank < exchange->world_size; rank++) {
        failed = failed || ((const int32_t *)all)[rank] != CDDP_OK;
    }
    cddpi_free(all);
    return failed ? share_failures(exchange, own, 1) : CDDP_OK;
}

static void get_own(cddp_status mine, struct cddpi_failure *out)
{
    if (mine == CDDP_OK) {
        memset(out, 0, sizeof *out);
    } else {
        *out = *cddpi_last_failure();
    }
    out->status = mine;
}

/* A rank whose failure has no known culprit is itself the culprit. */
static void take_blame(const cddp_group *group, struct cddpi_failure *own)
{
    if (own->status != CDDP_OK && own->culprit < 0) {
        own->culprit = cddpi_group_rank_of_job(group, cddp_group_rank(group));
    }
}

cddp_status cddpi_agree(cddp_group *group, cddp_status mine)
{
    struct cddpi_exchange exchange = exchange_of(group);
    struct cddpi_failure own;

    get_own(mine, &own);
    take_blame(group, &own);
    return agree(&exchange, &own);
}

cddp_status cddpi_agree_on_failure(cddp_group *group, const struct cddpi_failure *own, int most)
{
    struct cddpi_exchange exchange = exchange_of(group);
    struct cddpi_failure mine = *own;

    take_blame(group, &mine);
    return share_failures(&exchange, &mine, most);
}

cddp_status cddpi_agree_by(const struct cddpi_exchange *exchange, cddp_status mine)
{
    struct cddpi_failure own;

    get_own(mine, &own);
    return agree(exchange, &own);
}

/* Remove the statuses from @p records, each of which is a status followed by @p bytes bytes. False:
 * a rank has failed. */
static bool strip_statuses(unsigned char *records, int count, size_t bytes)
{
    bool all_succeeded = true;

    for (size_t rank = 0; rank < (size_t)count; rank++) {
        const unsigned char *record = records + rank * (sizeof(int32_t) + bytes);
        int32_t status;

        memcpy(&status, record, sizeof status);
        all_succeeded = all_succeeded && status == CDDP_OK;
        memmove(records + rank * bytes, record + sizeof status, bytes);
    }
    return all_succeeded;
}

cddp_status cddpi_agree_and_gather_by(const struct cddpi_exchange *exchange, cddp_status mine,
                                      const void *own, size_t bytes, void **out)
{
    struct cddpi_failure failure;
    void *records = NULL;
    unsigned char *record;
    cddp_status status;

    get_own(mine, &failure);
    record = cddpi_zalloc(sizeof failure.status + bytes);
    CDDPI_TRY_MEMORY(record != NULL, "no memory to tell others %zu bytes", bytes);
    memcpy(record, &failure.status, sizeof failure.status);
    if (mine == CDDP_OK) {
        memcpy(record + sizeof failure.status, own, bytes);
    }
    status = share(exchange, record, sizeof failure.status + bytes, &records);
    cddpi_free(record);
    if (status != CDDP_OK) {
        return reason(status, &failure);
    }
    if (!strip_statuses(records, exchange->world_size, bytes)) {
        cddpi_free(records);
        return share_failures(exchange, &failure, 1);
    }
    *out = records;
    return CDDP_OK;
}
