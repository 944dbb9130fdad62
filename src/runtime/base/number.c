/* number.c - converts text to numbers strictly. */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
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

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; /* "C", for the whole process */

static void make_plain(void)
{
    plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
}

/* strtod() reads the decimal point of the calling thread's locale. */
static double to_real(const char *text, char **end)
{
    locale_t before;
    double value;

    (void)pthread_once(&once, make_plain);
    before = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    value = strtod(text, end);
    if (before != (locale_t)0) {
        (void)uselocale(before);
    }
    return value;
}

bool cddpi_parse_real(const char *text, double *out)
{
    char *end;
    double value;

    if (text == NULL || text[0] == '\0' || isspace((unsigned char)text[0])) {
        return false;
    }
    value = to_real(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) {
        return false;
    }
    *out = value;
    return true;
}
