/* test_keep_choose.c - from which state a job goes on: the greatest step of which every part is
 * there. */
#include "recovery/keep_choose.h"
#include "support/test.h"

#include <stdbool.h>

enum { RANKS = 6, ROOM = 8, RUN = 30, LAYOUT = 40, WRITER = 50, DRAWS = 20000 };

static struct cddpi_keep_offer offers[RANKS];

static struct cddpi_kept_stamp stamp_of(uint64_t step, uint32_t part, uint32_t parts)
{
    return (struct cddpi_kept_stamp){.step = step,
                                     .run = RUN,
                                     .writer = WRITER,
                                     .layout = LAYOUT,
                                     .bytes = 100,
                                     .part = part,
                                     .parts = parts};
}

/* Each of @p ranks ranks can read its own part of the steps @p older and @p newer. */
static void offer(int ranks, uint64_t older, uint64_t newer)
{
    memset(offers, 0, sizeof offers);
    for (int rank = 0; rank < ranks; rank++) {
        offers[rank].run = RUN;
        offers[rank].layout = LAYOUT;
        offers[rank].stamps[0] = stamp_of(older, (uint32_t)rank, (uint32_t)ranks);
        offers[rank].stamps[1] = stamp_of(newer, (uint32_t)rank, (uint32_t)ranks);
    }
}

static void assert_chosen(int ranks, uint64_t step)
{
    struct cddpi_keep_place places[ROOM] = {{0}};
    struct cddpi_kept_stamp out;

    cddpi_keep_choose(offers, ranks, &out, places, ROOM);
    assert_int_equal(out.step, step);
    for (uint32_t part = 0; step > 0 && part < out.parts; part++) {
        const struct cddpi_kept_stamp *stamp =
            &offers[places[part].rank].stamps[places[part].stamp];

        assert_in_range(places[part].rank, 0, ranks - 1);
        assert_in_range(places[part].stamp, 0, CDDPI_KEEP_STAMPS - 1);
        assert_int_equal(stamp->step, step);
        assert_int_equal(stamp->part, part);
    }
}

static void the_greatest_step_is_chosen(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        offer(ranks, 7, 8);
        assert_chosen(ranks, 8);
        offer(ranks, 8, 7);
        assert_chosen(ranks, 8);
    }
}

static void without_any_state_none_is_chosen(void **state)
{
    (void)state;
    memset(offers, 0, sizeof offers);
    assert_chosen(3, 0);
    offer(3, 0, 0);
    assert_chosen(3, 0);
}

/* Some ranks were killed before, and some after their last copy. */
static void of_parts_that_are_one_copy_apart_the_lesser_step_is_whole(void **state)
{
    (void)state;
    for (int behind = 0; behind < 4; behind++) {
        offer(4, 7, 8);
        offers[behind].stamps[1] = stamp_of(6, (uint32_t)behind, 4);
        assert_chosen(4, 7);
        offers[behind].stamps[1].step = 0; /* it was just being written */
        assert_chosen(4, 7);
    }
}

static void a_part_that_is_nowhere_makes_no_state(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        offer(3, 7, 8);
        memset(offers[lost].stamps, 0, sizeof offers[lost].stamps);
        assert_chosen(3, 0);
    }
}

static void a_part_of_another_kind_is_not_of_the_state(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct cddpi_kept_stamp *stamp = &offers[1].stamps[1];

        offer(3, 7, 8);
        stamp->writer += kind == 0;
        stamp->layout += kind == 1;
        stamp->parts += kind == 2;
        stamp->run += kind == 3;
        assert_chosen(3, 7);
    }
}

/* Its ranks are other processes, and their step 8 may have been another one. */
static void steps_of_different_writers_are_not_mixed(void **state)
{
    (void)state;
    offer(2, 7, 8);
    offers[0].stamps[0].writer++;
    offers[1].stamps[1].writer++;
    assert_chosen(2, 0);
    offers[1].stamps[2] = stamp_of(8, 1, 2);
    assert_chosen(2, 8);
}

static void a_state_of_another_run_is_not_chosen(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        offer(3, 7, 8);
        for (int rank = 0; rank < 3; rank++) {
            offers[rank].layout += kind == 0;
            offers[rank].run += kind == 1;
        }
        assert_chosen(3, 0);
    }
}

