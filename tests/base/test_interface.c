/* test_interface.c - which network interfaces a list of names selects. */
#include "base/interface.h"
#include "support/test.h"

static void names_of_interfaces_match_as_nccl_has_it(void **state)
{
    (void)state;
    assert_true(cddpi_interface_matches(NULL, "eth0"));
    assert_true(cddpi_interface_matches("eth", "eth0"));
    assert_true(cddpi_interface_matches("ib,eth1", "eth10"));
    assert_false(cddpi_interface_matches("=ib,eth1", "eth10"));
    assert_true(cddpi_interface_matches("=ib,eth1", "eth1"));
    assert_false(cddpi_interface_matches("ib", "eth0"));
    assert_true(cddpi_interface_matches("^docker,lo", "eth0"));
    assert_false(cddpi_interface_matches("^docker,lo", "docker0"));
    assert_false(cddpi_interface_matches("^=lo", "lo"));
    assert_true(cddpi_interface_matches("^=lo", "lo2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_interfaces_match_as_nccl_has_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
