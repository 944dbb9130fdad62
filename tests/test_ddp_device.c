/* test_ddp_device.c - gradients on a device become what the processor's ddp makes of the same
 * numbers, to the bit, in every order of streams and without waiting for the device. */
#include "device_stage.h"
#include "test_ddp_ranks.h"

enum { STEPS = 4, SIZES = 12, KEPT_BYTES = 4 << 20 };

/* Many tiny parameters and one that is larger than all of them. */
static const size_t sizes[SIZES] = {1, 30000, 3, 17, 64, 2, 9, 5000, 16, 300, 0, 12};
static const cddp_type types[SIZES] = {CDDP_F32,  CDDP_F32,  CDDP_F64, CDDP_F32,
                                       CDDP_BF16, CDDP_BF16, CDDP_F32, CDDP_F64,
                                       CDDP_F32,  CDDP_BF16, CDDP_F32, CDDP_F32};

/* What is tried. */
struct scene {
    enum memory memory;
    bool many_types;
    size_t bucket_bytes;
    cddp_hook_fn hook;
    bool shard, weighted, accumulates, unused;
};

struct play {
    struct stage stage;
    struct group_seed host_seed;
    struct scene scene;
};

/* A group with its model, on the processor or on a device. */
struct world {
    cddp_group *group;
    struct cddpi_device *device; /* NULL: the processor */
    struct model model;
    cddp_ddp *ddp;
    unsigned char *kept; /* what was read of each step, in the processor's memory */
    size_t used;
};

static int give(const struct world *world, void *to, const void *from, size_t bytes)
{
    if (world->device == NULL) {
        memcpy(to, from, bytes);
        return 0;
    }
    return bytes == 0 ? 0 : put_there(world->group, to, from, bytes);
}

/* As the compute stream comes to it. */
static int keep(struct world *world, const void *from, size_t bytes)
{
    CHECK(world->used + bytes <= KEPT_BYTES);
    CHECK(give(world, world->kept + world->used, from, bytes) == 0);
    world->used += bytes;
    return 0;
}

static int spoil(const struct world *world, void *memory, size_t bytes)
{
    void *garbage = malloc(bytes + 1);

    memset(garbage, 0xb5, bytes);
    CHECK(give(world, memory, garbage, bytes) == 0);
    free(garbage);
    return 0;
}

static void *move_there(const struct world *world, void *memory, size_t bytes)
{
    void *there = on_device(world->group, bytes);

    if (there == NULL || give(world, there, memory, bytes) != 0) {
        return NULL;
    }
    free(memory);
    return there;
}

static size_t bytes_of(const struct model *model, size_t p)
{
    return model->elements[p] * cddp_type_bytes(model->params[p].type);
}

static int move_model(struct world *world)
{
    struct model *model = &world->model;
    unsigned char *flat = model->flat;
    size_t all = 0;

    for (size_t p = 0; p < model->count; p++) {
        cddp_param *param = &model->params[p];

        all += bytes_of(model, p);
        param->data = move_there(world, param->data, bytes_of(model, p));
        CHECK(param->data != NULL);
        if (param->grad != NULL && flat == NULL) {
            param->grad = move_there(world, param->grad, bytes_of(model, p));
        }
    }
    if (flat != NULL) {
        unsigned char *there = on_device(world->group, all);

        for (size_t p = 0; p < model->count; p++) {
            model->params[p].grad = there + ((unsigned char *)model->params[p].grad - flat);
        }
        model->options.flat_grads = there;
    }
    return 0;
}

static int open_world(struct world *world, const struct play *play, int rank, int n, bool there)
{
    const struct scene *scene = &play->scene;

    memset(world, 0, sizeof *world);
    if (there) {
        CHECK(stage_enter(&play->stage, rank, n, &world->group) == CDDP_OK);
        world->device = cddpi_group_on_device(world->group);
    } else {
        CHECK(group_from_seed(&play->host_seed, rank, n, play->stage.timeout_ms, &world->group) ==
              CDDP_OK);
    }
    world->kept = calloc(1, KEPT_BYTES);
    make_model(&world->model, rank, scene->memory, SIZES, sizes, scene->many_types ? types : NULL);
    world->model.options.hook = scene->hook;
    world->model.options.shard = scene->shard;
    world->model.options.reduce_late = scene->shard;
    world->model.options.allow_unused = scene->unused;
    world->model.options.first_bucket_bytes = scene->bucket_bytes;
    world->model.options.bucket_bytes = scene->bucket_bytes;
    CHECK(!there || move_model(world) == 0);
    CHECK(cddp_ddp_create(world->group, world->model.params, SIZES, NULL, 0, &world->model.options,
                          &world->ddp) == CDDP_OK);
    for (size_t p = 0; p < SIZES; p++) { /* what was broadcast */
        CHECK(keep(world, cddp_ddp_param(world->ddp, p), bytes_of(&world->model, p)) == 0);
    }
    return 0;
}

static int close_world(struct world *world)
{
    cddp_ddp_destroy(world->ddp);
    cddp_group_destroy(world->group);
    if (world->device == NULL) {
        free_model(&world->model);
    }
    free(world->kept);
    return 0;
}

