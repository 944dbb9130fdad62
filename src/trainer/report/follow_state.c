/* follow_state.c - takes the lines of metrics of a run that is being followed, and words what they
 * say. The lines are not trusted. */
#include "report/follow_state.h"

#include "base/terminal.h"
#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static const struct {
    const char *column, *title;
} parts[CDDPI_FOLLOW_PARTS] = {{"data_ms", "data"},
                               {"forward_ms", "forward"},
                               {"backward_ms", "backward"},
                               {"exposed_comm_ms", "communication"},
                               {"optimizer_ms", "optimizer"}};

enum { LINE_BYTES = 2048, SILENT_S = 30 };

void cddpi_follow_init(struct cddpi_follow_state *state)
{
    *state = (struct cddpi_follow_state){.of_loss = 1};
    state->step = state->epoch = state->loss = state->accuracy = state->lr = NAN;
    state->samples_per_s = state->tokens_per_s = state->step_ms = NAN;
    state->eval_step = state->eval_loss = state->eval_accuracy = state->perplexity = NAN;
    state->ranks = state->parameters = state->seconds = NAN;
    for (int p = 0; p < CDDPI_FOLLOW_PARTS; p++) {
        state->parts[p] = NAN;
    }
}

static double number_of(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* When there are too many losses, each becomes the mean of two. */
static void take_loss(struct cddpi_follow_state *state, double loss)
{
    if (!isfinite(loss)) {
        return;
    }
    if (state->in_last == 0 && state->loss_count == CDDPI_FOLLOW_LOSSES) {
        for (int i = 0; i < CDDPI_FOLLOW_LOSSES / 2; i++) {
            state->losses[i] = state->losses[2 * i] / 2 + state->losses[2 * i + 1] / 2;
        }
        state->loss_count /= 2;
        state->of_loss = state->of_loss < 1 << 20 ? state->of_loss * 2 : state->of_loss;
    }
    if (state->in_last == 0) {
        state->losses[state->loss_count++] = 0;
    }
    state->losses[state->loss_count - 1] += (loss - state->losses[state->loss_count - 1]) /
                                            (state->in_last + 1);
    state->in_last = (state->in_last + 1) % state->of_loss;
}

static void take_begin(struct cddpi_follow_state *state, const json_t *line)
{
    const char *device = json_string_value(json_object_get(line, "device"));
    const char *host = json_string_value(json_object_get(line, "host"));

    state->ranks = number_of(line, "world_size");
    state->parameters = number_of(line, "parameters");
    snprintf(state->device, sizeof state->device, "%s", device != NULL ? device : "");
    cddpi_text_clean(state->device, sizeof state->device, true);
    snprintf(state->host, sizeof state->host, "%s", host != NULL ? host : "");
    state->has_begun = true;
    state->has_ended = false;
}

static void take_step(struct cddpi_follow_state *state, const json_t *line)
{
    state->has_begun = true;
    state->loss = number_of(line, "loss");
    state->accuracy = number_of(line, "accuracy");
    state->lr = number_of(line, "lr");
    state->samples_per_s = number_of(line, "samples_per_s");
    state->tokens_per_s = number_of(line, "tokens_per_s");
    state->step_ms = number_of(line, "step_ms");
    for (int p = 0; p < CDDPI_FOLLOW_PARTS; p++) {
        state->parts[p] = number_of(line, parts[p].column);
    }
    take_loss(state, state->loss);
}

enum cddpi_follow_kind cddpi_follow_take(struct cddpi_follow_state *state, const json_t *line)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));
    double step = number_of(line, "step");

    if (kind != NULL && strcmp(kind, "run") == 0) {
        take_begin(state, line);
        return CDDPI_FOLLOW_BEGIN;
    }
    if (kind != NULL && strcmp(kind, "end") == 0) {
        state->step = isfinite(step) ? step : state->step;
        state->has_ended = true;
        state->has_stopped = json_is_true(json_object_get(line, "stopped"));
        state->seconds = number_of(line, "run_seconds");
        state->seconds = isfinite(state->seconds) ? state->seconds : number_of(line, "seconds");
        return CDDPI_FOLLOW_END;
    }
    if (kind != NULL || !isfinite(step)) {
        return CDDPI_FOLLOW_OTHER;
    }
    state->step = step;
    state->epoch = number_of(line, "epoch");
    if (json_object_get(line, "eval_loss") != NULL) {
        state->eval_step = step;
        state->eval_loss = number_of(line, "eval_loss");
        state->eval_accuracy = number_of(line, "eval_accuracy");
        state->perplexity = number_of(line, "eval_perplexity");
        return CDDPI_FOLLOW_EVALUATION;
    }
    if (json_object_get(line, "loss") != NULL) {
        take_step(state, line);
        return CDDPI_FOLLOW_STEP;
    }
    return CDDPI_FOLLOW_OTHER;
}

