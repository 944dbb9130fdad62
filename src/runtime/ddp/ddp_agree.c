/* ddp_agree.c - owns what makes the models of all ranks equal: the comparison of manifests, and how
 * one rank's parameters and buffers reach the others.
 *
 * All ranks exchange hashes of their manifests. Only if the hashes differ do they exchange the
 * texts, from which every rank words the same difference. All broadcasts start before any is waited
 * for, since most buffers are small. */
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/ddp_create.h"
#include "ddp/ddp_shard.h"
#include "group/engine/handles.h"
#include "group/join/group_agree.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { MOST_VARIANTS = 4, MOST_LINES = 12, DIFF_BYTES = 3000, WHO_BYTES = 128 };
static const uint64_t MOST_TEXT_BYTES = 64 << 20;

/* What a rank sends first. */
struct digest {
    unsigned char hash[crypto_generichash_BYTES];
    uint64_t text_bytes; /* with the NUL */
};

/* One of the different manifests, and the lowest rank that has it. */
struct variant {
    int rank;
    char *text;
};

/* Broadcast @p root's text. @p out: new memory. */
static cddp_status share_text(cddp_group *group, const struct digest *digests, int root,
                              const char *text, char **out)
{
    size_t bytes = (size_t)digests[root].text_bytes;
    char *copy;
    cddp_status status;

    if (digests[root].text_bytes == 0 || digests[root].text_bytes > MOST_TEXT_BYTES) {
        return cddpi_fail(
            CDDP_ERR_MISMATCH,
            "ranks disagree about the model, and the manifest of rank %d is too large "
            "to compare: %zu bytes",
            root, bytes);
    }
    copy = cddpi_zalloc(bytes);
    if (copy == NULL) {
        return cddpi_ddp_abort(
            group,
            cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %zu bytes of manifest", bytes));
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

static bool same_digest(const struct digest *a, const struct digest *b)
{
    return memcmp(a->hash, b->hash, sizeof a->hash) == 0 && a->text_bytes == b->text_bytes;
}

/* Name the ranks that have the same manifest as @p rank: "rank 1" or "ranks 0, 2-5". */
static void name_variant(const struct digest *digests, int world_size, int rank, char *out,
                         size_t bytes)
{
    size_t length = 0;
    int members = 0;

    for (int r = 0; r < world_size && length < bytes; r++) {
        int last = r;

        if (!same_digest(&digests[r], &digests[rank])) {
            continue;
        }
        while (last + 1 < world_size && same_digest(&digests[last + 1], &digests[rank])) {
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

static size_t find_variants(const struct digest *digests, int world_size, struct variant *variants)
{
    size_t count = 0;

    for (int rank = 0; rank < world_size && count < MOST_VARIANTS; rank++) {
        size_t variant = 0;

        while (variant < count && !same_digest(&digests[rank], &digests[variants[variant].rank])) {
            variant++;
        }
        if (variant == count) {
            variants[count].rank = rank;
            variants[count++].text = NULL;
        }
    }
    return count;
}

static cddp_status word_diff(const struct digest *digests, int world_size,
                             const struct variant *variants, size_t count)
{
    char text[DIFF_BYTES];
    char first[WHO_BYTES];
    size_t length = 0;

    name_variant(digests, world_size, variants[0].rank, first, sizeof first);
    for (size_t variant = 1; variant < count && length < sizeof text; variant++) {
        char who[WHO_BYTES];
        size_t left;

        name_variant(digests, world_size, variants[variant].rank, who, sizeof who);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%s(%s against %s):", variant > 1 ? "\n  " : "", first, who);
        if (length >= sizeof text) {
            break;
        }
        /* divide the rest of the text's memory among the remaining variants */
        left = (sizeof text - length) / (count - variant);
        cddpi_manifest_diff(variants[0].text, variants[0].rank, variants[variant].text,
                            variants[variant].rank, MOST_LINES / (count - 1), text + length, left);
        length += strlen(text + length);
    }
    return cddpi_fail(CDDP_ERR_MISMATCH, "ranks disagree about the model %s%s", text,
                      count == MOST_VARIANTS ? "\n  (more manifests may differ)" : "");
}

static cddp_status compare_manifests(cddp_group *group, const struct digest *digests,
                                     const char *text)
{
    int world_size = cddp_group_world_size(group);
    struct variant variants[MOST_VARIANTS] = {{0, NULL}};
    size_t count = find_variants(digests, world_size, variants);
    cddp_status status;

    if (count == 1) {
        return CDDP_OK;
    }
    for (size_t variant = 0; variant < count; variant++) {
        CDDPI_TRY_GOTO(
            done, status,
            share_text(group, digests, variants[variant].rank, text, &variants[variant].text));
    }
    status = word_diff(digests, world_size, variants, count);

done:
    for (size_t variant = 0; variant < count; variant++) {
        cddpi_free(variants[variant].text);
    }
    return status;
}

cddp_status cddpi_ddp_agree(cddp_group *group, cddp_status own, const char *text)
{
    struct digest digest;
    void *digests = NULL;
    cddp_status status = cddpi_agree(group, own);

    if (status != CDDP_OK) {
        return status; /* some rank failed before it had a manifest */
    }
    memset(&digest, 0, sizeof digest);
    digest.text_bytes = strlen(text) + 1;
    crypto_generichash(digest.hash, sizeof digest.hash, (const unsigned char *)text, strlen(text),
                       NULL, 0);
    status = cddpi_all_gather_bytes(group, &digest, sizeof digest, &digests);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: comparing models");
    }
    status = compare_manifests(group, digests, text);
    cddpi_free(digests);
    return status;
}

/* Start a broadcast of each tensor. @p out_last owns the handles of all others and is done after
 * them. */
static cddp_status start_all(cddp_group *group, const char *what, const struct cddpi_param *tensors,
                             size_t count, int root, cddp_work **out_last)
{
    for (size_t i = 0; i < count; i++) {
        cddp_work *work = NULL;
        cddp_status status = cddp_broadcast(group, tensors[i].data, tensors[i].count,
                                            tensors[i].type, root, &work);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "ddp: broadcast of %s %zu (%.200s)", what, i,
                                     tensors[i].name);
        }
        work->before = *out_last;
        *out_last = work;
    }
    return CDDP_OK;
}

cddp_status cddpi_ddp_broadcast(cddp_group *group, const char *what,
                                const struct cddpi_param *tensors, size_t count, int root)
{
    struct cddpi_failure failure;
    cddp_work *last = NULL;
    cddp_status status = start_all(group, what, tensors, count, root, &last);

    if (status == CDDP_OK && last != NULL) {
        status = cddp_work_wait(last);
        if (status != CDDP_OK) {
            (void)cddpi_fail_prefix(status, "ddp: broadcast of %zu %ss", count, what);
        }
    } else if (status != CDDP_OK) {
        (void)cddpi_ddp_abort(group, status); /* other ranks wait for the rest */
    }
    failure = *cddpi_last_failure();
    cddp_work_destroy(last);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_again(status, &failure);
}

static cddp_status broadcast_all(cddp_ddp *ddp, int root, uint32_t flags)
{
    bool params = (flags & CDDP_BROADCAST_PARAMS) != 0;

    if (params && ddp->shards != NULL) {
        CDDPI_TRY(cddpi_shard_finish(ddp));
    }
    if (params) {
        CDDPI_TRY(
            cddpi_ddp_broadcast(ddp->group, "parameter", ddp->params, ddp->param_count, root));
    }
    return (flags & CDDP_BROADCAST_BUFFERS) != 0
               ? cddpi_ddp_broadcast(ddp->group, "buffer", ddp->buffers, ddp->buffer_count, root)
               : CDDP_OK;
}

cddp_status cddp_ddp_broadcast(cddp_ddp *ddp, int root, uint32_t flags)
{
    static const uint32_t known = CDDP_BROADCAST_PARAMS | CDDP_BROADCAST_BUFFERS;
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_broadcast");
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    if (root < 0 || root >= ddp->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: broadcast: rank %d is not in the group", root);
    }
    if (flags == 0 || (flags & ~known) != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp: broadcast: the flags are %#x: give CDDP_BROADCAST_PARAMS, "
                          "CDDP_BROADCAST_BUFFERS or both",
                          (unsigned)flags);
    }
    CDDPI_TRY(cddpi_ddp_between(ddp, "broadcast"));
    status = broadcast_all(ddp, root, flags);
    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_break(ddp, status);
}
