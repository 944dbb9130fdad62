/* number.h - strict conversion of text to numbers: the whole text must be one number in range. */
#ifndef CDDPI_NUMBER_H
#define CDDPI_NUMBER_H

#include "base/shared.h"

#include <stdbool.h>
#include <stdint.h>

/** A decimal integer in [@p low, @p high]. False: @p out is unchanged. */
CDDPI_SHARED bool cddpi_parse_integer(const char *text, int64_t low, int64_t high, int64_t *out);

/** A finite decimal number, with "." as the decimal point in every locale; one too small for a
 *  double is rounded. False: @p out is unchanged. */
bool cddpi_parse_real(const char *text, double *out);

#endif
