/* ctl_print.c - words a job's status. */
#include "launcher/ctl/ctl_print.h"

#include "base/alloc.h"
#include "base/streams.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

static const char *const state_words[] = {
    [CDDPI_CTL_RUNS] = "runs",   [CDDPI_CTL_ENDED] = "ended", [CDDPI_CTL_LEAVES] = "leaves",
    [CDDPI_CTL_SPARE] = "spare", [CDDPI_CTL_LOST] = "lost",   [CDDPI_CTL_GONE] = "gone"};

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

static void print_state(const struct cddpi_ctl_row *row, FILE *to)
{
    switch (row->state) {
    case CDDPI_CTL_RUNS:
        if (row->nproc != row->ranks) {
            fprintf(to, ", %d in the next generation", row->nproc);
        }
        break;
    case CDDPI_CTL_ENDED:
        fputs(", which have ended", to);
        break;
    case CDDPI_CTL_LEAVES:
        fputs(", leaves", to);
        break;
    case CDDPI_CTL_SPARE:
        fputs("waits as a spare", to);
        break;
    case CDDPI_CTL_LOST:
        fputs(row->ranks > 0 ? ", lost" : "lost", to);
        break;
    default:
        fputs("has left", to);
        break;
    }
}

static void print_members(const struct cddpi_ctl_answer *answer, FILE *to)
{
    int width = 1;

    for (int i = 0; i < answer->count; i++) {
        int length = (int)strlen(answer->rows[i].host);

        width = length > width ? length : width;
    }
    for (int i = 0; i < answer->count; i++) {
        const struct cddpi_ctl_row *row = &answer->rows[i];

        cddpi_say(to, "  node %d  %-*s  ", row->node, width, row->host);
        if (row->ranks == 1) {
            fprintf(to, "rank %d", row->first_rank);
        } else if (row->ranks > 1) {
            fprintf(to, "ranks %d to %d", row->first_rank, row->first_rank + row->ranks - 1);
        }
        print_state(row, to);
        fputc('\n', to);
    }
    if (answer->left_out > 0) {
        fprintf(to, "  and %d other node%s\n", answer->left_out, plural(answer->left_out));
    }
}

/* What makes a straggler slow. */
static const char *cause_of(const struct cddpi_ctl_straggler *straggler)
{
    return straggler->waits_for_data ? "data" : "compute";
}

static void print_stragglers(const struct cddpi_ctl_answer *answer, FILE *to)
{
    for (int i = 0; i < answer->straggler_count; i++) {
        const struct cddpi_ctl_straggler *each = &answer->stragglers[i];

        fprintf(to, "  straggler: rank %d, %.1f times the median's time", each->rank,
                each->percent / 100.0);
        if (each->seconds >= 0) {
            fprintf(to, " for %lld s", (long long)each->seconds);
        }
        fprintf(to, " (%s)\n", cause_of(each));
    }
}

static void print_cards(const struct cddpi_ctl_answer *answer, FILE *to)
{
    for (int i = 0; i < answer->card_count; i++) {
        const struct cddpi_ctl_card *card = &answer->cards[i];

        if (answer->is_alone) {
            cddpi_say(to, "  left out: %s\n", card->text);
        } else {
            cddpi_say(to, "  left out on node %d: %s\n", card->node, card->text);
        }
    }
}

