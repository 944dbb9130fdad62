/* traces_find.c - finds in traces what belongs together: the steps of all ranks, and the calls of
 * one collective. Traces may be long, so nothing here goes through all spans for each step. */
#include "report/traces.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_calls(const struct cddpi_traced_call *x, const struct cddpi_traced_call *y)
{
    return x->on_device != y->on_device ? compare(x->on_device, y->on_device)
                                        : compare(x->number, y->number);
}

static int by_number(const void *a, const void *b)
{
    return compare_calls(*(const struct cddpi_traced_call *const *)a,
                         *(const struct cddpi_traced_call *const *)b);
}

cddp_status cddpi_traces_sort_calls(struct cddpi_traced_rank *rank)
{
    rank->by_number = cddpi_zalloc_array(rank->call_count + 1, sizeof(struct cddpi_traced_call *));
    CDDPI_TRY_MEMORY(rank->by_number != NULL, "no memory for %zu calls", rank->call_count);
    for (size_t i = 0; i < rank->call_count; i++) {
        if (!rank->calls[i].is_message) {
            rank->by_number[rank->collective_count++] = &rank->calls[i];
        }
    }
    qsort(rank->by_number, rank->collective_count, sizeof *rank->by_number, by_number);
    return CDDP_OK;
}

const struct cddpi_traced_call *cddpi_traces_find_call(const struct cddpi_traced_rank *rank,
                                                       const struct cddpi_traced_call *like)
{
    const struct cddpi_traced_call *const *found = bsearch(
        &like, rank->by_number, rank->collective_count, sizeof *rank->by_number, by_number);

    return found != NULL ? *found : NULL;
}

/* What is known of a step while the ranks are looked at one after the other. */
struct step_spans {
    const struct cddpi_traced_span *whole, *wait; /* of the current rank; NULL: none */
    double own_ns;                                /* all waits of the current rank */
    const struct cddpi_traced_span *last;         /* the wait that began last */
    double late_ns, exposed_ns;                   /* sums over ranks */
    int waits;                                    /* ranks that waited */
};

static int by_step(const void *a, const void *b)
{
    return compare(((const struct cddpi_traced_step *)a)->step,
                   ((const struct cddpi_traced_step *)b)->step);
}

/* Find the spans of @p rank in each step. Of several waits, the last one without a number counts:
 * it synchronises. */
static void find_spans(const struct cddpi_traces *traces, const struct cddpi_traced_rank *rank,
                       struct step_spans *spans)
{
    for (size_t s = 0; s < traces->step_count; s++) {
        spans[s].whole = spans[s].wait = NULL;
        spans[s].own_ns = 0;
    }
    for (size_t i = 0; i < rank->span_count; i++) {
        const struct cddpi_traced_span *span = &rank->spans[i];
        bool is_wait = strcmp(span->name, "wait") == 0;
        const struct cddpi_traced_step key = {.step = span->step};
        const struct cddpi_traced_step *found = NULL;

        if (span->device < 0 && (is_wait || strcmp(span->name, "step") == 0)) {
            found = bsearch(&key, traces->steps, traces->step_count, sizeof key, by_step);
        }
        if (found != NULL) {
            struct step_spans *of = &spans[found - traces->steps];

            of->own_ns += is_wait ? (double)(span->end_ns - span->begin_ns) : 0;
            of->whole = is_wait ? of->whole : span;
            of->wait = is_wait && span->number < 0 ? span : of->wait;
        }
    }
}

/* Find when each step began and ended, and which rank began to wait last. */
static void find_ends(struct cddpi_traces *traces, struct step_spans *spans)
{
    for (int r = 0; r < traces->count; r++) {
        find_spans(traces, &traces->ranks[r], spans);
        for (size_t s = 0; s < traces->step_count; s++) {
            struct cddpi_traced_step *step = &traces->steps[s];
            const struct cddpi_traced_span *whole = spans[s].whole;
            const struct cddpi_traced_span *wait = spans[s].wait;

            if (whole != NULL) {
                step->begin_ns = step->begin_ns == 0 || whole->begin_ns < step->begin_ns
                                     ? whole->begin_ns
                                     : step->begin_ns;
                step->end_ns = whole->end_ns > step->end_ns ? whole->end_ns : step->end_ns;
            }
            if (wait != NULL &&
                (spans[s].last == NULL || wait->begin_ns > spans[s].last->begin_ns)) {
                spans[s].last = wait;
                step->last = traces->ranks[r].rank;
            }
        }
    }
}

/* Find how long ranks waited, and how long for the last one. */
static void find_waits(struct cddpi_traces *traces, struct step_spans *spans)
{
    for (int r = 0; r < traces->count; r++) {
        find_spans(traces, &traces->ranks[r], spans);
        for (size_t s = 0; s < traces->step_count; s++) {
            if (spans[s].wait != NULL) {
                const struct cddpi_traced_span *wait = spans[s].wait;
                int64_t until = spans[s].last->begin_ns < wait->end_ns ? spans[s].last->begin_ns
                                                                       : wait->end_ns;

                spans[s].late_ns += (double)(until - wait->begin_ns);
                spans[s].exposed_ns += spans[s].own_ns;
                spans[s].waits++;
            }
        }
    }
    for (size_t s = 0; s < traces->step_count; s++) {
        struct cddpi_traced_step *step = &traces->steps[s];

        step->late_ns = spans[s].waits > 0 ? spans[s].late_ns / spans[s].waits : 0;
        step->exposed_ns = spans[s].waits > 0 ? spans[s].exposed_ns / spans[s].waits : 0;
    }
}

cddp_status cddpi_traces_find_steps(struct cddpi_traces *traces)
{
    const struct cddpi_traced_rank *first = traces->ranks;
    size_t most = traces->count > 0 ? first->span_count : 0;
    struct step_spans *spans = cddpi_zalloc_array(most + 1, sizeof *spans);
    size_t count = 0;

    traces->steps = cddpi_zalloc_array(most + 1, sizeof *traces->steps);
    if (spans == NULL || traces->steps == NULL) {
        cddpi_free(spans);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the steps of %zu spans", most);
    }
    for (size_t i = 0; i < most; i++) {
        if (strcmp(first->spans[i].name, "step") == 0) {
            traces->steps[count++] = (struct cddpi_traced_step){.step = first->spans[i].step,
                                                                .last = -1};
        }
    }
    qsort(traces->steps, count, sizeof *traces->steps, by_step);
    for (size_t i = 0; i < count; i++) { /* each once */
        if (i == 0 || traces->steps[i].step != traces->steps[traces->step_count - 1].step) {
            traces->steps[traces->step_count++] = traces->steps[i];
        }
    }
    find_ends(traces, spans);
    find_waits(traces, spans);
    cddpi_free(spans);
    return CDDP_OK;
}

bool cddpi_traces_step(const struct cddpi_traces *traces, size_t index,
                       struct cddpi_traced_step *out)
{
    if (index >= traces->step_count) {
        return false;
    }
    *out = traces->steps[index];
    return true;
}
