/* test_launcher_tail.c - the last line of a rank's stderr, which others quote. */
#include "launcher/output/relay.h"
#include "support/test.h"

static void assert_last_line(const char *text, const char *expected)
{
    static struct cddpi_tail tail;
    char line[64];

    tail = (struct cddpi_tail){.total = 0};
    for (const char *at = text; *at != '\0'; at++) {
        tail.bytes[tail.total++ % CDDPI_TAIL_BYTES] = *at;
    }
    cddpi_tail_last_line(&tail, line, sizeof line);
    assert_string_equal(line, expected);
}

static void the_last_line_is_what_follows_the_last_newline_but_those_at_the_end(void **state)
{
    (void)state;
    assert_last_line("", "");
    assert_last_line("\n\n", "");
    assert_last_line("only", "only");
    assert_last_line("first\nlast\n\n", "last");
}

static void of_a_line_that_was_drawn_again_the_newest_state_is_quoted(void **state)
{
    (void)state;
    assert_last_line("start\nstep 1 of 9\rstep 2 of 9\rstep 3 of 9", "step 3 of 9");
    assert_last_line("step 1 of 9\rstep 2 of 9\r", "step 2 of 9");
    assert_last_line("step 1 of 9\rfailed\r\n", "failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_line_is_what_follows_the_last_newline_but_those_at_the_end),
        cmocka_unit_test(of_a_line_that_was_drawn_again_the_newest_state_is_quoted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
