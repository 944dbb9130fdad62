/* deduplicate.c - compares the failures that ranks report, to find those that are the same. */
#include "launcher/output/deduplicate.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

cddp_status cddpi_deduplicator_init(int world_size, struct cddpi_deduplicator *out)
{
    *out = (struct cddpi_deduplicator){.world_size = world_size};
    out->failures = cddpi_zalloc_array((size_t)world_size, sizeof *out->failures);
    return out->failures != NULL ? CDDP_OK
                                 : cddpi_fail(CDDP_ERR_NO_MEMORY,
                                              "no memory for the failures of %d ranks", world_size);
}

void cddpi_deduplicator_fini(struct cddpi_deduplicator *deduplicator)
{
    for (int rank = 0; deduplicator->failures != NULL && rank < deduplicator->world_size; rank++) {
        cddpi_free(deduplicator->failures[rank].text);
    }
    cddpi_free(deduplicator->failures);
    deduplicator->failures = NULL;
}

void cddpi_deduplicator_report(struct cddpi_deduplicator *deduplicator, int rank, const char *text,
                               size_t bytes, size_t named)
{
    struct cddpi_reported_failure *failure = &deduplicator->failures[rank];
    char *copy = failure->text == NULL && named < bytes ? cddpi_zalloc(bytes) : NULL;

    if (copy == NULL) { /* without memory, each rank's report is shown */
        return;
    }
    memcpy(copy, text, bytes);
    *failure = (struct cddpi_reported_failure){.text = copy, .bytes = bytes, .named = named};
}

static bool is_same(const struct cddpi_reported_failure *a, const struct cddpi_reported_failure *b)
{
    return a->bytes - a->named == b->bytes - b->named &&
           memcmp(a->text + a->named, b->text + b->named, a->bytes - a->named) == 0;
}

static bool is_shown(const struct cddpi_deduplicator *deduplicator,
                     const struct cddpi_reported_failure *failure)
{
    for (int rank = 0; rank < deduplicator->world_size; rank++) {
        const struct cddpi_reported_failure *other = &deduplicator->failures[rank];

        if (other != failure && other->is_shown && is_same(other, failure)) {
            return true;
        }
    }
    return false;
}

bool cddpi_deduplicator_is_known(struct cddpi_deduplicator *deduplicator, int rank,
                                 const char *line, size_t bytes)
{
    struct cddpi_reported_failure *failure = &deduplicator->failures[rank];
    const char *next = failure->text != NULL ? failure->text + failure->seen : NULL;
    size_t left = failure->bytes - failure->seen;

    if (left <= bytes || next[bytes] != '\n' || memcmp(next, line, bytes) != 0) {
        return false; /* the line does not belong to the failure, or the whole failure has
                         appeared */
    }
    if (failure->seen == 0) {
        failure->is_shown = !is_shown(deduplicator, failure);
    }
    failure->seen += bytes + 1;
    return !failure->is_shown;
}
