/* pair_counts.c - owns a hash table of pairs, and a heap whose outdated entries are corrected when
 * they reach the top. */
#include "data/tokenizer/pair_counts.h"

#include "base/alloc.h"
#include "base/error.h"

enum { SLOTS_MIN = 1 << 12 };

static cddp_status no_memory(const struct cddpi_pair_counts *pairs)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory to count more than %zu pairs",
                      pairs->count);
}

static size_t first_slot(const struct cddpi_pair_counts *pairs, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32) & (pairs->slot_count - 1);
}

static cddp_status grow_slots(struct cddpi_pair_counts *pairs)
{
    size_t slot_count = pairs->slot_count > 0 ? pairs->slot_count * 2 : SLOTS_MIN;
    uint32_t *slots = cddpi_zalloc_array(slot_count, sizeof *slots);

    if (slots == NULL || pairs->count >= UINT32_MAX - 1) {
        cddpi_free(slots);
        return no_memory(pairs);
    }
    cddpi_free(pairs->slots);
    pairs->slots = slots;
    pairs->slot_count = slot_count;
    for (size_t i = 0; i < pairs->count; i++) {
        size_t slot = first_slot(pairs, pairs->pairs[i].left, pairs->pairs[i].right);

        while (slots[slot] != 0) {
            slot = (slot + 1) & (slot_count - 1);
        }
        slots[slot] = (uint32_t)i + 1;
    }
    return CDDP_OK;
}

/* Find the pair; create it if it is new. */
static cddp_status find_pair(struct cddpi_pair_counts *pairs, int32_t left, int32_t right,
                             uint32_t *out)
{
    size_t slot;
    void *larger;

    if (pairs->count * 2 >= pairs->slot_count) {
        CDDPI_TRY(grow_slots(pairs));
    }
    slot = first_slot(pairs, left, right);
    while (pairs->slots[slot] != 0) {
        const struct cddpi_pair *pair = &pairs->pairs[pairs->slots[slot] - 1];

        if (pair->left == left && pair->right == right) {
            *out = pairs->slots[slot] - 1;
            return CDDP_OK;
        }
        slot = (slot + 1) & (pairs->slot_count - 1);
    }
    larger = cddpi_grow(pairs->pairs, &pairs->room, pairs->count + 1, sizeof *pairs->pairs);
    if (larger == NULL) {
        return no_memory(pairs);
    }
    pairs->pairs = larger;
    pairs->pairs[pairs->count] = (struct cddpi_pair){.left = left, .right = right};
    *out = (uint32_t)pairs->count++;
    pairs->slots[slot] = *out + 1;
    return CDDP_OK;
}

cddp_status cddpi_pair_counts_add(struct cddpi_pair_counts *pairs, int32_t left, int32_t right,
                                  int64_t change, uint32_t word)
{
    struct cddpi_pair *pair;
    uint32_t index = 0;
    void *larger;

    CDDPI_TRY(find_pair(pairs, left, right, &index));
    pair = &pairs->pairs[index];
    pair->count += change;
    if (change < 0) {
        return CDDP_OK;
    }
    if (!pair->raised) {
        larger = cddpi_grow(pairs->raised, &pairs->raised_room, pairs->raised_count + 1,
                            sizeof *pairs->raised);
        if (larger == NULL) {
            return no_memory(pairs);
        }
        pairs->raised = larger;
        pairs->raised[pairs->raised_count++] = index;
        pair->raised = true;
    }
    if (pair->word_count > 0 && pair->words[pair->word_count - 1] == word) {
        return CDDP_OK;
    }
    larger = cddpi_grow(pair->words, &pair->word_room, pair->word_count + 1, sizeof *pair->words);
    if (larger == NULL) {
        return no_memory(pairs);
    }
    pair->words = larger;
    pair->words[pair->word_count++] = word;
    return CDDP_OK;
}

static bool goes_first(const struct cddpi_pair_counts *pairs, const struct cddpi_pair_entry *a,
                       const struct cddpi_pair_entry *b)
{
    return a->count != b->count
               ? a->count > b->count
               : a->pair != b->pair &&
                     pairs->before(pairs->argument, &pairs->pairs[a->pair], &pairs->pairs[b->pair]);
}

/* Fill the hole at the top of the heap with @p entry, and sift it down. */
static void sift_down(struct cddpi_pair_counts *pairs, struct cddpi_pair_entry entry)
{
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < pairs->heap_count &&
            goes_first(pairs, &pairs->heap[child + 1], &pairs->heap[child])) {
            child++;
        }
        if (child >= pairs->heap_count || !goes_first(pairs, &pairs->heap[child], &entry)) {
            break;
        }
        pairs->heap[at] = pairs->heap[child];
        at = child;
    }
    pairs->heap[at] = entry;
}

cddp_status cddpi_pair_counts_settle(struct cddpi_pair_counts *pairs)
{
    for (size_t i = 0; i < pairs->raised_count; i++) {
        struct cddpi_pair *pair = &pairs->pairs[pairs->raised[i]];
        struct cddpi_pair_entry entry = {pair->count, pairs->raised[i]};
        size_t at = pairs->heap_count;
        void *larger;

        pair->raised = false;
        if (pair->count < 2) {
            continue;
        }
        larger = cddpi_grow(pairs->heap, &pairs->heap_room, pairs->heap_count + 1,
                            sizeof *pairs->heap);
        if (larger == NULL) {
            return no_memory(pairs);
        }
        pairs->heap = larger;
        pairs->heap_count++;
        while (at > 0 && goes_first(pairs, &entry, &pairs->heap[(at - 1) / 2])) {
            pairs->heap[at] = pairs->heap[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        pairs->heap[at] = entry;
    }
    pairs->raised_count = 0;
    return CDDP_OK;
}

size_t cddpi_pair_counts_pop(struct cddpi_pair_counts *pairs)
{
    while (pairs->heap_count > 0) {
        struct cddpi_pair_entry top = pairs->heap[0];
        int64_t count = pairs->pairs[top.pair].count;

        if (top.count > count && count >= 2) { /* its count has fallen: put it back */
            top.count = count;
            sift_down(pairs, top);
            continue;
        }
        pairs->heap_count--;
        if (pairs->heap_count > 0) {
            sift_down(pairs, pairs->heap[pairs->heap_count]);
        }
        if (top.count == count) { /* else it has a newer entry, or is too rare */
            return top.pair;
        }
    }
    return SIZE_MAX;
}

void cddpi_pair_counts_fini(struct cddpi_pair_counts *pairs)
{
    for (size_t i = 0; i < pairs->count; i++) {
        cddpi_free(pairs->pairs[i].words);
    }
    cddpi_free(pairs->pairs);
    cddpi_free(pairs->slots);
    cddpi_free(pairs->raised);
    cddpi_free(pairs->heap);
}