static void print_job(const struct cddpi_ctl_answer *answer, FILE *to)
{
    cddpi_say(to, "job %s  pid %lld\n", answer->job, (long long)answer->pid);
    if (answer->generation < 0) {
        fputs("no generation has begun yet\n", to);
    } else {
        fprintf(to, "generation %d  %d rank%s on %d node%s", answer->generation, answer->world_size,
                plural(answer->world_size), answer->nodes, plural(answer->nodes));
        if (answer->seconds >= 0) {
            fprintf(to, "  %lld s", (long long)answer->seconds);
        }
        fputc('\n', to);
    }
    if (answer->reason[0] != '\0') {
        cddpi_say(to, "  began: %s\n", answer->reason);
    }
    if (answer->ending[0] != '\0') {
        cddpi_say(to, "  now: %s\n", answer->ending);
    }
    print_members(answer, to);
    print_stragglers(answer, to);
    print_cards(answer, to);
    fprintf(to, "restarts made: %d", answer->restarts);
    if (answer->max_restarts >= 0) {
        fprintf(to, " of %d", answer->max_restarts);
    }
    if (answer->is_elastic) {
        fprintf(to, "  elastic: %d to %d %s", answer->least, answer->most,
                answer->is_alone ? "ranks" : "nodes");
    }
    fputc('\n', to);
}

/* Print a field, and two spaces before it unless it is the first; nothing if it is unknown. */
static void put(FILE *to, bool *is_first, const char *format, double value)
    __attribute__((format(printf, 3, 0)));

static void put(FILE *to, bool *is_first, const char *format, double value)
{
    if (isfinite(value)) {
        fputs(*is_first ? "" : "  ", to);
        fprintf(to, format, value);
        *is_first = false;
    }
}

/* Returns false if nothing is known. */
static bool print_run(const struct cddpi_ctl_run *run, FILE *to)
{
    bool is_first = true;

    put(to, &is_first, "step %.0f", run->step);
    put(to, &is_first, "epoch %.0f", run->epoch);
    put(to, &is_first, "loss %.4f", run->loss);
    put(to, &is_first, "%.2f steps/s", run->steps_per_s);
    if (isfinite(run->tokens_per_s)) {
        put(to, &is_first, "%.0f tokens/s", run->tokens_per_s);
    } else {
        put(to, &is_first, "%.0f samples/s", run->samples_per_s);
    }
    put(to, &is_first, "exposed communication %.1f %%", 100 * run->exposed);
    put(to, &is_first, "waiting for ranks %.1f %%", 100 * run->peer_wait);
    return !is_first;
}

/* A curve of the last @p columns values. */
static void print_curve(const char *title, const double *values, int count, int columns,
                        bool is_utf8, FILE *to)
{
    static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const letters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    double low = INFINITY;
    double high = -INFINITY;

    values += count > columns ? count - columns : 0;
    count = count > columns ? columns : count;
    for (int i = 0; i < count; i++) {
        low = isfinite(values[i]) && values[i] < low ? values[i] : low;
        high = isfinite(values[i]) && values[i] > high ? values[i] : high;
    }
    if (count < 2 || !isfinite(low) || !isfinite(high)) {
        return;
    }
    fprintf(to, "%-8s", title);
    for (int i = 0; i < count; i++) {
        double part = high > low ? (values[i] - low) / (high - low) : 0;
        int level = isfinite(part) ? (int)(part * 7.99) : 0;

        fputs(is_utf8 ? blocks[level] : letters[level], to);
    }
    fputc('\n', to);
}

void cddpi_ctl_print(const struct cddpi_ctl_answer *answer, const struct cddpi_ctl_run *run,
                     int curves, bool is_utf8, FILE *to)
{
    bool is_first = true;

    print_job(answer, to);
    if (print_run(run, to)) {
        fputc('\n', to);
    }
    put(to, &is_first, "evaluation: step %.0f", run->eval_step);
    put(to, &is_first, "loss %.4f", run->eval_loss);
    put(to, &is_first, "accuracy %.2f %%", 100 * run->eval_accuracy);
    fputs(is_first ? "" : "\n", to);
    if (run->has_folder) {
        cddpi_say(to, "checkpoint: %s\n",
                  run->checkpoint[0] != '\0' ? run->checkpoint : "none yet");
    }
    if (curves > 0) {
        print_curve("loss", run->losses, run->points, curves, is_utf8, to);
        print_curve("steps/s", run->rates, run->points, curves, is_utf8, to);
    }
}

