/* same_config.c - compares the configurations of all ranks when a run begins, before one rank reads
 * other data or builds another model than the rest and fails with a consequence. Ranks exchange
 * hashes; only where these differ does rank 0 send its text. */
#include "train/same_config.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/join/group_agree.h"
#include "report/conf_keys.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 8, SHOWN_VALUE = 120, BEFORE_DIFFERENCE = 40 };
static const uint64_t MOST_TEXT_BYTES = 64 << 20;

/* What a rank sends first. */
struct config_digest {
    unsigned char hash[crypto_generichash_BYTES];
    uint64_t bytes; /* of the text, with its NUL */
};

/* Where to begin to show two values of which only a part is shown: so that their first difference
 * is within that part, with some text before it. */
static size_t find_shown(const char *const values[2])
{
    size_t at = 0;

    while (values[0] != NULL && values[1] != NULL && values[0][at] != '\0' &&
           values[0][at] == values[1][at]) {
        at++;
    }
    if (at < SHOWN_VALUE - BEFORE_DIFFERENCE) {
        return 0;
    }
    at -= BEFORE_DIFFERENCE;
    while (((unsigned char)values[0][at] & 0xC0) == 0x80) { /* in the middle of a character */
        at--;
    }
    return at;
}

/* "20", "none" where the key is of no use to that configuration, and long values cut. */
static void show_value(const char *value, size_t begin, char *out, size_t bytes)
{
    const char *shown = value != NULL ? value + begin : "none";

    snprintf(out, bytes, "%s%.*s%s", begin > 0 ? "..." : "", SHOWN_VALUE, shown,
             strlen(shown) > SHOWN_VALUE ? "..." : "");
}

/* Word the difference between the lists of rank 0 and of @p rank. */
static cddp_status fail_by_key(const struct cddpi_config *config,
                               const struct cddpi_conf_keys lists[2], int rank)
{
    char text[MOST_SHOWN * (2 * SHOWN_VALUE + 128)] = "";
    size_t used = 0;
    size_t count = 0;
    size_t at = 0;
    const char *first = NULL;
    const char *path;

    while ((path = cddpi_conf_keys_differ(lists, 2, &at)) != NULL) {
        const char *const values[2] = {cddpi_conf_keys_value(&lists[0], path),
                                       cddpi_conf_keys_value(&lists[1], path)};
        char shown[2][SHOWN_VALUE + 7];

        first = first != NULL ? first : path;
        if (count++ >= MOST_SHOWN) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            show_value(values[i], find_shown(values), shown[i], sizeof shown[i]);
        }
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "\n  %.80s: rank 0 has %s, rank %d has %s", path, shown[0], rank,
                                 shown[1]);
    }
    if (count == 0) {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s: the configurations of ranks 0 and %d differ",
                          config->path, rank);
    }
    if (count > MOST_SHOWN) {
        snprintf(text + used, sizeof text - used, "\n  and %zu more keys", count - MOST_SHOWN);
    }
    return cddpi_config_fail(config, first,
                             "the configurations of ranks 0 and %d differ; give every machine the "
                             "same:%s",
                             rank, text);
}

static cddp_status compare_texts(const struct cddpi_config *config, const char *text_of_0,
                                 const char *text, int rank)
{
    struct cddpi_conf_keys lists[2] = {{0}};
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, cddpi_conf_keys_read(text_of_0, &lists[0]));
    CDDPI_TRY_GOTO(out, status, cddpi_conf_keys_read(text, &lists[1]));
    status = fail_by_key(config, lists, rank);

out:
    cddpi_conf_keys_fini(&lists[1]);
    cddpi_conf_keys_fini(&lists[0]);
    return status;
}

/* Get rank 0's text, of @p bytes bytes, and let each rank that has another one word it. */
static cddp_status explain(const struct cddpi_config *config, cddp_group *group, const char *text,
                           uint64_t bytes, bool is_odd)
{
    int rank = cddp_group_rank(group);
    cddp_status status = CDDP_OK;
    char *text_of_0;

    if (bytes == 0 || bytes > MOST_TEXT_BYTES) {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s: the configurations of the ranks differ",
                          config->path);
    }
    text_of_0 = cddpi_zalloc((size_t)bytes);
    if (text_of_0 == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for rank 0's configuration");
    }
    status = cddpi_agree(group, status);
    if (status == CDDP_OK) {
        if (rank == 0) {
            memcpy(text_of_0, text, (size_t)bytes);
        }
        status = cddp_broadcast(group, text_of_0, (size_t)bytes, CDDP_U8, 0, NULL);
    }
    if (status == CDDP_OK) {
        text_of_0[bytes - 1] = '\0';
        status = is_odd ? compare_texts(config, text_of_0, text, rank) : CDDP_OK;
        status = cddpi_agree(group, status);
    }
    cddpi_free(text_of_0);
    return status;
}

cddp_status cddpi_config_agree(const struct cddpi_config *config, cddp_group *group)
{
    int world_size = cddp_group_world_size(group);
    struct config_digest own = {.bytes = 0};
    void *gathered = NULL;
    const struct config_digest *digests;
    bool differ = false;
    char *text;
    cddp_status status;

    if (world_size == 1) {
        return CDDP_OK;
    }
    text = cddpi_config_text(config, true);
    if (text == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its text", config->path);
    } else {
        own.bytes = strlen(text) + 1;
        crypto_generichash(own.hash, sizeof own.hash, (const unsigned char *)text, own.bytes, NULL,
                           0);
        status = CDDP_OK;
    }
    CDDPI_TRY_GOTO(out, status, cddpi_agree(group, status));
    CDDPI_TRY_GOTO(out, status, cddpi_all_gather_bytes(group, &own, sizeof own, &gathered));
    digests = gathered;
    for (int rank = 1; rank < world_size; rank++) {
        differ = differ || memcmp(&digests[rank], &digests[0], sizeof own) != 0;
    }
    if (differ) {
        status = explain(config, group, text, digests[0].bytes,
                         memcmp(&own, &digests[0], sizeof own) != 0);
    }

out:
    cddpi_free(gathered);
    free(text);
    return status;
}
