/* agree.c - owns the comparison of manifests: all ranks exchange a hash, and only if those differ
 * the texts, from which every rank makes the same difference. */
#include "group/agree.h"
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/ddp.h"
#include "ddp/manifest.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CAMPS = 4, MOST_LINES = 12, DIFF_BYTES = 3000, WHO_BYTES = 128 };
static const uint64_t MOST_TEXT_BYTES = 64 << 20;

/* What a rank says first. */
struct claim {
    unsigned char hash[crypto_generichash_BYTES];
    uint64_t text_bytes; /* with the NUL */
};

/* Ranks of the same manifest, known by the lowest one. */
struct camp {
    int rank;
    char *text;
};

static void make_claim(struct claim *claim, const char *text)
{
    memset(claim, 0, sizeof *claim);
    claim->text_bytes = strlen(text) + 1;
    crypto_generichash(claim->hash, sizeof claim->hash, (const unsigned char *)text, strlen(text),
                       NULL, 0);
}

/* @p root's text on every rank, in new memory. */
static cddp_status share_text(cddp_group *group, const struct claim *claims, int root,
                              const char *text, char **out)
{
    size_t bytes = (size_t)claims[root].text_bytes;
    char *copy;
    cddp_status status;

    if (claims[root].text_bytes == 0 || claims[root].text_bytes > MOST_TEXT_BYTES) {
        return cddpi_fail(
            CDDP_ERR_MISMATCH,
            "ranks disagree about the model, and the manifest of rank %d is too large "
            "to compare: %zu bytes",
            root, bytes);
    }
    copy = cddpi_zalloc(bytes);
    if (copy == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %zu bytes of manifest", bytes);
        cddp_group_abort(group, cddp_last_error()); /* the others are in the broadcast */
        return status;
    }
    if (root == cddp_group_rank(group)) {
        memcpy(copy, text, bytes);
    }
    status = cddp_broadcast(group, copy, bytes, CDDP_U8, root, NULL);
    if (status != CDDP_OK) {
        cddpi_free(copy);
        return cddpi_fail_prefix(status, "ddp: comparing models");
    }
    copy[bytes - 1] = '\0';
    *out = copy;
    return CDDP_OK;
}

static bool same_claim(const struct claim *a, const struct claim *b)
{
    return memcmp(a->hash, b->hash, sizeof a->hash) == 0 && a->text_bytes == b->text_bytes;
}

/* "rank 1" or "ranks 0, 2-5": those that say the same as @p rank. */
static void name_camp(const struct claim *claims, int world_size, int rank, char *out, size_t bytes)
{
    size_t length = 0;
    int members = 0;

    for (int r = 0; r < world_size && length < bytes; r++) {
        int last = r;

        if (!same_claim(&claims[r], &claims[rank])) {
            continue;
        }
        while (last + 1 < world_size && same_claim(&claims[last + 1], &claims[rank])) {
            last++;
        }
        length += (size_t)snprintf(out + length, bytes - length, last > r ? "%s%d-%d" : "%s%d",
                                   members > 0 ? ", " : "", r, last);
        members += last - r + 1;
        r = last;
    }
    if (length < bytes && length + 7 < bytes) {
        size_t word = members > 1 ? 6 : 5;

        memmove(out + word, out, length + 1);
        memcpy(out, members > 1 ? "ranks " : "rank ", word);
    }
}

static size_t find_camps(const struct claim *claims, int world_size, struct camp *camps)
{
    size_t count = 0;

    for (int rank = 0; rank < world_size && count < MOST_CAMPS; rank++) {
        size_t camp = 0;

        while (camp < count && !same_claim(&claims[rank], &claims[camps[camp].rank])) {
            camp++;
        }
        if (camp == count) {
            camps[count].rank = rank;
            camps[count++].text = NULL;
        }
    }
    return count;
}

static cddp_status word_diff(const struct claim *claims, int world_size, const struct camp *camps,
                             size_t count)
{
    char text[DIFF_BYTES];
    char first[WHO_BYTES];
    size_t length = 0;

    name_camp(claims, world_size, camps[0].rank, first, sizeof first);
    for (size_t camp = 1; camp < count && length < sizeof text; camp++) {
        char who[WHO_BYTES];
        size_t left;

        name_camp(claims, world_size, camps[camp].rank, who, sizeof who);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%s(%s against %s):", camp > 1 ? "\n  " : "", first, who);
        if (length >= sizeof text) {
            break;
        }
        /* each other camp gets its part of the page */
        left = (sizeof text - length) / (count - camp);
        cddpi_manifest_diff(camps[0].text, camps[0].rank, camps[camp].text, camps[camp].rank,
                            MOST_LINES / (count - 1), text + length, left);
        length += strlen(text + length);
    }
    return cddpi_fail(CDDP_ERR_MISMATCH, "ranks disagree about the model %s%s", text,
                      count == MOST_CAMPS ? "\n  (more manifests may differ)" : "");
}

static cddp_status compare(cddp_group *group, const struct claim *claims, const char *text)
{
    int world_size = cddp_group_world_size(group);
    struct camp camps[MOST_CAMPS] = {{0, NULL}};
    size_t count = find_camps(claims, world_size, camps);
    cddp_status status = CDDP_OK;

    if (count == 1) {
        return CDDP_OK;
    }
    for (size_t camp = 0; camp < count && status == CDDP_OK; camp++) {
        status = share_text(group, claims, camps[camp].rank, text, &camps[camp].text);
    }
    if (status == CDDP_OK) {
        status = word_diff(claims, world_size, camps, count);
    }
    for (size_t camp = 0; camp < count; camp++) {
        cddpi_free(camps[camp].text);
    }
    return status;
}

cddp_status cddpi_ddp_agree(cddp_group *group, cddp_status own, const char *text)
{
    struct claim claim;
    void *claims = NULL;
    cddp_status status = cddpi_agree(group, own);

    if (status != CDDP_OK) {
        return status; /* some rank could not even register its model */
    }
    make_claim(&claim, text);
    status = cddpi_share_records(group, &claim, sizeof claim, &claims);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: comparing models");
    }
    status = compare(group, claims, text);
    cddpi_free(claims);
    return status;
}
