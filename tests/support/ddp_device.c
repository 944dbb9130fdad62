/* ddp_device.c - models whose gradients become ready on a device late and in any order, compared
 * with the same models on the CPU. */
#include "support/ddp_device.h"

#include "ddp/copies.h"
#include <cddp/sampler.h>

/* Many tiny parameters and one that is larger than all of them. */
static const size_t sizes[SIZES] = {1, 30000, 3, 17, 64, 2, 9, 5000, 16, 300, 0, 12};

static const cddp_type types[SIZES] = {CDDP_F32,  CDDP_F32,  CDDP_F64, CDDP_F32,
                                       CDDP_BF16, CDDP_BF16, CDDP_F32, CDDP_F64,
                                       CDDP_F32,  CDDP_BF16, CDDP_F32, CDDP_F32};

static int give(const struct world *world, void *to, const void *from, size_t bytes)
{
    if (world->device == NULL) {
        memcpy(to, from, bytes);
        return 0;
    }
    return bytes == 0 ? 0 : put_there(world->group, to, from, bytes);
}

/* Copy data to `kept` when the compute stream gets there. */
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

int open_world(struct world *world, const struct play *play, int rank, int n, bool there)
{
    const struct scene *scene = &play->scene;
    const struct cddpi_ddp_copies late = {.reduce_late = scene->shard};

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
    world->model.options.allow_unused = scene->unused;
    world->model.options.first_bucket_bytes = scene->bucket_bytes;
    world->model.options.bucket_bytes = scene->bucket_bytes;
    CHECK(!there || move_model(world) == 0);
    CHECK(cddpi_ddp_create_with_copies(world->group, world->model.params, SIZES, NULL, 0,
                                       &world->model.options, &late, &world->ddp) == CDDP_OK);
    for (size_t p = 0; p < SIZES; p++) { /* the broadcast parameters */
        CHECK(keep(world, cddp_ddp_param(world->ddp, p), bytes_of(&world->model, p)) == 0);
    }
    return 0;
}

int close_world(struct world *world)
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

/* One backward pass: every gradient is written late, over the earlier contents. */
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
        mean = cddpi_ddp_mean(world->ddp, spans[s].param, spans[s].first, spans[s].count, scratch);
        CHECK(give(world, param + spans[s].first * element, mean, spans[s].count * element) == 0);
        free(scratch);
    }
    CHECK(cddp_ddp_params_start(world->ddp) == CDDP_OK);
    for (size_t p = 0; p < SIZES; p++) {
        CHECK(cddp_ddp_param_wait(world->ddp, p) == CDDP_OK);
        CHECK(keep(world, cddp_ddp_param(world->ddp, p), bytes_of(&world->model, p)) == 0);
    }
    return 0;
}

/* A sum over micro-batches, of which each has gradients of its own. */
static int run_tree(struct world *world, const struct scene *scene, int rank, int step)
{
    uint64_t all = (uint64_t)scene->micro_batches;
    cddp_share run = cddp_share_of(0, all, rank, cddp_group_world_size(world->group));
    cddp_step how = CDDP_STEP_INIT;

    how.number = (uint64_t)step;
    how.kind = CDDP_STEP_BY_MICRO_BATCHES;
    how.micro_batches = all;
    how.micro_batch = run.first;
    do {
        CHECK(cddp_ddp_begin(world->ddp, &how) == CDDP_OK);
        CHECK(run.count == 0 || backward(world, scene, (int)how.micro_batch, step, 0) == 0);
        CHECK(cddp_ddp_wait(world->ddp) == CDDP_OK);
    } while (++how.micro_batch < run.first + run.count);
    return 0;
}

static int run_ways(struct world *world, const struct scene *scene, int rank, int step)
{
    int micros = scene->accumulates ? 2 : 1;
    int world_size = cddp_group_world_size(world->group);
    int alone = world_size == 1;

    for (int micro = 0; micro < micros; micro++) {
        cddp_step how = CDDP_STEP_INIT;

        how.number = (uint64_t)step;
        how.kind = scene->weighted ? CDDP_STEP_BY_SAMPLES : CDDP_STEP_BY_RANKS;
        /* with two ranks or more, at least one rank has samples */
        how.samples = (uint64_t)((rank + step) % 3 * 3 + alone);
        how.micro_batch = (uint64_t)(rank * micros + micro);
        how.micro_batches = (uint64_t)(world_size * micros);
        CHECK(cddp_ddp_begin(world->ddp, &how) == CDDP_OK);
        CHECK(backward(world, scene, rank, step, micro) == 0);
        CHECK(cddp_ddp_wait(world->ddp) == CDDP_OK);
    }
    return 0;
}

int run_step(struct world *world, const struct scene *scene, int rank, int step)
{
    CHECK((scene->micro_batches > 0 ? run_tree(world, scene, rank, step)
                                    : run_ways(world, scene, rank, step)) == 0);
    if (scene->shard) {
        return update(world, rank);
    }
    for (size_t p = 0; p < SIZES; p++) {
        size_t bytes = bytes_of(&world->model, p);

        CHECK(keep(world, cddp_ddp_grad(world->ddp, p), bytes) == 0);
        if (!scene->unused) { /* otherwise the contents matter */
            CHECK(spoil(world, cddp_ddp_grad(world->ddp, p), bytes) == 0);
        }
    }
    return 0;
}

int play_on(const char *transport, rank_fn body, struct scene scene, int least)
{
    static const size_t fd_at[2] = {offsetof(struct play, stage.seed.fd),
                                    offsetof(struct play, host_seed.fd)};
    int failed = 0;

    for (int i = 0; i < DEVICE_SIZES; i++) {
        for (int run = 0; run < stage_runs(transport, device_sizes[i], DEFERRED_BIASES) &&
                          device_sizes[i] >= least;
             run++) {
            struct play play = {.scene = scene};

            play.stage.module_transport = transport;
            play.stage.timeout_ms = SUPPORT_TIMEOUT_MS;
            support_setenv_number("CDDP_FAKE_CUDA_SEED", run + 1);
            play.stage.bias = (enum deferred_bias)run;
            play.stage.number = (unsigned)run;
            assert_int_equal(group_seed_create(device_sizes[i], &play.stage.seed), CDDP_OK);
            assert_int_equal(group_seed_create(device_sizes[i], &play.host_seed), CDDP_OK);
            if (transport != NULL && pool_is_wanted()) {
                failed += pool_run(device_sizes[i], body, &play, sizeof play, fd_at, 2);
            } else {
                failed += run_ranks(device_sizes[i], body, &play);
            }
            close(play.stage.seed.fd);
            close(play.host_seed.fd);
        }
    }
    return failed;
}

int play_all(rank_fn body, struct scene scene, int least)
{
    return play_on(NULL, body, scene, least);
}
