/* follow_watch.c - decides what to say while a run that is followed adds no line. */
#include "report/follow_watch.h"

#define SECOND_NS INT64_C(1000000000)

enum {
    QUIET_S = 10, /* the first QUIET; twice the longest silence so far, if that is longer */
    AGAIN_S = 60,
    GONE_S = 1 /* a run that ends well writes its last line before its process ends */
};

static void expect_line(struct cddpi_follow_watch *watch, int64_t now_ns)
{
    int64_t quiet_ns = 2 * watch->longest_ns;

    watch->line_ns = now_ns;
    watch->news_ns = now_ns + (quiet_ns > QUIET_S * SECOND_NS ? quiet_ns : QUIET_S * SECOND_NS);
    watch->gone_ns = watch->told_ns = 0;
}

void cddpi_follow_watch_begin(struct cddpi_follow_watch *watch, int64_t now_ns)
{
    watch->longest_ns = 0;
    expect_line(watch, now_ns);
}

void cddpi_follow_watch_line(struct cddpi_follow_watch *watch, int64_t now_ns)
{
    int64_t silence_ns = now_ns - watch->line_ns;

    watch->longest_ns = silence_ns > watch->longest_ns ? silence_ns : watch->longest_ns;
    expect_line(watch, now_ns);
}

/* No process writes to the run. */
static enum cddpi_follow_news look_for_restart(struct cddpi_follow_watch *watch, int64_t now_ns)
{
    if (watch->gone_ns == 0) {
        watch->gone_ns = now_ns;
    }
    if (watch->told_ns != 0) {
        return now_ns - watch->told_ns >= CDDPI_FOLLOW_RESTART_S * SECOND_NS ? CDDPI_FOLLOW_GIVEN_UP
                                                                             : CDDPI_FOLLOW_NO_NEWS;
    }
    if (now_ns - watch->gone_ns < GONE_S * SECOND_NS) {
        return CDDPI_FOLLOW_NO_NEWS;
    }
    watch->told_ns = now_ns;
    return CDDPI_FOLLOW_GONE;
}

enum cddpi_follow_news cddpi_follow_watch_look(struct cddpi_follow_watch *watch,
                                               enum cddpi_follow_writer writer, int64_t now_ns)
{
    if (writer == CDDPI_FOLLOW_WRITER_GONE) {
        return look_for_restart(watch, now_ns);
    }
    watch->gone_ns = watch->told_ns = 0;
    if (now_ns < watch->news_ns) {
        return CDDPI_FOLLOW_NO_NEWS;
    }
    watch->news_ns = now_ns + AGAIN_S * SECOND_NS;
    return CDDPI_FOLLOW_QUIET;
}
