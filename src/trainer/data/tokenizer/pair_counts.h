/* pair_counts.h - owns the counts of pairs of neighbouring tokens, and the words that contain them,
 * while a vocabulary is learnt. */
#ifndef CDDPI_DATA_TOKENIZER_PAIR_COUNTS_H
#define CDDPI_DATA_TOKENIZER_PAIR_COUNTS_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_pair {
    int32_t left, right;
    int64_t count;
    uint32_t *words; /* the words where it occurs or once occurred */
    size_t word_count, word_room;
    bool raised; /* its count rose since it was last put into the heap */
};

/* A pair, with its count at the time when it was put into the heap. */
struct cddpi_pair_entry {
    int64_t count;
    uint32_t pair;
};

/* Zeroed: empty. */
struct cddpi_pair_counts {
    struct cddpi_pair *pairs;
    size_t count, room;
    uint32_t *slots; /* hash table: index of a pair plus 1; 0: empty */
    size_t slot_count;
    uint32_t *raised; /* indices of the pairs whose counts rose */
    size_t raised_count, raised_room;
    struct cddpi_pair_entry *heap;
    size_t heap_count, heap_room;
    /* Of two pairs with equal counts, whether @p a is merged before @p b. */
    bool (*before)(const void *argument, const struct cddpi_pair *a, const struct cddpi_pair *b);
    const void *argument;
};

/** Add @p change to the count of a pair that occurs in the word @p word. */
CDDP_CHECKED cddp_status cddpi_pair_counts_add(struct cddpi_pair_counts *pairs, int32_t left,
                                               int32_t right, int64_t change, uint32_t word);

/** Put the pairs whose counts rose into the heap. Call it before the next pop. */
CDDP_CHECKED cddp_status cddpi_pair_counts_settle(struct cddpi_pair_counts *pairs);

/** Take the most frequent pair out of the heap.
 *  @return Its index; SIZE_MAX: no pair occurs twice. */
size_t cddpi_pair_counts_pop(struct cddpi_pair_counts *pairs);

void cddpi_pair_counts_fini(struct cddpi_pair_counts *pairs);

#endif
