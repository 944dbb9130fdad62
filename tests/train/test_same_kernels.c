/* test_same_kernels.c - with train.micro_batch, ranks whose processors compute in different ways
 * get a warning: bits then depend on which rank computes what. Threads do not matter. */
#include "kernels/cpu/isa.h"
#include "support/train.h"

static struct run_options run_of(const char *name, bool by_position, const char *odd)
{
    return (struct run_options){.ranks = 3,
                                .arguments = {run_dir_argument(name), "train.max_steps=1",
                                              by_position ? "train.micro_batch=4" : NULL},
                                .odd_setting = odd};
}

static bool warns(const struct run *run, int rank)
{
    char *text = output(run, "err", rank);
    bool found = strstr(text, "computes with") != NULL;

    free(text);
    return found;
}

static void ranks_on_different_processors_are_named(void **state)
{
    struct run_options options = run_of("mixed", true, "CDDP_MAX_ISA=generic");
    struct run run = run_well(&options);

    (void)state;
    if (cddpi_isa() == CDDPI_ISA_LEVEL_GENERIC) {
        skip();
    }
    assert_says(&run, "err", 0, "rank 2 with generic kernels, oneDNN");
    assert_says(&run, "err", 0, "CDDP_MAX_ISA");
    assert_false(warns(&run, 1));
    assert_false(warns(&run, 2));
}

static void equal_ranks_get_no_warning(void **state)
{
    struct run_options options = run_of("equal", true, NULL);
    struct run run = run_well(&options);

    (void)state;
    assert_false(warns(&run, 0));
}

static void nor_do_ranks_that_do_not_promise_the_same_bits(void **state)
{
    struct run_options options = run_of("shares", false, "CDDP_MAX_ISA=generic");
    struct run run = run_well(&options);

    (void)state;
    assert_false(warns(&run, 0));
}

static void threads_change_no_file(void **state)
{
    static const char *const odd[] = {NULL, "CDDP_THREADS=3"};
    static const char *const names[] = {"one-thread", "threads"};

    (void)state;
#ifdef __SANITIZE_THREAD__ /* does not see where threads of OpenMP join */
    skip();
#endif
    for (int i = 0; i < 2; i++) {
        struct run_options options = run_of(names[i], true, odd[i]);

        /* products that are large enough for AMX */
        options.arguments[1] = "train.max_steps=2";
        options.arguments[2] = "train.micro_batch=64";
        options.arguments[3] = "train.batch_size=192";
        options.arguments[4] = "model.hidden=[256,256]";
        run_well(&options);
    }
    assert_same_checkpoint(names[0], names[1], 2);
}

static void nor_does_another_number_of_them_later(void **state)
{
    struct run_options options = run_of("later", true, NULL);
    struct run run;
    char *text;

    (void)state;
    options.ranks = 1;
    run_well(&options);
    options.arguments[1] = "train.max_steps=2";
    options.arguments[3] = "train.resume=auto";
    options.odd_setting = "CDDP_THREADS=3";
    run = run_well(&options);
    text = output(&run, "err", 0);
    assert_null(strstr(text, "CDDP_THREADS"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_on_different_processors_are_named, make_work,
                                        remove_work),
        cmocka_unit_test_setup_teardown(equal_ranks_get_no_warning, make_work, remove_work),
        cmocka_unit_test_setup_teardown(nor_do_ranks_that_do_not_promise_the_same_bits, make_work,
                                        remove_work),
        cmocka_unit_test_setup_teardown(threads_change_no_file, make_work, remove_work),
        cmocka_unit_test_setup_teardown(nor_does_another_number_of_them_later, make_work,
                                        remove_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
