/* test_launcher_link_state.c - what a node asks of the job's store, and how it judges what it hears
 * and does not hear, in histories without a real store. */
#include "launcher/link_world.h"

#define TELLER CDDPI_LINK_TELLER
#define HEARER CDDPI_LINK_HEARER

static struct depot depot;
static struct desk desk;

static void begin(int self, int count)
{
    memset(&depot, 0, sizeof depot);
    desk_begin(&desk, &depot, self, NULL, count);
}

#define ASKS(wanted, wanted_key)                                                                   \
    do {                                                                                           \
        assert_int_equal(desk.request.kind, (wanted));                                             \
        assert_string_equal(desk.request.key, (wanted_key));                                       \
    } while (0)

static void the_first_sign_of_life_comes_before_any_event(void **state)
{
    (void)state;
    begin(7, 1);
    TELL(&desk, .kind = CDDPI_EVENT_JOIN, .node = 7, .number = 2);
    desk_step(&desk, TELLER, LOST);
    ASKS(CDDPI_LINK_SET, "job/beat/7");
    desk_step(&desk, TELLER, ANSWERED);
    assert_int_equal(desk.request.kind, CDDPI_LINK_RECONNECT);
    desk_step(&desk, TELLER, ANSWERED);
    ASKS(CDDPI_LINK_SET, "job/beat/7");
    desk_step(&desk, TELLER, ANSWERED);
    ASKS(CDDPI_LINK_COMPARE_SET, "job/event/0");
    assert_memory_equal(depot_find(&depot, "job/beat/7")->value, "1", 1);
    desk_end(&desk);
}

static void signs_of_life_follow_each_other_at_their_interval(void **state)
{
    int64_t begun_ns;

    (void)state;
    begin(1, 2);
    begun_ns = desk.now.now_ns;
    for (int i = 0; i < 5; i++) {
        desk_step(&desk, TELLER, ANSWERED);
        ASKS(CDDPI_LINK_SET, "job/beat/1");
        assert_int_equal(desk.now.now_ns - begun_ns, i * LOOK_MS * INT64_C(1000000));
        assert_int_equal(depot_find(&depot, "job/beat/1")->value[0], '1' + i);
        assert_false(cddpi_link_wants_to_tell(&desk.link));
        desk_step(&desk, TELLER, ANSWERED);
        assert_int_equal(desk.request.kind, CDDPI_LINK_WAIT);
    }
    TELL(&desk, .kind = CDDPI_EVENT_SAVING, .node = 1);
    assert_true(cddpi_link_wants_to_tell(&desk.link));
    desk_end(&desk);
}

static void each_request_has_a_deadline(void **state)
{
    (void)state;
    begin(0, 2);
    TELL(&desk, .kind = CDDPI_EVENT_DONE, .node = 0);
    for (int i = 0; i < 40; i++) {
        enum cddpi_link_side side = i % 2 == 0 ? TELLER : HEARER;
        int64_t begun_ns = desk.now.now_ns;

        desk_step(&desk, side, i % 3 == 0 ? ANSWERED : LOST);
        assert_true(desk.request.until_ns >= begun_ns);
        assert_true(desk.request.until_ns - begun_ns <= (ANSWER_MS + LOOK_MS) * INT64_C(1000000));
        assert_true(desk.request.wait_ms <= LOOK_MS);
    }
    desk_end(&desk);
}

static void an_event_goes_under_the_first_free_number(void **state)
{
    (void)state;
    begin(1, 2);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_START, .number = 1);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_SAVING);
    TELL(&desk, .kind = CDDPI_EVENT_DONE, .node = 1, .exit_status = 3);
    TELL(&desk, .kind = CDDPI_EVENT_BYE, .node = 1);
    desk_tell_all(&desk);
    assert_int_equal(depot_events(&depot), 4);
    assert_int_equal(depot_event(&depot, 2).exit_status, 3);
    assert_int_equal(depot_event(&depot, 3).kind, CDDPI_EVENT_BYE);
    desk_end(&desk);
}

