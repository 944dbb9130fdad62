/* number.h - text to numbers, strictly: the whole text must be one number inside its range. */
#ifndef CDDPI_NUMBER_H
#define CDDPI_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/** Decimal whole number in [@p low, @p high]; false leaves @p out alone. */
bool cddpi_parse_integer(const char *text, int64_t low, int64_t high, int64_t *out);

/** Finite decimal number, with the C locale's point; false leaves @p out alone. */
bool cddpi_parse_real(const char *text, double *out);

#endif
