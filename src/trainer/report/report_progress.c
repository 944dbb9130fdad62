/* report_progress.c - prints progress: on a terminal one line that is redrawn, else a line every
 * few seconds. */
#include "report/report_progress.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/terminal.h"
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
    progress->mode = cddpi_terminal_redraws(STDERR_FILENO) ? CDDPI_PROGRESS_TTY
                                                           : CDDPI_PROGRESS_PLAIN;
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
    progress->coloured = progress->mode == CDDPI_PROGRESS_TTY && cddpi_terminal_has_colour();
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
    if (is_terminal) { /* its width is asked each time, as the window may have another size */
        text[cddpi_terminal_fit(text, strlen(text), cddpi_terminal_columns(STDERR_FILENO))] = '\0';
    }
    snprintf(line, sizeof line, "%s%s%s", is_terminal ? CDDPI_TERMINAL_REDRAW : "", text,
             is_terminal ? "" : "\n");
    cddpi_print(line);
    progress->shown_ns = cddpi_now_ns();
    progress->open_line = is_terminal;
}

void cddpi_progress_erase(struct cddpi_progress *progress)
{
    if (progress->open_line) {
        cddpi_print(CDDPI_TERMINAL_REDRAW);
        progress->open_line = false;
    }
}

/* The fields of a line of progress, as text; "" where a field is not known. */
struct progress_fields {
    char epoch[64], step[112], loss[40], rate[64], mfu[32], exposed[40], left[40];
};

static void format_fields(const struct cddpi_progress_state *state, struct progress_fields *out)
{
    char left[32];
    char skipped[40] = "";

    *out = (struct progress_fields){.loss = "loss -"};
    format_left(state->seconds_left, left, sizeof left);
    if (state->skipped > 0) {
        snprintf(skipped, sizeof skipped, " (%llu skipped)", (unsigned long long)state->skipped);
    }
    snprintf(out->epoch, sizeof out->epoch, "epoch %llu/%llu", (unsigned long long)state->epoch,
             (unsigned long long)state->epochs);
    snprintf(out->step, sizeof out->step, "step %llu/%llu%s", (unsigned long long)state->step,
             (unsigned long long)state->steps, skipped);
    if (isfinite(state->loss)) {
        snprintf(out->loss, sizeof out->loss, "loss %.4f", state->loss);
    }
    snprintf(out->rate, sizeof out->rate, "%.0f %s/s", state->rate, state->unit);
    if (state->mfu_percent > 0) {
        snprintf(out->mfu, sizeof out->mfu, "  MFU %.1f %%", state->mfu_percent);
    }
    if (isfinite(state->exposed_percent)) {
        snprintf(out->exposed, sizeof out->exposed, "  exposed comm %.1f %%",
                 state->exposed_percent);
    }
    snprintf(out->left, sizeof out->left, "%s left", left);
}

/* On a terminal what matters most comes first, since fields go from the right in a narrow one. */
void cddpi_progress_step(struct cddpi_progress *progress, const struct cddpi_progress_state *state)
{
    struct progress_fields fields;
    const char *bold = progress->coloured ? "\033[1m" : "";
    const char *green = progress->coloured ? "\033[32m" : "";
    const char *end = progress->coloured ? "\033[m" : "";

    if (!cddpi_progress_is_due(progress)) {
        return;
    }
    format_fields(state, &fields);
    if (progress->mode == CDDPI_PROGRESS_TTY) {
        cddpi_progress_show(progress, "%s  %s%s%s  %s%s%s  %s  %s%s%s", fields.step, bold,
                            fields.loss, end, green, fields.left, end, fields.epoch, fields.rate,
                            fields.exposed, fields.mfu);
    } else {
        cddpi_progress_show(progress, "%s  %s  %s  %s%s%s  %s", fields.epoch, fields.step,
                            fields.loss, fields.rate, fields.mfu, fields.exposed, fields.left);
    }
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
    snprintf(line, sizeof line, "%s%s\n", progress->open_line ? CDDPI_TERMINAL_REDRAW : "", text);
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
    fprintf(file, "%s%s", progress->open_line ? CDDPI_TERMINAL_REDRAW : "", heading);
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
        cddpi_print("\r\n"); /* cddp-run, which may read it with its line, cuts what ends with \r */
        progress->open_line = false;
    }
}
