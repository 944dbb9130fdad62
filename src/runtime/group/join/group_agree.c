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

/* @p group: is aborted if there is no memory; NULL: there is no group to abort. */
static cddp_status share(const struct cddpi_exchange *exchange, cddp_group *group,
                         const void *record, size_t bytes, void **out)
{
    void *all = cddpi_zalloc_array((size_t)exchange->world_size, bytes);
    cddp_status status;

    if (all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for what %d ranks say: %zu bytes each",
                            exchange->world_size, bytes);
        if (group != NULL) {
            cddp_group_abort(group, cddp_last_error());
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

    return share(&exchange, group, record, bytes, out);
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

static cddp_status share_failures(const struct cddpi_exchange *exchange, cddp_group *group,
                                  const struct cddpi_failure *own, int most)
{
    void *all = NULL;
    cddp_status status = share(exchange, group, own, sizeof *own, &all);

    if (status != CDDP_OK) {
        return reason(status, own);
    }
    status = word(all, exchange->world_size, most);
    cddpi_free(all);
    return status;
}

static cddp_status agree(const struct cddpi_exchange *exchange, cddp_group *group,
                         struct cddpi_failure *own)
{
    void *all = NULL;
    bool failed = false;
    cddp_status status = share(exchange, group, &own->status, sizeof own->status, &all);

    if (status != CDDP_OK) {
        return reason(status, own);
    }
    for (int rank = 0; rank < exchange->world_size; rank++) {
        failed = failed || ((const int32_t *)all)[rank] != CDDP_OK;
    }
    cddpi_free(all);
    return failed ? share_failures(exchange, group, own, 1) : CDDP_OK;
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
    return agree(&exchange, group, &own);
}

cddp_status cddpi_agree_on_failure(cddp_group *group, const struct cddpi_failure *own, int most)
{
    struct cddpi_exchange exchange = exchange_of(group);
    struct cddpi_failure mine = *own;

    take_blame(group, &mine);
    return share_failures(&exchange, group, &mine, most);
}

cddp_status cddpi_agree_by(const struct cddpi_exchange *exchange, cddp_status mine)
{
    struct cddpi_failure own;

    get_own(mine, &own);
    return agree(exchange, NULL, &own);
}

/* Build the record: this rank's status, followed by its data. */
static unsigned char *make_record(cddp_status mine, const void *own, size_t bytes)
{
    unsigned char *record = cddpi_zalloc(sizeof(int32_t) + bytes);
    int32_t status = mine;

    if (record != NULL) {
        memcpy(record, &status, sizeof status);
        if (mine == CDDP_OK) {
            memcpy(record + sizeof status, own, bytes);
        }
    }
    return record;
}

/* Whether all ranks have succeeded; @p out then gets the data that follows their statuses. */
static bool read_records(const unsigned char *records, int count, size_t bytes, unsigned char *out)
{
    size_t stride = sizeof(int32_t) + bytes;

    for (int rank = 0; rank < count; rank++) {
        int32_t status;

        memcpy(&status, records + (size_t)rank * stride, sizeof status);
        if (status != CDDP_OK) {
            return false;
        }
    }
    for (int rank = 0; rank < count; rank++) {
        memcpy(out + (size_t)rank * bytes, records + (size_t)rank * stride + sizeof(int32_t),
               bytes);
    }
    return true;
}

cddp_status cddpi_agree_and_gather_by(const struct cddpi_exchange *exchange, cddp_status mine,
                                      const void *own, size_t bytes, void *out_all)
{
    struct cddpi_failure failure;
    void *records = NULL;
    unsigned char *record;
    cddp_status status;

    get_own(mine, &failure);
    record = make_record(mine, own, bytes);
    if (record == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory to tell others %zu bytes", bytes);
    }
    status = share(exchange, NULL, record, sizeof(int32_t) + bytes, &records);
    cddpi_free(record);
    if (status != CDDP_OK) {
        return reason(status, &failure);
    }
    if (!read_records(records, exchange->world_size, bytes, out_all)) {
        status = share_failures(exchange, NULL, &failure, 1);
    }
    cddpi_free(records);
    return status;
}
