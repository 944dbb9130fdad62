/* word_counts.c - counts the words of texts. Memory grows only with the number of different
 * words. */

#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer_impl.h"
#include "data/tokenizer/words.h"

#include <string.h>

enum { SLOTS_MIN = 1 << 12 };

static cddp_status no_memory(const struct cddpi_word_counts *counts)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory to count more than %zu words",
                      counts->count);
}

uint64_t cddpi_word_hash(const char *text, size_t bytes)
{
    uint64_t hash = bytes * 0x9e3779b97f4a7c15u;

    while (bytes > 0) {
        size_t taken = bytes < 8 ? bytes : 8;
        uint64_t part = 0;

        memcpy(&part, text, taken);
        hash = (hash ^ part) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 29;
        text += taken;
        bytes -= taken;
    }
    hash *= 0x94d049bb133111ebu;
    return hash ^ hash >> 32;
}

cddp_status cddpi_word_counts_create(struct cddpi_word_counts **out)
{
    struct cddpi_word_counts *counts = cddpi_zalloc(sizeof *counts);

    CDDPI_TRY_MEMORY(counts != NULL, "tokenizer: no memory for %zu bytes", sizeof *counts);
    counts->slots = cddpi_zalloc_array(SLOTS_MIN, sizeof *counts->slots);
    counts->slot_count = SLOTS_MIN;
    if (counts->slots == NULL) {
        cddpi_word_counts_destroy(counts);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for %zu bytes",
                          SLOTS_MIN * sizeof *counts->slots);
    }
    *out = counts;
    return CDDP_OK;
}

void cddpi_word_counts_destroy(struct cddpi_word_counts *counts)
{
    if (counts == NULL) {
        return;
    }
    cddpi_free(counts->words);
    cddpi_free(counts->text);
    cddpi_free(counts->slots);
    cddpi_free(counts);
}

static cddp_status grow_slots(struct cddpi_word_counts *counts)
{
    size_t slot_count = counts->slot_count * 2;
    uint32_t *slots = cddpi_zalloc_array(slot_count, sizeof *slots);

    if (slots == NULL || counts->count >= UINT32_MAX - 1) {
        cddpi_free(slots);
        return no_memory(counts);
    }
    for (size_t i = 0; i < counts->count; i++) {
        size_t slot = (size_t)counts->words[i].hash & (slot_count - 1);

        while (slots[slot] != 0) {
            slot = (slot + 1) & (slot_count - 1);
        }
        slots[slot] = (uint32_t)i + 1;
    }
    cddpi_free(counts->slots);
    counts->slots = slots;
    counts->slot_count = slot_count;
    return CDDP_OK;
}

/* Make room for one more word of @p bytes. */
static cddp_status reserve(struct cddpi_word_counts *counts, size_t bytes)
{
    void *words = cddpi_grow(counts->words, &counts->word_room, counts->count + 1,
                             sizeof *counts->words);
    void *text = cddpi_grow(counts->text, &counts->text_room, counts->text_bytes + bytes, 1);

    counts->words = words != NULL ? words : counts->words;
    counts->text = text != NULL ? text : counts->text;
    if (words == NULL || text == NULL) {
        return no_memory(counts);
    }
    return counts->count * 2 < counts->slot_count ? CDDP_OK : grow_slots(counts);
}

static cddp_status put_word(struct cddpi_word_counts *counts, const char *word, size_t bytes)
{
    uint64_t hash = cddpi_word_hash(word, bytes);
    size_t slot = (size_t)hash & (counts->slot_count - 1);

    while (counts->slots[slot] != 0) {
        struct cddpi_counted_word *known = &counts->words[counts->slots[slot] - 1];

        if (known->hash == hash && known->bytes == bytes &&
            memcmp(counts->text + known->start, word, bytes) == 0) {
            known->count++;
            return CDDP_OK;
        }
        slot = (slot + 1) & (counts->slot_count - 1);
    }
    CDDPI_TRY(reserve(counts, bytes));
    slot = (size_t)hash & (counts->slot_count - 1); /* the table may have grown */
    while (counts->slots[slot] != 0) {
        slot = (slot + 1) & (counts->slot_count - 1);
    }
    counts->words[counts->count] = (struct cddpi_counted_word){
        .hash = hash, .count = 1, .start = counts->text_bytes, .bytes = bytes};
    memcpy(counts->text + counts->text_bytes, word, bytes);
    counts->text_bytes += bytes;
    counts->slots[slot] = (uint32_t)++counts->count;
    return CDDP_OK;
}

void cddpi_word_counts_by_space(struct cddpi_word_counts *counts)
{
    counts->by_space = true;
}

static cddp_status put_by_space(struct cddpi_word_counts *counts, const char *text, size_t bytes,
                                bool last, size_t *out_used)
{
    struct cddpi_spaced_word word = {0};

    while (cddpi_spaced_word_next(text, bytes, last, &word)) {
        if (!word.is_line_end) {
            CDDPI_TRY(put_word(counts, text + word.start, word.bytes));
        }
    }
    *out_used = word.next;
    return CDDP_OK;
}

cddp_status cddpi_word_counts_put(struct cddpi_word_counts *counts, const char *text, size_t bytes,
                                  bool last, size_t *out_used)
{
    size_t at = 0;

    if (counts->by_space) {
        return put_by_space(counts, text, bytes, last, out_used);
    }
    while (at < bytes) {
        size_t length = cddpi_word_length(text + at, bytes - at);

        if (!last && bytes - at - length < CDDPI_WORD_LOOKAHEAD) {
            break;
        }
        CDDPI_TRY(put_word(counts, text + at, length));
        at += length;
    }
    *out_used = at;
    return CDDP_OK;
}

size_t cddpi_word_counts_size(const struct cddpi_word_counts *counts)
{
    return counts->count;
}