/* A line of text that is put together from fields, two spaces apart. */
struct text_line {
    char text[LINE_BYTES];
    size_t used;
};

static void add(struct text_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct text_line *line, const char *format, ...)
{
    va_list arguments;
    int bytes;

    if (line->used > 0 && line->used < LINE_BYTES - 2) {
        memcpy(line->text + line->used, "  ", 3);
        line->used += 2;
    }
    va_start(arguments, format);
    bytes = vsnprintf(line->text + line->used, LINE_BYTES - line->used, format, arguments);
    va_end(arguments);
    line->used += bytes > 0 ? (size_t)bytes : 0;
    line->used = line->used < LINE_BYTES ? line->used : LINE_BYTES - 1;
}

static void add_number(struct text_line *line, const char *format, double value)
    __attribute__((format(printf, 2, 0)));

/* Nothing if the number is not known. */
static void add_number(struct text_line *line, const char *format, double value)
{
    if (isfinite(value)) {
        add(line, format, value);
    }
}

static void word_run(const struct cddpi_follow_state *state, struct text_line *line)
{
    add_number(line, state->ranks == 1 ? "%.0f rank" : "%.0f ranks", state->ranks);
    if (state->device[0] != '\0') {
        add(line, "%s", state->device);
    }
    add_number(line, "%.0f parameters", state->parameters);
}

static void word_step(const struct cddpi_follow_state *state, struct text_line *line)
{
    add_number(line, "step %.0f", state->step);
    add_number(line, "epoch %.0f", state->epoch);
    add_number(line, "loss %.4f", state->loss);
    add_number(line, "accuracy %.2f %%", 100 * state->accuracy);
}

static void word_speed(const struct cddpi_follow_state *state, struct text_line *line)
{
    if (isfinite(state->tokens_per_s)) {
        add(line, "%.0f tokens/s", state->tokens_per_s);
    } else {
        add_number(line, "%.0f samples/s", state->samples_per_s);
    }
    add_number(line, "%.2f ms a step", state->step_ms);
}

static void word_evaluation(const struct cddpi_follow_state *state, struct text_line *line)
{
    bool is_text = isfinite(state->perplexity);

    add_number(line, "step %.0f", state->eval_step);
    add_number(line, is_text ? "val loss %.4f" : "test loss %.4f", state->eval_loss);
    if (is_text) {
        add(line, "perplexity %.4g", state->perplexity);
    } else {
        add_number(line, "test accuracy %.2f %%", 100 * state->eval_accuracy);
    }
}

static void word_end(const struct cddpi_follow_state *state, struct text_line *line)
{
    add(line, state->has_stopped ? "stopped early" : "complete");
    add_number(line, "%.0f steps", state->step);
    add_number(line, "%.1f s", state->seconds);
}

void cddpi_follow_print(const struct cddpi_follow_state *state, enum cddpi_follow_kind kind,
                        FILE *out)
{
    struct text_line line = {.used = 0};

    switch (kind) {
    case CDDPI_FOLLOW_BEGIN:
        word_run(state, &line);
        break;
    case CDDPI_FOLLOW_STEP:
        word_step(state, &line);
        word_speed(state, &line);
        break;
    case CDDPI_FOLLOW_EVALUATION:
        word_evaluation(state, &line);
        break;
    case CDDPI_FOLLOW_END:
        word_end(state, &line);
        break;
    case CDDPI_FOLLOW_OTHER:
        return;
    }
    fprintf(out, "%s\n", line.text);
}

