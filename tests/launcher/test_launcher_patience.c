/* test_launcher_patience.c - when a node that waits for others says so, on an invented clock. */
#include "launcher/nodes/patience.h"
#include "support/test.h"

#define MS INT64_C(1000000)

/* How often there is news between @p from_ms and @p until_ms, at looks 50 ms apart. */
static int count_news(struct cddpi_patience *patience, int64_t from_ms, int64_t until_ms)
{
    int count = 0;

    for (int64_t now = from_ms; now < until_ms; now += 50) {
        count += cddpi_patience_ends(patience, now * MS);
    }
    return count;
}

static void a_wait_is_told_within_two_seconds_once_and_each_minute_again(void **state)
{
    struct cddpi_patience patience;

    (void)state;
    cddpi_patience_begin(&patience, CDDPI_PATIENCE_MS, 7000 * MS);
    assert_int_equal(count_news(&patience, 7000, 8000), 0);
    assert_int_equal(count_news(&patience, 8000, 9000), 1);
    assert_int_equal(count_news(&patience, 9000, 60000), 0);
    assert_int_equal(count_news(&patience, 60000, 70000), 1);
    assert_int_equal(count_news(&patience, 70000, 70000 + 5 * 60000), 5);
}

static void the_end_of_a_wait_is_a_time_of_day(void **state)
{
    char text[64];

    (void)state;
    setenv("TZ", "UTC0", 1);
    tzset();
    cddpi_patience_until(1700000000, 299999, text, sizeof text);
    assert_string_equal(text, "22:18:19");
    cddpi_patience_until(1700000000, 86400000, text, sizeof text);
    assert_string_equal(text, "2023-11-15 22:13:20");
    unsetenv("TZ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_told_within_two_seconds_once_and_each_minute_again),
        cmocka_unit_test(the_end_of_a_wait_is_a_time_of_day),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
