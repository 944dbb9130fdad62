/* test_launcher_ill_cards.c - which cards ranks get when some are left out: invented reports. */
#include "launcher/supervise/ill_cards.h"

#include "support/test.h"

static struct cddpi_ill_cards cards;

/* The cards with these letters, as the driver lists them. */
static const char *list_of(const char *letters)
{
    static char text[256];
    size_t used = 0;

    text[0] = '\0';
    for (; *letters != '\0'; letters++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "GPU-%c0\n", *letters);
    }
    return text;
}

/* Rank @p index reports the card @p index of @p seen. */
static void report_of(char letter, int index, int seen)
{
    char text[64];

    snprintf(text, sizeof text, "GPU-%c0/%d NVML reports Xid 79", letter, seen);
    cddpi_ill_cards_take(&cards, index, index, text, strlen(text));
}

/* Without saying how many cards there are. */
static void report(char letter, int index)
{
    char text[64];

    snprintf(text, sizeof text, "GPU-%c0 NVML reports Xid 79", letter);
    cddpi_ill_cards_take(&cards, index, index, text, strlen(text));
}

static void assert_ranks_get(const char *letters)
{
    char visible[1024];
    char wanted[256] = "";
    size_t used = 0;

    assert_true(cddpi_ill_cards_visible(&cards, visible, sizeof visible));
    for (int i = 0; letters[i] != '\0'; i++) {
        used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%sGPU-%c0", i > 0 ? "," : "",
                                 letters[i]);
    }
    assert_string_equal(visible, wanted);
}

static void begin(void)
{
    memset(&cards, 0, sizeof cards);
}

static void without_reports_nothing_changes(void **state)
{
    char visible[64];

    (void)state;
    begin();
    assert_false(cddpi_ill_cards_are_new(&cards));
    assert_false(cddpi_ill_cards_visible(&cards, visible, sizeof visible));
    assert_int_equal(cddpi_ill_cards_serve(&cards, 8), 8);
}

static void a_spare_takes_the_place_and_the_other_ranks_keep_theirs(void **state)
{
    (void)state;
    begin();
    report('a', 0);
    assert_true(cddpi_ill_cards_are_new(&cards));
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("abcde"), 3), 3);
    assert_ranks_get("dbce");
    assert_false(cddpi_ill_cards_are_new(&cards));
    report('b', 1);
    assert_true(cddpi_ill_cards_are_new(&cards));
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("abcde"), 3), 3);
    assert_ranks_get("dec");
}

/* One that has fallen off the bus; those behind it have other numbers then. */
static void a_card_that_the_driver_does_not_find_shifts_no_rank(void **state)
{
    (void)state;
    begin();
    report('b', 1);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("acd"), 3), 3);
    assert_ranks_get("adc");
    report('c', 2);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("ad"), 3), 2);
    assert_ranks_get("ad");
    assert_int_equal(cddpi_ill_cards_serve(&cards, 3), 2);
    assert_int_equal(cddpi_ill_cards_serve(&cards, 2), 2);
}

static void a_healthy_card_that_is_gone_is_not_given_either(void **state)
{
    (void)state;
    begin();
    report('a', 0);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("abcd"), 2), 2);
    assert_ranks_get("cbd");
    report('c', 0);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("acd"), 2), 1);
    assert_ranks_get("d");
}

static void several_cards_at_once_are_left_out(void **state)
{
    (void)state;
    begin();
    report('a', 0);
    report('c', 2);
    report('c', 2);
    assert_int_equal(cards.count, 2);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("abcd"), 3), 2);
    assert_ranks_get("bd");
}

/* One rank has reported its card, the other was killed before. */
static void cards_that_vanish_together_are_not_taken_for_shared_ones(void **state)
{
    (void)state;
    begin();
    report_of('a', 0, 4);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("cd"), 4), 2);
    assert_ranks_get("cd");
    assert_int_equal(cddpi_ill_cards_serve(&cards, 4), 2);
}

/* A script lets each rank see one card. */
static void ranks_that_see_a_part_of_the_cards_do_not_share_them(void **state)
{
    (void)state;
    begin();
    report_of('a', 0, 1);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("cd"), 4), 2);
}

static void ranks_that_share_cards_share_those_that_are_left(void **state)
{
    (void)state;
    begin();
    report_of('a', 0, 2);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("ab"), 4), 4);
    assert_ranks_get("b");
    report_of('b', 0, 1);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, list_of("ab"), 4), 0);
    assert_int_equal(cddpi_ill_cards_serve(&cards, 4), 0);
}

