/* node_record.c - owns the form of records and plans, and the comparison of records. */
#include "launcher/nodes/node_record.h"

#include "launcher/run_options.h"

#include "base/alloc.h"

#include <stdio.h>

void cddpi_node_record_put(struct cddpi_message *message, const struct cddpi_node_record *record)
{
    cddpi_message_put_text(message, record->version);
    cddpi_message_put_text(message, record->host);
    cddpi_message_put_number(message, record->nproc);
    cddpi_message_put_number(message, record->count);
    cddpi_message_put_number(message, record->max_restarts);
    cddpi_message_put_text(message, record->timeout_ms);
    cddpi_message_put_text(message, record->words);
    cddpi_message_put_number(message, record->words_bytes);
}

bool cddpi_node_record_take(const uint8_t *data, size_t bytes, struct cddpi_node_record *out)
{
    struct cddpi_message_reader reader = {data, bytes, false};

    cddpi_message_text(&reader, out->version, sizeof out->version);
    cddpi_message_text(&reader, out->host, sizeof out->host);
    out->nproc = (int)cddpi_message_number(&reader, 1, CDDPI_MAX_RANKS);
    out->count = (int)cddpi_message_number(&reader, 1, CDDPI_MAX_NODES);
    out->max_restarts = (int)cddpi_message_number(&reader, 0, INT32_MAX);
    cddpi_message_text(&reader, out->timeout_ms, sizeof out->timeout_ms);
    cddpi_message_text(&reader, out->words, sizeof out->words);
    out->words_bytes = cddpi_message_number(&reader, 0, INT64_MAX);
    return !reader.is_bad && reader.left == 0;
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

void cddpi_node_plan_put(struct cddpi_message *message, const struct cddpi_node_plan *plan)
{
    cddpi_message_put_text(message, plan->refusal);
    cddpi_message_put_text(message, plan->master_host);
    cddpi_message_put_number(message, plan->refusal[0] == '\0' ? plan->count : 0);
    for (int i = 0; i < plan->count && plan->refusal[0] == '\0'; i++) {
        cddpi_message_put_text(message, plan->nodes[i].host);
        cddpi_message_put_number(message, plan->nodes[i].nproc);
    }
}

bool cddpi_node_plan_take(const uint8_t *data, size_t bytes, int count, struct cddpi_node_plan *out)
{
    struct cddpi_message_reader reader = {data, bytes, false};

    out->nodes = NULL;
    cddpi_message_text(&reader, out->refusal, sizeof out->refusal);
    cddpi_message_text(&reader, out->master_host, sizeof out->master_host);
    out->count = (int)cddpi_message_number(&reader, 0, CDDPI_MAX_NODES);
    if (out->refusal[0] == '\0' && out->count != count) {
        reader.is_bad = true;
    }
    if (!reader.is_bad && out->count > 0) {
        out->nodes = cddpi_zalloc_array((size_t)out->count, sizeof *out->nodes);
        reader.is_bad = out->nodes == NULL;
    }
    for (int i = 0; i < out->count && !reader.is_bad; i++) {
        cddpi_message_text(&reader, out->nodes[i].host, sizeof out->nodes[i].host);
        out->nodes[i].nproc = (int)cddpi_message_number(&reader, 1, CDDPI_MAX_RANKS);
    }
    if (reader.is_bad || reader.left > 0) {
        cddpi_node_plan_fini(out);
        return false;
    }
    return true;
}

void cddpi_node_plan_fini(struct cddpi_node_plan *plan)
{
    cddpi_free(plan->nodes);
    plan->nodes = NULL;
}
