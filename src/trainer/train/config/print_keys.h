/* print_keys.h - prints the table of keys for users: cddp-train --keys, and the sections KEYS and
 * KEYS OF A LAYER of train.conf(5). */
#ifndef CDDPI_TRAIN_CONFIG_PRINT_KEYS_H
#define CDDPI_TRAIN_CONFIG_PRINT_KEYS_H

#include <stdio.h>

/** Print all keys in scdoc format. */
void cddpi_config_print_keys(FILE *file);

#endif
