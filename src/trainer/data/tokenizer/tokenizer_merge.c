/* tokenizer_merge.c - owns the table of merges, and merges inside one word: always the pair with
 * the lowest rank, and of equals the leftmost. */
#include "data/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/error.h"

enum { SHORT_WORD = 64 };

/* A pair that could be merged when it was found. */
struct cddpi_merge_candidate {
    uint32_t rank;
    uint32_t at; /* index of the left token */
    int32_t left, right;
};

static const uint32_t no_rank = UINT32_MAX;
static const uint32_t no_link = UINT32_MAX;

static size_t slot_of(const struct cddpi_tokenizer *tokenizer, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32) & (tokenizer->merge_slots - 1);
}

cddp_status cddpi_merges_reserve(struct cddpi_tokenizer *tokenizer, size_t count)
{
    size_t slots = 16;

    while (slots < count * 2) {
        slots *= 2;
    }
    tokenizer->merges = cddpi_zalloc_array(slots, sizeof *tokenizer->merges);
    CDDPI_TRY_MEMORY(tokenizer->merges != NULL, "tokenizer: no memory for %zu merges", count);
    tokenizer->merge_slots = slots;
    for (size_t i = 0; i < slots; i++) {
        tokenizer->merges[i].left = -1;
    }
    return CDDP_OK;
}

bool cddpi_merges_add(struct cddpi_tokenizer *tokenizer, const struct cddpi_merge *merge)
{
    size_t slot = slot_of(tokenizer, merge->left, merge->right);

    while (tokenizer->merges[slot].left >= 0) {
        if (tokenizer->merges[slot].left == merge->left &&
            tokenizer->merges[slot].right == merge->right) {
            return false;
        }
        slot = (slot + 1) & (tokenizer->merge_slots - 1);
    }
    tokenizer->merges[slot] = *merge;
    return true;
}

/* The merge of @p left and @p right, or NULL. */
static const struct cddpi_merge *find_merge(const struct cddpi_tokenizer *tokenizer, int32_t left,
                                            int32_t right)
{
    size_t slot = slot_of(tokenizer, left, right);
    const struct cddpi_merge *merge;

    while ((merge = &tokenizer->merges[slot])->left >= 0) {
        if (merge->left == left && merge->right == right) {
            return merge;
        }
        slot = (slot + 1) & (tokenizer->merge_slots - 1);
    }
    return NULL;
}

static uint32_t rank_of(const struct cddpi_tokenizer *tokenizer, int32_t left, int32_t right,
                        int32_t *out_merged)
{
    const struct cddpi_merge *merge = find_merge(tokenizer, left, right);

    if (merge == NULL) {
        return no_rank;
    }
    *out_merged = merge->merged;
    return merge->rank;
}

/* Search all pairs for each merge: quadratic, but the fastest way for ordinary words. */
static size_t merge_short(const struct cddpi_tokenizer *tokenizer, int32_t *tokens, size_t count)
{
    uint32_t ranks[SHORT_WORD];       /* of the pair that begins at this token */
    int32_t merged[SHORT_WORD] = {0}; /* the token that the pair becomes */

    for (size_t i = 0; i + 1 < count; i++) {
        ranks[i] = rank_of(tokenizer, tokens[i], tokens[i + 1], &merged[i]);
    }
    ranks[count - 1] = no_rank;
    while (count > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < count; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == no_rank) {
            break;
        }
        tokens[best] = merged[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            tokens[i] = tokens[i + 1];
            ranks[i] = ranks[i + 1];
            merged[i] = merged[i + 1];
        }
        if (best > 0) {
            ranks[best - 1] = rank_of(tokenizer, tokens[best - 1], tokens[best], &merged[best - 1]);
        }
        ranks[best] = best + 1 < count
                          ? rank_of(tokenizer, tokens[best], tokens[best + 1], &merged[best])
                          : no_rank;
    }
    return count;
}

static bool goes_first(const struct cddpi_merge_candidate *a, const struct cddpi_merge_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sift_down(struct cddpi_merge_room *room, size_t at)
{
    struct cddpi_merge_candidate moved = room->heap[at];

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < room->heap_count &&
            goes_first(&room->heap[child + 1], &room->heap[child])) {
            child++;
        }
        if (child >= room->heap_count || !goes_first(&room->heap[child], &moved)) {
            break;
        }
        room->heap[at] = room->heap[child];
        at = child;
    }
    room->heap[at] = moved;
}

