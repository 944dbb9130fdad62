/* bench_collectives.c - owns cddp-bench's table of collectives. */
#include "programs/bench/bench_collectives.h"

#include "base/error.h"

int cddpi_bench_partner(int rank, int world_size)
{
    int half = world_size / 2;

    return rank >= 2 * half ? -1 : rank < half ? rank + half : rank - half;
}

static cddp_status run_all_reduce(const struct cddpi_bench_call *call)
{
    return cddp_all_reduce(call->group, call->in, call->out, call->count, call->type, call->op,
                           NULL);
}

static cddp_status run_reduce(const struct cddpi_bench_call *call)
{
    return cddp_reduce(call->group, call->in, call->out, call->count, call->type, call->op,
                       call->root, NULL);
}

static cddp_status run_broadcast(const struct cddpi_bench_call *call)
{
    return cddp_broadcast(call->group, call->out, call->count, call->type, call->root, NULL);
}

static cddp_status run_all_gather(const struct cddpi_bench_call *call)
{
    return cddp_all_gather(call->group, call->in, call->out, call->count, call->type, NULL);
}

static cddp_status run_reduce_scatter(const struct cddpi_bench_call *call)
{
    return cddp_reduce_scatter(call->group, call->in, call->out, call->count, call->type, call->op,
                               NULL);
}

static cddp_status run_gather(const struct cddpi_bench_call *call)
{
    return cddp_gather(call->group, call->in, call->out, call->count, call->type, call->root, NULL);
}

static cddp_status run_scatter(const struct cddpi_bench_call *call)
{
    return cddp_scatter(call->group, call->in, call->out, call->count, call->type, call->root,
                        NULL);
}

static cddp_status run_all_to_all(const struct cddpi_bench_call *call)
{
    return cddp_all_to_all(call->group, call->in, call->out, call->count, call->type, NULL);
}

static cddp_status send_block(const struct cddpi_bench_call *call, int partner)
{
    return cddp_send(call->group, call->in, call->count, call->type, partner, NULL);
}

static cddp_status receive_block(const struct cddpi_bench_call *call, int partner)
{
    return cddp_recv(call->group, call->out, call->count, call->type, partner, NULL);
}

/* The lower rank sends first, and then receives. */
static cddp_status run_send_recv(const struct cddpi_bench_call *call)
{
    int partner = cddpi_bench_partner(call->rank, call->world_size);
    bool begins = call->rank < partner;

    if (partner < 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(begins ? send_block(call, partner) : receive_block(call, partner));
    return begins ? receive_block(call, partner) : send_block(call, partner);
}

static cddp_status run_barrier(const struct cddpi_bench_call *call)
{
    return cddp_barrier(call->group, NULL);
}

static double as_large(int world_size)
{
    (void)world_size;
    return 1;
}

static double all_but_own(int world_size)
{
    return (double)(world_size - 1) / world_size;
}

static double there_and_back(int world_size)
{
    return 2 * all_but_own(world_size);
}

const struct cddpi_bench_collective cddpi_bench_collectives[CDDPI_BENCH_COLLECTIVES] = {
    {.name = "all_reduce",
     .text = "every rank gets the reduction over all",
     .run = run_all_reduce,
     .source = CDDPI_BENCH_FROM_ALL,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .bus_factor = there_and_back},
    {.name = "broadcast",
     .text = "every rank gets the root's elements; always in place",
     .run = run_broadcast,
     .source = CDDPI_BENCH_FROM_ROOT,
     .in_place = CDDPI_BENCH_IN_PLACE_ALWAYS,
     .has_root = true,
     .bus_factor = as_large},
    {.name = "reduce",
     .text = "the root gets the reduction over all",
     .run = run_reduce,
     .source = CDDPI_BENCH_FROM_ALL,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .has_root = true,
     .root_only = true,
     .bus_factor = as_large},
    {.name = "all_gather",
     .text = "every rank gets every rank's block",
     .run = run_all_gather,
     .source = CDDPI_BENCH_FROM_EACH,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .wide_out = true,
     .bus_factor = all_but_own},
    {.name = "reduce_scatter",
     .text = "every rank gets its block of the reduction",
     .run = run_reduce_scatter,
     .source = CDDPI_BENCH_FROM_ALL,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .wide_in = true,
     .takes_own_block = true,
     .bus_factor = all_but_own},
    {.name = "gather",
     .text = "the root gets every rank's block",
     .run = run_gather,
     .source = CDDPI_BENCH_FROM_EACH,
     .wide_out = true,
     .has_root = true,
     .root_only = true,
     .bus_factor = all_but_own},
    {.name = "scatter",
     .text = "every rank gets its block of the root's",
     .run = run_scatter,
     .source = CDDPI_BENCH_FROM_ROOT,
     .wide_in = true,
     .takes_own_block = true,
     .has_root = true,
     .bus_factor = all_but_own},
    {.name = "all_to_all",
     .text = "every rank gets its block of every rank's",
     .run = run_all_to_all,
     .source = CDDPI_BENCH_FROM_EACH,
     .in_place = CDDPI_BENCH_IN_PLACE_ASKED,
     .wide_in = true,
     .wide_out = true,
     .takes_own_block = true,
     .bus_factor = all_but_own},
    {.name = "send_recv",
     .text = "ping-pong of rank r and rank r + N/2; the time is half of the round trip",
     .run = run_send_recv,
     .source = CDDPI_BENCH_FROM_PARTNER,
     .bus_factor = as_large},
    {.name = "barrier",
     .text = "every rank waits for all; there is no data",
     .run = run_barrier,
     .source = CDDPI_BENCH_FROM_NOBODY,
     .bus_factor = as_large},
};
