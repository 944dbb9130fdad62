/* test_follow_watch.c - what cddp-report --follow says while a run adds no line, on an invented
 * clock. */
#include "report/follow_watch.h"
#include "support/test.h"

#define SECONDS(n) ((int64_t)((n)*1e9))

/* Look four times a second until @p until, and count the news of @p kind; nothing else may come. */
static int count_news(struct cddpi_follow_watch *watch, enum cddpi_follow_writer writer,
                      int64_t from, int64_t until, enum cddpi_follow_news kind)
{
    int count = 0;

    for (int64_t now = from; now < until; now += SECONDS(0.25)) {
        enum cddpi_follow_news news = cddpi_follow_watch_look(watch, writer, now);

        assert_true(news == CDDPI_FOLLOW_NO_NEWS || news == kind);
        count += news == kind;
    }
    return count;
}

static void a_silent_run_is_said_to_be_silent_once_and_each_minute_again(void **state)
{
    for (int writer = CDDPI_FOLLOW_WRITER_UNKNOWN; writer <= CDDPI_FOLLOW_WRITER_RUNS; writer++) {
        struct cddpi_follow_watch watch;

        (void)state;
        cddpi_follow_watch_begin(&watch, SECONDS(100));
        assert_int_equal(count_news(&watch, writer, SECONDS(100), SECONDS(110), CDDPI_FOLLOW_QUIET),
                         0);
        assert_int_equal(
            count_news(&watch, writer, SECONDS(110), SECONDS(110.5), CDDPI_FOLLOW_QUIET), 1);
        assert_int_equal(
            count_news(&watch, writer, SECONDS(110.5), SECONDS(170), CDDPI_FOLLOW_QUIET), 0);
        assert_int_equal(count_news(&watch, writer, SECONDS(170), SECONDS(290), CDDPI_FOLLOW_QUIET),
                         2);
    }
}

static void a_run_with_slow_steps_is_said_to_be_silent_only_after_twice_its_pause(void **state)
{
    struct cddpi_follow_watch watch;

    (void)state;
    cddpi_follow_watch_begin(&watch, SECONDS(100));
    cddpi_follow_watch_line(&watch, SECONDS(125));
    assert_int_equal(count_news(&watch, CDDPI_FOLLOW_WRITER_RUNS, SECONDS(126), SECONDS(175),
                                CDDPI_FOLLOW_QUIET),
                     0);
    cddpi_follow_watch_line(&watch, SECONDS(175)); /* a pause of 50 s */
    cddpi_follow_watch_line(&watch, SECONDS(180));
    assert_int_equal(count_news(&watch, CDDPI_FOLLOW_WRITER_RUNS, SECONDS(181), SECONDS(280),
                                CDDPI_FOLLOW_QUIET),
                     0);
    assert_int_equal(count_news(&watch, CDDPI_FOLLOW_WRITER_RUNS, SECONDS(280), SECONDS(281),
                                CDDPI_FOLLOW_QUIET),
                     1);
}

static void a_run_without_a_process_is_told_of_at_once_and_given_up_later(void **state)
{
    struct cddpi_follow_watch watch;

    (void)state;
    cddpi_follow_watch_begin(&watch, SECONDS(100));
    assert_int_equal(
        count_news(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(100), SECONDS(101), CDDPI_FOLLOW_GONE),
        0);
    assert_int_equal(count_news(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(101),
                                SECONDS(101 + CDDPI_FOLLOW_RESTART_S), CDDPI_FOLLOW_GONE),
                     1);
    assert_int_equal(cddpi_follow_watch_look(&watch, CDDPI_FOLLOW_WRITER_GONE,
                                             SECONDS(101 + CDDPI_FOLLOW_RESTART_S)),
                     CDDPI_FOLLOW_GIVEN_UP);
}

/* The machine may have slept between two looks. */
static void a_run_is_never_given_up_before_its_reader_was_told(void **state)
{
    struct cddpi_follow_watch watch;

    (void)state;
    cddpi_follow_watch_begin(&watch, SECONDS(100));
    assert_int_equal(cddpi_follow_watch_look(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(1000)),
                     CDDPI_FOLLOW_NO_NEWS);
    assert_int_equal(cddpi_follow_watch_look(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(2000)),
                     CDDPI_FOLLOW_GONE);
    assert_int_equal(cddpi_follow_watch_look(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(2001)),
                     CDDPI_FOLLOW_NO_NEWS);
}

static void a_run_that_starts_again_is_not_given_up(void **state)
{
    for (int writes = 0; writes < 2; writes++) {
        struct cddpi_follow_watch watch;

        (void)state;
        cddpi_follow_watch_begin(&watch, SECONDS(100));
        assert_int_equal(count_news(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(100), SECONDS(110),
                                    CDDPI_FOLLOW_GONE),
                         1);
        if (writes > 0) {
            cddpi_follow_watch_line(&watch, SECONDS(115));
        } else {
            assert_int_equal(
                cddpi_follow_watch_look(&watch, CDDPI_FOLLOW_WRITER_RUNS, SECONDS(109)),
                CDDPI_FOLLOW_NO_NEWS);
        }
        assert_int_equal(count_news(&watch, CDDPI_FOLLOW_WRITER_GONE, SECONDS(130), SECONDS(150),
                                    CDDPI_FOLLOW_GONE),
                         1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_run_is_said_to_be_silent_once_and_each_minute_again),
        cmocka_unit_test(a_run_with_slow_steps_is_said_to_be_silent_only_after_twice_its_pause),
        cmocka_unit_test(a_run_without_a_process_is_told_of_at_once_and_given_up_later),
        cmocka_unit_test(a_run_is_never_given_up_before_its_reader_was_told),
        cmocka_unit_test(a_run_that_starts_again_is_not_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
