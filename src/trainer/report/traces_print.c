/* traces_print.c - prints a summary of traces: which ranks were late, what a perfect overlap would
 * have gained, and where ranks hang. */
#include "report/traces.h"

#include "base/alloc.h"

#include <string.h>

static void print_steps(const struct cddpi_traces *traces, FILE *out)
{
    struct cddpi_traced_step step;
    double total = 0;
    double exposed = 0;
    double late = 0;
    size_t count = 0;

    for (; cddpi_traces_step(traces, count, &step); count++) {
        double took = (double)(step.end_ns - step.begin_ns);

        if (count == 0) {
            fprintf(out, "step    took ms   exposed communication ms   of it waiting for the last "
                         "rank ms   last rank\n");
        }
        fprintf(out, "%-6llu %8.3f   %24.3f", (unsigned long long)step.step, took * 1e-6,
                step.exposed_ns * 1e-6);
        if (step.last >= 0 && traces->count > 1) {
            fprintf(out, "   %33.3f   %9d\n", step.late_ns * 1e-6, step.last);
        } else {
            fprintf(out, "   %33s   %9s\n", "-", "-");
        }
        total += took;
        exposed += step.exposed_ns;
        late += step.late_ns;
    }
    if (count == 0 || total <= 0) {
        return;
    }
    fprintf(out,
            "A step took %.3f ms on average. For %.3f ms of it (%.1f %%), a rank waited for "
            "communication (exposed_comm_ms in metrics.jsonl): %.3f ms (%.1f %%) until the last "
            "rank arrived, and %.3f ms (%.1f %%) after that, which perfect overlap would have "
            "hidden.\n",
            total / (double)count * 1e-6, exposed / (double)count * 1e-6, 100 * exposed / total,
            late / (double)count * 1e-6, 100 * late / total,
            (exposed - late) / (double)count * 1e-6, 100 * (exposed - late) / total);
}

/* The last rank to make the first rank's call @p index. Returns -1 if the call is a message, or if
 * a rank lacks it. */
static int last_caller(const struct cddpi_traces *traces, size_t index, double *out_late_ns)
{
    const struct cddpi_traced_call *call = &traces->ranks[0].calls[index];
    int64_t latest = INT64_MIN;
    double sum = 0;
    int last = -1;

    for (int r = 0; r < traces->count && !call->is_message; r++) {
        const struct cddpi_traced_call *own = cddpi_traces_find_call(&traces->ranks[r], call);

        if (own == NULL || own->enqueued_ns == INT64_MIN) {
            return -1;
        }
        sum += (double)(own->enqueued_ns - traces->begin_ns);
        if (own->enqueued_ns > latest) {
            latest = own->enqueued_ns;
            last = r;
        }
    }
    *out_late_ns = ((double)(latest - traces->begin_ns) * traces->count - sum) /
                   (traces->count > 1 ? traces->count - 1 : 1);
    return last;
}

struct lateness {
    size_t count; /* collectives that this rank entered last */
    double sum_ns, most_ns;
    const struct cddpi_traced_call *most; /* the one with the longest wait of other ranks */
};

/* Print the call as errors name it. cddp's own collectives have no number there. */
static void print_call(const struct cddpi_traced_call *call, FILE *out)
{
    fprintf(out, "%s", call->operation);
    if (call->call > 0) {
        fprintf(out, " #%llu", (unsigned long long)call->call);
    } else if (call->bucket >= 0) {
        fprintf(out, " of bucket %lld", (long long)call->bucket);
    } else {
        fprintf(out, " of cddp's own");
    }
    fprintf(out, " (number %llu)", (unsigned long long)call->number);
}

static void print_rank(const struct cddpi_traces *traces, int r, size_t count,
                       const struct lateness *late, FILE *out)
{
    fprintf(out, "rank %d called %zu of %zu collectives last", traces->ranks[r].rank, late->count,
            count);
    if (late->count > 0) {
        fprintf(out, ": the others waited %.3f ms for it in total, and longest, %.3f ms, in ",
                late->sum_ns * 1e-6, late->most_ns * 1e-6);
        print_call(late->most, out);
    }
    fprintf(out, "\n");
}

static void print_lateness(const struct cddpi_traces *traces, FILE *out)
{
    const struct cddpi_traced_rank *first = &traces->ranks[0];
    struct lateness *late = cddpi_zalloc_array((size_t)traces->count, sizeof *late);
    size_t count = 0;

    for (size_t i = 0; late != NULL && i < first->call_count; i++) {
        double late_ns = 0;
        int last = last_caller(traces, i, &late_ns);

        if (last < 0) {
            continue;
        }
        count++;
        late[last].count++;
        late[last].sum_ns += late_ns;
        if (late[last].most == NULL || late_ns > late[last].most_ns) {
            late[last].most_ns = late_ns;
            late[last].most = &first->calls[i];
        }
    }
    for (int r = 0; late != NULL && r < traces->count && count > 0; r++) {
        print_rank(traces, r, count, &late[r], out);
    }
    cddpi_free(late);
}

/* Print the operation that a rank has not finished, and what the other ranks did there. */
static void print_open(const struct cddpi_traces *traces, FILE *out)
{
    for (int r = 0; r < traces->count; r++) {
        const struct cddpi_traced_rank *rank = &traces->ranks[r];

        /* In a trace of steps (it has spans), an open call only means that the trace ends there. */
        for (size_t i = 0; i < rank->call_count && rank->span_count == 0; i++) {
            const struct cddpi_traced_call *call = &rank->calls[i];

            if (strcmp(call->state, "done") == 0) {
                continue;
            }
            fprintf(out, "rank %d has not ended ", rank->rank);
            print_call(call, out);
            fprintf(out, ", %llu bytes of %s (%s)", (unsigned long long)call->bytes, call->type,
                    call->state);
            for (int other = 0; other < traces->count && !call->is_message; other++) {
                const struct cddpi_traced_call *theirs = cddpi_traces_find_call(
                    &traces->ranks[other], call);

                if (other != r && theirs == NULL) {
                    fprintf(out, "; rank %d has not called it", traces->ranks[other].rank);
                } else if (other != r && strcmp(theirs->operation, call->operation) != 0) {
                    fprintf(out, "; rank %d called %s there", traces->ranks[other].rank,
                            theirs->operation);
                }
            }
            fprintf(out, "\n");
            break; /* later calls only wait for this one */
        }
    }
}

void cddpi_traces_print(const struct cddpi_traces *traces, FILE *out)
{
    fprintf(out, "%d of %d ranks, %.3f ms\n", traces->count, traces->world_size,
            (double)(traces->end_ns - traces->begin_ns) * 1e-6);
    for (int r = 1; r < traces->count; r++) {
        const struct cddpi_traced_rank *rank = &traces->ranks[r];

        if (rank->uncertainty_ns > 1e18) {
            fprintf(
                out,
                "rank %d: no collective shows how its clock differs, so its times do not fit those "
                "of the others\n",
                rank->rank);
        } else if (rank->uncertainty_ns > 0) {
            fprintf(out, "rank %d: its clock is known to %.1f us\n", rank->rank,
                    rank->uncertainty_ns * 1e-3);
        }
    }
    print_steps(traces, out);
    if (traces->count > 1) {
        print_lateness(traces, out);
    }
    print_open(traces, out);
}