/* Otherwise a node that comes to an old job would try all numbers before its JOIN. */
static void numbers_of_events_that_were_heard_are_not_tried(void **state)
{
    (void)state;
    begin(5, 1);
    for (int i = 0; i < 9; i++) {
        OTHER_TELLS(&depot, .kind = CDDPI_EVENT_SAVING, .node = 0);
        desk_step(&desk, HEARER, ANSWERED);
        assert_int_equal(desk.event.kind, CDDPI_EVENT_SAVING);
    }
    TELL(&desk, .kind = CDDPI_EVENT_JOIN, .node = 5, .number = 1);
    desk_step(&desk, TELLER, ANSWERED);
    desk_step(&desk, TELLER, ANSWERED);
    ASKS(CDDPI_LINK_COMPARE_SET, "job/event/9");
    desk_end(&desk);
}

/* Also if the node has heard the event before it tries again. */
static void an_event_that_was_written_without_an_answer_is_not_repeated(void **state)
{
    (void)state;
    for (int hears = 0; hears < 2; hears++) {
        begin(1, 2);
        desk_step(&desk, TELLER, ANSWERED); /* a sign of life */
        TELL(&desk, .kind = CDDPI_EVENT_DONE, .node = 1, .exit_status = 3);
        desk_step(&desk, TELLER, UNANSWERED);
        OTHER_TELLS(&depot, .kind = CDDPI_EVENT_SAVING);
        while (hears && desk.link.hearer.number < 2) {
            desk_step(&desk, HEARER, ANSWERED);
        }
        desk_tell_all(&desk);
        assert_int_equal(depot_events(&depot), 2);
        desk_end(&desk);
    }
}

static void an_event_that_was_not_written_is_repeated(void **state)
{
    (void)state;
    for (int has_rival = 0; has_rival < 2; has_rival++) {
        begin(1, 2);
        desk_step(&desk, TELLER, ANSWERED);
        TELL(&desk, .kind = CDDPI_EVENT_DONE, .node = 1, .exit_status = 3);
        for (int i = 0; i < 3; i++) {
            desk_step(&desk, TELLER, LOST);
        }
        if (has_rival) {
            OTHER_TELLS(&depot, .kind = CDDPI_EVENT_DONE, .node = 0, .exit_status = 3);
        }
        desk_tell_all(&desk);
        assert_int_equal(depot_events(&depot), 1 + has_rival);
        assert_int_equal(depot_event(&depot, has_rival).node, 1);
        desk_end(&desk);
    }
}

static void an_event_that_the_store_takes_late_is_written_once(void **state)
{
    (void)state;
    begin(1, 2);
    desk_step(&desk, TELLER, ANSWERED);
    TELL(&desk, .kind = CDDPI_EVENT_DONE, .node = 1, .exit_status = 3);
    desk_step(&desk, TELLER, LATE);
    OTHER_TELLS(&depot, .kind = CDDPI_EVENT_SAVING);
    desk_tell_all(&desk);
    depot_catch_up(&depot, 0);
    assert_int_equal(depot_events(&depot), 2);
    assert_int_equal(depot_event(&depot, 0).kind, CDDPI_EVENT_SAVING);
    assert_int_equal(depot_event(&depot, 1).exit_status, 3);
    desk_end(&desk);
}

static void two_equal_events_are_two(void **state)
{
    (void)state;
    begin(1, 2);
    TELL(&desk, .kind = CDDPI_EVENT_SAVING, .node = 1);
    TELL(&desk, .kind = CDDPI_EVENT_SAVING, .node = 1);
    desk_step(&desk, TELLER, ANSWERED);
    desk_step(&desk, TELLER, UNANSWERED);
    desk_tell_all(&desk);
    assert_int_equal(depot_events(&depot), 2);
    desk_end(&desk);
}

static void a_key_for_the_ranks_is_written_in_its_turn(void **state)
{
    (void)state;
    begin(0, 2);
    desk_step(&desk, TELLER, ANSWERED);
    TELL(&desk, .kind = CDDPI_EVENT_SAVING, .node = 0);
    cddpi_link_set(&desk.link, "job/0/failure", "why");
    desk_step(&desk, TELLER, ANSWERED);
    desk_step(&desk, TELLER, LOST);
    ASKS(CDDPI_LINK_SET, "job/0/failure");
    desk_tell_all(&desk);
    assert_memory_equal(depot_find(&depot, "job/0/failure")->value, "why", 3);
    desk_end(&desk);
}

