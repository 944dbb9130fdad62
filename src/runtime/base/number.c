/* number.c - converts text to numbers strictly. */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

bool cddpi_parse_integer(const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    long long value;

    if (text == NULL || (!isdigit((unsigned char)text[0]) && text[0] != '-')) {
        return false;
    }
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high) {
        return false;
    }
    *out = value;
    return true;
}

bool cddpi_parse_real(const char *text, double *out)
{
    char *end;
    double value;

    if (text == NULL || text[0] == '\0' || isspace((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || (errno != 0 && value != 0.0)) {
        return false;
    }
    *out = value;
    return true;
}
