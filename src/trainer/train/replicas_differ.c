/* replicas_differ.c - finds where ranks differ, and words it. Ranks with the part of the model that
 * differs compare hashes, then the first piece with another hash; all ranks get the result. */
#include "train/replicas.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "group/join/group_agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HOST_BYTES = 64, VALUE_BYTES = 8, TENSOR_BYTES = 160, MOST_NAMED = 8, WHO_BYTES = 1024 };

/* The first element that differs. */
struct difference {
    char tensor[TENSOR_BYTES]; /* "": not found */
    uint64_t element, elements;
    int32_t type; /* a cddp_type */
    int32_t unused;
    unsigned char own[VALUE_BYTES], right[VALUE_BYTES];
};

/* Fill @p out on the culprit, which has found that @p piece differs from @p right. */
static void take_difference(const struct cddpi_replicas_state *state,
                            const struct cddpi_replicas_piece *piece, const unsigned char *right,
                            struct difference *out)
{
    const cddp_param *tensor = &state->tensors[piece->tensor];
    size_t bytes = cddp_type_bytes(tensor->type);
    size_t at = 0;

    while (at < piece->bytes && piece->data[at] == right[at]) {
        at++;
    }
    if (at == piece->bytes) {
        return; /* what was damaged was the hash */
    }
    at -= at % bytes;
    snprintf(out->tensor, sizeof out->tensor, "%s", tensor->name);
    out->type = (int32_t)tensor->type;
    out->element = (piece->begin + at) / bytes;
    out->elements = cddpi_elements(tensor->dims, tensor->shape);
    memcpy(out->own, piece->data + at, bytes);
    memcpy(out->right, right + at, bytes);
}

/* Among the replicas of the culprit: the right one sends its hashes, and then the piece whose hash
 * the culprit does not have. */
static cddp_status find_difference(const struct cddpi_trainer *trainer,
                                   const struct cddpi_replicas_state *state,
                                   const struct cddpi_replicas_verdict *verdict,
                                   struct difference *out)
{
    cddp_group *group = trainer->replicas.group;
    int right = verdict->right / verdict->parts;
    int culprit = verdict->culprit / verdict->parts;
    uint32_t *hashes = cddpi_zalloc_array(state->piece_count, sizeof *hashes);
    unsigned char *data = NULL;
    const struct cddpi_replicas_piece *piece;
    uint64_t index = 0;
    cddp_status status;

    CDDPI_TRY_MEMORY(hashes != NULL, "replicas: no memory for %zu hashes", state->piece_count);
    memcpy(hashes, state->hashes, state->piece_count * sizeof *hashes);
    CDDPI_TRY_GOTO(
        end, status,
        cddp_broadcast(group, hashes, state->piece_count * sizeof *hashes, CDDP_U8, right, NULL));
    while (index < state->piece_count && hashes[index] == state->hashes[index]) {
        index++;
    }
    CDDPI_TRY_GOTO(end, status, cddp_broadcast(group, &index, 1, CDDP_I64, culprit, NULL));
    if (index >= state->piece_count) {
        goto end;
    }
    piece = &state->pieces[index];
    data = cddpi_zalloc(piece->bytes);
    if (data == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "replicas: no memory for %zu bytes", piece->bytes);
        goto end;
    }
    memcpy(data, piece->data, piece->bytes);
    CDDPI_TRY_GOTO(end, status, cddp_broadcast(group, data, piece->bytes, CDDP_U8, right, NULL));
    if (trainer->rank == verdict->culprit) {
        take_difference(state, piece, data, out);
    }
end:
    cddpi_free(hashes);
    cddpi_free(data);
    return status;
}

/* Whether the text names @p rank: it differs, or nobody knows which of its replicas is right. */
static bool is_named(const struct cddpi_replicas_verdict *verdict, int rank,
                     const unsigned char (*digests)[CDDPI_REPLICAS_DIGEST_BYTES])
{
    return rank % verdict->parts == verdict->culprit % verdict->parts &&
           (!verdict->has_majority ||
            memcmp(digests[rank], digests[verdict->right], sizeof *digests) != 0);
}

