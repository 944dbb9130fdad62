/* test_group_device_open.c - cddp_group_create() on a device: what is chosen, and the message if it
 * is impossible. */
#include "support/ddp_ranks.h"
#include "support/device_stage.h"
#include "support/failure.h"
#include "support/group.h"

struct wanted {
    const char *device, *backend;
    bool deterministic;
    cddp_status status;
    const char *says; /* the backend, or a part of the error */
};

static cddp_status create(const struct meeting *meeting, const struct wanted *wanted, int rank,
                          int n, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char url[4200];

    snprintf(url, sizeof url, "file://%s/%s", meeting->folder, meeting->job);
    options.rendezvous = url;
    options.token = SUPPORT_TOKEN;
    options.job = meeting->job;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = meeting->timeout_ms;
    options.device = wanted->device;
    options.backend = wanted->backend;
    options.deterministic = wanted->deterministic;
    return cddp_group_create(&options, out);
}

static int create_rank(int rank, int n, void *argument)
{
    const struct meeting *meeting = argument;
    const struct wanted *wanted = meeting->argument;
    float value = (float)rank + 1;
    float *there;
    cddp_group *group;

    CHECK(create(meeting, wanted, rank, n, &group) == wanted->status);
    if (wanted->status != CDDP_OK) {
        CHECK(last_error_has(wanted->says));
        return 0;
    }
    CHECK(strcmp(group_info(group).backend, wanted->says) == 0);
    there = on_device(group, sizeof value);
    CHECK(there != NULL);
    CHECK(put_there(group, there, &value, sizeof value) == 0);
    CHECK(cddp_all_reduce(group, there, there, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(fetch(group, &value, there, sizeof value) == 0);
    CHECK(value == (float)(n * (n + 1) / 2));
    cddp_group_destroy(group);
    return 0;
}

static void try(void **state, int n, struct wanted wanted)
{
    assert_int_equal(meet(*state, n, create_rank, &wanted, NULL), 0);
}

static void the_backend_that_was_asked_for_carries_the_devices_memory(void **state)
{
    need_emulated_module();
    try(state, 1, (struct wanted){"cuda", NULL, false, CDDP_OK, "solo"});
    try(state, 1, (struct wanted){"cuda:1", "ipc", false, CDDP_OK, "ipc"});
    try(state, 2, (struct wanted){"cuda", "host", false, CDDP_OK, "ipc"});
    try(state, 2, (struct wanted){"cuda", "staged", true, CDDP_OK, "staged"});
    try(state, 3, (struct wanted){"cuda", "ipc", true, CDDP_OK, "ipc"}); /* two share a device */
    setenv("CDDP_FAKE_CUDA_IPC", "0", 1);
    try(state, 2, (struct wanted){"cuda", "host", false, CDDP_OK, "staged"});
    unsetenv("CDDP_FAKE_CUDA_IPC");
    setenv("CDDP_DEVICE", "cuda", 1);
    setenv("CDDP_BACKEND", "staged", 1);
    try(state, 2, (struct wanted){NULL, NULL, false, CDDP_OK, "staged"});
    unsetenv("CDDP_BACKEND");
    unsetenv("CDDP_DEVICE");
}

static void a_device_that_cannot_be_is_said_to_all_ranks(void **state)
{
    need_emulated_module();
    try(state, 2, (struct wanted){"cuda:7", "host", false, CDDP_ERR_ARGUMENT, "sees 2 CUDA dev"});
    try(state, 2, (struct wanted){"tpu", "host", false, CDDP_ERR_ARGUMENT, "tpu"});
    try(state, 3,
        (struct wanted){"cuda", NULL, false, CDDP_ERR_UNAVAILABLE, "3 ranks on this machine"});
    try(state, 2,
        (struct wanted){"cuda:0", NULL, false, CDDP_ERR_UNAVAILABLE,
                        "ranks 0 and 1 are on one device (GPU-"});
    setenv("CDDP_FAKE_CUDA_IPC", "0", 1);
    try(state, 2, (struct wanted){"cuda", "ipc", false, CDDP_ERR_UNAVAILABLE, "is ipc: ipc: "});
    unsetenv("CDDP_FAKE_CUDA_IPC");
}

static void without_a_module_the_reason_is_given(void **state)
{
    setenv("CDDP_CUDA_MODULE", "nowhere/libcddp-cuda.so", 1);
    try(state, 1, (struct wanted){"cuda", NULL, false, CDDP_ERR_UNAVAILABLE, "nowhere/libcddp"});
    try(state, 2, (struct wanted){"cuda", NULL, false, CDDP_ERR_UNAVAILABLE, "nowhere/libcddp"});
    unsetenv("CDDP_CUDA_MODULE");
}

static void options_for_devices_are_refused_on_the_processor(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    int stream;

    (void)state;
    options.backend = "nccl";
    assert_true(failure_is(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("backend nccl reduces a GPU's memory"));
    options.backend = NULL;
    options.device = "cpu";
    options.stream = &stream;
    assert_true(failure_is(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("options.stream is for CUDA devices"));
}

/* A caller that was compiled before there were devices. */
static void older_options_make_groups_on_the_processor(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;

    (void)state;
    options.struct_size = offsetof(cddp_group_options, device);
    options.device = "nonsense that it does not know of";
    assert_int_equal(cddp_group_create(&options, &group), CDDP_OK);
    assert_string_equal(group_info(group).backend, "solo");
    cddp_group_destroy(group);
    options.struct_size = 8;
    assert_int_equal(cddp_group_create(&options, &group), CDDP_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(the_backend_that_was_asked_for_carries_the_devices_memory),
        RANKS_TEST(a_device_that_cannot_be_is_said_to_all_ranks),
        RANKS_TEST(without_a_module_the_reason_is_given),
        RANKS_TEST(options_for_devices_are_refused_on_the_processor),
        RANKS_TEST(older_options_make_groups_on_the_processor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
