/* test_embed_cuda.c - the example of an embedding CUDA trainer, on the emulated module: unpatched,
 * and with its patch on 1, 2 and 3 processes with each way to reduce, in several orders of streams,
 * compared with the C trainer. On a GPU, as nvcc built it. */
#include "support/embed.h"
#include "support/gpu.h"

static const char *const backends[] = {"ipc", "staged", "nccl"};

static int set_up(void **state)
{
    return set_up_place(state, gpu_is_real() ? "examples/embed_cuda_trainer"
                                             : "tests/fake_cuda/embed_cuda_trainer");
}

static const char *alone_program(void)
{
    return gpu_is_real() ? "examples/embed_cuda_alone" : "tests/fake_cuda/embed_cuda_alone";
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
    assert_same_losses(&processor, &device, 1e-5);
}

/* 50 samples a step: 25 and 25; and 17, 17 and 16, which only a weighted mean gets right. */
static void ranks_learn_what_the_trainer_learnt_before_its_patch(void **state)
{
    char program[4200];
    struct place before = other(*state, alone_program(), program, sizeof program);
    struct run alone;

    run_trainer(&before, 1, &alone);
    assert_true(alone.losses[0] > 0.6);
    assert_true(alone.losses[alone.count - 1] < 0.2);
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct run run;

            if (gpu_is_beyond(backends[b], ranks)) {
                continue;
            }
            run_with(*state, backends[b], 1, ranks, &run);
            assert_same_losses(&alone, &run, 1e-5);
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

/* Its parameters, too: a mean over one rank changes no bit. */
static void one_rank_has_the_bits_of_the_trainer_before_its_patch(void **state)
{
    char program[4200];
    struct place before = other(*state, alone_program(), program, sizeof program);
    struct run alone;
    struct run one;

    run_trainer(&before, 1, &alone);
    run_with(*state, "solo", 1, 1, &one);
    assert_true(alone.weights[0] == one.weights[0]);
    assert_same_losses(&alone, &one, 0);
}

static void the_patch_is_short(void **state)
{
    (void)state;
    assert_short_patch("embed_cuda", 45);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_learns_what_the_c_trainer_learns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_learn_what_the_trainer_learnt_before_its_patch,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_order_of_streams_gives_the_same_bits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_its_stream_it_goes_wrong, set_up, tear_down),
        cmocka_unit_test(the_patch_is_short),
        cmocka_unit_test_setup_teardown(one_rank_has_the_bits_of_the_trainer_before_its_patch,
                                        set_up, tear_down),
    };

    if (gpu_count() == 0 && getenv("CDDP_CUDA_MODULE") == NULL) {
        printf("skipped: there is no emulated module (no CUDA headers)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
