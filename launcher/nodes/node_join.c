/* node_join.c - owns what a node does that comes after an elastic job has begun: it looks whether
 * the job is still there, compares itself with the first node, and tells all nodes that it has
 * come. Then it follows the job's log like every other node, from the first event on. */
#include "launcher/nodes/node_join.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* The number of the last event in the job's log; -1: there is none. */
static cddp_status find_last(struct cddpi_place *place, const char *prefix, int64_t *out)
{
    char **keys = NULL;
    size_t count = 0;

    *out = -1;
    CDDPI_TRY(cddp_store_list(place->store, prefix, &keys, &count));
    for (size_t k = 0; k < count; k++) {
        int64_t number = atoll(keys[k] + strlen(prefix));

        *out = number > *out ? number : *out;
    }
    cddp_free(keys);
    return CDDP_OK;
}

cddp_status cddpi_node_has_ended(struct cddpi_place *place, bool *out)
{
    struct cddpi_node_event event = {.kind = CDDPI_EVENT_NONE};
    char prefix[CDDPI_PLACE_KEY_BYTES];
    int64_t number;

    *out = false;
    snprintf(prefix, sizeof prefix, "%s/event/", place->job->rendezvous.job);
    CDDPI_TRY(find_last(place, prefix, &number));
    /* nothing starts after END, which few events follow */
    for (; number >= 0 && event.kind != CDDPI_EVENT_START && !*out; number--) {
        char key[CDDPI_PLACE_KEY_BYTES + 24];
        void *value = NULL;
        size_t bytes = 0;

        snprintf(key, sizeof key, "%s%lld", prefix, (long long)number);
        CDDPI_TRY(cddp_store_try_get(place->store, key, &value, &bytes));
        if (cddpi_node_event_decode(value, bytes, &event) != CDDP_OK) {
            event.kind = CDDPI_EVENT_NONE;
        }
        cddp_free(value);
        *out = event.kind == CDDPI_EVENT_END;
    }
    return CDDP_OK;
}

/* Read the record of node @p first. */
static cddp_status read_first(struct cddpi_place *place, int first, struct cddpi_node_record *out)
{
    char key[CDDPI_PLACE_KEY_BYTES];
    void *value = NULL;
    size_t bytes = 0;
    cddp_status status;

    cddpi_place_key(place, "node", first, key);
    CDDPI_TRY(cddp_store_try_get(place->store, key, &value, &bytes));
    status = cddpi_message_decode(&cddpi_node_record_form, value, bytes, out);
    cddp_free(value);
    return status == CDDP_OK
               ? status
               : cddpi_fail_prefix(status, "node %d is of another cddp version than this one (%s)",
                                   first, cddp_version());
}

cddp_status cddpi_node_join(struct cddpi_place *place, const struct cddpi_node_record *own,
                            int first, struct cddpi_node_link *link)
{
    struct cddpi_node_record zero;
    struct cddpi_node_event event = {
        .kind = CDDPI_EVENT_JOIN, .node = place->self, .rank = -1, .number = own->nproc};
    bool differs;

    CDDPI_TRY(read_first(place, first, &zero));
    differs = cddpi_node_record_differs(&zero, first, own, place->self, event.text,
                                        sizeof event.text);
    if (differs) {
        event.kind = CDDPI_EVENT_REFUSED;
    } else {
        snprintf(event.text, sizeof event.text, "%s", own->host);
    }
    cddpi_node_link_publish(link, &event);
    return differs ? cddpi_fail(CDDP_ERR_ARGUMENT, "%s", event.text) : CDDP_OK;
}