static bool is_used(const struct scene *scene, int rank, int step, size_t p)
{
    return !scene->unused || (p != 3 && (p != 7 || rank == 0) && (p != 1 || step != 1));
}

/* One backward: every gradient comes late, over what lay there. */
static int backward(struct world *world, const struct scene *scene, int rank, int step, int micro)
{
    for (size_t i = 0; i < SIZES; i++) {
        size_t p = SIZES - 1 - (i * 5 + (size_t)step * 3) % SIZES;
        size_t bytes = bytes_of(&world->model, p);
        void *numbers = malloc(bytes + 8);

        if (!is_used(scene, rank, step, p)) {
            free(numbers);
            continue;
        }
        for (size_t e = 0; e < sizes[p]; e++) {
            put(numbers, world->model.params[p].type, e, gradient(rank, step * 10 + micro, p, e));
        }
        CHECK(spoil(world, cddp_ddp_grad(world->ddp, p), bytes) == 0);
        CHECK(give(world, cddp_ddp_grad(world->ddp, p), numbers, bytes) == 0);
        CHECK(cddp_ddp_grad_ready(world->ddp, p) == CDDP_OK);
        free(numbers);
    }
    return 0;
}

/* The optimizer: parameters become their gradients. */
static int update(struct world *world, int rank)
{
    size_t count;
    const cddp_span *spans = cddp_ddp_spans(world->ddp, rank, &count);

    for (size_t s = 0; s < count; s++) {
        size_t element = cddp_type_bytes(world->model.params[spans[s].param].type);
        void *scratch = NULL;
        const void *mean;
        char *param = cddp_ddp_param(world->ddp, spans[s].param);

        CHECK(posix_memalign(&scratch, 64, spans[s].count * element) == 0);
        mean = cddp_ddp_mean(world->ddp, spans[s].param, spans[s].first, spans[s].count, scratch);
        CHECK(give(world, param + spans[s].first * element, mean, spans[s].count * element) == 0);
        free(scratch);
    }
    CHECK(cddp_ddp_updated(world->ddp) == CDDP_OK);
    for (size_t p = 0; p < SIZES; p++) {
        CHECK(cddp_ddp_param_wait(world->ddp, p) == CDDP_OK);
        CHECK(keep(world, cddp_ddp_param(world->ddp, p), bytes_of(&world->model, p)) == 0);
    }
    return 0;
}

static int run_step(struct world *world, const struct scene *scene, int rank, int step)
{
    int micros = scene->accumulates ? 2 : 1;

    for (int micro = 0; micro < micros; micro++) {
        cddp_step how = CDDP_STEP_INIT;

        how.weight = scene->weighted ? (rank + step) % 3 * 1.5 : -1;
        how.no_sync = micro + 1 < micros;
        CHECK(cddp_ddp_begin(world->ddp, &how) == CDDP_OK);
        CHECK(backward(world, scene, rank, step, micro) == 0);
        CHECK(cddp_ddp_wait(world->ddp) == CDDP_OK);
    }
    if (scene->shard) {
        return update(world, rank);
    }
    for (size_t p = 0; p < SIZES; p++) {
        size_t bytes = bytes_of(&world->model, p);

        CHECK(keep(world, cddp_ddp_grad(world->ddp, p), bytes) == 0);
        if (!scene->unused) { /* else it matters what lies there */
            CHECK(spoil(world, cddp_ddp_grad(world->ddp, p), bytes) == 0);
        }
    }
    return 0;
}

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

/* @plane: of the emulated module; NULL: on the deferred device. Returns how many ranks fail. */
static int play_on(const char *plane, rank_fn body, struct scene scene, int least)
{
    int failed = 0;

    for (int i = 0; i < DEVICE_SIZES; i++) {
        for (int run = 0;
             run < stage_runs(plane, device_sizes[i], DEFERRED_BIASES) && device_sizes[i] >= least;
             run++) {
            struct play play = {.scene = scene};

            play.stage.module_plane = plane;
            play.stage.timeout_ms = SUPPORT_TIMEOUT_MS;
            support_setenv_number("CDDP_FAKE_CUDA_SEED", run + 1);
            play.stage.bias = (enum deferred_bias)run;
            play.stage.number = (unsigned)run;
            assert_int_equal(group_seed_create(device_sizes[i], &play.stage.seed), CDDP_OK);
            assert_int_equal(group_seed_create(device_sizes[i], &play.host_seed), CDDP_OK);
            failed += run_ranks(device_sizes[i], body, &play);
            close(play.stage.seed.fd);
            close(play.host_seed.fd);
        }
    }
    return failed;
}

