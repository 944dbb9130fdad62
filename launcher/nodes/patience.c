/* patience.c - when a node that waits tells its user for whom it waits. */
#include "launcher/nodes/patience.h"

enum { AGAIN_MS = 60000, DAY_MS = 86400000 };

void cddpi_patience_begin(struct cddpi_patience *patience, int first_ms, int64_t now_ns)
{
    patience->news_ns = now_ns + first_ms * INT64_C(1000000);
}

bool cddpi_patience_ends(struct cddpi_patience *patience, int64_t now_ns)
{
    if (now_ns < patience->news_ns) {
        return false;
    }
    patience->news_ns = now_ns + AGAIN_MS * INT64_C(1000000);
    return true;
}

void cddpi_patience_until(time_t now, int64_t left_ms, char *out, size_t bytes)
{
    time_t then = now + (time_t)(left_ms / 1000);
    struct tm parts;

    if (localtime_r(&then, &parts) == NULL ||
        strftime(out, bytes, left_ms < DAY_MS ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &parts) == 0) {
        out[0] = '\0';
    }
}
