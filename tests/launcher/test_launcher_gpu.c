/* test_launcher_gpu.c - what cddp-run prints about GPUs, and one rank per GPU. */
#include "support/launcher.h"

#include "support/device.h"

#include "cddp_config.h"

static void check_lists_the_devices(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    LAUNCH(&job, "--check");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "\nCUDA\n  runtime        ");
    assert_out(&job, "\n  cuda:1         Fake GPU 1, ");
    assert_out(&job, "between hosts, before 2.32: exchanges of registered memory may hang");
    assert_int_equal(launcher_count(job.out, "cddp " CDDP_VERSION "\n"), 1); /* not by the child */
    launcher_end(&job);
}

static void check_names_what_is_wrong_with_a_card(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_NVML_CARD", "1", 1);
    setenv("CDDP_FAKE_NVML_ERRORS", "3", 1);
    setenv("CDDP_FAKE_NVML_ROWS", "2", 1);
    setenv("CDDP_FAKE_NVML_LINKS", "17", 1);
    LAUNCH(&job, "--check");
    assert_int_equal(job.exit_status, 0);
    assert_out(
        &job, ", reaches 0, 17 NVLinks\n                 NVML reports 3 uncorrectable memory "
              "errors, a row of memory that could not be replaced (since the card's last reset)\n");
    assert_int_equal(launcher_count(job.out, "NVML"), 1);
    launcher_end(&job);

    setenv("CDDP_FAKE_CUDA_WITHOUT", "nvml", 1);
    LAUNCH(&job, "--check");
    unsetenv("CDDP_FAKE_CUDA_WITHOUT");
    unsetenv("CDDP_FAKE_NVML_CARD");
    unsetenv("CDDP_FAKE_NVML_ERRORS");
    unsetenv("CDDP_FAKE_NVML_ROWS");
    unsetenv("CDDP_FAKE_NVML_LINKS");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "\n  NVML           no: ");
    assert_int_equal(launcher_count(job.out, "NVML"), 1);
    launcher_end(&job);
}

static void check_says_why_there_is_no_device(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DRIVER", "0", 1);
    LAUNCH(&job, "--check");
    unsetenv("CDDP_FAKE_CUDA_DRIVER");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "\n  driver         no: there is no libcuda.so.1\n");
    assert_out(&job, "\n  devices        no: there is no CUDA driver (libcuda.so.1): install ");
    launcher_end(&job);
}

/* The real module of this build, as it is on a machine without a driver. */
static void check_opens_the_real_module_where_there_is_no_driver(void **state)
{
    struct launched job = {0};
    const char *module = getenv("CDDP_CUDA_MODULE");
    const char *real = launcher_path("src/runtime/device/cuda/libcddp-cuda.so");
    char *kept = module != NULL ? strdup(module) : NULL;

    (void)state;
    if (access(real, R_OK) != 0 || access("/dev/nvidiactl", F_OK) == 0) {
        free(kept);
        print_message("skipped: there is no module for CUDA, or there is a driver\n");
        skip();
    }
    unsetenv("CDDP_CUDA_MODULE"); /* it lies where cddp-run looks for it */
    LAUNCH(&job, "--check");
    setenv("CDDP_CUDA_MODULE", kept != NULL ? kept : "", 1);
    free(kept);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "\nCUDA\n  runtime        ");
    assert_out(&job, "\n  devices        no: there is no CUDA driver (libcuda.so.1): install ");
    launcher_end(&job);
}

static void check_says_that_there_is_no_module(void **state)
{
    struct launched job = {0};
    const char *module = getenv("CDDP_CUDA_MODULE");
    char *kept = strdup(module != NULL ? module : "");

    (void)state;
    setenv("CDDP_CUDA_MODULE", "nowhere/module.so", 1);
    LAUNCH(&job, "--check");
    setenv("CDDP_CUDA_MODULE", kept, 1);
    free(kept);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "\nCUDA\n  no: $CDDP_CUDA_MODULE: ");
    launcher_end(&job);
}

static void check_tells_of_the_mpi_module(void **state)
{
    struct launched job = {0};

    (void)state;
    if (access(launcher_path("src/runtime/group/net/mpi/libcddp-mpi.so"), R_OK) == 0) {
        LAUNCH(&job, "--check");
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, "\nMPI\n  module         yes, of cddp " CDDP_VERSION ": ");
        assert_null(strstr(job.out, CDDP_VERSION ": \n")); /* the MPI has a name */
        launcher_end(&job);
    }
    setenv("CDDP_MPI_MODULE", "nowhere/module.so", 1);
    LAUNCH(&job, "--check");
    unsetenv("CDDP_MPI_MODULE");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "\nMPI\n  module         no: $CDDP_MPI_MODULE: ");
    launcher_end(&job);
}

static void nproc_gpu_starts_a_rank_for_each_visible_device(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DEVICES", "5", 1);
    setenv("CUDA_VISIBLE_DEVICES", "4,1,0", 1);
    LAUNCH(&job, "--nproc", "gpu", "--dry-run", "--", "true");
    unsetenv("CDDP_FAKE_CUDA_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(job.exit_status, 0);
    assert_int_equal(launcher_count(job.out, "local rank "), 3);
    launcher_end(&job);
}

static void nproc_gpu_lets_ranks_compute_there_unless_told_otherwise(void **state)
{
    static const char *const script = "test $CDDP_RANK != 0 || echo device=$CDDP_DEVICE";

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int told = 0; told < 2; told++) {
        struct launched job = {0};

        if (told) {
            setenv("CDDP_DEVICE", "cpu", 1);
        }
        LAUNCH(&job, "--nproc", "gpu", "--", "sh", "-c", script);
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, told ? "device=cpu" : "device=cuda");
        unsetenv("CDDP_DEVICE");
        launcher_end(&job);
    }
}

static void nproc_gpu_without_one_says_why(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    LAUNCH(&job, "--nproc", "gpu", "--", "true");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(job.exit_status, 126);
    assert_err(&job, "--nproc gpu: ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_lists_the_devices),
        cmocka_unit_test(check_names_what_is_wrong_with_a_card),
        cmocka_unit_test(check_says_why_there_is_no_device),
        cmocka_unit_test(check_opens_the_real_module_where_there_is_no_driver),
        cmocka_unit_test(check_says_that_there_is_no_module),
        cmocka_unit_test(check_tells_of_the_mpi_module),
        cmocka_unit_test(nproc_gpu_starts_a_rank_for_each_visible_device),
        cmocka_unit_test(nproc_gpu_lets_ranks_compute_there_unless_told_otherwise),
        cmocka_unit_test(nproc_gpu_without_one_says_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
