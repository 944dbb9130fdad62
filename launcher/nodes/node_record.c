/* node_record.c - owns what a node tells about itself: how a record is made, encoded and compared
 * with another's; and the encoding of the answer to all. */
#include "launcher/nodes/node_record.h"

#include "launcher/nodes/node_event.h"
#include "launcher/run_options.h"

#include "base/error.h"
#include "base/file.h"
#include "base/streams.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD struct cddpi_node_record
#define PLAN struct cddpi_node_plan

CDDPI_MESSAGE_FORM(cddpi_node_record_form, RECORD, RECORD, sizeof(RECORD) + 128,
                   CDDPI_TEXT(RECORD, version), CDDPI_TEXT(RECORD, host),
                   CDDPI_NUMBER(RECORD, nproc, 1, CDDPI_MAX_RANKS),
                   CDDPI_NUMBER(RECORD, count, 1, CDDPI_MAX_NODES),
                   CDDPI_NUMBER(RECORD, least, 0, CDDPI_MAX_NODES),
                   CDDPI_NUMBER(RECORD, max_restarts, -1, INT32_MAX),
                   CDDPI_NUMBER(RECORD, trains, 0, 1), CDDPI_TEXT(RECORD, timeout_ms),
                   CDDPI_TEXT(RECORD, words), CDDPI_NUMBER(RECORD, words_bytes, 0, INT64_MAX),
                   CDDPI_NUMBER(RECORD, program.bytes, -1, INT64_MAX),
                   CDDPI_BYTES(RECORD, program.hash),
                   CDDPI_NUMBER(RECORD, config.bytes, -1, INT64_MAX),
                   CDDPI_BYTES(RECORD, config.hash));

static const struct cddpi_field node_fields[] = {
    CDDPI_TEXT(struct cddpi_plan_node, host),
    CDDPI_NUMBER(struct cddpi_plan_node, nproc, 1, CDDPI_MAX_RANKS),
    CDDPI_NUMBER(struct cddpi_plan_node, node, 0, CDDPI_NODE_NUMBERS - 1),
    {.type = CDDPI_FIELD_END},
};

CDDPI_MESSAGE_FORM(cddpi_node_plan_form, PLAN, PLAN,
                   sizeof(PLAN) + (size_t)CDDPI_MAX_NODES * (sizeof(struct cddpi_plan_node) + 16),
                   CDDPI_TEXT(PLAN, refusal), CDDPI_TEXT(PLAN, master_host),
                   CDDPI_LIST(PLAN, nodes, count, CDDPI_MAX_NODES, node_fields));

cddp_status cddpi_node_plan_decode(const uint8_t *data, size_t bytes, int least, int most,
                                   struct cddpi_node_plan *out)
{
    CDDPI_TRY(cddpi_message_decode(&cddpi_node_plan_form, data, bytes, out));
    if (out->refusal[0] != '\0') {
        least = most = 0;
    }
    if (out->count < least || out->count > most) {
        return cddpi_fail(CDDP_ERR_FORMAT, "it is for %d nodes, not for %d", out->count, most);
    }
    for (int i = 0; i < out->count; i++) {
        int node = out->nodes[i].node;

        if (i > 0 && node <= out->nodes[i - 1].node) {
            return cddpi_fail(CDDP_ERR_FORMAT, "its nodes are not in the order of their numbers");
        }
        if (least == most && node != i) {
            return cddpi_fail(CDDP_ERR_FORMAT, "it tells of node %d of %d", node, most);
        }
    }
    return CDDP_OK;
}

bool cddpi_node_plan_has(const struct cddpi_node_plan *plan, int node)
{
    for (int i = 0; i < plan->count; i++) {
        if (plan->nodes[i].node == node) {
            return true;
        }
    }
    return false;
}

void cddpi_node_plan_fini(struct cddpi_node_plan *plan)
{
    cddpi_message_fini(&cddpi_node_plan_form, plan);
}

/* Write the command to run, as a command line. */
static void put_words(const struct cddpi_launch_options *options, struct cddpi_node_record *record)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to == NULL) {
        return;
    }
    if (options->config != NULL) {
        cddpi_shell_quote(to, options->config);
    }
    for (int i = 0; i < options->argument_count; i++) {
        fputs(options->config != NULL || i > 0 ? " " : "", to);
        cddpi_shell_quote(to, options->arguments[i]);
    }
    if (fclose(to) == 0) {
        snprintf(record->words, sizeof record->words, "%s", text);
        record->words_bytes = (int64_t)bytes;
    }
    free(text);
}