void cddpi_ctl_print_line(const struct cddpi_ctl_answer *answer, const struct cddpi_ctl_run *run,
                          FILE *to)
{
    if (print_run(run, to)) {
        fputs("  ", to);
    }
    fprintf(to, "generation %d  %d rank%s on %d node%s", answer->generation, answer->world_size,
            plural(answer->world_size), answer->nodes, plural(answer->nodes));
    if (answer->ending[0] != '\0') {
        cddpi_say(to, "  %s", answer->ending);
    }
    for (int i = 0; i < answer->straggler_count; i++) {
        fprintf(to, "%s %d", i == 0 ? "  stragglers: rank" : ",", answer->stragglers[i].rank);
    }
    fputc('\n', to);
}

static json_t *text_of(const char *text)
{
    char *clean = cddpi_utf8_clean(text, strlen(text));
    json_t *value = text[0] != '\0' && clean != NULL ? json_string(clean) : json_null();

    cddpi_free(clean);
    return value;
}

static json_t *list_members(const struct cddpi_ctl_answer *answer)
{
    json_t *list = json_array();

    for (int i = 0; i < answer->count; i++) {
        const struct cddpi_ctl_row *row = &answer->rows[i];

        (void)json_array_append_new(
            list, json_pack("{s:i, s:o, s:s, s:i, s:i, s:i}", "node", row->node, "host",
                            text_of(row->host), "state", state_words[row->state], "first_rank",
                            row->first_rank, "ranks", row->ranks, "next_ranks", row->nproc));
    }
    return list;
}

static json_t *list_stragglers(const struct cddpi_ctl_answer *answer)
{
    json_t *list = json_array();

    for (int i = 0; i < answer->straggler_count; i++) {
        const struct cddpi_ctl_straggler *each = &answer->stragglers[i];

        (void)json_array_append_new(list,
                                    json_pack("{s:i, s:f, s:I, s:s}", "rank", each->rank, "factor",
                                              each->percent / 100.0, "seconds",
                                              (json_int_t)each->seconds, "cause", cause_of(each)));
    }
    return list;
}

static json_t *list_cards(const struct cddpi_ctl_answer *answer)
{
    json_t *list = json_array();

    for (int i = 0; i < answer->card_count; i++) {
        const struct cddpi_ctl_card *card = &answer->cards[i];

        (void)json_array_append_new(list, json_pack("{s:i, s:i, s:o}", "node", card->node, "rank",
                                                    card->rank, "card", text_of(card->text)));
    }
    return list;
}

bool cddpi_ctl_print_json(const struct cddpi_ctl_answer *answer, const struct cddpi_ctl_run *run,
                          FILE *to)
{
    json_t *metrics = run->line != NULL ? json_incref(run->line) : json_null();
    json_t *status = json_pack(
        "{s:o, s:I, s:i, s:o, s:o, s:I, s:i, s:i, s:i, s:i, s:b, s:i, s:i, s:o, s:i, s:o, s:o, "
        "s:o, s:o}",
        "job", text_of(answer->job), "pid", (json_int_t)answer->pid, "generation",
        answer->generation, "reason", text_of(answer->reason), "ending", text_of(answer->ending),
        "seconds", (json_int_t)answer->seconds, "world_size", answer->world_size, "nodes",
        answer->nodes, "restarts", answer->restarts, "max_restarts", answer->max_restarts,
        "elastic", answer->is_elastic, "least", answer->least, "most", answer->most, "members",
        list_members(answer), "left_out", answer->left_out, "stragglers", list_stragglers(answer),
        "cards_left_out", list_cards(answer), "checkpoint", text_of(run->checkpoint), "metrics",
        metrics);
    bool is_done = status != NULL &&
                   json_dumpf(status, to, JSON_INDENT(1) | JSON_ENSURE_ASCII) == 0;

    fputs(is_done ? "\n" : "", to);
    json_decref(status);
    return is_done;
}
