/* log.c - writes each log line to stderr with one write(), so that lines of several ranks do not
 * mix. */
#include "base/log.h"

#include "base/env.h"
#include "base/number.h"
#include "base/utf8.h"

#include <cddp/process.h>

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int log_level = CDDPI_LOG_WARN;

/* The sink that replaces stderr. */
static cddp_log_fn log_sink;
static void *log_sink_state;

static const char *const level_names[] = {CDDPI_LOG_MAP(CDDPI_CHOICE_WORD)};

static void read_level(void)
{
    const char *wanted = cddpi_env(CDDPI_ENV_LOG);
    bool known = wanted == NULL;

    for (int level = CDDPI_LOG_OFF; level <= CDDPI_LOG_DEBUG; level++) {
        if (wanted != NULL && strcmp(wanted, level_names[level]) == 0) {
            atomic_store_explicit(&log_level, level, memory_order_relaxed);
            known = true;
        }
    }
    if (!known) { /* cddpi_log() would wait for this very call to end */
        char line[256];

        snprintf(line, sizeof line,
                 "cddp warn: CDDP_LOG=%.99s is not one of off, error, warn, info, debug, so it is "
                 "ignored\n",
                 wanted);
        cddpi_text_clean(line, sizeof line, false);
        cddpi_print(line);
    }
}

bool cddpi_log_enabled(enum cddpi_log_level level)
{
    pthread_once(&once, read_level);
    return level != CDDPI_LOG_OFF &&
           (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void cddp_log_set_level(cddp_log_level level)
{
    pthread_once(&once, read_level); /* which must not come later */
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void cddp_log_set_sink(cddp_log_fn sink, void *state)
{
    log_sink_state = state;
    log_sink = sink;
}

static void give(enum cddpi_log_level level, const char *rank, const char *line)
{
    cddp_log_record record = {sizeof record, (cddp_log_level)level, -1, 0, line};
    struct timespec now;
    int64_t number;

    clock_gettime(CLOCK_REALTIME, &now);
    record.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (rank != NULL && cddpi_parse_integer(rank, 0, INT_MAX, &number)) {
        record.rank = (int)number;
    }
    log_sink(log_sink_state, &record);
}

void cddpi_log(enum cddpi_log_level level, const char *format, ...)
{
    char line[4096];
    const char *rank = cddpi_env(CDDPI_ENV_RANK);
    va_list arguments;
    int used;
    int more;

    if (!cddpi_log_enabled(level)) {
        return;
    }
    line[used = 0] = '\0';
    if (log_sink == NULL) {
        used = rank != NULL
                   ? snprintf(line, sizeof line, "cddp rank %.16s %s: ", rank, level_names[level])
                   : snprintf(line, sizeof line, "cddp %s: ", level_names[level]);
    }
    va_start(arguments, format);
    more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    if (more < 0) {
        return;
    }
    cddpi_text_clean(line, sizeof line - 1, false);
    if (log_sink != NULL) {
        give(level, rank, line);
        return;
    }
    used = (int)strlen(line);
    memcpy(line + used, "\n", 2);
    cddpi_print(line);
}

void cddpi_print(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}
