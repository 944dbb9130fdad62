/* node_record.c - owns the encoding of records and plans, and the comparison of records. */
#include "launcher/nodes/node_record.h"

#include "launcher/run_options.h"

#include "base/error.h"

#include <stdio.h>

#define RECORD struct cddpi_node_record
#define PLAN struct cddpi_node_plan

static const struct cddpi_field record_fields[] = {
    CDDPI_FIELD_OF_TEXT(RECORD, version),
    CDDPI_FIELD_OF_TEXT(RECORD, host),
    CDDPI_FIELD_OF_INT(RECORD, nproc, 1, CDDPI_MAX_RANKS),
    CDDPI_FIELD_OF_INT(RECORD, count, 1, CDDPI_MAX_NODES),
    CDDPI_FIELD_OF_INT(RECORD, max_restarts, 0, INT32_MAX),
    CDDPI_FIELD_OF_TEXT(RECORD, timeout_ms),
    CDDPI_FIELD_OF_TEXT(RECORD, words),
    CDDPI_FIELD_OF_INT64(RECORD, words_bytes, 0, INT64_MAX),
    {.type = CDDPI_FIELD_END},
};

const struct cddpi_message_form cddpi_node_record_form = {CDDPI_MESSAGE_RECORD, sizeof(RECORD),
                                                          sizeof(RECORD) + 128, record_fields};

static const struct cddpi_field node_fields[] = {
    CDDPI_FIELD_OF_TEXT(struct cddpi_plan_node, host),
    CDDPI_FIELD_OF_INT(struct cddpi_plan_node, nproc, 1, CDDPI_MAX_RANKS),
    {.type = CDDPI_FIELD_END},
};

static const struct cddpi_field plan_fields[] = {
    CDDPI_FIELD_OF_TEXT(PLAN, refusal),
    CDDPI_FIELD_OF_TEXT(PLAN, master_host),
    CDDPI_FIELD_OF_LIST(PLAN, nodes, count, CDDPI_MAX_NODES, node_fields),
    {.type = CDDPI_FIELD_END},
};

const struct cddpi_message_form cddpi_node_plan_form = {
    CDDPI_MESSAGE_PLAN, sizeof(PLAN),
    sizeof(PLAN) + (size_t)CDDPI_MAX_NODES *(sizeof(struct cddpi_plan_node) + 16), plan_fields};

cddp_status cddpi_node_plan_decode(const uint8_t *data, size_t bytes, int count,
                                   struct cddpi_node_plan *out)
{
    CDDPI_TRY(cddpi_message_decode(&cddpi_node_plan_form, data, bytes, out));
    return out->count == (out->refusal[0] == '\0' ? count : 0)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_FORMAT, "it is for %d nodes, not for %d", out->count, count);
}

void cddpi_node_plan_fini(struct cddpi_node_plan *plan)
{
    cddpi_message_fini(&cddpi_node_plan_form, plan);
}

bool cddpi_node_record_differs(const struct cddpi_node_record *zero,
                               const struct cddpi_node_record *other, int i, char *out,
                               size_t bytes)
{
    if (strcmp(zero->version, other->version) != 0) {
        snprintf(out, bytes, "node %d (%s) has cddp %s, node 0 (%s) has %s", i, other->host,
                 other->version, zero->host, zero->version);
    } else if (zero->count != other->count) {
        snprintf(out, bytes, "node %d (%s) was started with --nnodes %d, node 0 (%s) with %d", i,
                 other->host, other->count, zero->host, zero->count);
    } else if (i >= zero->count) {
        snprintf(out, bytes, "node %d (%s) has come, but --nnodes is %d", i, other->host,
                 zero->count);
    } else if (zero->max_restarts != other->max_restarts) {
        snprintf(out, bytes, "node %d (%s) was started with --max-restarts %d, node 0 (%s) with %d",
                 i, other->host, other->max_restarts, zero->host, zero->max_restarts);
    } else if (strcmp(zero->timeout_ms, other->timeout_ms) != 0) {
        snprintf(out, bytes, "node %d (%s) and node 0 (%s) were started with different --timeout",
                 i, other->host, zero->host);
    } else if (strcmp(zero->words, other->words) != 0 || zero->words_bytes != other->words_bytes) {
        snprintf(out, bytes,
                 "node %d (%s) was started to run something else than node 0 (%s): \"%.1000s\", "
                 "not \"%.1000s\"",
                 i, other->host, zero->host, other->words, zero->words);
    } else {
        return false;
    }
    return true;
}
