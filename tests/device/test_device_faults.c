/* test_device_faults.c - failures of CUDA devices and their messages, on the emulated module. */
#include "support/device.h"
#include "support/failure.h"

#include "base/alloc.h"
#include "device/device_module.h"

#include <unistd.h>

enum { COUNT = 5000, BYTES = COUNT * 4, LIMIT_MS = SUPPORT_TIMEOUT_MS };

static int run_out_of_memory(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    void *first;
    void *second;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->alloc(device, 3 << 20, "weights", &first) == CDDP_OK);
    CHECK_FAILS(device->ops->alloc(device, 2 << 20, "activations", &second), CDDP_ERR_NO_MEMORY,
                "rank 0: cuda:0: no memory for activations: 2097152 bytes (2.0 MiB) were asked "
                "for, 1.0 of 4.0 MiB are free, and this rank holds 3.0 MiB");
    device->ops->release(device, first);
    CHECK(device->ops->alloc(device, 2 << 20, "activations", &second) == CDDP_OK);
    device->ops->release(device, second);
    cddpi_device_close(device);
    return 0;
}

static void no_memory_says_for_what_and_how_much_was_free(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(run_out_of_memory, NULL, WITH("CDDP_FAKE_CUDA_MEMORY=4194304")), 0);
}

static int fail_to_pin(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    void *memory;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK_FAILS(device->ops->pin(device, 4096, &memory), CDDP_ERR_NO_MEMORY,
                "4096 bytes of host memory cannot be pinned");
    CHECK(device->ops->pin(device, 4096, &memory) == CDDP_OK);
    cddpi_device_close(device);
    return 0;
}

static void memory_that_cannot_be_pinned_is_an_error(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(fail_to_pin, NULL, WITH("CDDP_FAKE_CUDA_FAIL_PIN=1")), 0);
}

/* The first kernel touches what it must not: known later, and never forgotten. */
static int lose_the_context(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    float *a;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, a) ==
          CDDP_OK);
    CHECK_FAILS(device->ops->finish(device, LIMIT_MS), CDDP_ERR_DEVICE, "cudaErrorIllegalAddress");
    CHECK(strstr(cddp_last_error(), "rank 0: cuda:0: ") == cddp_last_error());
    CHECK(last_error_has(" at src/runtime/device/cuda/"));
    CHECK(last_error_has("CUDA_LAUNCH_BLOCKING=1"));
    CHECK_FAILS(device->ops->clear(device, CDDPI_STREAM_COMM, a, BYTES), CDDP_ERR_DEVICE,
                "cudaMemsetAsync(memory, 0, bytes, in) at src/runtime/device/cuda/cuda_stream.c:");
    CHECK(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, a) ==
          CDDP_ERR_DEVICE);
    cddpi_device_close(device);
    return 0;
}

static void a_kernel_that_failed_names_call_and_line(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(lose_the_context, NULL, WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1")), 0);
}

/* Work on @p device fails with an error that says @p text. */
static int fail_at_work(struct cddpi_device *device, const char *text)
{
    float *a;

    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, a) ==
          CDDP_OK);
    CHECK_FAILS(device->ops->finish(device, LIMIT_MS), CDDP_ERR_DEVICE, text);
    return 0;
}

/* @p argument: what the error says. */
static int lose_the_card(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();

    (void)rank, (void)world_size;
    CHECK(device != NULL && fail_at_work(device, argument) == 0);
    CHECK(last_error_has("Xid"));
    cddpi_device_close(device);
    return 0;
}

