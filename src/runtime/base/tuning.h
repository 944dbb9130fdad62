/* tuning.h - choices that were measured on a device, such as the algorithm of a product. They are
 * kept in the user's cache folder, so that the next process need not measure: $CDDP_CACHE, else
 * $XDG_CACHE_HOME/cddp, else ~/.cache/cddp.
 *
 * There is one file for each subject, device, and version of the libraries and of cddp. Any number
 * of processes may read and write it at once. Only a regular file of this user's is read, in a
 * folder that nobody else can write; a damaged entry is ignored. Without such a folder, choices
 * last as long as the process. Nothing here fails: a choice that is not kept is measured again. */
#ifndef CDDPI_BASE_TUNING_H
#define CDDPI_BASE_TUNING_H

#include <stddef.h>

enum {
    CDDPI_TUNING_KEY_BYTES = 128,   /* at most */
    CDDPI_TUNING_VALUE_BYTES = 512, /* at most */
    CDDPI_TUNING_ENTRIES = 1024     /* of a file, at most: then the oldest are dropped */
};

/* The choices of one subject. It belongs to one thread at a time. */
struct cddpi_tuning;

/** Read what is known about @p subject, a word such as "products", on the device and with the
 *  libraries that @p identity describes in a line.
 *  @return Release it with cddpi_tuning_close(). NULL: nothing is kept, because $CDDP_CACHE is off
 *          or for a reason that is logged once. All functions here accept NULL. */
struct cddpi_tuning *cddpi_tuning_open(const char *subject, const char *identity);
void cddpi_tuning_close(struct cddpi_tuning *tuning);

/** Copy the choice for @p key to @p out, which has room for @p room bytes.
 *  @return Its bytes; 0: it is not known, or larger than that. */
size_t cddpi_tuning_find(const struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                         void *out, size_t room);

/** Keep the choice @p value for @p key: add it to the file, together with what other processes have
 *  added meanwhile. If another process was first, its choice stays, so that later processes all
 *  find the same one. */
void cddpi_tuning_keep(struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                       const void *value, size_t value_bytes);

/** The choice for @p key cannot be used here: forget it, also in the file. Another choice for @p
 * key, whoever keeps it, is taken as before. */
void cddpi_tuning_reject(struct cddpi_tuning *tuning, const void *key, size_t key_bytes);

#endif
