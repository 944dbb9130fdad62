/* test_ddp_device.c - gradients on a device become, to the bit, what ddp on the CPU makes of the
 * same numbers, in every order of streams and without waiting for the device. */
#include "support/ddp_device.h"
#include "support/failure.h"

#include <unistd.h>

static unsigned host_waits(const struct world *world)
{
    return world->device != NULL && world->device->ops == &deferred_ops
               ? deferred_of(world->device)->host_waits
               : 0;
}

static int play_world(struct world *world, const struct scene *scene, int rank)
{
    unsigned waits = 0;

    for (int step = 0; step < STEPS; step++) {
        CHECK(run_step(world, scene, rank, step) == 0);
        if (step == 0) { /* in which buckets were rebuilt */
            waits = host_waits(world);
        }
    }
    CHECK(host_waits(world) == waits);
    if (world->device != NULL) {
        CHECK(world->device->ops->finish(world->device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    }
    return 0;
}

static int same_rank(int rank, int n, void *argument)
{
    const struct play *play = (const struct play *)argument;
    struct world host;
    struct world there;

    CHECK(open_world(&host, play, rank, n, false) == 0);
    CHECK(open_world(&there, play, rank, n, true) == 0);
    CHECK(play_world(&host, &play->scene, rank) == 0);
    CHECK(play_world(&there, &play->scene, rank) == 0);
    CHECK(host.used == there.used);
    for (size_t i = 0; i < host.used; i++) {
        if (host.kept[i] != there.kept[i]) {
            fprintf(stderr, "rank %d of %d: byte %zu of %zu differs\n", rank, n, i, host.used);
            return 1;
        }
    }
    CHECK(close_world(&there) == 0);
    return close_world(&host);
}

static void assert_same(struct scene scene)
{
    assert_int_equal(play_all(same_rank, scene, 1), 0);
}

static void gradients_are_the_processors_wherever_they_lie(void **state)
{
    (void)state;
    for (enum memory memory = OWNED; memory < MEMORIES; memory++) {
        assert_same((struct scene){.memory = memory, .bucket_bytes = 2000});
    }
    assert_same((struct scene){.memory = MIXED, .many_types = true, .bucket_bytes = 300});
}

static void uneven_weights_and_accumulated_gradients_are_the_processors(void **state)
{
    (void)state;
    assert_same((struct scene){.memory = MIXED, .bucket_bytes = 2000, .weighted = true});
    assert_same((struct scene){.memory = MIXED, .bucket_bytes = 2000, .accumulates = true});
}

static void unused_gradients_are_the_processors(void **state)
{
    (void)state;
    assert_same((struct scene){.memory = MIXED, .bucket_bytes = 2000, .unused = true});
    assert_same((struct scene){.memory = OWNED, .bucket_bytes = 100, .unused = true});
}

static void narrow_hooks_cast_on_the_device(void **state)
{
    (void)state;
    assert_same((struct scene){.memory = MIXED, .bucket_bytes = 2000, .hook = cddp_hook_bf16});
    assert_same((struct scene){.many_types = true, .bucket_bytes = 100, .hook = cddp_hook_fp16});
}

static void sharded_updates_are_the_processors(void **state)
{
    (void)state;
    assert_same((struct scene){.memory = OWNED, .bucket_bytes = 2000, .shard = true});
    assert_same((struct scene){
        .memory = MIXED, .many_types = true, .bucket_bytes = 100, .shard = true, .weighted = true});
}

static void sums_over_micro_batches_are_the_processors(void **state)
{
    static const int counts[] = {1, 4, 7};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        assert_same((struct scene){.bucket_bytes = 2000, .micro_batches = counts[c]});
        assert_same((struct scene){
            .memory = MIXED, .bucket_bytes = 2000, .micro_batches = counts[c], .unused = true});
        assert_same((struct scene){
            .memory = OWNED, .bucket_bytes = 2000, .micro_batches = counts[c], .shard = true});
    }
}

/* A transport that may add in any order would bring the number of ranks into the bits. */
static int unordered_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_step how = CDDP_STEP_INIT;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    how.kind = CDDP_STEP_BY_MICRO_BATCHES;
    how.micro_batches = (uint64_t)n;
    how.micro_batch = (uint64_t)rank;
    world.group->device->deterministic = false;
    CHECK(cddp_ddp_begin(world.ddp, &how) == CDDP_ERR_UNAVAILABLE);
    CHECK(last_error_has("the group is not deterministic"));
    world.group->device->deterministic = true;
    return close_world(&world);
}

