/* print_keys.h - the table of keys for people: cddp-train --keys, and the sections KEYS and KEYS OF
 * A LAYER of train.conf(5). */
#ifndef CDDPI_TRAIN_CONFIG_PRINT_KEYS_H
#define CDDPI_TRAIN_CONFIG_PRINT_KEYS_H

#include <stdio.h>

/** Print all keys in scdoc's form. */
void cddpi_config_print_keys(FILE *file);

#endif
