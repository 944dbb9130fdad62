/* test_embed_cuda.c - the example of an embedding CUDA trainer, on the emulated module: on 1, 2 and
 * 3 processes with each way to reduce, in several orders of streams, beside the C trainer, and with
 * what cddp added taken out again. On a GPU, as nvcc built it. */
#include "support/embed.h"
#include "support/gpu.h"

static const char *const backends[] = {"ipc", "staged", "nccl"};

static int set_up(void **state)
{
    return set_up_place(state, gpu_is_real() ? "examples/embed_cuda_trainer"
                                             : "tests/fake_cuda/embed_cuda_trainer");
}

/* As run_trainer(), with a device for each rank. */
static void run_with(struct place *place, const char *backend, int seed, int world_size,
                     struct run *run)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", "3", 1);
    setenv("CDDP_FAKE_CUDA_IDLE_US", "100", 1);
    support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
    setenv("CDDP_BACKEND", backend, 1);
    run_trainer(place, world_size, run);
    unsetenv("CDDP_BACKEND");
}

/* Another program of the same place. */
static struct place other(const struct place *place, const char *built, char *program, size_t bytes)
{
    struct place made = *place;

    snprintf(program, bytes, "%s/%s", getenv("CDDP_TEST_BUILD"), built);
    made.program = program;
    return made;
}

static void it_learns(void **state)
{
    struct run alone;

    run_with(*state, "solo", 1, 1, &alone);
    assert_true(alone.losses[0] > 0.6);
    assert_true(alone.losses[alone.count - 1] < 0.2);
}

#define ONLY_EMULATED()                                                                            \
    if (gpu_is_real()) {                                                                           \
        skip();                                                                                    \
    }

static void it_learns_what_the_c_trainer_learns(void **state)
{
    char program[4200];
    struct place c = other(*state, "examples/embed_trainer", program, sizeof program);
    struct run device;
    struct run processor;

    ONLY_EMULATED();
    run_with(*state, "solo", 1, 1, &device);
    run_trainer(&c, 1, &processor);
    assert_same_losses(&processor, &device, 1e-4);
}

/* 50 samples a step: 25 and 25; and 17, 17 and 16, which only a weighted mean gets right. */
static void ranks_follow_one_whatever_carries_their_gradients(void **state)
{
    struct run alone;

    run_with(*state, "solo", 1, 1, &alone);
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct run run;

            if (gpu_is_beyond(backends[b], ranks)) {
                continue;
            }
            run_with(*state, backends[b], 1, ranks, &run);
            assert_same_losses(&alone, &run, 1e-4);
        }
    }
}

/* Nothing waits for the device but events: they alone give the same bits in every order. */
static void every_order_of_streams_gives_the_same_bits(void **state)
{
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        struct run first;

        if (gpu_is_beyond(backends[b], 2)) {
            continue;
        }
        run_with(*state, backends[b], 1, 2, &first);
        for (int seed = 2; seed <= gpu_runs(5); seed++) {
            struct run run;

            run_with(*state, backends[b], seed, 2, &run);
            assert_true(run.weights[0] == first.weights[0]);
            assert_same_losses(&first, &run, 0);
        }
    }
}

/* The same trainer, of whose stream cddp does not know. Ranks may not even end with the same
 * parameters then. */
static void without_its_stream_it_goes_wrong(void **state)
{
    char program[4200];
    struct place place = other(*state, "tests/fake_cuda/embed_cuda_unordered", program,
                               sizeof program);
    struct run right;
    bool wrong = false;

    ONLY_EMULATED();
    run_with(*state, "ipc", 1, 2, &right);
    for (int seed = 1; seed <= 5 && !wrong; seed++) {
        struct run run = {0};
        char path[4400];

        support_setenv_number("CDDP_FAKE_CUDA_SEED", seed);
        setenv("CDDP_BACKEND", "ipc", 1);
        assert_int_equal(run_ranks(2, run_rank, &place), 0);
        unsetenv("CDDP_BACKEND");
        snprintf(path, sizeof path, "%s/out-2-0", place.folder);
        read_output(path, &run);
        wrong = run.weights[0] != right.weights[0];
    }
    assert_true(wrong);
}

static void without_the_marked_lines_it_is_a_serial_trainer(void **state)
{
    char program[4200];
    struct place place = other(*state, "tests/fake_cuda/embed_cuda_serial", program,
                               sizeof program);
    struct run alone;
    struct run serial;

    ONLY_EMULATED();
    run_with(*state, "solo", 1, 1, &alone);
    run_trainer(&place, 1, &serial);
    assert_true(alone.weights[0] == serial.weights[0]);
    assert_same_losses(&alone, &serial, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_learns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_learns_what_the_c_trainer_learns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_follow_one_whatever_carries_their_gradients, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(every_order_of_streams_gives_the_same_bits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_its_stream_it_goes_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_the_marked_lines_it_is_a_serial_trainer, set_up,
                                        tear_down),
    };

    if (gpu_count() == 0 && getenv("CDDP_CUDA_MODULE") == NULL) {
        printf("skipped: there is no emulated module (no CUDA headers)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
