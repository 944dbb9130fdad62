/* bench_collectives.h - the collectives that cddp-bench knows: one row each says how its buffers
 * lie, what its result is made of, and what a bus carries for it. */
#ifndef CDDPI_PROGRAMS_BENCH_COLLECTIVES_H
#define CDDPI_PROGRAMS_BENCH_COLLECTIVES_H

#include <cddp/group.h>

/* One call; what it does not need is not looked at. */
struct cddpi_bench_call {
    cddp_group *group;
    int rank, world_size;
    void *in, *out; /* one memory, or overlapping as the collective wants it, when in place */
    size_t count;   /* of a block */
    cddp_type type;
    cddp_op op;
    int root;
};

/* Whose elements a block of the result holds. */
enum cddpi_bench_source {
    CDDPI_BENCH_FROM_ALL, /* the reduction over all ranks */
    CDDPI_BENCH_FROM_ROOT,
    CDDPI_BENCH_FROM_EACH, /* block r is rank r's */
    CDDPI_BENCH_FROM_PARTNER,
    CDDPI_BENCH_FROM_NOBODY /* there is no data */
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
    bool wide_in, wide_out; /* a block for each rank, else one */
    bool takes_own_block;   /* rank r's result is made of block r of `in` */
    bool has_root;          /* --root has a meaning */
    bool root_only;         /* only the root gets a result */
    /* Bus bandwidth over algorithm bandwidth, as nccl-tests has it: what the busiest link carries
     * must be so many times the size. */
    double (*bus_factor)(int world_size);
};

extern const struct cddpi_bench_collective cddpi_bench_collectives[];
enum { CDDPI_BENCH_COLLECTIVES = 10 };

/** With whom @p rank plays ping-pong: the first half with the second, so that messages cross hosts;
 *  -1: with nobody, as the last one of an odd number. */
int cddpi_bench_partner(int rank, int world_size);

static inline bool cddpi_bench_reduces(const struct cddpi_bench_collective *collective)
{
    return collective->source == CDDPI_BENCH_FROM_ALL;
}

static inline bool cddpi_bench_has_data(const struct cddpi_bench_collective *collective)
{
    return collective->source != CDDPI_BENCH_FROM_NOBODY;
}

/** How many blocks the larger one of both buffers has. */
static inline int cddpi_bench_blocks(const struct cddpi_bench_collective *collective,
                                     int world_size)
{
    return collective->wide_in || collective->wide_out ? world_size : 1;
}

#endif