static void push(struct cddpi_merge_room *room, const struct cddpi_merge_candidate *candidate)
{
    size_t at = room->heap_count++;

    while (at > 0 && goes_first(candidate, &room->heap[(at - 1) / 2])) {
        room->heap[at] = room->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    room->heap[at] = *candidate;
}

static struct cddpi_merge_candidate pop(struct cddpi_merge_room *room)
{
    struct cddpi_merge_candidate first = room->heap[0];

    room->heap[0] = room->heap[--room->heap_count];
    if (room->heap_count > 0) {
        sift_down(room, 0);
    }
    return first;
}

/* A merge removes one token and one candidate, and adds at most two candidates, so 2 candidates per
 * token are enough. */
static cddp_status make_room(struct cddpi_merge_room *room, size_t count)
{
    void *heap;
    void *links;

    if (count > UINT32_MAX / 4) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "tokenizer: a word of %zu bytes is too long", count);
    }
    heap = cddpi_grow(room->heap, &room->heap_room, 2 * count, sizeof *room->heap);
    links = cddpi_grow(room->links, &room->link_room, 2 * count, sizeof *room->links);
    room->heap = heap != NULL ? heap : room->heap;
    room->links = links != NULL ? links : room->links;
    return heap != NULL && links != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for a word of %zu bytes",
                            count);
}

/* Whether the pair at @p at can be merged; if so, @p out is set. */
static bool candidate_at(const struct cddpi_tokenizer *tokenizer, const int32_t *tokens,
                         const uint32_t *next, uint32_t at, struct cddpi_merge_candidate *out)
{
    int32_t merged;

    if (next[at] == no_link) {
        return false;
    }
    out->at = at;
    out->left = tokens[at];
    out->right = tokens[next[at]];
    out->rank = rank_of(tokenizer, out->left, out->right, &merged);
    return out->rank != no_rank;
}

/* Keep a linked list of tokens and a heap of candidates, skipping outdated candidates: n log n. */
static void merge_long(const struct cddpi_tokenizer *tokenizer, struct cddpi_merge_room *room,
                       int32_t *tokens, size_t *count)
{
    uint32_t *previous = room->links;
    uint32_t *next = room->links + *count;
    struct cddpi_merge_candidate candidate;
    size_t kept = 0;

    room->heap_count = 0;
    for (uint32_t i = 0; i < *count; i++) {
        previous[i] = i > 0 ? i - 1 : no_link;
        next[i] = i + 1 < *count ? i + 1 : no_link;
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (candidate_at(tokenizer, tokens, next, i, &candidate)) {
            room->heap[room->heap_count++] = candidate;
        }
    }
    for (size_t i = room->heap_count / 2; i-- > 0;) {
        sift_down(room, i);
    }
    while (room->heap_count > 0) {
        struct cddpi_merge_candidate best = pop(room);
        uint32_t right = next[best.at];

        if (tokens[best.at] != best.left || right == no_link || tokens[right] != best.right) {
            continue;
        }
        tokens[best.at] = find_merge(tokenizer, best.left, best.right)->merged;
        tokens[right] = -1;
        next[best.at] = next[right];
        if (next[right] != no_link) {
            previous[next[right]] = best.at;
        }
        if (candidate_at(tokenizer, tokens, next, best.at, &candidate)) {
            push(room, &candidate);
        }
        if (previous[best.at] != no_link &&
            candidate_at(tokenizer, tokens, next, previous[best.at], &candidate)) {
            push(room, &candidate);
        }
    }
    for (size_t i = 0; i < *count; i++) {
        if (tokens[i] >= 0) {
            tokens[kept++] = tokens[i];
        }
    }
    *count = kept;
}

cddp_status cddpi_merge_word(const struct cddpi_tokenizer *tokenizer, struct cddpi_merge_room *room,
                             int32_t *tokens, size_t *count)
{
    if (tokenizer->merge_slots == 0) {
        return CDDP_OK;
    }
    if (*count <= SHORT_WORD) {
        *count = merge_short(tokenizer, tokens, *count);
        return CDDP_OK;
    }
    CDDPI_TRY(make_room(room, *count));
    merge_long(tokenizer, room, tokens, count);
    return CDDP_OK;
}

void cddpi_merge_room_fini(struct cddpi_merge_room *room)
{
    cddpi_free(room->heap);
    cddpi_free(room->links);
}
