/* test_silence.c - how long a peer may be silent, measured with the test's own clock. */
#include "base/silence.h"
#include "support/test.h"

#include <stdlib.h>

enum { LIMIT_MS = 2000, STEP_MS = 100, MS = 1000000 };

/* Look every @p step_ms, from @p begin_ms to @p end_ms, at a peer that says nothing. Returns when
 * it was lost, or -1. */
static int64_t lost_at(struct cddpi_silence *silence, int64_t begin_ms, int64_t end_ms,
                       int64_t step_ms)
{
    for (int64_t ms = begin_ms; ms <= end_ms; ms += step_ms) {
        if (cddpi_silence_look(silence, false, STEP_MS, LIMIT_MS, ms * MS)) {
            return ms;
        }
    }
    return -1;
}

static void a_peer_is_lost_after_the_limit_and_what_a_sign_may_be_late(void **state)
{
    struct cddpi_silence silence = {0, 0};

    (void)state;
    assert_false(cddpi_silence_look(&silence, true, STEP_MS, LIMIT_MS, 1000 * MS));
    assert_int_equal(lost_at(&silence, 1000 + STEP_MS, 1000 + LIMIT_MS, STEP_MS), -1);
    assert_in_range(lost_at(&silence, 1000 + LIMIT_MS + STEP_MS, 19000, STEP_MS),
                    1000 + LIMIT_MS + CDDPI_SILENCE_SPARE_MS,
                    1000 + LIMIT_MS + CDDPI_SILENCE_SPARE_MS + 2 * STEP_MS);
}

static void a_sign_begins_the_silence_anew(void **state)
{
    struct cddpi_silence silence = {0, 0};

    (void)state;
    assert_int_equal(lost_at(&silence, 1000, 4900, STEP_MS), -1);
    assert_false(cddpi_silence_look(&silence, true, STEP_MS, LIMIT_MS, 5000 * (int64_t)MS));
    assert_int_equal(lost_at(&silence, 5100, 8900, STEP_MS), -1);
}

/* As when its machine was suspended: one look after an hour is one look. */
static void who_stood_still_does_not_take_others_for_lost(void **state)
{
    struct cddpi_silence silence = {0, 0};

    (void)state;
    assert_int_equal(lost_at(&silence, 1000, 2000, STEP_MS), -1);
    assert_false(cddpi_silence_look(&silence, false, STEP_MS, LIMIT_MS, 3600000 * (int64_t)MS));
    assert_int_equal(lost_at(&silence, 3600000 + STEP_MS, 3600000 + LIMIT_MS / 2, STEP_MS), -1);
}

static void one_looks_often_enough_for_any_limit(void **state)
{
    (void)state;
    for (uint32_t limit_ms = 100; limit_ms < CDDPI_SILENCE_MOST_MS / 2; limit_ms *= 2) {
        assert_in_range(cddpi_silence_look_ms(limit_ms), 20, 250);
        assert_true(cddpi_silence_look_ms(limit_ms) <= limit_ms / 5);
    }
}

static void the_limit_is_the_environments(void **state)
{
    (void)state;
    unsetenv("CDDP_HEARTBEAT_MS");
    assert_int_equal(cddpi_silence_limit_ms(0), 10000);
    setenv("CDDP_HEARTBEAT_MS", "300", 1);
    assert_int_equal(cddpi_silence_limit_ms(0), 300);
    assert_int_equal(cddpi_silence_limit_ms(1000), 1000);
    setenv("CDDP_HEARTBEAT_MS", "86400000", 1);
    assert_int_equal(cddpi_silence_limit_ms(0), CDDPI_SILENCE_MOST_MS);
    unsetenv("CDDP_HEARTBEAT_MS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_is_lost_after_the_limit_and_what_a_sign_may_be_late),
        cmocka_unit_test(a_sign_begins_the_silence_anew),
        cmocka_unit_test(who_stood_still_does_not_take_others_for_lost),
        cmocka_unit_test(one_looks_often_enough_for_any_limit),
        cmocka_unit_test(the_limit_is_the_environments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
