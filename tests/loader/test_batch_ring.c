/* test_batch_ring.c - the ring of batches under both loaders: threads make the pieces, and the
 * caller takes the batches in order. */
#include "loader/batch_ring.h"
#include "support/failure.h"

#include "support/test.h"

#include <stdatomic.h>

enum { BATCHES = 41, MOST_PIECES = 4, MOST_SLOTS = 5 };

/* Batch n has n % 5 pieces, so some have none. Piece p of it puts 10 n + p into its slot. */
struct maker {
    _Atomic int made; /* pieces */
    uint64_t memory[MOST_SLOTS][MOST_PIECES];
    uint64_t fails;    /* batch whose pieces 1 to 3 fail */
    _Atomic bool held; /* pieces wait */
};

static uint64_t open_batch(void *owner, uint64_t number, uint64_t slot)
{
    struct maker *maker = owner;

    for (int p = 0; p < MOST_PIECES; p++) {
        maker->memory[slot][p] = 0;
    }
    return number % (MOST_PIECES + 1);
}

static cddp_status make_piece(void *owner, uint64_t number, uint64_t slot, uint64_t piece)
{
    struct maker *maker = owner;

    while (maker->held) {
        support_sleep_ms(1);
    }
    maker->memory[slot][piece] = 10 * number + piece;
    maker->made++;
    return number == maker->fails && piece > 0
               ? cddpi_fail(CDDP_ERR_IO, "batch %d, piece %d", (int)number, (int)piece)
               : CDDP_OK;
}

static const struct cddpi_batch_ring_ops ops = {open_batch, make_piece};

static void start_ring(struct cddpi_batch_ring *ring, struct maker *maker, uint64_t slots,
                       int threads, uint32_t timeout_ms)
{
    *maker = (struct maker){.fails = UINT64_MAX};
    assert_int_equal(cddpi_batch_ring_init(ring, "test", &ops, maker, slots, threads, timeout_ms),
                     CDDP_OK);
    assert_int_equal(cddpi_batch_ring_start(ring, threads), 0);
}

/* Take batches until @p end; returns how many pieces they had. */
static int take_batches(struct cddpi_batch_ring *ring, const struct maker *maker, uint64_t end)
{
    int pieces = 0;

    for (; ring->taken < end; ring->taken++) {
        uint64_t number = ring->taken;

        assert_int_equal(cddpi_batch_ring_await(ring), CDDP_OK);
        for (uint64_t p = 0; p < number % (MOST_PIECES + 1); p++, pieces++) {
            assert_int_equal(maker->memory[number % ring->slot_count][p], 10 * number + p);
        }
    }
    return pieces;
}

static void each_piece_is_made_once_whatever_the_number_of_threads_and_slots(void **state)
{
    struct cddpi_batch_ring ring;
    struct maker maker;

    (void)state;
    for (int threads = 0; threads <= 4; threads++) {
        for (uint64_t slots = 1; slots <= MOST_SLOTS; slots++) {
            int pieces;

            start_ring(&ring, &maker, slots, threads, 0);
            cddpi_batch_ring_begin(&ring, 0, BATCHES);
            pieces = take_batches(&ring, &maker, BATCHES);
            assert_int_equal(pieces, 80);
            assert_int_equal(maker.made, pieces);
            cddpi_batch_ring_cancel(&ring);
            cddpi_batch_ring_begin(&ring, 3, 9); /* and from the middle on */
            assert_int_equal(take_batches(&ring, &maker, 9), 3 + 4 + 0 + 1 + 2 + 3);
            cddpi_batch_ring_fini(&ring);
        }
    }
}

static void after_cancel_no_piece_is_made(void **state)
{
    struct cddpi_batch_ring ring;
    struct maker maker;

    (void)state;
    for (uint64_t taken = 0; taken <= 20; taken++) {
        int made;

        start_ring(&ring, &maker, 3, 3, 0);
        cddpi_batch_ring_begin(&ring, 0, BATCHES);
        take_batches(&ring, &maker, taken);
        cddpi_batch_ring_cancel(&ring);
        made = maker.made;
        cddpi_batch_ring_cancel(&ring);
        cddpi_batch_ring_fini(&ring);
        assert_int_equal(maker.made, made);
    }
}

static void the_first_piece_that_failed_is_told_and_ends_the_batches(void **state)
{
    struct cddpi_batch_ring ring;
    struct maker maker;

    (void)state;
    for (int threads = 0; threads <= 3; threads++) {
        start_ring(&ring, &maker, 2, threads, 0);
        maker.fails = 8;
        cddpi_batch_ring_begin(&ring, 0, BATCHES);
        take_batches(&ring, &maker, 8);
        assert_true(failure_is(cddpi_batch_ring_await(&ring), CDDP_ERR_IO, -1, -1, ""));
        assert_string_equal(cddp_last_error(), "batch 8, piece 1");
        cddpi_batch_ring_cancel(&ring);
        cddpi_batch_ring_begin(&ring, 9, BATCHES);
        take_batches(&ring, &maker, BATCHES);
        cddpi_batch_ring_fini(&ring);
    }
}

static void a_batch_that_takes_too_long_is_a_timeout_and_can_be_awaited_again(void **state)
{
    struct cddpi_batch_ring ring;
    struct maker maker;

    (void)state;
    start_ring(&ring, &maker, 3, 2, 20);
    maker.held = true;
    cddpi_batch_ring_begin(&ring, 1, BATCHES);
    assert_true(failure_is(cddpi_batch_ring_await(&ring), CDDP_ERR_TIMEOUT, -1, -1, ""));
    assert_string_equal(cddp_last_error(), "loader: batch 1 was not read within 20 ms");
    maker.held = false;
    while (cddpi_batch_ring_await(&ring) == CDDP_ERR_TIMEOUT) {
    }
    ring.timeout_ms = 60000;
    take_batches(&ring, &maker, BATCHES);
    cddpi_batch_ring_fini(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_is_made_once_whatever_the_number_of_threads_and_slots),
        cmocka_unit_test(after_cancel_no_piece_is_made),
        cmocka_unit_test(the_first_piece_that_failed_is_told_and_ends_the_batches),
        cmocka_unit_test(a_batch_that_takes_too_long_is_a_timeout_and_can_be_awaited_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
