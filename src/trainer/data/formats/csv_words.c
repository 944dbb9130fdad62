/* csv_words.c - owns sets of categories: found by bytes, numbered in the order that people expect.
 */
#include "data/formats/csv_words.h"

#include "base/alloc.h"
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

/* Where @p word is or belongs among the sorted values. */
static bool find_place(const struct cddpi_csv_words *words, const char *word, size_t *out)
{
    size_t low = 0;
    size_t high = words->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(word, words->values[middle]);

        if (order == 0) {
            *out = middle;
            return true;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *out = low;
    return false;
}

cddp_status cddpi_csv_words_add(struct cddpi_csv_words *words, const char *word)
{
    size_t place = 0;
    char **values;
    char *copy;

    if (find_place(words, word, &place)) {
        return CDDP_OK;
    }
    values = cddpi_grow(words->values, &words->room, words->count + 1, sizeof *values);
    words->values = values != NULL ? values : words->values;
    copy = values != NULL ? cddpi_strdup(word) : NULL;
    if (copy == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    memmove(values + place + 1, values + place, (words->count - place) * sizeof *values);
    values[place] = copy;
    words->count++;
    return CDDP_OK;
}

/* An integer, and the place of its word. */
struct csv_word_value {
    int64_t value;
    size_t place;
};

static int compare_values(const void *a, const void *b)
{
    const struct csv_word_value *one = a;
    const struct csv_word_value *other = b;

    if (one->value != other->value) {
        return one->value < other->value ? -1 : 1;
    }
    return one->place < other->place ? -1 : one->place > other->place; /* "1" and "01" */
}

cddp_status cddpi_csv_words_finish(struct cddpi_csv_words *words)
{
    size_t count = words->count;
    struct csv_word_value *values = cddpi_zalloc_array(count + 1, sizeof *values);
    bool integers = true;

    words->numbers = cddpi_zalloc_array(count + 1, sizeof *words->numbers);
    words->order = cddpi_zalloc_array(count + 1, sizeof *words->order);
    if (values == NULL || words->numbers == NULL || words->order == NULL) {
        cddpi_free(values);
        return CDDP_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        values[i].place = i;
        integers = integers &&
                   cddpi_parse_integer(words->values[i], INT64_MIN, INT64_MAX, &values[i].value);
    }
    if (integers) {
        qsort(values, count, sizeof *values, compare_values);
    }
    for (size_t i = 0; i < count; i++) {
        words->order[i] = values[i].place;
        words->numbers[values[i].place] = i;
    }
    cddpi_free(values);
    return CDDP_OK;
}

bool cddpi_csv_words_find(const struct cddpi_csv_words *words, const char *word, size_t *out)
{
    size_t place = 0;

    if (!find_place(words, word, &place)) {
        return false;
    }
    *out = words->numbers[place];
    return true;
}

const char *cddpi_csv_words_at(const struct cddpi_csv_words *words, size_t number)
{
    return words->values[words->order[number]];
}

void cddpi_csv_words_fini(struct cddpi_csv_words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        cddpi_free(words->values[i]);
    }
    cddpi_free(words->values);
    cddpi_free(words->numbers);
    cddpi_free(words->order);
    *words = (struct cddpi_csv_words){NULL, 0, 0, NULL, NULL};
}
