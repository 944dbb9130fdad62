/* conf_keys.h - the keys of a resolved train.conf, as cddp-train writes it into the folder of a
 * run, and in which keys two of them differ. */
#ifndef CDDPI_TRAIN_REPORT_CONF_KEYS_H
#define CDDPI_TRAIN_REPORT_CONF_KEYS_H

#include <cddp/status.h>

#include <stddef.h>

/** A key by its path, "optimizer.schedule.type", and its value as it is written, in one line. */
struct cddpi_conf_key {
    char *path, *value;
};

/** The keys of one text, in its order; zeroed: none. */
struct cddpi_conf_keys {
    struct cddpi_conf_key *list;
    size_t count, room;
};

/** Read @p text, which is not trusted. Lines that are not a resolved configuration's are left out,
 *  and so is what comes after the first few thousand keys.
 *  @param out  Release with cddpi_conf_keys_fini(), also after a failure.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_conf_keys_read(const char *text, struct cddpi_conf_keys *out);
void cddpi_conf_keys_fini(struct cddpi_conf_keys *keys);

/** The value of @p path; NULL: there is no such key. */
const char *cddpi_conf_keys_value(const struct cddpi_conf_keys *keys, const char *path);

/** The first key whose values in @p lists differ, at or after *@p at: its path, and *@p at moves
 *  past it. A list that lacks the key differs from one that has it. NULL: there is no further one.
 *  @param at  0 at first. */
const char *cddpi_conf_keys_differ(const struct cddpi_conf_keys *lists, size_t count, size_t *at);

#endif