/* Nothing is waited for while there are events. */
static void the_log_is_heard_in_its_order_without_what_is_no_event(void **state)
{
    int64_t begun_ns;

    (void)state;
    begin(4, 1);
    for (int i = 0; i < 20; i++) {
        if (i == 7) {
            depot_set(&depot, "job/event/7", "no event", 8);
        } else {
            OTHER_TELLS(&depot, .kind = CDDPI_EVENT_DONE, .node = 4000 + i, .exit_status = i);
        }
    }
    begun_ns = desk.now.now_ns;
    for (int i = 0; i < 20; i++) {
        desk_step(&desk, HEARER, ANSWERED);
        assert_int_equal(desk.event.kind, i == 7 ? CDDPI_EVENT_NONE : CDDPI_EVENT_DONE);
        assert_true(i == 7 || desk.event.exit_status == i);
    }
    assert_int_equal(desk.now.now_ns, begun_ns);
    desk_end(&desk);
}

static void a_store_that_is_silent_for_too_long_is_lost(void **state)
{
    int64_t begun_ns;

    (void)state;
    begin(1, 2);
    depot_beat(&depot, 0, 1);
    desk_look_around(&desk);
    begun_ns = desk.now.now_ns;
    while (desk.event.kind == CDDPI_EVENT_NONE) {
        desk_step(&desk, HEARER, LOST);
    }
    assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
    assert_non_null(strstr(desk.event.text, "it has not answered for "));
    assert_non_null(strstr(desk.event.text, " s, and may be silent for 4 s (CDDP_HEARTBEAT_MS)"));
    assert_in_range((desk.now.now_ns - begun_ns) / 1000000, LIMIT_MS + CDDPI_SILENCE_SPARE_MS,
                    2 * (LIMIT_MS + CDDPI_SILENCE_SPARE_MS));
    desk_step(&desk, HEARER, ANSWERED);
    assert_int_equal(desk.request.kind, CDDPI_LINK_OVER);
    desk_step(&desk, TELLER, ANSWERED);
    assert_int_equal(desk.request.kind, CDDPI_LINK_OVER);
    desk_end(&desk);
}

static void a_store_that_answers_again_in_time_is_not_lost(void **state)
{
    (void)state;
    begin(1, 2);
    for (int i = 0; i < 10; i++) {
        depot_beat(&depot, 0, i);
        desk_look_around(&desk);
        for (int k = 0; k < LIMIT_MS / ANSWER_MS; k++) {
            desk_step(&desk, HEARER, LOST);
            assert_int_equal(desk.event.kind, CDDPI_EVENT_NONE);
        }
    }
    desk_end(&desk);
}

/* Something between this node and the store has cut a connection. */
static void a_connection_that_ends_is_made_anew(void **state)
{
    static const enum fate fates[] = {BROKEN, BROKEN_DONE};

    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(1, 2);
        desk_step(&desk, TELLER, ANSWERED);
        TELL(&desk, .kind = CDDPI_EVENT_DONE, .node = 1);
        for (int k = 0; k < 20; k++) {
            depot_beat(&depot, 0, k);
            desk_step(&desk, TELLER, k == 0 ? fates[i] : ANSWERED);
            desk_step(&desk, HEARER, fates[i]);
            assert_int_equal(desk.event.kind, CDDPI_EVENT_NONE);
            desk_look_around(&desk);
        }
        desk_tell_all(&desk);
        assert_int_equal(depot_events(&depot), 1);
        desk_end(&desk);
    }
}

/* As it is if its process has ended. Whichever side notices first says it. */
static void a_store_that_cannot_be_reached_anew_is_lost_once(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        begin(1, 2);
        desk_step(&desk, TELLER, ANSWERED);
        TELL(&desk, .kind = CDDPI_EVENT_SAVING, .node = 1);
        desk_step(&desk, first == 0 ? TELLER : HEARER, BROKEN);
        desk_step(&desk, first == 0 ? HEARER : TELLER, BROKEN);
        assert_int_equal(desk.event.kind, CDDPI_EVENT_NONE);
        desk_fail(&desk, first == 0 ? TELLER : HEARER, CDDP_ERR_IO, "nothing listens there");
        assert_true(desk.request.is_mending);
        assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
        assert_int_equal(desk.event.exit_status, 1);
        assert_int_equal(desk.event.rank, -1);
        assert_string_equal(desk.event.text, "it has ended");
        desk_step(&desk, first == 0 ? HEARER : TELLER, ANSWERED);
        assert_int_equal(desk.request.kind, CDDPI_LINK_OVER);
        assert_true(cddpi_link_wants_to_tell(&desk.link));
        desk_end(&desk);
    }
}