static void ranks_of_different_layouts_choose_none(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        offer(3, 7, 8);
        offers[rank].layout++;
        assert_chosen(3, 0);
    }
}

static void who_refuses_refuses_for_all(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        offer(3, 7, 8);
        offers[rank].is_refused = 1;
        assert_chosen(3, 0);
    }
}

static void a_newer_checkpoint_wins_and_an_equal_one_does_not(void **state)
{
    (void)state;
    offer(3, 7, 8);
    offers[0].checkpoint = 8;
    offers[1].checkpoint = 100; /* only rank 0 knows */
    assert_chosen(3, 8);
    offers[0].checkpoint = 9;
    assert_chosen(3, 0);
    offers[0].checkpoint = 8;
    offers[2].stamps[1].step = 0;
    assert_chosen(3, 0);
}

static void a_part_may_be_at_another_rank(void **state)
{
    (void)state;
    offer(4, 7, 8);
    offers[0].stamps[CDDPI_KEEP_STAMPS - 1] = offers[3].stamps[1];
    offers[1].stamps[2] = offers[0].stamps[1];
    offers[0].stamps[1].step = 0;
    assert_chosen(3, 8);
}

static void of_several_ranks_with_a_part_the_lowest_is_named(void **state)
{
    struct cddpi_keep_place places[ROOM];
    struct cddpi_kept_stamp out;

    (void)state;
    offer(4, 7, 8);
    offers[1].stamps[5] = offers[3].stamps[1];
    offers[2].stamps[4] = offers[3].stamps[1];
    cddpi_keep_choose(offers, 4, &out, places, ROOM);
    assert_int_equal(out.step, 8);
    assert_int_equal(places[3].rank, 1);
    assert_int_equal(places[3].stamp, 5);
}

static void other_numbers_of_ranks_choose_alike(void **state)
{
    (void)state;
    offer(5, 7, 8);
    for (int rank = 2; rank < 5; rank++) { /* two ranks can read what five have left */
        memcpy(&offers[rank % 2].stamps[2 * rank], offers[rank].stamps,
               2 * sizeof *offers[rank].stamps);
    }
    assert_chosen(2, 8);
    offer(2, 7, 8);
    for (int rank = 2; rank < RANKS; rank++) { /* four have come, and have nothing */
        offers[rank].run = RUN;
        offers[rank].layout = LAYOUT;
    }
    assert_chosen(RANKS, 8);
}

static void a_state_of_more_parts_than_there_is_room_for_is_not_chosen(void **state)
{
    struct cddpi_keep_place places[2];
    struct cddpi_kept_stamp out;

    (void)state;
    offer(3, 7, 8);
    offers[0].stamps[3] = stamp_of(5, 0, 2);
    offers[1].stamps[3] = stamp_of(5, 1, 2);
    cddpi_keep_choose(offers, 3, &out, places, 2);
    assert_int_equal(out.step, 5);
    assert_int_equal(out.parts, 2);
    cddpi_keep_choose(offers, 3, &out, places, 1);
    assert_int_equal(out.step, 0);
}

static bool are_one_state(const struct cddpi_kept_stamp *a, const struct cddpi_kept_stamp *b)
{
    return a->step == b->step && a->run == b->run && a->writer == b->writer &&
           a->parts == b->parts && a->layout == b->layout;
}

static int find(const struct cddpi_kept_stamp *all, int count, const struct cddpi_kept_stamp *state,
                uint32_t part)
{
    for (int i = 0; i < count; i++) {
        if (all[i].part == part && are_one_state(&all[i], state)) {
            return i;
        }
    }
    return -1;
}

/* Whether the parts of @p state are all among the @p count stamps. */
static bool has_all(const struct cddpi_kept_stamp *all, int count,
                    const struct cddpi_kept_stamp *state)
{
    uint32_t found = 0;

    for (uint32_t part = 0; part < state->parts; part++) {
        found += find(all, count, state, part) >= 0;
    }
    return found == state->parts;
}

