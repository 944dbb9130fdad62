/* test_optim_device_shard.c - updates of shards on devices equal, to the bit, an update of the
 * whole on the CPU. */
#include "ddp/copies.h"
#include "support/optim_device.h"

struct meet_twice {
    struct stage stage;
    struct group_seed host_seed;
};

struct sharded {
    struct side side;
    cddp_group *group;
    cddp_ddp *ddp;
    cddp_param params[PARAMS];
};

/* Elements of the copies of parameters that ranks send each other: the first with room behind it.
 */
static const size_t copy_counts[PARAMS] = {20016, 0, 8, 0};

static int open_sharded(struct sharded *s, cddp_group *group, struct cddpi_device *device,
                        bool has_copies)
{
    const struct cddpi_ddp_copies copies = {CDDP_BF16, copy_counts, false, false};
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;

    options.shard = true;
    options.first_bucket_bytes = 4000;
    options.bucket_bytes = 30000;
    s->group = group;
    CHECK(open_side(&s->side, device, &specs[2]) == 0);
    cddpi_optim_destroy(s->side.optim);
    memcpy(s->params, s->side.params, sizeof s->params);
    CHECK(cddpi_ddp_create_with_copies(group, s->params, PARAMS, NULL, 0, &options,
                                       has_copies ? &copies : NULL, &s->ddp) == CDDP_OK);
    for (size_t i = 0; i < PARAMS; i++) {
        s->params[i].data = cddp_ddp_param(s->ddp, i);
    }
    CHECK(cddpi_optim_create(&specs[2], s->params, NULL, PARAMS, group, s->ddp, &s->side.optim) ==
          CDDP_OK);
    CHECK(device == NULL ||
          cddpi_optim_to_device(s->side.optim, device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    return 0;
}

/* Whether the first parameter has moved at all. */
static int moved_sharded(struct sharded *s)
{
    float first = 0;

    CHECK(get_side(&s->side, &first, cddp_ddp_param(s->ddp, 0), sizeof first) == 0);
    CHECK(fabsf(first - noise(1, 0, 0, 0)) > 0.01F);
    return 0;
}

static int step_sharded(struct sharded *s, int rank, unsigned step)
{
    cddp_step how = CDDP_STEP_INIT;
    void *grads[PARAMS];

    how.kind = CDDP_STEP_BY_RANKS;
    CHECK(cddp_ddp_begin(s->ddp, &how) == CDDP_OK);
    for (size_t i = 0; i < PARAMS; i++) {
        if (s->params[i].flags == 0) {
            CHECK(put_noise(&s->side, cddp_ddp_grad(s->ddp, i), 10 + (unsigned)rank, step, i) == 0);
            CHECK(cddp_ddp_grad_ready(s->ddp, i) == CDDP_OK);
        }
    }
    CHECK(cddp_ddp_wait(s->ddp) == CDDP_OK);
    for (size_t i = 0; i < PARAMS; i++) {
        grads[i] = cddp_ddp_grad(s->ddp, i);
    }
    if (s->side.device == NULL) {
        cddpi_optim_step(s->side.optim, grads, rate_of(step), 1, NULL);
    } else {
        CHECK(cddpi_optim_device_rate(s->side.optim, grads, rate_of(step)) == CDDP_OK);
        CHECK(cddpi_optim_device_update(s->side.optim, NULL, NULL) == CDDP_OK);
    }
    CHECK(cddp_ddp_params_start(s->ddp) == CDDP_OK);
    return 0;
}

static int same_shards(struct sharded *host, struct sharded *there, int rank)
{
    float *numbers = malloc(bytes_of_param(0));
    size_t count = 0;

    for (size_t i = 0; i < PARAMS; i++) {
        CHECK(cddp_ddp_param_wait(host->ddp, i) == CDDP_OK);
        CHECK(cddp_ddp_param_wait(there->ddp, i) == CDDP_OK);
        CHECK(get_side(&there->side, numbers, cddp_ddp_param(there->ddp, i), bytes_of_param(i)) ==
              0);
        CHECK(memcmp(numbers, cddp_ddp_param(host->ddp, i), bytes_of_param(i)) == 0);
    }
    free(numbers);
    CHECK(cddpi_optim_fetch(there->side.optim) == CDDP_OK);
    CHECK(cddpi_optim_gather_full_state(host->side.optim) == CDDP_OK);
    CHECK(cddpi_optim_gather_full_state(there->side.optim) == CDDP_OK);
    (void)cddpi_optim_tensors(host->side.optim, &count);
    for (size_t i = 0; rank == 0 && i < count; i++) {
        const cddp_param *a = &cddpi_optim_tensors(host->side.optim, &count)[i];
        const cddp_param *b = &cddpi_optim_tensors(there->side.optim, &count)[i];
        size_t elements = 1;

        for (int d = 0; d < a->dims; d++) {
            elements *= (size_t)a->shape[d];
        }
        CHECK(memcmp(a->data, b->data, elements * cddp_type_bytes(a->type)) == 0);
    }
    return 0;
}

/* Of what another rank updates, nothing is written. */
static int check_shards_of_copies(struct sharded *there, int rank, void *const *copies)
{
    const struct cddpi_device_ops *ops = there->side.device->ops;
    size_t span_count = 0;
    const cddp_span *spans = cddp_ddp_spans(there->ddp, rank, &span_count);

    for (size_t i = 0; i < PARAMS; i++) {
        size_t bytes = (size_t)counts[i] * sizeof(uint16_t);
        void *cast = memory_for(&there->side, bytes);
        uint16_t *all = malloc(bytes + 1);
        uint16_t *expected = calloc(1, bytes + 1);
        uint16_t *got = malloc(bytes + 1);

        CHECK(there->side.device->kernels->cast(there->side.device, CDDP_F32,
                                                cddp_ddp_param(there->ddp, i), CDDP_BF16, cast,
                                                (size_t)counts[i]) == CDDP_OK);
        CHECK(get_side(&there->side, all, cast, bytes) == 0);
        for (size_t s = 0; s < span_count; s++) {
            if (spans[s].param == i) {
                memcpy(expected + spans[s].first, all + spans[s].first,
                       spans[s].count * sizeof *all);
            }
        }
        CHECK(get_side(&there->side, got, copies[i], bytes) == 0);
        CHECK(memcmp(got, expected, bytes) == 0);
        ops->release(there->side.device, cast);
        free(all);
        free(expected);
        free(got);
    }
    return 0;
}

static int make_copies(struct sharded *there, void **out)
{
    struct cddpi_device *device = there->side.device;

    for (size_t i = 0; i < PARAMS; i++) {
        out[i] = memory_for(&there->side, bytes_of_param(i));
        CHECK(out[i] != NULL);
        CHECK(device->ops->clear(device, CDDPI_STREAM_COMPUTE, out[i], bytes_of_param(i)) ==
              CDDP_OK);
    }
    cddpi_optim_device_copies(there->side.optim, CDDP_BF16, out);
    return 0;
}

/* The caller casts the first ones. */
static int bind_copies(struct sharded *there)
{
    const struct cddpi_cuda_kernels *kernels = there->side.device->kernels;
    void *copies[PARAMS];

    for (size_t i = 0; i < PARAMS; i++) {
        copies[i] = cddpi_ddp_param_copy(there->ddp, i);
        CHECK((copies[i] != NULL) == (i == 0)); /* the third is frozen */
    }
    CHECK((uintptr_t)copies[0] % 256 == 0);
    CHECK(kernels->cast(there->side.device, CDDP_F32, cddp_ddp_param(there->ddp, 0), CDDP_BF16,
                        copies[0], (size_t)counts[0]) == CDDP_OK);
    cddpi_optim_device_copies(there->side.optim, CDDP_BF16, copies);
    return 0;
}

/* Copies are whole, and those of what one processor makes; of the parameters other ranks' parts are
 * not there yet, but where there is no copy. */
static int check_sent_copies(struct sharded *host, struct sharded *there)
{
    const struct cddpi_cuda_kernels *kernels = there->side.device->kernels;
    size_t bytes = copy_counts[0] * sizeof(uint16_t);
    void *whole = memory_for(&there->side, bytes_of_param(0));
    void *cast = memory_for(&there->side, bytes);
    uint16_t *expected = calloc(1, bytes);
    uint16_t *got = malloc(bytes);
    float *param = malloc(bytes_of_param(0));

    CHECK(cddp_ddp_params_wait(host->ddp) == CDDP_OK);
    CHECK(cddp_ddp_param_wait(there->ddp, 0) == CDDP_OK);
    CHECK(cddp_ddp_param_wait(there->ddp, 1) == CDDP_OK);
    CHECK(put_side(&there->side, whole, cddp_ddp_param(host->ddp, 0), bytes_of_param(0)) == 0);
    CHECK(kernels->cast(there->side.device, CDDP_F32, whole, CDDP_BF16, cast, (size_t)counts[0]) ==
          CDDP_OK);
    CHECK(get_side(&there->side, expected, cast, (size_t)counts[0] * sizeof *expected) == 0);
    CHECK(get_side(&there->side, got, cddpi_ddp_param_copy(there->ddp, 0), bytes) == 0);
    CHECK(memcmp(got, expected, bytes) == 0);
    CHECK(get_side(&there->side, param, cddp_ddp_param(there->ddp, 0), bytes_of_param(0)) == 0);
    CHECK(memcmp(param, cddp_ddp_param(host->ddp, 0), bytes_of_param(0)) != 0);
    CHECK(get_side(&there->side, param, cddp_ddp_param(there->ddp, 1), bytes_of_param(1)) == 0);
    CHECK(memcmp(param, cddp_ddp_param(host->ddp, 1), bytes_of_param(1)) == 0);
    there->side.device->ops->release(there->side.device, whole);
    there->side.device->ops->release(there->side.device, cast);
    free(expected);
    free(got);
    free(param);
    return 0;
}

static int copies_rank(int rank, int world_size, void *argument)
{
    const struct meet_twice *meeting = argument;
    struct sharded host = {.group = NULL};
    struct sharded there = {.group = NULL};
    cddp_group *group = NULL;

    CHECK(group_from_seed(&meeting->host_seed, rank, world_size, SUPPORT_TIMEOUT_MS, &group) ==
          CDDP_OK);
    CHECK(open_sharded(&host, group, NULL, false) == 0);
    CHECK(stage_enter(&meeting->stage, rank, world_size, &group) == CDDP_OK);
    CHECK(open_sharded(&there, group, cddpi_group_on_device(group), true) == 0);
    CHECK(bind_copies(&there) == 0);
    for (unsigned step = 0; step < 5; step++) {
        CHECK(step_sharded(&host, rank, step) == 0);
        CHECK(step_sharded(&there, rank, step) == 0);
        if (step % 2 == 0) {
            CHECK(check_sent_copies(&host, &there) == 0);
        }
        if (step == 2) { /* a checkpoint */
            CHECK(cddpi_ddp_params_whole(there.ddp) == CDDP_OK);
        }
    }
    CHECK(cddpi_ddp_params_whole(there.ddp) == CDDP_OK);
    CHECK(same_shards(&host, &there, rank) == 0);
    cddpi_optim_destroy(there.side.optim);
    cddp_ddp_destroy(there.ddp);
    cddp_group_destroy(there.group);
    cddpi_optim_destroy(host.side.optim);
    cddp_ddp_destroy(host.ddp);
    cddp_group_destroy(host.group);
    return 0;
}

static int shard_rank(int rank, int world_size, void *argument)
{
    void *copies[PARAMS];
    const struct meet_twice *meeting = argument;
    struct sharded host = {.group = NULL};
    struct sharded there = {.group = NULL};
    cddp_group *group = NULL;

    CHECK(group_from_seed(&meeting->host_seed, rank, world_size, SUPPORT_TIMEOUT_MS, &group) ==
          CDDP_OK);
    CHECK(open_sharded(&host, group, NULL, false) == 0);
    CHECK(stage_enter(&meeting->stage, rank, world_size, &group) == CDDP_OK);
    CHECK(open_sharded(&there, group, cddpi_group_on_device(group), false) == 0);
    CHECK(make_copies(&there, copies) == 0);
    for (unsigned step = 0; step < 5; step++) {
        CHECK(step_sharded(&host, rank, step) == 0);
        CHECK(step_sharded(&there, rank, step) == 0);
    }
    CHECK(same_shards(&host, &there, rank) == 0);
    CHECK(moved_sharded(&there) == 0);
    CHECK(check_shards_of_copies(&there, rank, copies) == 0);
    for (size_t i = 0; i < PARAMS; i++) {
        there.side.device->ops->release(there.side.device, copies[i]);
    }
    cddpi_optim_destroy(there.side.optim);
    cddp_ddp_destroy(there.ddp);
    cddp_group_destroy(there.group);
    cddpi_optim_destroy(host.side.optim);
    cddp_ddp_destroy(host.ddp);
    cddp_group_destroy(host.group);
    return 0;
}

static void on_ranks(int first, int last, rank_fn rank)
{
    for (int ranks = first; ranks <= last; ranks++) {
        struct meet_twice meeting = {.stage = {.timeout_ms = SUPPORT_TIMEOUT_MS}};

        meeting.stage.module_transport = ranks == 1 ? "solo"
                                                    : module_transports[ranks % MODULE_TRANSPORTS];
        support_setenv_number("CDDP_FAKE_CUDA_SEED", ranks);
        assert_int_equal(group_seed_create(ranks, &meeting.stage.seed), CDDP_OK);
        assert_int_equal(group_seed_create(ranks, &meeting.host_seed), CDDP_OK);
        assert_int_equal(run_ranks(ranks, rank, &meeting), 0);
        close(meeting.stage.seed.fd);
        close(meeting.host_seed.fd);
    }
    unsetenv("CDDP_FAKE_CUDA_SEED");
}

static void shards_of_ranks_are_updated_as_on_the_processor(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    on_ranks(1, 3, shard_rank);
}

static void copies_in_16_bits_are_what_ranks_send_each_other(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    on_ranks(2, 3, copies_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_of_ranks_are_updated_as_on_the_processor),
        cmocka_unit_test(copies_in_16_bits_are_what_ranks_send_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
