/* tokenize_progress.c - draws the line of progress. */
#include "programs/tokenize/tokenize_progress.h"

#include "base/clock.h"
#include "base/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void cddpi_tokenize_progress_init(struct cddpi_tokenize_progress *progress)
{
    const char *wanted = cddpi_env(CDDPI_ENV_PROGRESS);
    bool is_terminal = isatty(STDERR_FILENO);

    if (wanted != NULL) {
        is_terminal = strcmp(wanted, "tty") == 0 || (is_terminal && strcmp(wanted, "plain") != 0);
    }
    memset(progress, 0, sizeof *progress);
    progress->begin_ns = cddpi_now_ns();
    progress->shown_ns = progress->begin_ns;
    progress->is_terminal = is_terminal;
    progress->pause_ns = is_terminal ? 100000000 : 5000000000;
    if (is_terminal) {
        progress->shown_ns -= progress->pause_ns; /* so that the first line is shown at once */
    }
    if (wanted != NULL && strcmp(wanted, "off") == 0) {
        progress->pause_ns = 0;
    }
}

double cddpi_tokenize_progress_seconds(const struct cddpi_tokenize_progress *progress)
{
    return (double)(cddpi_now_ns() - progress->begin_ns + 1) * 1e-9;
}

static bool is_due(const struct cddpi_tokenize_progress *progress)
{
    return progress->pause_ns != 0 && cddpi_now_ns() - progress->shown_ns >= progress->pause_ns;
}

__attribute__((format(printf, 2, 3))) static void show(struct cddpi_tokenize_progress *progress,
                                                       const char *format, ...)
{
    char text[160];
    char line[200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(line, sizeof line, "%s%s%s", progress->is_terminal ? "\r\033[K" : "", text,
             progress->is_terminal ? "" : "\n");
    (void)!write(STDERR_FILENO, line, strlen(line));
    progress->shown_ns = cddpi_now_ns();
    progress->open_line = progress->is_terminal;
}

void cddpi_tokenize_progress_bytes(struct cddpi_tokenize_progress *progress, uint64_t done,
                                   uint64_t total, int64_t tokens)
{
    double seconds = cddpi_tokenize_progress_seconds(progress);
    double rate = (double)done / seconds;
    char of[48] = "";
    char left[48] = "";
    char made[48] = "";

    if (!is_due(progress)) {
        return;
    }
    if (total > 0) {
        snprintf(of, sizeof of, " of %.1f", (double)total * 1e-6);
        snprintf(left, sizeof left, ", %.0f s left",
                 rate > 0 && done < total ? (double)(total - done) / rate : 0.0);
    }
    if (tokens > 0) {
        snprintf(made, sizeof made, ", %lld tokens", (long long)tokens);
    }
    show(progress, "%.1f%s MB%s, %.1f MB/s%s", (double)done * 1e-6, of, made, rate * 1e-6, left);
}

void cddpi_tokenize_progress_merges(struct cddpi_tokenize_progress *progress, int tokens,
                                    int wanted)
{
    if (is_due(progress)) {
        show(progress, "%d of %d tokens", tokens, wanted);
    }
}

void cddpi_tokenize_progress_end(struct cddpi_tokenize_progress *progress)
{
    if (progress->open_line) {
        (void)!write(STDERR_FILENO, "\r\033[K", 4);
        progress->open_line = false;
    }
}
