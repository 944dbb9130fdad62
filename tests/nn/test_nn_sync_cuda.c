/* test_nn_sync_cuda.c - batch normalisation over ranks on devices equals ranks on the CPU with the
 * same samples, and one rank with all samples; with the same bits over any transport, in every
 * order of streams. */
#include "device/device.h"
#include "group/on_device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support/failure.h"
#include "support/gpu.h"
#include "support/nn_sync.h"

enum { STEPS = 2, MOST = 40000 };
static const char *const backends[] = {"ipc", "staged", "nccl"};

/* Bounds of differences in float32, of numbers about 1. */
static const double grad_bound = 2e-4, running_bound = 1e-5, loss_bound = 1e-4;

/* A rank's model on its device, and what was read of it. */
struct there {
    cddp_group *group;
    struct cddpi_device *device;
    struct cddpi_model *model;
    struct cddpi_batch batch;
    void **grads;
    float *seen; /* gradients, then running statistics, of each step */
    size_t used;
    double loss[STEPS];
};

static int show(cddp_status status)
{
    if (status != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
    }
    return status == CDDP_OK;
}

static void *upload(struct there *t, const void *from, size_t bytes)
{
    void *memory = NULL;

    if (!show(t->device->ops->alloc(t->device, bytes + 1, "a test", &memory)) ||
        !show(t->device->ops->copy(t->device, CDDPI_STREAM_COMPUTE, memory, from, bytes)) ||
        !show(t->device->ops->finish(t->device, SUPPORT_TIMEOUT_MS))) {
        return NULL;
    }
    return memory;
}

static int open_there(struct there *t, const struct spread *spread, const char *backend, int rank,
                      int n, const struct fixture *like)
{
    struct cddpi_model_spec given = spec;
    size_t samples = (size_t)like->batch.count;

    memset(t, 0, sizeof *t);
    CHECK(join(spread, backend, "cuda", backend, rank, n, &t->group) == 0);
    t->device = cddpi_group_on_device(t->group);
    given.device = t->device;
    CHECK(show(cddpi_model_create(&given, 3, t->group, &t->model)));
    t->grads = calloc(like->param_count, sizeof *t->grads);
    t->seen = calloc(MOST, sizeof *t->seen);
    for (size_t i = 0; i < like->param_count; i++) {
        size_t bytes = cddpi_tensor_elements(&like->params[i]) * sizeof(float);

        t->grads[i] = upload(t, like->grads[i], bytes);
        CHECK(t->grads[i] != NULL);
    }
    cddpi_model_bind_grads(t->model, t->grads);
    t->batch = like->batch;
    t->batch.input = upload(t, like->input, samples * like->sample_elements * sizeof(float));
    t->batch.label = upload(t, like->label, samples * sizeof(int32_t));
    CHECK(t->batch.input != NULL && t->batch.label != NULL);
    return 0;
}

static int close_there(struct there *t, size_t param_count)
{
    for (size_t i = 0; i < param_count; i++) {
        t->device->ops->release(t->device, t->grads[i]);
    }
    t->device->ops->release(t->device, (void *)(uintptr_t)t->batch.input);
    t->device->ops->release(t->device, (void *)(uintptr_t)t->batch.label);
    free(t->grads);
    free(t->seen);
    cddpi_model_destroy(t->model);
    cddp_group_destroy(t->group);
    return 0;
}

static int see(struct there *t, const void *from, size_t count)
{
    CHECK(t->used + count <= MOST);
    CHECK(show(t->device->ops->copy(t->device, CDDPI_STREAM_COMPUTE, t->seen + t->used, from,
                                    count * sizeof(float))));
    t->used += count;
    return 0;
}

/* Forward and backward; only what is read at the end waits for the device. */
static int step_there(struct there *t, int step, double scale)
{
    struct cddpi_loss_result result = {0};
    size_t count;
    const cddp_param *params = cddpi_model_params(t->model, &count);
    const cddp_param *buffers;

    CHECK(show(cddpi_model_forward(t->model, &t->batch, true, NULL)));
    CHECK(show(cddpi_model_backward(t->model, scale, false, NULL, NULL)));
    for (size_t i = 0; i < count; i++) {
        CHECK(see(t, t->grads[i], cddpi_tensor_elements(&params[i])) == 0);
    }
    buffers = cddpi_model_buffers(t->model, &count);
    for (size_t i = 0; i < count; i++) {
        CHECK(see(t, buffers[i].data, cddpi_tensor_elements(&buffers[i])) == 0);
    }
    CHECK(show(cddpi_model_collect(t->model, t->batch.count)));
    CHECK(show(cddpi_model_result(t->model, &result)));
    CHECK(show(t->device->ops->finish(t->device, SUPPORT_TIMEOUT_MS)));
    t->loss[step] = result.loss_sum;
    return 0;
}

/* Where the device's gradients, then running statistics, of a step are, beside the processor's. */
static int compare(cddp_group *host, const struct there *t, size_t at, struct fixture *mine,
                   struct fixture *whole)
{
    size_t count;
    const cddp_param *running = cddpi_model_buffers(mine->model, &count);
    const cddp_param *all = cddpi_model_buffers(whole->model, &count);
    const float *seen = t->seen + at;

