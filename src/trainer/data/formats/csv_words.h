/* csv_words.h - owns the different texts of one column of a CSV file: its categories or classes. */
#ifndef CDDPI_DATA_FORMATS_CSV_WORDS_H
#define CDDPI_DATA_FORMATS_CSV_WORDS_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_csv_words {
    char **values; /* sorted by bytes while they are added */
    size_t count, room;
    size_t *numbers; /* after finish(): the number of each */
    size_t *order;   /* after finish(): which of values has a number */
};

/** Add @p word unless it is there. CDDP_ERR_NO_MEMORY has no text yet. */
CDDP_CHECKED cddp_status cddpi_csv_words_add(struct cddpi_csv_words *words, const char *word);

/** Number the words: by value if all are integers, else by their bytes. Nothing is added after it.
 *  CDDP_ERR_NO_MEMORY has no text yet. */
CDDP_CHECKED cddp_status cddpi_csv_words_finish(struct cddpi_csv_words *words);

/** The number of @p word after finish(). False: it is none of them. */
bool cddpi_csv_words_find(const struct cddpi_csv_words *words, const char *word, size_t *out);

/** The word that has number @p number. */
const char *cddpi_csv_words_at(const struct cddpi_csv_words *words, size_t number);

void cddpi_csv_words_fini(struct cddpi_csv_words *words); /* accepts zeroed ones */

#endif