/* Its machine may stand still or be gone. */
static void a_store_that_ends_a_connection_and_then_is_silent_is_lost_after_the_limit(void **state)
{
    int64_t begun_ns;

    (void)state;
    begin(1, 2);
    depot_beat(&depot, 0, 1);
    desk_look_around(&desk);
    begun_ns = desk.now.now_ns;
    desk_step(&desk, HEARER, BROKEN);
    desk_step(&desk, HEARER, LOST);
    assert_int_equal(desk.event.kind, CDDPI_EVENT_NONE);
    while (desk.event.kind == CDDPI_EVENT_NONE) {
        desk_step(&desk, HEARER, LOST);
    }
    assert_non_null(strstr(desk.event.text, "it has not answered for "));
    assert_true(desk.now.now_ns - begun_ns >= LIMIT_MS * INT64_C(1000000));
    desk_end(&desk);
}

static void a_store_that_ends_each_connection_is_lost(void **state)
{
    int ended = 0;

    (void)state;
    begin(1, 2);
    for (int i = 0; desk.event.kind == CDDPI_EVENT_NONE; i++) {
        desk_step(&desk, HEARER, i % 2 == 0 ? BROKEN : ANSWERED);
        ended += i % 2 == 0;
    }
    assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
    assert_int_equal(ended, 4);
    desk_end(&desk);
}

static void a_store_that_refuses_is_lost_at_once(void **state)
{
    (void)state;
    for (int side = TELLER; side <= HEARER; side++) {
        begin(1, 2);
        desk_fail(&desk, (enum cddpi_link_side)side, CDDP_ERR_AUTH, "it refuses");
        assert_int_equal(desk.event.kind, CDDPI_EVENT_CUT);
        assert_string_equal(desk.event.text, "it refuses");
        desk_end(&desk);
    }
}

/* Who stood still hears first what it missed; who knows of it is asked for two minutes. */
static void a_standstill_is_noticed_and_makes_nobody_lost(void **state)
{
    (void)state;
    begin(0, 2);
    depot_beat(&depot, 1, 1);
    desk_look_around(&desk);
    desk_step(&desk, TELLER, ANSWERED);
    cddpi_link_next(&desk.link, TELLER, &desk.now, &desk.request);
    assert_int_equal(desk.request.kind, CDDPI_LINK_WAIT);
    assert_int_equal(cddpi_link_slept_ms(&desk.link, &desk.now), 0);
    desk.now.boot_ns += INT64_C(60000000000); /* the machine sleeps */
    desk.now.now_ns += INT64_C(20000000);
    assert_int_equal(cddpi_link_slept_ms(&desk.link, &desk.now), 60000);
    desk_look_around(&desk);
    desk_look_around(&desk);
    assert_int_equal(desk_losses(&desk, 1), 0);
    assert_in_range(cddpi_link_slept_ms(&desk.link, &desk.now), 59000, 61000);
    desk_pass(&desk, 100000);
    desk_step(&desk, TELLER, ANSWERED);
    assert_true(cddpi_link_slept_ms(&desk.link, &desk.now) > 0);
    desk_step(&desk, TELLER, ANSWERED);
    for (int64_t end_ns = desk.now.now_ns + INT64_C(121000000000); desk.now.now_ns < end_ns;) {
        desk_step(&desk, TELLER, ANSWERED);
    }
    assert_int_equal(cddpi_link_slept_ms(&desk.link, &desk.now), 0);
    desk_end(&desk);
}

static void at_the_end_what_is_queued_is_written_for_a_while(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        begin(1, 2);
        desk_step(&desk, TELLER, ANSWERED);
        TELL(&desk, .kind = CDDPI_EVENT_BYE, .node = 1);
        cddpi_link_end(&desk.link, desk.now.now_ns + INT64_C(3000000000));
        desk_step(&desk, HEARER, ANSWERED);
        assert_int_equal(desk.request.kind, CDDPI_LINK_OVER);
        for (int i = 0; i < (is_late ? 7 : 4); i++) {
            desk_step(&desk, TELLER, LOST);
        }
        desk_step(&desk, TELLER, ANSWERED);
        desk_step(&desk, TELLER, ANSWERED);
        while (desk.request.kind != CDDPI_LINK_OVER) {
            desk_step(&desk, TELLER, ANSWERED);
        }
        assert_int_equal(depot_events(&depot), is_late ? 0 : 1);
        desk_end(&desk);
    }
}

