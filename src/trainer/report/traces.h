/* traces.h - owns the traces and dumps of all ranks, converted to one clock: what each rank did
 * when, and which rank the others waited for. src/runtime/group/watch/group_trace.h and
 * src/runtime/group/watch/dump.h write the files. */
#ifndef CDDPI_TRAIN_REPORT_TRACES_H
#define CDDPI_TRAIN_REPORT_TRACES_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>

enum { CDDPI_TRACE_NAME_BYTES = 48 };

struct cddpi_traced_span {
    char name[CDDPI_TRACE_NAME_BYTES]; /* as in CDDPI_SPAN_MAP, cut off if it is longer */
    int64_t begin_ns, end_ns;          /* on the clock of the first rank */
    uint64_t step;
    int64_t number; /* of a bucket or micro-batch; -1: it has no number */
    int device;     /* which of the rank's devices; -1: the rank itself */
    uint64_t bytes;
};

struct cddpi_traced_call {
    char operation[CDDPI_TRACE_NAME_BYTES];
    char state[16];
    char type[16];
    uint64_t number; /* among all collectives of the group */
    uint64_t call;   /* among those of the program, as in errors; 0: cddp's own collective */
    uint64_t bytes;
    int64_t bucket; /* -1: it belongs to no bucket */
    bool on_device;
    bool is_message;                              /* send or recv, between two ranks */
    int64_t enqueued_ns, started_ns, finished_ns; /* INT64_MIN: not yet */
};

struct cddpi_traced_rank {
    int rank;
    char host[64];
    char machine[64];
    double offset_ns;      /* added to the rank's clock */
    double uncertainty_ns; /* of offset_ns; 0: the first rank is on the same machine */
    struct cddpi_traced_span *spans;
    size_t span_count;
    struct cddpi_traced_call *calls;
    size_t call_count;
    const struct cddpi_traced_call **by_number; /* the collectives, to find one by its number */
    size_t collective_count;
};

/* One step of all ranks. Times in nanoseconds. */
struct cddpi_traced_step {
    uint64_t step;
    int64_t begin_ns, end_ns; /* from the first rank's begin to the last rank's end */
    int last;                 /* the rank that began to wait last; -1: not known */
    double exposed_ns;        /* exposed communication, the mean over ranks: all their waits */
    double late_ns;           /* the part of it before that rank waited, too */
};

struct cddpi_traces {
    struct cddpi_traced_rank *ranks; /* in rank order; ranks without a file are missing */
    int count;
    int world_size;
    int64_t begin_ns, end_ns;        /* from the first event to the last */
    struct cddpi_traced_step *steps; /* of the first rank, in their order */
    size_t step_count;
};

/** Read the files @p paths, one for each rank.
 *  @param out  Release with cddpi_traces_fini().
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT (they name the file);
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_traces_read(char *const *paths, int count, struct cddpi_traces *out);
/** Read the files of the newest generation in DIR/trace, or in DIR/collectives if DIR/trace has
 *  none.
 *  @return As cddpi_traces_read(); CDDP_ERR_NOT_FOUND: neither folder has any. */
CDDP_CHECKED cddp_status cddpi_traces_read_folder(const char *dir, struct cddpi_traces *out);
void cddpi_traces_fini(struct cddpi_traces *traces); /* accepts zeroed traces */

/* traces_find.c, for traces.c: what the next function needs of @p rank, and traces->steps. */
CDDP_CHECKED cddp_status cddpi_traces_sort_calls(struct cddpi_traced_rank *rank);
CDDP_CHECKED cddp_status cddpi_traces_find_steps(struct cddpi_traces *traces);

/** The collective of @p rank with the number of @p like, or NULL. */
const struct cddpi_traced_call *cddpi_traces_find_call(const struct cddpi_traced_rank *rank,
                                                       const struct cddpi_traced_call *like);

/** Copy the step with index @p index. Returns false if there are fewer steps. */
bool cddpi_traces_step(const struct cddpi_traces *traces, size_t index,
                       struct cddpi_traced_step *out);

/** Print which ranks were late, what a perfect overlap would have gained, and which operations have
 *  not ended. */
void cddpi_traces_print(const struct cddpi_traces *traces, FILE *out);

/** Write a trace for Chrome and Perfetto (JSON object format, times in microseconds). */
CDDP_CHECKED cddp_status cddpi_traces_write_chrome(const struct cddpi_traces *traces,
                                                   const char *path);

#endif