/* A file that cannot be read, such as a program that may only be executed, is not compared. */
static void print_file(const char *path, struct cddpi_file_print *out)
{
    crypto_generichash_state state;
    unsigned char buffer[65536];
    int fd = cddpi_file_open_read(path);
    ssize_t got = 0;

    _Static_assert(sizeof out->hash >= crypto_generichash_BYTES_MIN, "libsodium's least");
    (void)crypto_generichash_init(&state, NULL, 0, sizeof out->hash);
    out->bytes = 0;
    while (fd >= 0 && (got = read(fd, buffer, sizeof buffer)) > 0) {
        (void)crypto_generichash_update(&state, buffer, (unsigned long long)got);
        out->bytes += got;
    }
    (void)crypto_generichash_final(&state, out->hash, sizeof out->hash);
    if (fd < 0 || got < 0) {
        out->bytes = -1;
    }
    cddpi_fd_close(&fd);
}

void cddpi_node_record_describe(const struct cddpi_job *job, struct cddpi_node_record *out)
{
    const struct cddpi_launch_options *options = &job->options;

    *out = (struct cddpi_node_record){.nproc = job->local_world_size,
                                      .count = options->nnodes,
                                      .least = options->least,
                                      .max_restarts = options->max_restarts,
                                      .trains = options->config != NULL,
                                      .program.bytes = -1,
                                      .config.bytes = -1};
    snprintf(out->version, sizeof out->version, "%s", cddp_version());
    if (job->host != NULL) {
        snprintf(out->host, sizeof out->host, "%s", job->host);
    } else {
        (void)gethostname(out->host, sizeof out->host - 1);
    }
    memcpy(out->timeout_ms, options->timeout_ms, sizeof out->timeout_ms);
    put_words(options, out);
    if (options->least > 0) {
        print_file(job->command.path, &out->program);
        if (options->config != NULL) {
            print_file(options->config, &out->config);
        }
    }
}

/* Write what differs between two nodes' files, which both call @p name, as in "has another
 * train.conf (12 bytes) than node 0 (alpha: 34 bytes)". Returns false if nothing differs. */
static bool prints_differ(const char *name, const struct cddpi_file_print *zero,
                          const struct cddpi_file_print *other, int first, const char *host,
                          char *out, size_t bytes)
{
    if (zero->bytes < 0 || other->bytes < 0 ||
        (zero->bytes == other->bytes && memcmp(zero->hash, other->hash, sizeof zero->hash) == 0)) {
        return false;
    }
    if (zero->bytes == other->bytes) {
        snprintf(out, bytes, "has another %s than node %d (%s): %lld bytes, but not the same", name,
                 first, host, (long long)other->bytes);
    } else {
        snprintf(out, bytes, "has another %s than node %d (%s): %lld bytes, not %lld", name, first,
                 host, (long long)other->bytes, (long long)zero->bytes);
    }
    return true;
}

/* Write --max-restarts, which only an elastic job need not have. */
static const char *limit_text(int max_restarts, char out[CDDPI_NNODES_BYTES])
{
    return max_restarts < 0 ? "none" : cddpi_nnodes_text(0, max_restarts, out);
}

bool cddpi_node_record_differs(const struct cddpi_node_record *zero, int first,
                               const struct cddpi_node_record *other, int i, char *out,
                               size_t bytes)
{
    char counts[2][CDDPI_NNODES_BYTES];
    char files[CDDPI_HOST_BYTES + 200];

    if (strcmp(zero->version, other->version) != 0) {
        snprintf(out, bytes, "node %d (%s) has cddp %s, node %d (%s) has %s", i, other->host,
                 other->version, first, zero->host, zero->version);
    } else if (zero->count != other->count || zero->least != other->least) {
        snprintf(out, bytes, "node %d (%s) was started with --nnodes %s, node %d (%s) with %s", i,
                 other->host, cddpi_nnodes_text(other->least, other->count, counts[0]), first,
                 zero->host, cddpi_nnodes_text(zero->least, zero->count, counts[1]));
    } else if (i >= zero->count && zero->least == 0) {
        snprintf(out, bytes, "node %d (%s) has come, but --nnodes is %d", i, other->host,
                 zero->count);
    } else if (zero->max_restarts != other->max_restarts) {
        snprintf(out, bytes,
                 "node %d (%s) was started with --max-restarts %s, node %d (%s) with %s", i,
                 other->host, limit_text(other->max_restarts, counts[0]), first, zero->host,
                 limit_text(zero->max_restarts, counts[1]));
    } else if (strcmp(zero->timeout_ms, other->timeout_ms) != 0) {
        snprintf(out, bytes, "node %d (%s) and node %d (%s) were started with different --timeout",
                 i, other->host, first, zero->host);
    } else if (strcmp(zero->words, other->words) != 0 || zero->words_bytes != other->words_bytes) {
        snprintf(out, bytes,
                 "node %d (%s) was started to run something else than node %d (%s): \"%.1000s\", "
                 "not \"%.1000s\"",
                 i, other->host, first, zero->host, other->words, zero->words);
    } else if (prints_differ("train.conf", &zero->config, &other->config, first, zero->host, files,
                             sizeof files) ||
               prints_differ("program", &zero->program, &other->program, first, zero->host, files,
                             sizeof files)) {
        snprintf(out, bytes, "node %d (%s) %s", i, other->host, files);
    } else {
        return false;
    }
    return true;
}