    for (size_t i = 0; i < mine->param_count; i++) {
        size_t elements = cddpi_tensor_elements(&mine->params[i]);
        float *mean = malloc((elements + 1) * sizeof *mean);

        /* this rank's own, and the mean over samples */
        CHECK(difference_over(mine->grads[i], seen, elements, 1e-2) < grad_bound);
        CHECK(cddp_all_reduce_weighted(host, seen, mean, elements, CDDP_F32, mine->batch.count,
                                       NULL) == CDDP_OK);
        CHECK(difference_over(whole->grads[i], mean, elements, 1e-2) < grad_bound);
        free(mean);
        seen += elements;
    }
    for (size_t i = 0; i < count; i++) {
        size_t elements = cddpi_tensor_elements(&running[i]);
        float first[20];

        CHECK(difference_over(running[i].data, seen, elements, 1) < running_bound);
        CHECK(difference_over(all[i].data, seen, elements, 1) < running_bound);
        memcpy(first, seen, elements * sizeof *first);
        CHECK(cddp_broadcast(host, first, elements, CDDP_F32, 0, NULL) == CDDP_OK);
        CHECK(memcmp(first, seen, elements * sizeof *first) == 0); /* the same on all ranks */
        seen += elements;
    }
    return 0;
}

static int steps_there(struct there *t, cddp_group *host, const struct spread *spread, int rank)
{
    struct fixture mine, whole;
    int count = spread->counts[rank];
    int first = first_sample(spread, rank);

    CHECK(fixture_init(&whole, &spec, 3, NULL, 0, TOTAL));
    CHECK(fixture_init(&mine, &spec, 3, host, first, count));
    for (int step = 0; step < STEPS; step++) {
        double scale = count > 0 ? 1.0 / count : 1;
        double loss = fixture_loss(&mine);
        size_t at = t->used;

        CHECK(fixture_step(&whole, 1.0 / TOTAL, false) == CDDP_OK);
        CHECK(cddpi_model_backward(mine.model, scale, false, NULL, NULL) == CDDP_OK);
        CHECK(step_there(t, step, scale) == 0);
        CHECK(fabs(loss - t->loss[step]) <= loss_bound * (1 + fabs(loss)));
        CHECK(compare(host, t, at, &mine, &whole) == 0);
    }
    fixture_fini(&mine);
    fixture_fini(&whole);
    return 0;
}

/* With each backend; the bits are those of the first. */
static int sync_rank(int rank, int n, void *argument)
{
    const struct spread *spread = argument;
    struct fixture like;
    struct there first = {.used = 0};
    cddp_group *host;

    CHECK(join(spread, "host", "cpu", NULL, rank, n, &host) == 0);
    CHECK(fixture_init(&like, &spec, 3, NULL, first_sample(spread, rank), spread->counts[rank]));
    for (size_t b = 0; b < COUNT_OF(backends); b++) {
        struct there there;

        if (gpu_is_beyond(backends[b], n)) {
            continue;
        }
        CHECK(open_there(&there, spread, backends[b], rank, n, &like) == 0);
        CHECK(steps_there(&there, host, spread, rank) == 0);
        if (first.used == 0) {
            first = there;
            first.seen = malloc(there.used * sizeof(float));
            memcpy(first.seen, there.seen, there.used * sizeof(float));
        }
        CHECK(there.used == first.used);
        CHECK(memcmp(there.seen, first.seen, there.used * sizeof(float)) == 0);
        CHECK(close_there(&there, like.param_count) == 0);
    }
    CHECK(cddp_barrier(host, NULL) == CDDP_OK);
    free(first.seen);
    fixture_fini(&like);
    cddp_group_destroy(host);
    return 0;
}

static void run_orders(int n, struct spread spread)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", "3", 1);
    setenv("CDDP_FAKE_CUDA_IDLE_US", "100", 1);
    for (int seed = 1; seed <= gpu_runs(3); seed++) {
        support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
        run_spread(n, spread, sync_rank);
    }
}

static void one_rank_normalises_alone(void **state)
{
    (void)state;
    run_orders(1, (struct spread){NULL, {TOTAL}});
}

static void two_ranks_normalise_as_one_does(void **state)
{
    (void)state;
    run_orders(2, (struct spread){NULL, {5, 2}});
}

static void three_ranks_normalise_as_one_does(void **state)
{
    (void)state;
    run_orders(3, (struct spread){NULL, {1, 4, 2}});
}

static void a_rank_without_samples_takes_part(void **state)
{
    (void)state;
    run_orders(3, (struct spread){NULL, {3, 0, 4}});
}

/* A group on the processor cannot carry a device's sums. */
static int misplaced_rank(int rank, int n, void *argument)
{
    const struct spread *spread = argument;
    struct cddpi_model_spec given = spec;
    struct cddpi_model *model = NULL;
    cddp_group *host;
    cddp_group *there;

    CHECK(join(spread, "host", "cpu", NULL, rank, n, &host) == 0);
    CHECK(join(spread, "there", "cuda", "host", rank, n, &there) == 0);
    given.device = cddpi_group_on_device(there);
    CHECK(cddpi_model_create(&given, 3, host, &model) == CDDP_ERR_CONFIG);
    CHECK(last_error_has("batch_norm with sync"));
    CHECK(last_error_has("needs a group on the model's device, cuda "));
    CHECK(model == NULL);
    CHECK(cddp_barrier(host, NULL) == CDDP_OK);
    cddp_group_destroy(there);
    cddp_group_destroy(host);
    return 0;
}

static void a_group_elsewhere_is_refused(void **state)
{
    (void)state;
    run_spread(2, (struct spread){NULL, {5, 2}}, misplaced_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_normalises_alone),
        cmocka_unit_test(two_ranks_normalise_as_one_does),
        cmocka_unit_test(three_ranks_normalise_as_one_does),
        cmocka_unit_test(a_rank_without_samples_takes_part),
        cmocka_unit_test(a_group_elsewhere_is_refused),
    };

    if (gpu_count() == 0 && getenv("CDDP_CUDA_MODULE") == NULL) {
        printf("skipped: there is no emulated module (no CUDA headers)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
