/* test_slurm_list.c - Slurm's compressed lists of hosts and of ranks per node. */
#include "group/launch/slurm_list.h"
#include "support/test.h"

/* The hosts of @p text are @p names, each followed by a blank. */
static void names(const char *text, const char *names)
{
    char all[2000] = "";
    char name[CDDPI_HOST_NAME_BYTES];
    size_t count = cddpi_slurm_hosts(text);

    for (size_t i = 0; i < count; i++) {
        assert_true(cddpi_slurm_host(text, i, name));
        strcat(strcat(all, name), " ");
    }
    assert_false(cddpi_slurm_host(text, count, name));
    assert_string_equal(all, names);
}

static void hosts_come_in_the_list_s_order(void **state)
{
    (void)state;
    names("login", "login ");
    names("node[01-03,7],gpu[1-2]", "node01 node02 node03 node7 gpu1 gpu2 ");
    names("a,b.example.org,c_1", "a b.example.org c_1 ");
    names("n[9-11]", "n9 n10 n11 ");
    names("n[008-011]-ib", "n008-ib n009-ib n010-ib n011-ib ");
    names("r[1-2]n[1-3],x", "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3 x ");
    names("[1-2]", "1 2 ");
}

static void what_is_no_list_has_no_hosts(void **state)
{
    static const char *const bad[] = {"",
                                      ",",
                                      "a,",
                                      ",a",
                                      "a,,b",
                                      "n[",
                                      "n[]",
                                      "n[1",
                                      "n[1-",
                                      "n[1-]",
                                      "n[-1]",
                                      "n[3-1]",
                                      "n[1,]",
                                      "n[1-2-3]",
                                      "n[a]",
                                      "n]",
                                      "n[1]]",
                                      "n[0-1048576]",
                                      "n[0-999999],m[0-999999]",
                                      "a[1-2000]b[1-2000]",
                                      "n[0-9999999999]",
                                      "a b",
                                      "a;b",
                                      "\x80"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char name[CDDPI_HOST_NAME_BYTES];

        if (cddpi_slurm_hosts(bad[i]) != 0 || cddpi_slurm_host(bad[i], 0, name)) {
            fail_msg("\"%s\" is taken for a list", bad[i]);
        }
    }
}

static void a_name_that_is_too_long_is_refused(void **state)
{
    char text[CDDPI_HOST_NAME_BYTES + 8];
    char name[CDDPI_HOST_NAME_BYTES];

    (void)state;
    memset(text, 'n', sizeof text);
    text[CDDPI_HOST_NAME_BYTES - 1] = '\0';
    assert_true(cddpi_slurm_host(text, 0, name));
    strcpy(text + CDDPI_HOST_NAME_BYTES - 2, "[10]");
    assert_false(cddpi_slurm_host(text, 0, name));
    text[CDDPI_HOST_NAME_BYTES - 2] = 'n';
    strcpy(text + CDDPI_HOST_NAME_BYTES - 1, "n");
    assert_false(cddpi_slurm_host(text, 0, name));
}

static void tasks(const char *text, int node, int nodes, int total, int local_size)
{
    struct cddpi_slurm_tasks is;

    assert_true(cddpi_slurm_tasks(text, node, &is));
    assert_int_equal(is.nodes, nodes);
    assert_int_equal(is.total, total);
    assert_int_equal(is.local_size, local_size);
}

static void each_node_has_its_number_of_ranks(void **state)
{
    static const char *const bad[] = {
        "",    "2,",     ",2",   "2(x3",         "2(3)",       "2(x0)",
        "0",   "-1",     "2 ",   "2(x3)1",       "x",          "2(x)",
        "2x3", "2(x3),", "(x3)", "1000000(x99)", "9999999999", "1(x2000000)"};
    struct cddpi_slurm_tasks is;

    (void)state;
    tasks("4", 0, 1, 4, 4);
    tasks("2(x3),1", 0, 4, 7, 2);
    tasks("2(x3),1", 2, 4, 7, 2);
    tasks("2(x3),1", 3, 4, 7, 1);
    tasks("1,3,2(x2)", 1, 4, 8, 3);
    assert_false(cddpi_slurm_tasks("2(x3),1", 4, &is));
    assert_false(cddpi_slurm_tasks("2(x3),1", -1, &is));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (cddpi_slurm_tasks(bad[i], 0, &is)) {
            fail_msg("\"%s\" is taken for ranks a node", bad[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_come_in_the_list_s_order),
        cmocka_unit_test(what_is_no_list_has_no_hosts),
        cmocka_unit_test(a_name_that_is_too_long_is_refused),
        cmocka_unit_test(each_node_has_its_number_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
