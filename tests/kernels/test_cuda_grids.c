/* test_cuda_grids.c - sums over rows have as many blocks as the device has room for at once. */
#include "support/device.h"

#include <dlfcn.h>

enum { ROWS = 51200, COLUMNS = 8, COUNT = ROWS * COLUMNS, LIMIT_MS = SUPPORT_TIMEOUT_MS };

/* Of the emulated module: see fake_cuda.h. */
static size_t (*most_blocks)(void);

static void *find_most_blocks(void)
{
    void *module = dlopen(getenv("CDDP_CUDA_MODULE"), RTLD_LAZY | RTLD_NOLOAD);

    return module != NULL ? dlsym(module, "fake_cuda_most_blocks") : NULL;
}

static float *zeros(struct cddpi_device *device, size_t bytes)
{
    void *memory = NULL;

    if (device->ops->alloc(device, bytes, "numbers", &memory) != CDDP_OK ||
        device->ops->clear(device, CDDPI_STREAM_COMPUTE, memory, bytes) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return NULL;
    }
    return memory;
}

/* What the kernels of this test read and write: rows of 0, and small arrays. */
struct arrays {
    float *x, *y, *small[6], *scratch;
};

static int make_arrays(struct cddpi_device *device, struct arrays *a)
{
    const struct cddpi_cuda_kernels *kernels = device->kernels;
    size_t bytes = kernels->layer_norm_scratch(device, ROWS, COLUMNS);
    size_t sums = kernels->sums_scratch(device, ROWS, COLUMNS);

    a->x = zeros(device, COUNT * sizeof(float));
    a->y = zeros(device, COUNT * sizeof(float));
    a->scratch = zeros(device, bytes > sums ? bytes : sums);
    for (int i = 0; i < 6; i++) {
        a->small[i] = zeros(device, ROWS * sizeof(float));
        CHECK(a->small[i] != NULL);
    }
    CHECK(a->x != NULL && a->y != NULL && a->scratch != NULL);
    return 0;
}

/* Wait for the kernels, and check how many blocks the largest had. */
static int check_blocks(struct cddpi_device *device, size_t wanted)
{
    size_t most;

    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    most = most_blocks();
    if (most != wanted) {
        fprintf(stderr, "%zu blocks instead of %zu\n", most, wanted);
    }
    return most != wanted;
}

/* @p argument: the number of multiprocessors. */
static int sum_rows(int rank, int world_size, void *argument)
{
    const struct cddpi_cuda_norm shape = {
        .type = CDDP_F32, .rows = ROWS, .channels = COLUMNS, .epsilon = 1e-5F, .momentum = 0.1F};
    size_t multiprocessors = (size_t) * (const int *)argument;
    struct cddpi_device *device = open_cuda();
    const struct cddpi_cuda_kernels *kernels;
    struct arrays a;

    (void)rank, (void)world_size;
    CHECK(device != NULL);
    kernels = device->kernels;
    *(void **)&most_blocks = find_most_blocks();
    CHECK(most_blocks != NULL);
    CHECK(make_arrays(device, &a) == 0);
    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    (void)most_blocks();

    CHECK(kernels->column_sums(device, CDDP_F32, a.x, ROWS, COLUMNS, false, a.small[0],
                               a.scratch) == CDDP_OK);
    CHECK(check_blocks(device, 8 * multiprocessors) == 0);
    CHECK(kernels->layer_norm_grad(device, CDDP_F32, a.x, a.x, a.small[0], a.small[1], a.small[2],
                                   ROWS, COLUMNS, NULL, false, a.y, a.small[3], a.small[4],
                                   a.scratch) == CDDP_OK);
    CHECK(check_blocks(device, 2 * multiprocessors) == 0);
    CHECK(kernels->batch_norm(device, &shape, a.x, NULL, a.small[0], a.small[1], a.small[2],
                              a.small[3], a.small[4], a.small[5], a.y) == CDDP_OK);
    CHECK(check_blocks(device, 4 * multiprocessors) == 0);
    CHECK(kernels->batch_norm_grad(device, &shape, a.x, NULL, a.x, NULL, a.small[0], a.small[1],
                                   a.small[2], a.small[3], false, a.y, NULL, a.small[4],
                                   a.small[5]) == CDDP_OK);
    CHECK(check_blocks(device, 4 * multiprocessors) == 0);
    cddpi_device_close(device);
    return 0;
}

/* An A100 has 108, parts of cards have 14 and more. These numbers divide the rows. */
static void grids_follow_the_number_of_multiprocessors(void **state)
{
    static const int numbers[] = {10, 20};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char setting[64];
        int number = numbers[i];

        snprintf(setting, sizeof setting, "CDDP_FAKE_CUDA_MULTIPROCESSORS=%d", number);
        assert_int_equal(in_process(sum_rows, &number, WITH(setting)), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids_follow_the_number_of_multiprocessors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
