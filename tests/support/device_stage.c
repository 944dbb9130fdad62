/* device_stage.c - groups of forked ranks on a device, for tests: on the deferred device, or on a
 * device that the CUDA module for tests emulates. */
#include "support/device_stage.h"

/* Let groups open the module for tests, or the real one. Returns false if there is none. */
static bool find_module(void)
{
    const char *build = getenv("CDDP_TEST_BUILD");
    char path[4096];

    if (gpu_is_real()) {
        return gpu_count() > 0;
    }
    snprintf(path, sizeof path, "%s/tests/fake_cuda/libcddp-cuda-emulated.so",
             build != NULL ? build : ".");
    return access(path, R_OK) == 0 && setenv("CDDP_CUDA_MODULE", path, 1) == 0;
}

void need_module(void)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: TSan does not follow the emulator's fibers\n");
    skip();
#endif
    if (!find_module()) {
        print_message("skipped: no module libcddp-cuda-emulated.so was built\n");
        skip();
    }
}

void need_emulated_module(void)
{
    if (pool_is_wanted()) { /* the pool's ranks cannot change settings of the fake runtime */
        print_message("skipped: this is for the emulated module\n");
        skip();
    }
    need_module();
}

cddp_status stage_enter(const struct stage *stage, int rank, int world_size, cddp_group **out)
{
    cddp_group *group = NULL;
    struct cddpi_device *device;
    cddp_status status = group_from_seed(&stage->seed, rank, world_size, stage->timeout_ms, &group);

    if (status != CDDP_OK) {
        return status;
    }
    if (stage->module_transport != NULL) {
        /* some ranks share a device, except with NCCL or within one process */
        setenv("CDDP_FAKE_CUDA_DEVICES",
               strcmp(stage->module_transport, "nccl") == 0 || pool_is_wanted() ? "3" : "2", 1);
        status = cddpi_group_device_open(group, "cuda", stage->module_transport, true, NULL);
    } else {
        device = deferred_open(rank, stage->bias, stage->number);
        status = cddpi_group_device_attach(group, cddpi_device_ref_create(device),
                                           world_size > 1 ? "deferred" : NULL, true, CDDP_OK);
    }
    if (status != CDDP_OK) {
        cddp_group_destroy(group);
        return status;
    }
    *out = group;
    return CDDP_OK;
}

int stage_runs(const char *transport, int size, int seeds)
{
    if (getenv("TEST_HOSTS") != NULL && (transport == NULL || strcmp(transport, "ipc") == 0)) {
        return 0; /* these transports work within one host */
    }
    return transport == NULL ? seeds : gpu_is_beyond(transport, size) ? 0 : gpu_runs(seeds);
}

int stage_run(rank_fn body, struct stage stage, int least, int seeds, int dies)
{
    int failed = 0;

    for (int i = 0; i < DEVICE_SIZES; i++) {
        for (int run = 0; run < stage_runs(stage.module_transport, device_sizes[i], seeds) &&
                          device_sizes[i] >= least;
             run++) {
            int statuses[8] = {0};

            stage.bias = (enum deferred_bias)(run % DEFERRED_BIASES);
            stage.number = (unsigned)run;
            support_setenv_number("CDDP_FAKE_CUDA_SEED", run + 1);
            if (group_seed_create(device_sizes[i], &stage.seed) != CDDP_OK) {
                return -1;
            }
            if (stage.module_transport != NULL && dies < 0 && pool_is_wanted()) {
                const size_t fd_at = offsetof(struct stage, seed.fd);

                failed += pool_run(device_sizes[i], body, &stage, sizeof stage, &fd_at, 1);
                close(stage.seed.fd);
                continue;
            }
            (void)run_ranks_status(device_sizes[i], body, &stage, statuses);
            for (int r = 0; r < device_sizes[i]; r++) {
                failed += statuses[r] != 0 && r != dies;
            }
            close(stage.seed.fd);
        }
    }
    return failed;
}

void *on_device(cddp_group *group, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);
    void *memory = NULL;

    return device->ops->alloc(device, bytes > 0 ? bytes : 1, "a test", &memory) == CDDP_OK ? memory
                                                                                           : NULL;
}

int put_there(cddp_group *group, void *to, const void *from, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes) == CDDP_OK);
    return 0;
}

int fetch(cddp_group *group, void *to, const void *from, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes) == CDDP_OK);
    CHECK(device->ops->finish(device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    return 0;
}

struct stage on_module(int transport)
{
    return (struct stage){.timeout_ms = SUPPORT_TIMEOUT_MS,
                          .module_transport = module_transports[transport]};
}

cddp_status await_failure(cddp_group *group)
{
    int64_t until = cddpi_deadline_ns(SUPPORT_TIMEOUT_MS / 2);
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && cddpi_now_ns() < until) {
        status = cddpi_group_healthy(group);
        support_sleep_ms(2);
    }
    return status;
}