static void a_card_that_failed_is_told_from_a_program(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(
        in_process(lose_the_card, "the card's memory has failed, not the program",
                   WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_CUDA_LAUNCH_ERROR=214")),
        0);
    assert_int_equal(
        in_process(lose_the_card, "an NVLink has failed, not the program",
                   WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_CUDA_LAUNCH_ERROR=220")),
        0);
    assert_int_equal(
        in_process(lose_the_card, "the card itself may have failed",
                   WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_CUDA_LAUNCH_ERROR=714")),
        0);
}

/* @p argument: what NVML reports. */
static int lose_a_reported_card(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    char text[800];

    (void)rank, (void)world_size;
    CHECK(device != NULL && fail_at_work(device, argument) == 0);
    device->ops->faults(device, text, sizeof text);
    CHECK(strstr(text, argument) != NULL); /* not forgotten */
    cddpi_device_close(device);
    return 0;
}

static void a_failure_names_what_nvml_reports(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(
        in_process(lose_a_reported_card,
                   "NVML reports Xid 48 (uncorrectable memory error), Xid 94 (memory error, "
                   "contained: only programs that used it end), Xid 200, 2 uncorrectable memory "
                   "errors, rows of memory that are replaced at the card's next reset",
                   WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_CUDA_LAUNCH_ERROR=214",
                        "CDDP_FAKE_NVML_XIDS=48,94,45,94,200", "CDDP_FAKE_NVML_ERRORS=3:5",
                        "CDDP_FAKE_NVML_ROWS=0:1")),
        0);
    assert_int_equal(in_process(lose_a_reported_card,
                                "NVML reports a row of memory that could not be replaced",
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_ROWS=0:2")),
                     0);
    assert_int_equal(
        in_process(lose_a_reported_card,
                   "NVML reports 4 recoveries of NVLink 2, NVLink 4 down, NVLink 5 down",
                   WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_LINKS=6:4",
                        "CDDP_FAKE_NVML_RECOVERIES=1:5")),
        0);
}

/* Old errors, and errors of other cards, are none of this run. */
static int find_nothing(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    char text[800];
    float *a;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, a) ==
          CDDP_OK);
    CHECK_FAILS(device->ops->finish(device, LIMIT_MS), CDDP_ERR_DEVICE, "cudaErrorIllegalAddress");
    CHECK(!last_error_has("NVML"));
    device->ops->faults(device, text, sizeof text);
    CHECK(text[0] == '\0');
    cddpi_device_close(device);
    return 0;
}

static void a_healthy_card_is_not_suspected(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(find_nothing, NULL,
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_ERRORS=3",
                                     "CDDP_FAKE_NVML_XIDS=45", "CDDP_FAKE_NVML_LINKS=18",
                                     "CDDP_FAKE_NVML_RECOVERIES=7")),
                     0);
    assert_int_equal(in_process(find_nothing, NULL,
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_ROWS=2")),
                     0);
    assert_int_equal(in_process(find_nothing, NULL,
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_CARD=1",
                                     "CDDP_FAKE_NVML_XIDS=79", "CDDP_FAKE_NVML_ERRORS=0:9")),
                     0);
    assert_int_equal(in_process(find_nothing, NULL,
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_CUDA_WITHOUT=nvml",
                                     "CDDP_FAKE_NVML_XIDS=79")),
                     0);
}

static void nvml_that_does_not_answer_holds_no_rank_up(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(lose_a_reported_card, "NVML does not answer",
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_HANG=wait")),
                     0);
    assert_int_equal(in_process(lose_a_reported_card, "NVML does not answer",
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_HANG=init")),
                     0);
    /* when the card is closed */
    assert_int_equal(in_process(lose_a_reported_card, "NVML reports Xid 48",
                                WITH("CDDP_FAKE_CUDA_FAIL_LAUNCH=1", "CDDP_FAKE_NVML_XIDS=48",
                                     "CDDP_FAKE_NVML_HANG=free")),
                     0);
}

/* A launch that is refused changes nothing. */
static int launch_too_much(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    float *a;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->alloc(device, BYTES, "a", (void **)&a) == CDDP_OK);
    CHECK_FAILS(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, a),
                CDDP_ERR_DEVICE, "cudaErrorLaunchOutOfResources");
    CHECK(strstr(cddp_last_error(), "rank 0: cuda:0: ") == cddp_last_error());
    CHECK(last_error_has(" at kernels/cuda/"));
    CHECK(device->kernels->pointwise(device, CDDP_F32, CDDPI_POINTWISE_RELU, 0, a, COUNT, a) ==
          CDDP_OK);
    CHECK(device->ops->finish(device, LIMIT_MS) == CDDP_OK);
    device->ops->release(device, a);
    cddpi_device_close(device);
    return 0;
}

static void a_launch_that_is_refused_names_its_line(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(launch_too_much, NULL, WITH("CDDP_FAKE_CUDA_REFUSE_LAUNCH=1")), 0);
}

static int open_without_code(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = NULL;

    (void)rank, (void)world_size, (void)argument;
    CHECK_FAILS(cddpi_device_open("cuda", -1, 1, 0, 1, false, &device), CDDP_ERR_DEVICE,
                "this build has no code for this card: build with -Dgpu_arch=");
    return 0;
}

/* Kernels are loaded when a device is opened: what they lack shows there, not in the first step.
 * That all of them are, every test on the emulated module sees: it ends with a sentence where one
 * that was not is launched. */
static void a_card_that_the_module_has_no_code_for_is_not_opened(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_without_code, NULL, WITH("CDDP_FAKE_CUDA_NO_CODE=1")), 0);
}