/* "rank 2 (host a)", "ranks 0 (host a) and 1 (host b)". */
static void name_ranks(const struct cddpi_trainer *trainer,
                       const struct cddpi_replicas_verdict *verdict,
                       const unsigned char (*digests)[CDDPI_REPLICAS_DIGEST_BYTES],
                       char (*hosts)[HOST_BYTES], char out[WHO_BYTES])
{
    int count = 0;
    int named = 0;
    size_t used;

    for (int rank = 0; rank < trainer->world_size; rank++) {
        count += is_named(verdict, rank, digests);
    }
    used = (size_t)snprintf(out, WHO_BYTES, count == 1 ? "rank" : "ranks");
    for (int rank = 0; rank < trainer->world_size && named < MOST_NAMED; rank++) {
        if (is_named(verdict, rank, digests)) {
            hosts[rank][HOST_BYTES - 1] = '\0';
            used += (size_t)snprintf(out + used, WHO_BYTES - used, "%s %d (host %s)",
                                     named == 0           ? ""
                                     : named + 1 == count ? " and"
                                                          : ",",
                                     rank, hosts[rank]);
            named++;
        }
    }
    if (named < count) {
        snprintf(out + used, WHO_BYTES - used, " and %d more", count - named);
    }
}

static void word_value(int type, const unsigned char value[VALUE_BYTES], char out[32])
{
    float real;
    int64_t whole;

    if (type == CDDP_F32) {
        memcpy(&real, value, sizeof real);
        snprintf(out, 32, "%.9g", (double)real);
    } else if (type == CDDP_I64) {
        memcpy(&whole, value, sizeof whole);
        snprintf(out, 32, "%" PRId64, whole);
    } else {
        snprintf(out, 32, "0x%02x%02x%02x%02x", value[3], value[2], value[1], value[0]);
    }
}

static void word_difference(const struct cddpi_replicas_verdict *verdict,
                            const struct difference *difference, char *out, size_t room)
{
    char own[32], right[32];
    int bits = 0;

    if (difference->tensor[0] == '\0') {
        snprintf(out, room, "only a hash differed");
        return;
    }
    for (int i = 0; i < VALUE_BYTES; i++) {
        bits += __builtin_popcount((unsigned)(difference->own[i] ^ difference->right[i]));
    }
    word_value(difference->type, difference->own, own);
    word_value(difference->type, difference->right, right);
    snprintf(out, room, "element %llu of %llu of %s is %s on rank %d and %s on rank %d (%d %s)",
             (unsigned long long)difference->element, (unsigned long long)difference->elements,
             difference->tensor, own, verdict->culprit, right, verdict->right, bits,
             bits == 1 ? "bit differs" : "bits differ");
}

cddp_status cddpi_replicas_differ(struct cddpi_trainer *trainer,
                                  const struct cddpi_replicas_state *state,
                                  const struct cddpi_replicas_verdict *verdict,
                                  const unsigned char (*digests)[CDDPI_REPLICAS_DIGEST_BYTES])
{
    struct difference difference = {.tensor = ""};
    char host[HOST_BYTES] = "";
    char who[WHO_BYTES];
    char where[2 * TENSOR_BYTES];
    void *hosts = NULL;
    cddp_status status;

    if (trainer->rank % verdict->parts == verdict->culprit % verdict->parts) {
        CDDPI_TRY(find_difference(trainer, state, verdict, &difference));
    }
    cddpi_keep_refuse(&trainer->kept.keep);
    (void)gethostname(host, sizeof host - 1);
    CDDPI_TRY(cddpi_all_gather_bytes(trainer->group, host, sizeof host, &hosts));
    status = cddp_broadcast(trainer->group, &difference, sizeof difference, CDDP_U8,
                            verdict->culprit, NULL);
    if (status == CDDP_OK) {
        name_ranks(trainer, verdict, digests, hosts, who);
        word_difference(verdict, &difference, where, sizeof where);
        status = cddpi_fail_rank(
            CDDP_ERR_MISMATCH, trainer->rank,
            verdict->has_majority
                ? "after step %llu the state of %s differs from that of the other replicas: %s. "
                  "Its memory or processor may be faulty"
                : "after step %llu the states of %s differ, and no majority shows which is right: "
                  "%s. A memory or a processor may be faulty",
            (unsigned long long)trainer->cursor.step, who, where);
        cddpi_error_blame(verdict->has_majority ? verdict->culprit : -1);
    }
    cddpi_free(hosts);
    return status;
}
