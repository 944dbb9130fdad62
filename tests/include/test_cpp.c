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

static int compile(int number, const char *standard, const char *text)
{
    const char *source = getenv("CDDP_TEST_SOURCE");
    char command[2048];

    snprintf(command, sizeof command,
             "c++ -std=c++%s -DCASE=%d -fsyntax-only -I'%s/include' '%s/tests/include/refused.cpp' "
             "2>&1 | grep -q '%s'",
             standard, number, source, source, text);
    return system(command);
}

/* Temporaries that end before cddp has used them, and copies whose names would dangle. */
static void what_would_dangle_is_refused_by_the_compiler(void **state)
{
    static const char *const standards[] = {"17", "20"};

    (void)state;
    if (getenv("CDDP_TEST_SOURCE") == NULL || system("c++ --version >/dev/null 2>&1") != 0) {
        skip();
    }
    for (int s = 0; s < 2; s++) {
        assert_int_not_equal(compile(0, standards[s], "error"), 0);
        for (int number = 1; number <= 5; number++) {
            assert_int_equal(compile(number, standards[s], "a temporary may end before"), 0);
        }
        assert_int_equal(compile(6, standards[s], "deleted"), 0);
        assert_int_equal(compile(7, standards[s], "deleted"), 0);
        assert_int_equal(compile(8, standards[s], "a temporary may end before"), 0);
        assert_int_equal(compile(9, standards[s], "a temporary may end before"), 0);
        assert_int_equal(compile(10, standards[s], "a state that is restored is written"), 0);
        assert_int_equal(compile(11, standards[s], "a state is copied as bytes"), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_it_works_in_cxx17, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_of_it_works_in_cxx20, set_up_20, tear_down),
        cmocka_unit_test(what_would_dangle_is_refused_by_the_compiler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