static int copy_out_of_bounds(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = open_cuda();
    char bytes[200];
    void *a;

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(device->ops->alloc(device, 100, "a", &a) == CDDP_OK);
    CHECK_FAILS(
        device->ops->copy(device, CDDPI_STREAM_COMPUTE, a, bytes, 200), CDDP_ERR_DEVICE,
        "cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, in) at src/runtime/device/cuda/");
    CHECK(device->ops->copy(device, CDDPI_STREAM_COMPUTE, a, bytes, 100) == CDDP_OK);
    cddpi_device_close(device);
    return 0;
}

static void an_error_of_one_call_is_not_found_again_by_the_next(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(copy_out_of_bounds, NULL, NULL), 0);
}

/* Each allocation of opening fails once; nothing is lost, and at last it opens. */
static int open_without_memory(int rank, int world_size, void *argument)
{
    struct cddpi_device *device = NULL;
    unsigned failed = 0;

    (void)rank, (void)world_size, (void)argument;
    for (unsigned nth = 1; device == NULL; nth++) {
        cddp_status status;

        cddpi_alloc_fail_nth(nth);
        status = cddpi_device_open("cuda", 0, 1, 0, 1, false, &device);
        cddpi_alloc_fail_nth(0);
        CHECK(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        failed += status != CDDP_OK;
    }
    CHECK(failed > 0);
    cddpi_device_close(device);
    return 0;
}

static void a_device_opens_or_leaves_nothing(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_without_memory, NULL, NULL), 0);
}

/* --- which device --- */

struct opening {
    const char *name;
    int local_rank, local_world_size;
    bool shared;
    cddp_status status;
    const char *text; /* of the error, or the title */
};

static int open_one(int rank, int world_size, void *argument)
{
    const struct opening *opening = argument;
    struct cddpi_device *device = NULL;
    cddp_status status = cddpi_device_open(opening->name, 5, 6, opening->local_rank,
                                           opening->local_world_size, opening->shared, &device);

    (void)rank, (void)world_size;
    CHECK(status == opening->status);
    CHECK(strstr(status == CDDP_OK ? device->title : cddp_last_error(), opening->text) != NULL);
    CHECK(status == CDDP_OK || strncmp(cddp_last_error(), "rank 5: ", 8) == 0);
    cddpi_device_close(device);
    return 0;
}

static void the_local_rank_chooses_the_device(void **state)
{
    struct opening cases[] = {
        {"cuda", 1, 2, false, CDDP_OK, "Fake GPU 1"},
        {"cuda:1", 0, 2, false, CDDP_OK, "Fake GPU 1"},
        {"cuda", 3, 4, true, CDDP_OK, "Fake GPU 1"},
        {"cuda", 0, 4, false, CDDP_ERR_UNAVAILABLE,
         "4 ranks on this machine, but 2 CUDA devices: start one rank per device"},
        {"cuda:2", 0, 1, false, CDDP_ERR_ARGUMENT, "this process sees 2 CUDA devices"},
    };
    struct opening last = {"cuda", 0, 1, false, CDDP_OK, "Fake GPU 2"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(in_process(open_one, &cases[i], NULL), 0);
    }
    assert_int_equal(
        in_process(open_one, &last, WITH("CDDP_FAKE_CUDA_DEVICES=4", "CUDA_VISIBLE_DEVICES=2,0")),
        0);
}

static void a_machine_without_cuda_says_why(void **state)
{
    struct opening driver = {"cuda",
                             0,
                             1,
                             false,
                             CDDP_ERR_UNAVAILABLE,
                             "there is no CUDA driver (libcuda.so.1): install NVIDIA's driver"};
    struct opening old = {"cuda",
                          0,
                          1,
                          false,
                          CDDP_ERR_UNAVAILABLE,
                          "the driver supports CUDA 11.8, but cddp was built with "};
    struct opening none = {
        "cuda", 0, 1, false, CDDP_ERR_UNAVAILABLE, "this machine has no CUDA device"};
    struct opening hidden = {"cuda",
                             0,
                             1,
                             false,
                             CDDP_ERR_UNAVAILABLE,
                             "no CUDA device is visible: CUDA_VISIBLE_DEVICES=\"\""};

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_one, &driver, WITH("CDDP_FAKE_CUDA_DRIVER=0")), 0);
    assert_int_equal(in_process(open_one, &old, WITH("CDDP_FAKE_CUDA_DRIVER=11080")), 0);
    assert_int_equal(in_process(open_one, &none, WITH("CDDP_FAKE_CUDA_DEVICES=0")), 0);
    assert_int_equal(in_process(open_one, &hidden, WITH("CUDA_VISIBLE_DEVICES=")), 0);
}

