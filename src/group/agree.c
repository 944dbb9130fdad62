/* agree.c - owns the small exchanges by which ranks that worked alone come to one decision: all see
 * all records, so all decide the same. */
#include "group/agree.h"

#include "base/alloc.h"
#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 1024 };

struct outcome {
    int32_t status;
    char text[TEXT_BYTES];
};

cddp_status cddpi_share_records(cddp_group *group, const void *record, size_t bytes, void **out)
{
    void *all = cddpi_zalloc_array((size_t)cddp_group_world_size(group), bytes);
    cddp_status status;

    if (all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for what %d ranks say: %zu bytes each",
                            cddp_group_world_size(group), bytes);
        cddp_group_abort(group, cddp_last_error());
        return status;
    }
    status = cddp_all_gather(group, record, all, bytes, CDDP_U8, NULL);
    if (status != CDDP_OK) {
        cddpi_free(all);
        return status;
    }
    *out = all;
    return CDDP_OK;
}

/* Texts of devices say already whose they are. */
static cddp_status word(int rank, const struct outcome *outcome)
{
    if (strncmp(outcome->text, "rank ", 5) == 0 && isdigit((unsigned char)outcome->text[5])) {
        return cddpi_fail((cddp_status)outcome->status, "%s", outcome->text);
    }
    return cddpi_fail((cddp_status)outcome->status, "rank %d: %s", rank, outcome->text);
}

cddp_status cddpi_agree(cddp_group *group, cddp_status mine)
{
    struct outcome outcome;
    struct outcome *all;
    void *memory = NULL;
    cddp_status status;

    memset(&outcome, 0, sizeof outcome);
    outcome.status = mine;
    if (mine != CDDP_OK) {
        snprintf(outcome.text, sizeof outcome.text, "%s", cddp_last_error());
    }
    status = cddpi_share_records(group, &outcome, sizeof outcome, &memory);
    if (status != CDDP_OK) {
        return status;
    }
    all = memory;
    for (int rank = 0; rank < cddp_group_world_size(group); rank++) {
        if (all[rank].status != CDDP_OK) {
            all[rank].text[TEXT_BYTES - 1] = '\0';
            status = word(rank, &all[rank]);
            break;
        }
    }
    cddpi_free(memory);
    return status;
}
