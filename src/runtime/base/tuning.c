/* tuning.c - owns the choices of one subject in memory: those of the file, and those made since. */
#include "base/tuning.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/replace.h"
#include "base/tuning_file.h"

#include <string.h>

enum { OLD_SECONDS = 3600 }; /* a file that is still being written is younger */

struct cddpi_tuning {
    struct tuning_place place;
    struct tuning_table table;
    bool stuck; /* the file cannot be written */
};

struct cddpi_tuning *cddpi_tuning_open(const char *subject, const char *identity)
{
    struct cddpi_tuning *tuning = cddpi_zalloc(sizeof *tuning);

    if (tuning == NULL) {
        return NULL;
    }
    if (!cddpi_tuning_place_init(&tuning->place, subject, identity)) {
        cddpi_tuning_close(tuning);
        return NULL;
    }
    cddpi_replacement_sweep_old(tuning->place.dir, tuning->place.name, OLD_SECONDS);
    cddpi_tuning_read(&tuning->place, &tuning->table);
    return tuning;
}

void cddpi_tuning_close(struct cddpi_tuning *tuning)
{
    if (tuning == NULL) {
        return;
    }
    cddpi_tuning_place_fini(&tuning->place);
    cddpi_free(tuning->table.entries);
    cddpi_free(tuning);
}

size_t cddpi_tuning_find(const struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                         void *out, size_t room)
{
    const struct tuning_entry *entry = tuning != NULL
                                           ? cddpi_tuning_entry(&tuning->table, key, key_bytes)
                                           : NULL;

    if (entry == NULL || entry->rejected || entry->value_bytes > room) {
        return 0;
    }
    memcpy(out, entry->value, entry->value_bytes);
    return entry->value_bytes;
}

void cddpi_tuning_keep(struct cddpi_tuning *tuning, const void *key, size_t key_bytes,
                       const void *value, size_t value_bytes)
{
    struct tuning_entry *entry;

    if (tuning == NULL || tuning->stuck || key_bytes > CDDPI_TUNING_KEY_BYTES || value_bytes == 0 ||
        value_bytes > CDDPI_TUNING_VALUE_BYTES) {
        return;
    }
    entry = cddpi_tuning_add(&tuning->table, key, key_bytes);
    if (entry == NULL) {
        return;
    }
    memcpy(entry->value, value, value_bytes);
    entry->value_bytes = (uint16_t)value_bytes;
    entry->rejected = false;
    entry->fresh = true;
    tuning->stuck = !cddpi_tuning_write(&tuning->place, &tuning->table);
}

void cddpi_tuning_reject(struct cddpi_tuning *tuning, const void *key, size_t key_bytes)
{
    struct tuning_entry *entry = tuning != NULL ? cddpi_tuning_entry(&tuning->table, key, key_bytes)
                                                : NULL;

    if (entry != NULL && !entry->rejected) {
        entry->rejected = true;
        entry->fresh = true;
        cddpi_log(CDDPI_LOG_INFO, "%s/%s: a choice cannot be used here and is removed",
                  tuning->place.folder, tuning->place.name);
        tuning->stuck = tuning->stuck || !cddpi_tuning_write(&tuning->place, &tuning->table);
    }
}
