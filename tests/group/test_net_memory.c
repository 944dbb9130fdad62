/* test_net_memory.c - what a group over several hosts allocates: after the first collectives it has
 * everything that it needs for the next ones. */
#include "group/net/tcp/buffer.h"
#include "support/test.h"

#include <cddp/group.h>
#include <cddp/process.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 6, COUNT = 3000, LARGE_COUNT = 400000, WARM_UPS = 4, ROUNDS = 3 };

struct job {
    char store[256];
    int hosts;
    const char *leaders;
};

static _Atomic unsigned allocations;

/* Not counted: heartbeats of the carrier's thread and requests of the store's, whose moment is a
 * matter of timing; and buffers of connections, of which a carrier keeps those that it once used.
 */
static void note(size_t bytes)
{
    char thread[16] = "";

    (void)pthread_getname_np(pthread_self(), thread, sizeof thread);
    if (strcmp(thread, "cddp-net") != 0 && strcmp(thread, "cddp-store") != 0) {
        allocations += bytes != sizeof(struct tcp_buffer);
    }
}

static void *give(void *state, size_t bytes, size_t alignment)
{
    (void)state;
    note(bytes);
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void *resize(void *state, void *memory, size_t bytes)
{
    (void)state;
    note(bytes);
    return realloc(memory, bytes);
}

static void take(void *state, void *memory)
{
    (void)state;
    free(memory);
}

static bool count_allocations(void)
{
    cddp_allocator allocator = CDDP_ALLOCATOR_INIT;

    allocator.alloc = give;
    allocator.resize = resize;
    allocator.release = take;
    return cddp_allocator_set(&allocator) == CDDP_OK;
}

static cddp_status join(const struct job *job, int rank, int world_size, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char host[32];

    snprintf(host, sizeof host, "test host %d", rank * job->hosts / world_size);
    setenv("CDDP_HOST_ID", host, 1);
    setenv("CDDP_LEADERS", job->leaders, 1);
    options.rendezvous = job->store;
    options.token = SUPPORT_TOKEN;
    options.job = "test";
    options.rank = rank;
    options.world_size = world_size;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    options.device = "cpu";
    return cddp_group_create(&options, out);
}

/* All kinds of collectives, each rank once the root; of @p count elements, or blocks of as many. */
static cddp_status call_all(cddp_group *group, int world_size, float *in, float *out, size_t count)
{
    cddp_status status = cddp_barrier(group, NULL);

    for (int op = CDDP_OP_SUM; op <= CDDP_OP_MAX && status == CDDP_OK; op++) {
        status = cddp_all_reduce(group, in, out, count, CDDP_F32, (cddp_op)op, NULL);
    }
    for (int root = 0; root < world_size && status == CDDP_OK; root++) {
        if (cddp_reduce(group, in, out, count, CDDP_F32, CDDP_OP_SUM, root, NULL) != CDDP_OK ||
            cddp_broadcast(group, out, count, CDDP_F32, root, NULL) != CDDP_OK ||
            cddp_gather(group, in, out, count, CDDP_F32, root, NULL) != CDDP_OK ||
            cddp_scatter(group, in, out, count, CDDP_F32, root, NULL) != CDDP_OK) {
            return CDDP_ERR_STATE;
        }
    }
    if (status == CDDP_OK) {
        status = cddp_all_reduce_weighted(group, in, out, count, CDDP_F32, 2, NULL);
    }
    if (status == CDDP_OK) {
        status = cddp_all_gather(group, in, out, count, CDDP_F32, NULL);
    }
    if (status == CDDP_OK) {
        status = cddp_reduce_scatter(group, in, out, count, CDDP_F32, CDDP_OP_MEAN, NULL);
    }
    return status == CDDP_OK ? cddp_all_to_all(group, in, out, count, CDDP_F32, NULL) : status;
}

static int counting_rank(int rank, int world_size, void *argument)
{
    size_t room = (size_t)LARGE_COUNT * MOST_RANKS;
    float *in = calloc(room, sizeof *in);
    float *out = calloc(room, sizeof *out);
    cddp_group *group;
    unsigned before = 0;

    CHECK(in != NULL && out != NULL && count_allocations());
    CHECK(join(argument, rank, world_size, &group) == CDDP_OK);
    CHECK(allocations > 0);
    for (int round = 0; round < WARM_UPS + ROUNDS; round++) {
        if (round == WARM_UPS) {
            before = allocations;
        }
        CHECK(call_all(group, world_size, in, out, COUNT) == CDDP_OK);
        CHECK(call_all(group, world_size, in, out, LARGE_COUNT) == CDDP_OK);
    }
    if (allocations != before) {
        fprintf(stderr, "rank %d: %u allocations\n", rank, allocations - before);
    }
    CHECK(allocations == before);
    cddp_group_destroy(group);
    free(in);
    free(out);
    return 0;
}

static void run(int world_size, int hosts, const char *leaders)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    struct job job = {.hosts = hosts, .leaders = leaders};

    snprintf(job.store, sizeof job.store, "file://%s/cddp-test-memory-%d-%d", folder, (int)getpid(),
             hosts);
    assert_int_equal(run_ranks(world_size, counting_rank, &job), 0);
}

static void collectives_of_single_ranks_allocate_nothing_after_the_first(void **state)
{
    (void)state;
    run(3, 3, "1");
}

static void collectives_of_several_ranks_a_host_allocate_nothing_after_the_first(void **state)
{
    (void)state;
    run(MOST_RANKS, 2, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_single_ranks_allocate_nothing_after_the_first),
        cmocka_unit_test(collectives_of_several_ranks_a_host_allocate_nothing_after_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
