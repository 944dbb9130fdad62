/* report_progress.c - prints progress: on a terminal one line that is redrawn, else a line every
 * few seconds. */
#include "report/report_progress.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cddpi_progress_init(struct cddpi_progress *progress, bool silent)
{
    const char *wanted = cddpi_env(CDDPI_ENV_PROGRESS);

    memset(progress, 0, sizeof *progress);
    progress->mode = isatty(STDERR_FILENO) ? CDDPI_PROGRESS_TTY : CDDPI_PROGRESS_PLAIN;
    if (silent || (wanted != NULL && strcmp(wanted, "off") == 0)) {
        progress->mode = CDDPI_PROGRESS_OFF;
    } else if (wanted != NULL && strcmp(wanted, "plain") == 0) {
        progress->mode = CDDPI_PROGRESS_PLAIN;
    } else if (wanted != NULL && strcmp(wanted, "tty") == 0) {
        progress->mode = CDDPI_PROGRESS_TTY;
    } else if (wanted != NULL) {
        cddpi_log(CDDPI_LOG_WARN,
                  "CDDP_PROGRESS=%s is not one of tty, plain, off, so it is ignored", wanted);
    }
}

static void format_left(double seconds, char *out, size_t bytes)
{
    long whole = seconds < 0 ? 0 : seconds > 1e8 ? 100000000 : (long)(seconds + 0.5);

    if (whole >= 3600) {
        snprintf(out, bytes, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    } else {
        snprintf(out, bytes, "%ld:%02ld", whole / 60, whole % 60);
    }
}

bool cddpi_progress_is_due(const struct cddpi_progress *progress)
{
    int64_t pause = progress->mode == CDDPI_PROGRESS_TTY ? 100000000 : 5000000000;

    return progress->mode != CDDPI_PROGRESS_OFF &&
           (progress->shown_ns == 0 || cddpi_now_ns() - progress->shown_ns >= pause);
}

void cddpi_progress_show(struct cddpi_progress *progress, const char *format, ...)
{
    bool is_terminal = progress->mode == CDDPI_PROGRESS_TTY;
    char text[340];
    char line[360];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(line, sizeof line, "%s%s%s", is_terminal ? "\r\033[K" : "", text,
             is_terminal ? "" : "\n");
    cddpi_print(line);
    progress->shown_ns = cddpi_now_ns();
    progress->open_line = is_terminal;
}

void cddpi_progress_erase(struct cddpi_progress *progress)
{
    if (progress->open_line) {
        cddpi_print("\r\033[K");
        progress->open_line = false;
    }
}

void cddpi_progress_step(struct cddpi_progress *progress, const struct cddpi_progress_state *state)
{
    char left[32];
    char mfu[32] = "";
    char exposed[40] = "";
    char loss[32] = "-";
    char skipped[40] = "";

    if (!cddpi_progress_is_due(progress)) {
        return;
    }
    format_left(state->seconds_left, left, sizeof left);
    if (state->mfu_percent > 0) {
        snprintf(mfu, sizeof mfu, "  MFU %.1f %%", state->mfu_percent);
    }
    if (isfinite(state->exposed_percent)) {
        snprintf(exposed, sizeof exposed, "  exposed comm %.1f %%", state->exposed_percent);
    }
    if (isfinite(state->loss)) {
        snprintf(loss, sizeof loss, "%.4f", state->loss);
    }
    if (state->skipped > 0) {
        snprintf(skipped, sizeof skipped, " (%llu skipped)", (unsigned long long)state->skipped);
    }
    cddpi_progress_show(progress,
                        "epoch %llu/%llu  step %llu/%llu%s  loss %s  %.0f %s/s%s%s  %s left",
                        (unsigned long long)state->epoch, (unsigned long long)state->epochs,
                        (unsigned long long)state->step, (unsigned long long)state->steps, skipped,
                        loss, state->rate, state->unit, mfu, exposed, left);
}

void cddpi_progress_line(struct cddpi_progress *progress, const char *format, ...)
{
    char text[512];
    char line[600];
    va_list arguments;

    if (progress->mode == CDDPI_PROGRESS_OFF) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cddpi_text_clean(text, sizeof text, false);
    snprintf(line, sizeof line, "%s%s\n", progress->open_line ? "\r\033[K" : "", text);
    cddpi_print(line);
    progress->open_line = false;
    progress->shown_ns = cddpi_now_ns();
}

void cddpi_progress_text(struct cddpi_progress *progress, const char *heading, const char *text)
{
    char *block = NULL;
    size_t bytes = 0;
    FILE *file = progress->mode != CDDPI_PROGRESS_OFF ? open_memstream(&block, &bytes) : NULL;

    if (file == NULL) {
        return;
    }
    fprintf(file, "%s%s", progress->open_line ? "\r\033[K" : "", heading);
    for (const char *line = text; line != NULL;) { /* marked as not cddp's own */
        size_t length = strcspn(line, "\n");

        fprintf(file, "\n  | %.*s", (int)length, line);
        line = line[length] != '\0' ? line + length + 1 : NULL;
    }
    fputc('\n', file);
    if (fclose(file) == 0) {
        cddpi_print(block);
    }
    free(block);
    progress->open_line = false;
    progress->shown_ns = cddpi_now_ns();
}

void cddpi_progress_end(struct cddpi_progress *progress)
{
    if (progress->open_line) {
        cddpi_print("\n");
        progress->open_line = false;
    }
}
