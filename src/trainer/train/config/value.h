/* value.h - converts one libconfig setting into the value of one key, or fails with what is
 * wrong. */
#ifndef CDDPI_TRAIN_CONFIG_VALUE_H
#define CDDPI_TRAIN_CONFIG_VALUE_H

#include "train/config/schema.h"

#include <libconfig.h>

enum { CDDPI_WHERE_BYTES = 1024 };

/* Where a value comes from, for messages: a file (the setting knows its line) or an argument. */
struct cddpi_config_source {
    const char *file;     /* NULL: an argument or a default */
    const char *argument; /* NULL, with file NULL: a default of the key table */
    int level;            /* as in struct cddpi_config */
};

enum { CDDPI_LEVEL_ARGUMENT = 1 << 30 }; /* above all files */

/** "train.conf:12", "argument train.seed=x" or "default". */
void cddpi_config_place(const struct cddpi_config_source *source, const config_setting_t *setting,
                        char out[CDDPI_WHERE_BYTES]);

/** Fail with CDDP_ERR_CONFIG; the text begins with the place. @p setting may be NULL if @p source
 *  is not a file. */
cddp_status cddpi_config_fail_at(const struct cddpi_config_source *source,
                                 const config_setting_t *setting, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The kind of @p setting in words: "a group", "a string" ... */
const char *cddpi_config_kind(const config_setting_t *setting);

/** Read the value of @p setting for @p key into the struct at @p base, and release the old
 *  value. */
CDDP_CHECKED cddp_status cddpi_config_read_value(const struct cddpi_config_source *source,
                                                 const config_setting_t *setting,
                                                 const struct cddpi_key *key, void *base);

/** Release what @p list owns, and empty it. */
void cddpi_config_stages_fini(struct cddpi_stage_names *list);
void cddpi_config_texts_fini(struct cddpi_text_list *list);
void cddpi_config_layers_fini(struct cddpi_config_layers *list);

#endif