static void a_card_that_is_used_although_it_is_left_out_is_noticed(void **state)
{
    (void)state;
    begin();
    report('a', 0);
    report('a', 0);
    assert_false(cards.list[0].is_used_yet);
    (void)cddpi_ill_cards_leave_out(&cards, list_of("ab"), 1);
    report('a', 0);
    assert_true(cards.list[0].is_used_yet);
    assert_true(cddpi_ill_cards_are_new(&cards));
}

static void a_card_keeps_the_number_that_it_had_at_first(void **state)
{
    (void)state;
    begin();
    report('b', 1);
    (void)cddpi_ill_cards_leave_out(&cards, list_of("abcd"), 2);
    assert_ranks_get("acd");
    report('c', 1);
    assert_int_equal(cards.list[1].index, 2);
}

static void assert_asks_for(const char *visible, const char *inherited, int ranks)
{
    char text[256];
    int count = cddpi_ill_cards_to_ask(&cards, inherited, ranks, text, sizeof text);
    int wanted = visible[0] != '\0';

    for (int i = 0; visible[i] != '\0'; i++) {
        wanted += visible[i] == ',';
    }
    assert_int_equal(count, wanted);
    assert_string_equal(text, visible);
}

static void the_driver_is_not_asked_for_ill_cards(void **state)
{
    (void)state;
    begin();
    report_of('b', 1, 4);
    assert_asks_for("0,2,3", NULL, 2);
    assert_asks_for("6,4,GPU-c0", "6,5,4,GPU-c0", 2);
    report_of('d', 3, 4);
    assert_asks_for("0,2", NULL, 2);
    (void)cddpi_ill_cards_leave_out(&cards, list_of("abcd"), 2);
    assert_asks_for("GPU-a0,GPU-c0", NULL, 2);
    report_of('c', 1, 2);
    assert_asks_for("GPU-a0", "6,5,4,GPU-c0", 2);
}

/* A rank has seen other cards, or does not say which. */
static void numbers_that_say_nothing_are_not_asked_for(void **state)
{
    (void)state;
    begin();
    report_of('a', 0, 1);
    assert_asks_for("", NULL, 2);
    assert_asks_for("", "0,1", 2);
    begin();
    report_of('a', 4, 4);
    assert_asks_for("", NULL, 2);
    begin();
    report('a', 0);
    assert_asks_for("", NULL, 2);
    assert_asks_for("", "", 2);
    begin();
    report_of('a', 0, 2);
    report_of('b', 1, 2);
    assert_asks_for("", NULL, 2);
    begin();
    report_of('a', 0, 99999);
    assert_int_equal(cards.list[0].seen, 0);
}

/* Any program may write to the pipe. */
static void odd_names_are_not_believed(void **state)
{
    static const char *const odd[] = {
        "",         " ",
        "GPU-a0",   "GPU-a0,GPU-b0 x",
        "GPU-\n x", "MIG-a0 x",
        "GPU- x",   "GPU-00000000000000000000000000000000000000000000000000 x"};

    (void)state;
    begin();
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        cddpi_ill_cards_take(&cards, 0, 65535, odd[i], strlen(odd[i]));
    }
    assert_int_equal(cards.count, 0);
    for (int i = 0; i < 100; i++) {
        char text[32];

        snprintf(text, sizeof text, "GPU-%x x", i);
        cddpi_ill_cards_take(&cards, 0, 65535, text, strlen(text));
    }
    assert_int_equal(cards.count, CDDPI_MACHINE_GPUS);
    assert_int_equal(cddpi_ill_cards_leave_out(&cards, "GPU-0\nrubbish\nGPU-ff", 1), 1);
    {
        char visible[64];

        assert_true(cddpi_ill_cards_visible(&cards, visible, sizeof visible));
        assert_string_equal(visible, "GPU-ff");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_reports_nothing_changes),
        cmocka_unit_test(a_spare_takes_the_place_and_the_other_ranks_keep_theirs),
        cmocka_unit_test(a_card_that_the_driver_does_not_find_shifts_no_rank),
        cmocka_unit_test(a_healthy_card_that_is_gone_is_not_given_either),
        cmocka_unit_test(several_cards_at_once_are_left_out),
        cmocka_unit_test(cards_that_vanish_together_are_not_taken_for_shared_ones),
        cmocka_unit_test(ranks_that_see_a_part_of_the_cards_do_not_share_them),
        cmocka_unit_test(ranks_that_share_cards_share_those_that_are_left),
        cmocka_unit_test(a_card_that_is_used_although_it_is_left_out_is_noticed),
        cmocka_unit_test(a_card_keeps_the_number_that_it_had_at_first),
        cmocka_unit_test(the_driver_is_not_asked_for_ill_cards),
        cmocka_unit_test(numbers_that_say_nothing_are_not_asked_for),
        cmocka_unit_test(odd_names_are_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