static void a_group_that_is_not_deterministic_sums_no_micro_batches(void **state)
{
    (void)state;
    assert_int_equal(play_all(unordered_rank, (struct scene){.bucket_bytes = 2000}, 2), 0);
}

static void the_module_gives_the_processors_numbers(void **state)
{
    static const struct scene scenes[] = {
        {.memory = MIXED, .many_types = true, .bucket_bytes = 2000},
        {.memory = FLAT, .bucket_bytes = 2000, .weighted = true},
        {.memory = MIXED, .bucket_bytes = 2000, .accumulates = true, .unused = true},
        {.memory = MIXED, .many_types = true, .bucket_bytes = 300, .hook = cddp_hook_bf16},
        {.memory = OWNED, .bucket_bytes = 2000, .hook = cddp_hook_fp16, .weighted = true},
        {.memory = MIXED, .bucket_bytes = 2000, .micro_batches = 7},
        {.memory = FLAT, .bucket_bytes = 2000, .micro_batches = 5},
        {.memory = OWNED, .bucket_bytes = 2000, .micro_batches = 7, .shard = true},
        {.memory = MIXED, .many_types = true, .bucket_bytes = 300, .shard = true, .weighted = true},
    };

    (void)state;
    need_module();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        assert_int_equal(play_on(module_transports[i % MODULE_TRANSPORTS], same_rank, scenes[i], 1),
                         0);
    }
}

