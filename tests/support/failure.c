/* failure.c - what tests ask about a failure. */
#include "support/failure.h"

#include "support/test.h"

static bool is_operation(const char *title, const char *want)
{
    return want == NULL ||
           (want[0] == '\0' ? title[0] == '\0' : strncmp(title, want, strlen(want)) == 0);
}

bool failure_is(cddp_status got, cddp_status want, int rank, int culprit, const char *operation)
{
    cddp_failure failure = CDDP_FAILURE_INIT;

    if (cddp_last_failure(&failure) == CDDP_OK && got == want && failure.status == want &&
        (rank == ANY_RANK || failure.rank == rank) &&
        (culprit == ANY_RANK || failure.culprit == culprit) &&
        is_operation(failure.operation, operation)) {
        return true;
    }
    fprintf(stderr,
            "the call gave %s, and should give %s; its failure is %s of rank %d, culprit %d, in "
            "\"%s\": %s\n",
            cddp_status_name(got), cddp_status_name(want), cddp_status_name(failure.status),
            failure.rank, failure.culprit, failure.operation, failure.text);
    return false;
}

bool failure_errno_is(int want)
{
    cddp_failure failure = CDDP_FAILURE_INIT;

    if (cddp_last_failure(&failure) == CDDP_OK && failure.error_number == want) {
        return true;
    }
    fprintf(stderr, "the failure's errno is %d, and should be %d: %s\n", failure.error_number, want,
            failure.text);
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