static int fork_after_use(int rank, int world_size, void *argument)
{
    struct opening again = {"cuda", 0, 1, false, CDDP_ERR_DEVICE, "used CUDA before it was forked"};
    struct cddpi_device *device = open_cuda();

    (void)rank, (void)world_size, (void)argument;
    CHECK(device != NULL);
    CHECK(run_ranks(1, open_one, &again) == 0);
    cddpi_device_close(device);
    return 0;
}

static void cuda_after_a_fork_is_an_error_that_says_so(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(fork_after_use, NULL, NULL), 0);
}

/* --- the module --- */

static void a_file_that_is_no_module_is_refused(void **state)
{
    struct opening absent = {
        "cuda",
        0,
        1,
        false,
        CDDP_ERR_UNAVAILABLE,
        "$CDDP_CUDA_MODULE: the CUDA module cannot be opened: nowhere/module.so"};
    struct opening other = {"cuda",
                            0,
                            1,
                            false,
                            CDDP_ERR_UNAVAILABLE,
                            "is not cddp's CUDA module: it has no cddpi_cuda_module"};

    (void)state;
    assert_int_equal(in_process(open_one, &absent, WITH("CDDP_CUDA_MODULE=nowhere/module.so")), 0);
    assert_int_equal(in_process(open_one, &other, WITH("CDDP_CUDA_MODULE=libm.so.6")), 0);
}

static int count_and_describe(int rank, int world_size, void *argument)
{
    struct opening opening = {"cuda:2", 0, 1, false, CDDP_OK, "Fake GPU 2"};
    char *text;

    (void)rank, (void)world_size, (void)argument;
    CHECK(cddpi_device_count() == 3);
    text = cddpi_device_describe();
    CHECK(text != NULL);
    CHECK(strstr(text, "driver         supports CUDA 13.0\n") != NULL);
    CHECK(strstr(text, "cuBLASLt       no: ") != NULL);
    CHECK(strstr(text, "cuda:2         Fake GPU 2, 4.0 GiB, compute capability 9.0, ") != NULL);
    CHECK(strstr(text, "GPU-cacacaca-caca-caca-caca-cacacacaca02, reaches 0, 1\n") != NULL);
    cddpi_free(text);
    /* neither was in this process: it may still fork ranks */
    CHECK(run_ranks(1, open_one, &opening) == 0);
    return 0;
}

static void looking_at_devices_leaves_the_process_fit_to_fork(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(
        in_process(count_and_describe, NULL,
                   WITH("CDDP_FAKE_CUDA_DEVICES=3", "CDDP_FAKE_CUDA_WITHOUT=cublasLt")),
        0);
}

static int count_none(int rank, int world_size, void *argument)
{
    (void)rank, (void)world_size;
    CHECK(cddpi_device_count() == 0);
    CHECK(last_error_has(argument));
    return 0;
}

static void no_devices_come_with_the_reason(void **state)
{
    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(count_none, "no CUDA driver", WITH("CDDP_FAKE_CUDA_DRIVER=0")), 0);
    assert_int_equal(in_process(count_none, "no CUDA device", WITH("CUDA_VISIBLE_DEVICES=-1")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_says_for_what_and_how_much_was_free),
        cmocka_unit_test(memory_that_cannot_be_pinned_is_an_error),
        cmocka_unit_test(a_kernel_that_failed_names_call_and_line),
        cmocka_unit_test(a_card_that_failed_is_told_from_a_program),
        cmocka_unit_test(a_failure_names_what_nvml_reports),
        cmocka_unit_test(a_healthy_card_is_not_suspected),
        cmocka_unit_test(nvml_that_does_not_answer_holds_no_rank_up),
        cmocka_unit_test(a_launch_that_is_refused_names_its_line),
        cmocka_unit_test(a_card_that_the_module_has_no_code_for_is_not_opened),
        cmocka_unit_test(an_error_of_one_call_is_not_found_again_by_the_next),
        cmocka_unit_test(a_device_opens_or_leaves_nothing),
        cmocka_unit_test(the_local_rank_chooses_the_device),
        cmocka_unit_test(a_machine_without_cuda_says_why),
        cmocka_unit_test(cuda_after_a_fork_is_an_error_that_says_so),
        cmocka_unit_test(a_file_that_is_no_module_is_refused),
        cmocka_unit_test(looking_at_devices_leaves_the_process_fit_to_fork),
        cmocka_unit_test(no_devices_come_with_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
