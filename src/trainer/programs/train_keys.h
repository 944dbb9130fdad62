/* train_keys.h - cddp-train --keys. */
#ifndef CDDPI_TRAIN_KEYS_H
#define CDDPI_TRAIN_KEYS_H

#include <cddp/status.h>

#include <stdio.h>

/** Print the keys of train.conf for a reader: name, values, default, and what each does.
 *  @param name   Print only the keys that it names: a key, the beginning of one, or its last word.
 *                "": no such name.
 *  @param words  More names. Without any name all keys are printed.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with the nearest key when a name names none. */
CDDP_CHECKED cddp_status cddpi_train_keys(const char *name, char *const *words, int count,
                                          FILE *file);

#endif
