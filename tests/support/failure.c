/* failure.c - what tests ask about a failure. */
#include "support/failure.h"

#include "support/test.h"

bool failure_is(cddp_status got, cddp_status want, int rank, int culprit, const char *operation)
{
    cddp_failure failure = CDDP_FAILURE_INIT;

    if (cddp_last_failure(&failure) == CDDP_OK && got == want && failure.status == want &&
        (rank == ANY_RANK || failure.rank == rank) &&
        (culprit == ANY_RANK || failure.culprit == culprit) &&
        (operation == NULL || strncmp(failure.operation, operation, strlen(operation)) == 0)) {
        return true;
    }
    fprintf(stderr,
            "the call gave %s, and should give %s; its failure is %s of rank %d, culprit %d, in "
            "\"%s\": %s\n",
            cddp_status_name(got), cddp_status_name(want), cddp_status_name(failure.status),
            failure.rank, failure.culprit, failure.operation, failure.text);
    return false;
}

bool last_error_has(const char *text)
{
    bool has = strstr(cddp_last_error(), text) != NULL;

    if (!has) {
        fprintf(stderr, "\"%s\" is not in: %s\n", text, cddp_last_error());
    }
    return has;
}

void must(cddp_status status)
{
    if (status != CDDP_OK) {
        fail_msg("status %d: %s", (int)status, cddp_last_error());
    }
}