/* The step to choose, by trying all stamps. */
static uint64_t greatest_step(int ranks, size_t room)
{
    struct cddpi_kept_stamp all[RANKS * CDDPI_KEEP_STAMPS];
    uint64_t best = 0;

    for (int i = 0; i < ranks * CDDPI_KEEP_STAMPS; i++) {
        all[i] = offers[i / CDDPI_KEEP_STAMPS].stamps[i % CDDPI_KEEP_STAMPS];
    }
    for (int i = 0; i < ranks * CDDPI_KEEP_STAMPS; i++) {
        if (all[i].step > best && all[i].parts <= room && all[i].layout == offers[0].layout &&
            all[i].run == offers[0].run && all[i].step >= offers[0].checkpoint &&
            has_all(all, ranks * CDDPI_KEEP_STAMPS, &all[i])) {
            best = all[i].step;
        }
    }
    for (int rank = 0; rank < ranks; rank++) {
        best = offers[rank].is_refused || offers[rank].layout != offers[0].layout ? 0 : best;
    }
    return best;
}

static unsigned draw(unsigned below)
{
    static uint32_t random = 12345;

    random = random * 1664525U + 1013904223U;
    return (random >> 16) % below;
}

/* Mostly what a job may leave: few steps, writers and numbers of parts; each part in some place. */
static void draw_offers(int ranks)
{
    memset(offers, 0, sizeof offers);
    for (int rank = 0; rank < ranks; rank++) {
        offers[rank].run = RUN;
        offers[rank].layout = LAYOUT + (draw(60) == 0);
        offers[rank].is_refused = draw(60) == 0;
        offers[rank].checkpoint = draw(2) == 0 ? draw(5) : 0;
    }
    for (int states = 1 + (int)draw(6); states > 0; states--) {
        uint32_t parts = 1 + draw(5);
        uint64_t step = 1 + draw(4);
        uint64_t writer = WRITER + draw(2);
        uint64_t layout = LAYOUT + (draw(10) == 0);
        uint64_t run = RUN + (draw(10) == 0);

        for (uint32_t part = 0; part < parts; part++) {
            struct cddpi_kept_stamp stamp = stamp_of(step, part, parts);

            stamp.writer = writer;
            stamp.layout = layout;
            stamp.run = run;
            stamp.layout += draw(20) == 0;
            for (int copies = draw(12) == 0 ? 0 : 1 + (int)draw(2); copies > 0; copies--) {
                offers[draw((unsigned)ranks)].stamps[draw(CDDPI_KEEP_STAMPS)] = stamp;
            }
        }
    }
}

static void what_is_drawn_is_chosen_as_by_trying_everything(void **state)
{
    int chosen = 0;

    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        int ranks = 1 + (int)draw(RANKS);

        draw_offers(ranks);
        assert_chosen(ranks, greatest_step(ranks, ROOM));
        chosen += greatest_step(ranks, ROOM) > 0;
    }
    assert_in_range(chosen, DRAWS / 4, DRAWS * 3 / 4); /* the draws are not all of one kind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_greatest_step_is_chosen),
        cmocka_unit_test(without_any_state_none_is_chosen),
        cmocka_unit_test(of_parts_that_are_one_copy_apart_the_lesser_step_is_whole),
        cmocka_unit_test(a_part_that_is_nowhere_makes_no_state),
        cmocka_unit_test(a_part_of_another_kind_is_not_of_the_state),
        cmocka_unit_test(steps_of_different_writers_are_not_mixed),
        cmocka_unit_test(a_state_of_another_run_is_not_chosen),
        cmocka_unit_test(ranks_of_different_layouts_choose_none),
        cmocka_unit_test(who_refuses_refuses_for_all),
        cmocka_unit_test(a_newer_checkpoint_wins_and_an_equal_one_does_not),
        cmocka_unit_test(a_part_may_be_at_another_rank),
        cmocka_unit_test(of_several_ranks_with_a_part_the_lowest_is_named),
        cmocka_unit_test(other_numbers_of_ranks_choose_alike),
        cmocka_unit_test(a_state_of_more_parts_than_there_is_room_for_is_not_chosen),
        cmocka_unit_test(what_is_drawn_is_chosen_as_by_trying_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