/* However long it is until the next look, so that the link may end soon. */
static void an_event_is_waited_for_briefly(void **state)
{
    (void)state;
    begin(1, 2);
    desk.link.hearer.look_ns = desk.now.now_ns + INT64_C(60000000000);
    desk_step(&desk, HEARER, ANSWERED);
    assert_int_equal(desk.request.kind, CDDPI_LINK_GET);
    assert_int_equal(desk.request.wait_ms, 250);
    desk_end(&desk);
}

/* A network that is gone may keep it for long. */
static void a_connection_that_is_made_slowly_is_no_standstill(void **state)
{
    (void)state;
    begin(1, 2);
    desk_step(&desk, TELLER, LOST);
    cddpi_link_next(&desk.link, TELLER, &desk.now, &desk.request);
    assert_int_equal(desk.request.kind, CDDPI_LINK_RECONNECT);
    desk_pass(&desk, 10 * LIMIT_MS);
    assert_int_equal(cddpi_link_slept_ms(&desk.link, &desk.now), 0);
    desk_end(&desk);
}

/* It may tell why signs of life are missing. */
static void over_a_new_connection_the_log_is_heard_first(void **state)
{
    (void)state;
    begin(0, 3);
    while (desk.request.kind != CDDPI_LINK_TRY_GET) {
        desk_step(&desk, HEARER, ANSWERED);
    }
    desk_step(&desk, HEARER, LOST);
    desk_step(&desk, HEARER, ANSWERED);
    assert_int_equal(desk.request.kind, CDDPI_LINK_RECONNECT);
    desk_step(&desk, HEARER, ANSWERED);
    ASKS(CDDPI_LINK_GET, "job/event/0");
    desk_end(&desk);
}

static void an_event_that_the_log_has_no_form_for_is_dropped(void **state)
{
    (void)state;
    begin(0, 2);
    TELL(&desk, .kind = CDDPI_EVENT_SIZE, .number = -1);
    assert_false(cddpi_link_wants_to_tell(&desk.link));
    desk_end(&desk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_sign_of_life_comes_before_any_event),
        cmocka_unit_test(signs_of_life_follow_each_other_at_their_interval),
        cmocka_unit_test(each_request_has_a_deadline),
        cmocka_unit_test(an_event_goes_under_the_first_free_number),
        cmocka_unit_test(numbers_of_events_that_were_heard_are_not_tried),
        cmocka_unit_test(an_event_that_was_written_without_an_answer_is_not_repeated),
        cmocka_unit_test(an_event_that_was_not_written_is_repeated),
        cmocka_unit_test(an_event_that_the_store_takes_late_is_written_once),
        cmocka_unit_test(two_equal_events_are_two),
        cmocka_unit_test(a_key_for_the_ranks_is_written_in_its_turn),
        cmocka_unit_test(the_log_is_heard_in_its_order_without_what_is_no_event),
        cmocka_unit_test(a_store_that_is_silent_for_too_long_is_lost),
        cmocka_unit_test(a_store_that_answers_again_in_time_is_not_lost),
        cmocka_unit_test(a_connection_that_ends_is_made_anew),
        cmocka_unit_test(a_store_that_cannot_be_reached_anew_is_lost_once),
        cmocka_unit_test(a_store_that_ends_a_connection_and_then_is_silent_is_lost_after_the_limit),
        cmocka_unit_test(a_store_that_ends_each_connection_is_lost),
        cmocka_unit_test(a_store_that_refuses_is_lost_at_once),
        cmocka_unit_test(a_standstill_is_noticed_and_makes_nobody_lost),
        cmocka_unit_test(at_the_end_what_is_queued_is_written_for_a_while),
        cmocka_unit_test(an_event_is_waited_for_briefly),
        cmocka_unit_test(a_connection_that_is_made_slowly_is_no_standstill),
        cmocka_unit_test(over_a_new_connection_the_log_is_heard_first),
        cmocka_unit_test(an_event_that_the_log_has_no_form_for_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
