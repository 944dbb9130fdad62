/* tuning_file.h - the file of choices (tuning.h): lines of text.
 *
 *     cddp choices 1
 *     products: NVIDIA H100 80GB HBM3, compute capability 9.0, ...
 *     KEY VALUE HASH       (in hexadecimal; the hash is of identity, key and value)
 */
#ifndef CDDPI_BASE_TUNING_FILE_H
#define CDDPI_BASE_TUNING_FILE_H

#include "base/tuning.h"

#include <stdbool.h>
#include <stdint.h>

struct tuning_entry {
    uint16_t key_bytes, value_bytes;
    bool fresh;    /* the file does not say so yet */
    bool rejected; /* the value cannot be used here; another one can */
    unsigned char key[CDDPI_TUNING_KEY_BYTES];
    unsigned char value[CDDPI_TUNING_VALUE_BYTES];
};

struct tuning_table {
    struct tuning_entry *entries; /* the oldest first */
    size_t count, room;
    bool impatient; /* the folder's lock was not to be had */
};

/* Where a file of choices is, and whose. */
struct tuning_place {
    char *folder;
    int dir; /* the folder; -1: not open */
    char *name;
    char *identity; /* the file's second line */
};

/** Open the user's cache folder, and make it if need be. Returns false after logging the reason,
 *  once in a process, or without one if $CDDP_CACHE is off. Releases nothing: the caller calls
 *  cddpi_tuning_place_fini() in any case. */
bool cddpi_tuning_place_init(struct tuning_place *place, const char *subject, const char *identity);
void cddpi_tuning_place_fini(struct tuning_place *place);

/** The entry for @p key; NULL: none. */
struct tuning_entry *cddpi_tuning_entry(const struct tuning_table *table, const void *key,
                                        size_t key_bytes);
/** The same; if there is none, a new one without a value. NULL: no memory. */
struct tuning_entry *cddpi_tuning_add(struct tuning_table *table, const void *key,
                                      size_t key_bytes);

/** Take the entries of the file into @p table, except values that it has rejected. Logs once in a
 *  process what cannot be used. */
void cddpi_tuning_read(const struct tuning_place *place, struct tuning_table *table);

/** Merge @p table with the file, and replace the file if the table has fresh entries. Returns false
 *  after logging the reason: the file cannot be written. */
bool cddpi_tuning_write(const struct tuning_place *place, struct tuning_table *table);

#endif
