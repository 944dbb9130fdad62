/* test_cpp.c - everything in cddp.hpp does what its call in C does, compiled as C++17 and as C++20,
 * on 1, 2 and 3 processes. Skipped without a C++ compiler. */
#include "support/embed.h"

static int set_up(void **state)
{
    return set_up_place(state, "tests/include/all_of_cpp_17");
}

static int set_up_20(void **state)
{
    return set_up_place(state, "tests/include/all_of_cpp_20");
}

static void all_of_it_works(void **state)
{
    struct place *place = *state;

    if (access(place->program, X_OK) != 0) {
        skip();
    }
    setenv("TEST_FOLDER", place->folder, 1);
    for (int ranks = 1; ranks <= 3; ranks++) {
        assert_int_equal(run_ranks(ranks, run_rank, place), 0);
    }
}

static void all_of_it_works_in_cxx17(void **state)
{
    all_of_it_works(state);
}

static void all_of_it_works_in_cxx20(void **state)
{
    all_of_it_works(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_it_works_in_cxx17, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_of_it_works_in_cxx20, set_up_20, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
