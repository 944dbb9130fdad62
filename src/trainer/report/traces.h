/* traces.h - the traces and dumps of all ranks together, on one clock: what each did when, and who
 * was late for whom. src/runtime/group/watch/group_trace.h and src/runtime/group/watch/dump.h write
 * them.
 */
#ifndef CDDPI_TRAIN_REPORT_TRACES_H
#define CDDPI_TRAIN_REPORT_TRACES_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>

enum { CDDPI_TRACE_NAME_BYTES = 48 };

struct cddpi_traced_span {
    char name[CDDPI_TRACE_NAME_BYTES]; /* as cddpi_span_name() has it; cut if longer */
    int64_t begin_ns, end_ns;          /* on the clock of the first rank */
    uint64_t step;
    int64_t number; /* of a bucket or micro-batch; -1: none */
    int device;     /* of several of the rank's; -1: the rank's own */
    uint64_t bytes;
};

struct cddpi_traced_call {
    char operation[CDDPI_TRACE_NAME_BYTES];
    char state[16];
    char type[16];
    uint64_t number; /* of all collectives of the group */
    uint64_t call;   /* of those that the program called, as errors count; 0: it is cddp's own */
    uint64_t bytes;
    int64_t bucket; /* -1: none */
    bool on_device;
    bool is_message;                              /* send or recv: of two ranks only */
    int64_t enqueued_ns, started_ns, finished_ns; /* INT64_MIN: not yet */
};

struct cddpi_traced_rank {
    int rank;
    char host[64];
    char machine[64];
    double offset_ns;      /* added to the rank's clock */
    double uncertainty_ns; /* of that; 0: the same machine's clock as the first rank's */
    struct cddpi_traced_span *spans;
    size_t span_count;
    struct cddpi_traced_call *calls;
    size_t call_count;
};

struct cddpi_traces {
    struct cddpi_traced_rank *ranks; /* by rank, those whose file was there */
    int count;
    int world_size;
    int64_t begin_ns, end_ns; /* of all that is there */
};

/** Read the files @p paths, one of each rank.
 *  @param out  Release with cddpi_traces_fini().
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_FORMAT (names the file), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_traces_read(char *const *paths, int count, struct cddpi_traces *out);
/** Read those of DIR/trace, or if there are none of DIR/collectives, of the newest generation.
 *  CDDP_ERR_NOT_FOUND: there are none. */
CDDP_CHECKED cddp_status cddpi_traces_read_folder(const char *dir, struct cddpi_traces *out);
void cddpi_traces_fini(struct cddpi_traces *traces); /* accepts a zeroed one */

/* One step of all ranks. Times in nanoseconds. */
struct cddpi_traced_step {
    uint64_t step;
    int64_t begin_ns, end_ns; /* of all ranks together */
    int last;                 /* the rank that began to wait last; -1: not known */
    double late_ns;           /* how long the others waited for it, on average */
    double exposed_ns;        /* communication that even the last rank had to wait for */
};

/** The step of that index; false: there are no more. */
bool cddpi_traces_step(const struct cddpi_traces *traces, size_t index,
                       struct cddpi_traced_step *out);

/** Write for people who was late for whom, what a perfect overlap would have gained, and which
 *  operation ranks have not ended. */
void cddpi_traces_print(const struct cddpi_traces *traces, FILE *out);

/** Write them as a trace for Chrome and Perfetto (JSON object format, times in microseconds). */
CDDP_CHECKED cddp_status cddpi_traces_write_chrome(const struct cddpi_traces *traces,
                                                   const char *path);

#endif
