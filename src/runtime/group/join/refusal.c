/* refusal.c - encodes and decodes a rank's failure as a value in the rendezvous. */
#include "group/join/refusal.h"

#include "base/error.h"

#include <stdio.h>

enum { REFUSAL_BYTES = 1200 };

cddp_status cddpi_refusal_set(struct cddpi_rendezvous *rendezvous, const char *key,
                              cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    char value[REFUSAL_BYTES];

    snprintf(value, sizeof value, "no %d %d %.1100s", (int)status, failure.rank,
             failure.text + failure.unnamed);
    cddpi_rendezvous_set(rendezvous, key, value);
    return cddpi_fail_again(status, &failure);
}

/* CDDP_OK if @p value is not a refusal; else the refusal's status and text. */
static cddp_status read_refusal(const char *value)
{
    int status;
    int rank;
    int text = 0;

    if (sscanf(value, "no %d %d %n", &status, &rank, &text) != 2 || text == 0 || status >= 0 ||
        status < CDDP_ERR_DEVICE) {
        return CDDP_OK;
    }
    return cddpi_fail_rank((cddp_status)status, rank, "%s", value + text);
}

cddp_status cddpi_refusal_await(struct cddpi_rendezvous *rendezvous, const char *key, int rank,
                                int64_t deadline_ns, char **out)
{
    char *value;
    cddp_status status = cddpi_rendezvous_await(rendezvous, key, rank, deadline_ns, &value);

    if (status == CDDP_ERR_TIMEOUT) {
        return cddpi_rendezvous_missing(rendezvous);
    }
    CDDPI_TRY(status);
    status = read_refusal(value);
    if (status != CDDP_OK) {
        cddp_free(value);
        return status;
    }
    *out = value;
    return CDDP_OK;
}

cddp_status cddpi_refusal_look(struct cddpi_rendezvous *rendezvous, const char *key)
{
    void *value;

    if (cddp_store_try_get(rendezvous->store, key, &value, NULL) != CDDP_OK) {
        return CDDP_OK;
    }
    if (read_refusal(value) != CDDP_OK) {
        struct cddpi_failure failure = *cddpi_last_failure();

        (void)cddpi_fail_again(CDDP_ERR_PEER, &failure);
        cddpi_error_blame(failure.rank);
    } else {
        (void)cddpi_fail(CDDP_ERR_PEER, "joining: a rank's refusal cannot be understood");
    }
    cddp_free(value);
    return CDDP_ERR_PEER;
}
