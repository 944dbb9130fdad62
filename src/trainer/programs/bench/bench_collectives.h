/* bench_collectives.h - owns the table of cddp-bench's collectives. A row describes the buffers,
 * where the result comes from, and how much data crosses a bus. */
#ifndef CDDPI_PROGRAMS_BENCH_COLLECTIVES_H
#define CDDPI_PROGRAMS_BENCH_COLLECTIVES_H

#include <cddp/group.h>

/* One call. A collective ignores the members that it does not need. */
struct cddpi_bench_call {
    cddp_group *group;
    int rank, world_size;
    void *in, *out; /* in place: the same memory, or one inside the other */
    size_t count;   /* per block */
    cddp_type type;
    cddp_op op;
    int root;
};

/* Where the elements of a block of the result come from. */
enum cddpi_bench_source {
    CDDPI_BENCH_FROM_ALL, /* the reduction over all ranks */
    CDDPI_BENCH_FROM_ROOT,
    CDDPI_BENCH_FROM_EACH, /* block r comes from rank r */
    CDDPI_BENCH_FROM_PARTNER,
    CDDPI_BENCH_FROM_NOBODY /* no data */
};

enum cddpi_bench_in_place {
    CDDPI_BENCH_IN_PLACE_NEVER,
    CDDPI_BENCH_IN_PLACE_ASKED,
    CDDPI_BENCH_IN_PLACE_ALWAYS
};

struct cddpi_bench_collective {
    const char *name;
    const char *text; /* a sentence for --help */
    cddp_status (*run)(const struct cddpi_bench_call *call);
    enum cddpi_bench_source source;
    enum cddpi_bench_in_place in_place;
    bool wide_in, wide_out; /* the buffer has a block for each rank, else one block */
    bool takes_own_block;   /* rank r's result is made of block r of each `in` */
    bool has_root;          /* --root is allowed */
    bool root_only;         /* only the root gets a result */
    /* Bus bandwidth divided by algorithm bandwidth, as in nccl-tests: how many times the size the
     * busiest link must carry. */
    double (*bus_factor)(int world_size);
};

extern const struct cddpi_bench_collective cddpi_bench_collectives[];
enum { CDDPI_BENCH_COLLECTIVES = 10 };

/** The rank that @p rank plays ping-pong with: ranks of the first half play with ranks of the
 *  second, so that messages cross hosts. -1: no partner, for the last rank of an odd number. */
int cddpi_bench_partner(int rank, int world_size);

static inline bool cddpi_bench_reduces(const struct cddpi_bench_collective *collective)
{
    return collective->source == CDDPI_BENCH_FROM_ALL;
}

static inline bool cddpi_bench_has_data(const struct cddpi_bench_collective *collective)
{
    return collective->source != CDDPI_BENCH_FROM_NOBODY;
}

/** How many blocks the larger of the two buffers has. */
static inline int cddpi_bench_blocks(const struct cddpi_bench_collective *collective,
                                     int world_size)
{
    return collective->wide_in || collective->wide_out ? world_size : 1;
}

#endif