static int play_all(rank_fn body, struct scene scene, int least)
{
    return play_on(NULL, body, scene, least);
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

static void the_module_gives_the_processors_numbers(void **state)
{
    static const struct scene scenes[] = {
        {.memory = MIXED, .many_types = true, .bucket_bytes = 2000},
        {.memory = FLAT, .bucket_bytes = 2000, .weighted = true},
        {.memory = MIXED, .bucket_bytes = 2000, .accumulates = true, .unused = true},
        {.memory = MIXED, .many_types = true, .bucket_bytes = 300, .hook = cddp_hook_bf16},
        {.memory = OWNED, .bucket_bytes = 2000, .hook = cddp_hook_fp16, .weighted = true},
        {.memory = MIXED, .many_types = true, .bucket_bytes = 300, .shard = true, .weighted = true},
    };

    (void)state;
    need_module();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        assert_int_equal(play_on(module_planes[i % MODULE_PLANES], same_rank, scenes[i], 1), 0);
    }
}

/* --- costs --- */

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
    CHECK(stats.comm_ns > 0);
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

/* --- failures --- */

static int misplaced_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    float host[4] = {0};
    cddp_param param = {"w", CDDP_F32, 1, {4}, host, NULL, false};
    cddp_group *group;
    cddp_ddp *ddp;

    CHECK(stage_enter(&play->stage, rank, n, &group) == CDDP_OK);
    param.grad = host;
    CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_ERR_ARGUMENT);
    CHECK(strstr(cddp_last_error(), "the gradient of parameter 0 (w) does not lie in the memory of "
                                    "device deferred 0") != NULL);
    param.grad = NULL;
    options.shard = true;
    CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, &options, &ddp) == CDDP_ERR_ARGUMENT);
    CHECK(strstr(cddp_last_error(), "the data of parameter 0 (w) does not lie") != NULL);
    CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_OK);
    cddp_ddp_destroy(ddp);
    if (n > 1) {
        param.data = rank == 0 ? on_device(group, sizeof host) : host;
        CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_ERR_MISMATCH);
        CHECK(strstr(cddp_last_error(), "w f32 [4] on the device") != NULL);
    }
    cddp_group_destroy(group);
    return 0;
}

static void memory_in_the_wrong_place_is_an_error_that_names_the_parameter(void **state)
{
    (void)state;
    assert_int_equal(play_all(misplaced_rank, (struct scene){.memory = OWNED}, 1), 0);
}

/* A parameter without a gradient fails the very step, by name, on all ranks; the group lives on. */
static int missing_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    for (size_t p = SIZES; p-- > 1;) {
        CHECK(cddp_ddp_grad_ready(world.ddp, p) == CDDP_OK);
    }
    if (rank > 0) {
        CHECK(cddp_ddp_grad_ready(world.ddp, 0) == CDDP_OK);
    }
    CHECK(cddp_ddp_wait(world.ddp) == CDDP_ERR_STATE);
    CHECK(strstr(cddp_last_error(), "rank 0: 1 of 12 parameters got no gradient") != NULL);
    cddp_ddp_destroy(world.ddp);
    CHECK(cddp_ddp_create(world.group, world.model.params, SIZES, NULL, 0, &world.model.options,
                          &world.ddp) == CDDP_OK);
    CHECK(run_step(&world, &play->scene, rank, 1) == 0);
    return close_world(&world);
}

static void a_missing_gradient_is_told_in_its_step(void **state)
{
    (void)state;
    assert_int_equal(play_all(missing_rank, (struct scene){.bucket_bytes = 2000}, 1), 0);
}

/* Rank 1 dies in the middle of a backward. */
static int dying_rank(int rank, int n, void *argument)
{
    const struct play *play = argument;
    cddp_status status = CDDP_OK;
    struct world world;

    CHECK(open_world(&world, play, rank, n, true) == 0);
    CHECK(run_step(&world, &play->scene, rank, 0) == 0);
    for (size_t p = SIZES; p-- > 0 && status == CDDP_OK;) {
        status = cddp_ddp_grad_ready(world.ddp, p);
        if (rank == 1 && p == 5) {
            raise(SIGKILL);
        }
    }
    status = status == CDDP_OK ? cddp_ddp_wait(world.ddp) : status;
    CHECK(status == CDDP_ERR_PEER);
    CHECK(strstr(cddp_last_error(), "died before it was done") != NULL);
    CHECK(cddp_ddp_wait(world.ddp) == CDDP_ERR_CLOSED);
    return close_world(&world);
}

static void a_rank_that_dies_in_a_step_fails_it_everywhere(void **state)
{
    (void)state;
    /* of 2 and of 3 ranks one, three times each */
    assert_int_equal(play_all(dying_rank, (struct scene){.bucket_bytes = 2000}, 2), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_processors_wherever_they_lie),
        cmocka_unit_test(uneven_weights_and_accumulated_gradients_are_the_processors),
        cmocka_unit_test(unused_gradients_are_the_processors),
        cmocka_unit_test(narrow_hooks_cast_on_the_device),
        cmocka_unit_test(sharded_updates_are_the_processors),
        cmocka_unit_test(the_module_gives_the_processors_numbers),
        cmocka_unit_test(costs_are_known_a_step_later),
        cmocka_unit_test(the_host_may_be_many_steps_ahead),
        cmocka_unit_test(memory_in_the_wrong_place_is_an_error_that_names_the_parameter),
        cmocka_unit_test(a_missing_gradient_is_told_in_its_step),
        cmocka_unit_test(a_rank_that_dies_in_a_step_fails_it_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