/* The losses as bars of eight heights, at most @p columns of them. */
static void word_curve(const struct cddpi_follow_state *state, int columns, bool is_utf8,
                       struct text_line *line)
{
    static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const letters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    int bars = state->loss_count < columns ? state->loss_count : columns;
    double means[CDDPI_FOLLOW_LOSSES];
    double low = INFINITY;
    double high = -INFINITY;

    for (int bar = 0; bar < bars; bar++) {
        int from = bar * state->loss_count / bars;
        int to = (bar + 1) * state->loss_count / bars;

        means[bar] = 0;
        for (int i = from; i < to; i++) {
            means[bar] += state->losses[i] / (to - from);
        }
        low = fmin(low, means[bar]);
        high = fmax(high, means[bar]);
    }
    for (int bar = 0; bar < bars; bar++) {
        double part = high > low ? (means[bar] - low) / (high - low) : 0; /* NaN: too far apart */
        int height = part > 0 ? (int)(7 * fmin(part, 1) + 0.5) : 0;

        line->used += (size_t)snprintf(line->text + line->used, LINE_BYTES - line->used, "%s",
                                       (is_utf8 ? blocks : letters)[height]);
    }
}

static void word_parts(const struct cddpi_follow_state *state, struct text_line *line)
{
    double sum = 0;

    for (int p = 0; p < CDDPI_FOLLOW_PARTS; p++) {
        sum += state->parts[p] > 0 ? state->parts[p] : 0;
    }
    sum = fmax(sum, state->step_ms); /* also if that is NaN */
    for (int p = 0; p < CDDPI_FOLLOW_PARTS && sum > 0; p++) {
        if (isfinite(state->parts[p])) {
            add(line, "%s %.0f %%", parts[p].title, 100 * state->parts[p] / sum);
        }
    }
}

static void print_line(const char *title, const struct text_line *line, int columns, FILE *out)
{
    struct text_line whole = {.used = 0};

    add(&whole, "%-6.6s%.*s", title, LINE_BYTES - 8, line->used > 0 ? line->text : "-");
    fprintf(out, CDDPI_TERMINAL_REDRAW "%.*s\n",
            (int)cddpi_terminal_fit(whole.text, whole.used, columns), whole.text);
}

void cddpi_follow_draw(const struct cddpi_follow_state *state, const char *dir, int columns,
                       double silent_s, bool is_gone, bool is_utf8, FILE *out)
{
    enum { TITLE_COLUMNS = 6, MOST_BARS = 120 };
    struct text_line lines[CDDPI_FOLLOW_LINES];
    int bars = columns - TITLE_COLUMNS - 2;

    memset(lines, 0, sizeof lines);
    if (state->has_ended) {
        word_end(state, &lines[0]);
    } else if (is_gone) {
        add(&lines[0], "no process: waiting for a restart");
    } else if (silent_s >= SILENT_S) {
        add(&lines[0], "nothing new for %.0f s", silent_s);
    } else {
        add(&lines[0], state->has_begun ? "running" : "has not begun");
    }
    add(&lines[0], "%.1000s", dir);
    cddpi_text_clean(lines[0].text, sizeof lines[0].text, true);
    lines[0].used = strlen(lines[0].text);
    word_run(state, &lines[0]);
    word_step(state, &lines[1]);
    word_curve(state,
               columns == 0       ? MOST_BARS
               : bars < 1         ? 1
               : bars < MOST_BARS ? bars
                                  : MOST_BARS,
               is_utf8, &lines[2]);
    word_speed(state, &lines[3]);
    word_parts(state, &lines[4]);
    word_evaluation(state, &lines[5]);
    print_line("run", &lines[0], columns, out);
    print_line("now", &lines[1], columns, out);
    print_line("loss", &lines[2], columns, out);
    print_line("speed", &lines[3], columns, out);
    print_line("parts", &lines[4], columns, out);
    print_line("eval", &lines[5], columns, out);
}