static int costs_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    uint64_t exposed = 0;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    CHECK(run_step(&world, &play->scene, rank, 0) == 0);
    CHECK(cddp_ddp_get_stats(world.ddp, &stats) == CDDP_OK);
    CHECK(stats.steps == 1);
    for (int step = 1; step < 8 || (stats.buckets == 0 && step < 1000); step++) {
        CHECK(run_step(&world, &play->scene, rank, step % 3) == 0);
        world.used = 0;
        CHECK(world.device->ops->finish(world.device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
        CHECK(cddp_ddp_get_stats(world.ddp, &stats) == CDDP_OK);
        CHECK(stats.steps == (uint64_t)step + 1);
        exposed = stats.total_exposed_ns;
    }
    CHECK(exposed >= stats.exposed_ns);
    CHECK(stats.buckets > 1);
    CHECK(stats.bytes >= 4 * (30000 + 5000) && stats.bytes < 4 * 40000);
    CHECK(stats.total_peer_wait_ns + stats.total_transfer_ns <= stats.total_exposed_ns);
    CHECK(n == 1 || stats.comm_ns > 0); /* one rank sends nothing */
    CHECK(n == 1 ? stats.slowest_rank == -1 : stats.slowest_rank >= 0 && stats.slowest_rank < n);
    for (size_t b = 0; b < stats.buckets; b++) {
        cddp_bucket_stats bucket = {sizeof bucket, 0, 0, 0, 0};

        CHECK(cddp_ddp_get_bucket_stats(world.ddp, b, &bucket) == CDDP_OK);
        CHECK(bucket.params > 0);
        CHECK(bucket.end_ns >= bucket.start_ns);
    }
    return close_world(&world);
}

static void costs_are_known_a_step_later(void **state)
{
    (void)state;
    assert_int_equal(play_all(costs_rank, (struct scene){.bucket_bytes = 2000}, 1), 0);
}

/* The host is many steps ahead: it measures what it can and waits for nothing. */
static int ahead_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    CHECK(run_step(&world, &play->scene, rank, 0) == 0);
    world.used = 0;
    deferred_of(world.device)->held = true;
    for (int step = 0; step < 10; step++) {
        CHECK(run_step(&world, &play->scene, rank, step % 3) == 0);
        world.used = step == 8 ? 0 : world.used;
    }
    deferred_of(world.device)->held = false;
    CHECK(world.device->ops->finish(world.device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    CHECK(run_step(&world, &play->scene, rank, 1) == 0);
    CHECK(cddp_ddp_get_stats(world.ddp, &stats) == CDDP_OK);
    CHECK(stats.steps == 12 && stats.buckets > 1);
    return close_world(&world);
}

static void the_host_may_be_many_steps_ahead(void **state)
{
    (void)state;
    assert_int_equal(play_all(ahead_rank, (struct scene){.bucket_bytes = 2000}, 1), 0);
}

enum { WHOLE_BYTES = 1 << 20 };

/* The parameters, one after the other, in the CPU's memory. */
static int fetch_params(const struct world *world, unsigned char *out)
{
    const struct cddpi_device_ops *ops = world->device->ops;
    size_t at = 0;

    for (size_t p = 0; p < SIZES; p++) {
        size_t bytes = world->model.elements[p] * cddp_type_bytes(world->model.params[p].type);

        CHECK(at + bytes <= WHOLE_BYTES);
        CHECK(ops->copy(world->device, CDDPI_STREAM_COMPUTE, out + at,
                        cddp_ddp_param(world->ddp, p), bytes) == CDDP_OK);
        at += bytes;
    }
    CHECK(ops->finish(world->device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    return 0;
}

static char *saved_folder;

static int saved_rank(int rank, int n, void *argument)
{
    const struct play *play = (const struct play *)argument;
    unsigned char *saved = calloc(1, WHOLE_BYTES);
    unsigned char *loaded = calloc(1, WHOLE_BYTES);
    struct world world;
    char path[4200];

    snprintf(path, sizeof path, "%s/whole", saved_folder);
    CHECK(open_world(&world, play, rank, n, true) == 0);
    CHECK(run_step(&world, &play->scene, rank, 0) == 0);
    CHECK(cddp_ddp_save(world.ddp, path, NULL) == CDDP_OK);
    CHECK(fetch_params(&world, saved) == 0);
    for (size_t p = 0; p < SIZES; p++) {
        CHECK(world.device->ops->clear(world.device, CDDPI_STREAM_COMPUTE,
                                       cddp_ddp_param(world.ddp, p),
                                       world.model.elements[p] *
                                           cddp_type_bytes(world.model.params[p].type)) == CDDP_OK);
    }
    CHECK(cddp_ddp_load(world.ddp, path) == CDDP_OK);
    CHECK(fetch_params(&world, loaded) == 0);
    CHECK(memcmp(saved, loaded, WHOLE_BYTES) == 0 && saved[0] + saved[1] + saved[2] + saved[3] > 0);
    CHECK(rank != 0 || unlink(path) == 0);
    free(saved);
    free(loaded);
    return close_world(&world);
}

static void a_model_on_the_device_is_saved_and_loaded(void **state)
{
    (void)state;
    saved_folder = support_mkdtemp();
    assert_int_equal(play_all(saved_rank, (struct scene){.bucket_bytes = 2000}, 1), 0);
    assert_int_equal(play_all(saved_rank, (struct scene){.bucket_bytes = 2000, .shard = true}, 2),
                     0);
    support_rmdir(saved_folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_processors_wherever_they_lie),
        cmocka_unit_test(uneven_weights_and_accumulated_gradients_are_the_processors),
        cmocka_unit_test(unused_gradients_are_the_processors),
        cmocka_unit_test(narrow_hooks_cast_on_the_device),
        cmocka_unit_test(sharded_updates_are_the_processors),
        cmocka_unit_test(sums_over_micro_batches_are_the_processors),
        cmocka_unit_test(a_group_that_is_not_deterministic_sums_no_micro_batches),
        cmocka_unit_test(the_module_gives_the_processors_numbers),
        cmocka_unit_test(costs_are_known_a_step_later),
        cmocka_unit_test(the_host_may_be_many_steps_ahead),
        cmocka_unit_test(a_model_on_the_device_is_saved_and_loaded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
