/* test_launcher_hostfile.c - lists of hosts: the syntax of Open MPI and of Horovod, and lists that
 * are neither. */
#include "launcher/hosts/host_list.h"
#include "support/test.h"

static void assert_host(const struct cddpi_hosts *hosts, int i, const char *name, int slots)
{
    assert_true(i < hosts->count);
    assert_string_equal(hosts->hosts[i].name, name);
    assert_int_equal(hosts->hosts[i].slots, slots);
}

static void both_syntaxes_are_read(void **state)
{
    static const char text[] = "# a comment\n"
                               "alpha slots=4\n"
                               "\n"
                               "  beta:2\t# two\r\n"
                               "gamma\n"
                               "user@delta slots=3 max_slots=8\n"
                               "[fd00::1]:2\n"
                               "fd00::2 slots=5\n"
                               "epsilon max-slots=7 slots=7";
    struct cddpi_hosts hosts;

    (void)state;
    assert_int_equal(cddpi_hosts_parse_text(text, strlen(text), "file", &hosts), CDDP_OK);
    assert_int_equal(hosts.count, 7);
    assert_host(&hosts, 0, "alpha", 4);
    assert_host(&hosts, 1, "beta", 2);
    assert_host(&hosts, 2, "gamma", 0);
    assert_host(&hosts, 3, "user@delta", 3);
    assert_host(&hosts, 4, "fd00::1", 2);
    assert_host(&hosts, 5, "fd00::2", 5);
    assert_host(&hosts, 6, "epsilon", 7);
    cddpi_hosts_fini(&hosts);
}

static void ranks_of_a_host_that_is_named_again_are_added(void **state)
{
    static const char text[] = "a slots=1\nb slots=2\na slots=3\n";
    struct cddpi_hosts hosts;

    (void)state;
    assert_int_equal(cddpi_hosts_parse_text(text, strlen(text), "file", &hosts), CDDP_OK);
    assert_int_equal(hosts.count, 2);
    assert_host(&hosts, 0, "a", 4);
    assert_host(&hosts, 1, "b", 2);
    cddpi_hosts_fini(&hosts);
    assert_int_equal(cddpi_hosts_parse_list("a:1,b,a:2", &hosts), CDDP_OK);
    assert_int_equal(hosts.count, 2);
    assert_host(&hosts, 0, "a", 3);
    assert_host(&hosts, 1, "b", 0);
    cddpi_hosts_fini(&hosts);
}

/* A batch system such as PBS lists a host once for each of its slots. */
static void a_host_that_is_named_again_without_a_number_has_one_rank_more(void **state)
{
    static const struct {
        const char *list;
        int slots;
    } rows[] = {{"a", 0},     {"a,a", 2},     {"a,b,a,a", 3}, {"a:4,a", 5},
                {"a,a:4", 5}, {"a,a:4,a", 6}, {"a:2,b,a", 3}};
    static const char nodefile[] = "a\na\nb\nb\nb\n";
    struct cddpi_hosts hosts;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(cddpi_hosts_parse_list(rows[i].list, &hosts), CDDP_OK);
        assert_host(&hosts, 0, "a", rows[i].slots);
        cddpi_hosts_fini(&hosts);
    }
    assert_int_equal(cddpi_hosts_parse_text(nodefile, strlen(nodefile), "file", &hosts), CDDP_OK);
    assert_int_equal(hosts.count, 2);
    assert_host(&hosts, 0, "a", 2);
    assert_host(&hosts, 1, "b", 3);
    cddpi_hosts_fini(&hosts);
}

static void what_is_not_understood_is_shown_with_its_line(void **state)
{
    static const struct {
        const char *text;
        const char *error;
    } rows[] = {
        {"", "file names no host"},
        {"# nothing\n\n", "file names no host"},
        {"a\nb speed=3\n", "file:2: \"speed=3\" is not known"},
        {"a slots=0\n", "file:1: slots needs a number from 1"},
        {"a slots=x\n", "file:1: slots needs a number from 1"},
        {"a slots\n", "file:1: slots needs a number from 1"},
        {"a slots=4 slots=5\n", "file:1: the number of slots of a is said twice"},
        {"a:4 slots=5\n", "file:1: the number of slots of a is said twice"},
        {"a slots=4 max_slots=3\n", "file:1: a has 4 slots in all, more than its max_slots=3"},
        {"a slots=2 max_slots=3\na slots=2\n", "file:2: a has 4 slots in all"},
        {"a max_slots=2\na\na\n", "file:3: a has 3 slots in all"},
        {"a:\n", "file:1: \"a:\" is neither a host nor host:N"},
        {"a:99999999999\n", "is neither a host nor host:N"},
        {":4\n", "is neither a host nor host:N"},
        {"-oProxyCommand=x:4\n", "is neither a host nor host:N"},
        {"a;reboot\n", "is neither a host nor host:N"},
        {"[fd00::1\n", "is neither a host nor host:N"},
        {"[fd00::1]4\n", "is neither a host nor host:N"},
        {"a b\n", "file:1: \"b\" is not known"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cddpi_hosts hosts;

        assert_int_equal(cddpi_hosts_parse_text(rows[i].text, strlen(rows[i].text), "file", &hosts),
                         CDDP_ERR_ARGUMENT);
        if (strstr(cddp_last_error(), rows[i].error) == NULL) {
            fail_msg("of \"%s\" it says: %s", rows[i].text, cddp_last_error());
        }
    }
}

static void a_list_with_an_empty_part_is_refused(void **state)
{
    static const char *const lists[] = {"", "a,", ",a", "a,,b", "a:4,b:", "a:0", "a b"};

    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct cddpi_hosts hosts;

        assert_int_equal(cddpi_hosts_parse_list(lists[i], &hosts), CDDP_ERR_ARGUMENT);
    }
}

static void a_nul_byte_is_no_text(void **state)
{
    struct cddpi_hosts hosts;

    (void)state;
    assert_int_equal(cddpi_hosts_parse_text("a\0b\n", 4, "file", &hosts), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "file:1: a NUL byte"));
}

static void a_byte_order_mark_is_no_part_of_the_first_host(void **state)
{
    static const char text[] = "\xEF\xBB\xBFlocalhost:2\n";
    struct cddpi_hosts hosts;

    (void)state;
    assert_int_equal(cddpi_hosts_parse_text(text, strlen(text), "file", &hosts), CDDP_OK);
    assert_int_equal(hosts.count, 1);
    assert_host(&hosts, 0, "localhost", 2);
    cddpi_hosts_fini(&hosts);
    assert_int_equal(cddpi_hosts_parse_text(text, 3, "file", &hosts), CDDP_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_syntaxes_are_read),
        cmocka_unit_test(ranks_of_a_host_that_is_named_again_are_added),
        cmocka_unit_test(a_host_that_is_named_again_without_a_number_has_one_rank_more),
        cmocka_unit_test(what_is_not_understood_is_shown_with_its_line),
        cmocka_unit_test(a_list_with_an_empty_part_is_refused),
        cmocka_unit_test(a_nul_byte_is_no_text),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_the_first_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
