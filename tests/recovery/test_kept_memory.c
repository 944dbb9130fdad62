/* test_kept_memory.c - memory that outlives a rank: what a process leaves there at any moment, the
 * next one finds whole or not at all. */
#include "recovery/kept_memory.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HEADER = 4096, PAGE = 65536, BYTES = PAGE + 5, RUN = 6, WRITER = 7 };

/* A file without a name, and how one process sees it. */
static struct cddpi_kept_memory memory;

static int begin(void **state)
{
    int fd = memfd_create("kept", MFD_CLOEXEC);

    (void)state;
    return fd >= 0 && cddpi_kept_open(fd, &memory) == CDDP_OK ? 0 : 1;
}

static int end(void **state)
{
    (void)state;
    cddpi_kept_close(&memory);
    return close(memory.fd);
}

/* Another process: it has only the file. */
static void become_another(void)
{
    cddpi_kept_close(&memory);
    assert_int_equal(cddpi_kept_open(memory.fd, &memory), CDDP_OK);
}

/* Begin a copy of step @p step, of @p bytes bytes that all are @p step. Returns its slot. */
static int half_keep(int first, uint64_t step, size_t bytes)
{
    int slot = cddpi_kept_next(&memory, first, RUN);

    assert_int_equal(cddpi_kept_reserve(&memory, slot, bytes), CDDP_OK);
    memset(cddpi_kept_begin(&memory, slot), (int)step, bytes);
    return slot;
}

static int keep(int first, uint64_t step, size_t bytes)
{
    int slot = half_keep(first, step, bytes);
    const struct cddpi_kept_stamp stamp = {.step = step,
                                           .run = RUN,
                                           .writer = WRITER,
                                           .layout = 8,
                                           .bytes = bytes,
                                           .part = 1,
                                           .parts = 2};

    cddpi_kept_end(&memory, slot, &stamp);
    return slot;
}

static uint64_t step_of(int slot)
{
    return cddpi_kept_stamp(&memory, slot).step;
}

static void assert_holds(int slot, uint64_t step, size_t bytes)
{
    const struct cddpi_kept_stamp stamp = cddpi_kept_stamp(&memory, slot);
    const unsigned char *data = cddpi_kept_data(&memory, slot);

    assert_int_equal(stamp.step, step);
    assert_int_equal(stamp.run, RUN);
    assert_int_equal(stamp.writer, WRITER);
    assert_int_equal(stamp.layout, 8);
    assert_int_equal(stamp.bytes, bytes);
    assert_int_equal(stamp.part, 1);
    assert_int_equal(stamp.parts, 2);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(data[i], (unsigned char)step);
    }
}

static void new_memory_holds_nothing(void **state)
{
    (void)state;
    for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
        assert_int_equal(step_of(slot), 0);
    }
    assert_false(cddpi_kept_is_refused(&memory, RUN));
    assert_false(cddpi_kept_is_refused(&memory, 0));
}

static void slots_take_turns(void **state)
{
    static const int kinds[] = {CDDPI_KEPT_OWN, CDDPI_KEPT_OTHER};

    (void)state;
    for (uint64_t step = 1; step < 8; step++) {
        for (int k = 0; k < 2; k++) {
            int slot = keep(kinds[k], step, BYTES);

            assert_true(slot == kinds[k] || slot == kinds[k] + 1);
            assert_holds(slot, step, BYTES);
            if (step > 1) {
                assert_holds(2 * kinds[k] + 1 - slot, step - 1, BYTES);
            }
        }
    }
}

static void another_process_finds_what_the_one_before_has_kept(void **state)
{
    (void)state;
    int older = keep(CDDPI_KEPT_OWN, 5, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 6, 1);
    int other = keep(CDDPI_KEPT_OTHER, 4, 2 * BYTES);

    become_another();
    assert_holds(older, 5, BYTES);
    assert_holds(newer, 6, 1);
    assert_holds(other, 4, 2 * BYTES);
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN), older);
}

static void a_copy_that_ends_half_way_leaves_the_one_before(void **state)
{
    (void)state;
    int older = keep(CDDPI_KEPT_OWN, 1, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 2, BYTES);

    assert_int_equal(half_keep(CDDPI_KEPT_OWN, 3, BYTES), older);
    become_another();
    assert_int_equal(step_of(older), 0);
    assert_holds(newer, 2, BYTES);
    assert_int_equal(keep(CDDPI_KEPT_OWN, 3, BYTES), older);
    assert_holds(newer, 2, BYTES);
}

static void a_slot_without_room_grows_and_the_others_stay(void **state)
{
    (void)state;
    int older = keep(CDDPI_KEPT_OWN, 1, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 2, BYTES);
    int other = keep(CDDPI_KEPT_OTHER, 3, BYTES);

    for (size_t times = 10; times < 1000; times *= 10) {
        assert_int_equal(cddpi_kept_reserve(&memory, older, times * BYTES), CDDP_OK);
        assert_int_equal(step_of(older), 0);
        assert_holds(newer, 2, BYTES);
        assert_holds(other, 3, BYTES);
    }
    assert_int_equal(keep(CDDPI_KEPT_OWN, 4, 100 * BYTES), older);
    become_another();
    assert_holds(older, 4, 100 * BYTES);
    assert_holds(newer, 2, BYTES);
    assert_holds(other, 3, BYTES);
}

/* Nor does it take more memory. */
static void a_slot_with_room_keeps_what_it_has_until_it_is_written(void **state)
{
    struct stat before, after;
    int slot = keep(CDDPI_KEPT_OWN, 1, BYTES);

    (void)state;
    assert_int_equal(fstat(memory.fd, &before), 0);
    assert_int_equal(cddpi_kept_reserve(&memory, slot, 1), CDDP_OK);
    assert_holds(slot, 1, BYTES);
    assert_int_equal(fstat(memory.fd, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(before.st_blocks, after.st_blocks);
}

static void the_memory_of_a_slot_that_grows_is_given_back(void **state)
{
    struct stat file;
    int slot = keep(CDDPI_KEPT_OWN, 1, 20 * PAGE);

    (void)state;
    assert_int_equal(cddpi_kept_reserve(&memory, slot, 40 * PAGE), CDDP_OK);
    assert_int_equal(fstat(memory.fd, &file), 0);
    assert_true(file.st_blocks * 512 < (blkcnt_t)50 * PAGE);
}

static void what_another_version_wrote_is_no_state(void **state)
{
    (void)state;
    (void)keep(CDDPI_KEPT_OWN, 1, BYTES);
    cddpi_kept_refuse(&memory, RUN);
    assert_int_equal(pwrite(memory.fd, "cddpkep0", 8, 0), 8);
    become_another();
    new_memory_holds_nothing(state);
    assert_holds(keep(CDDPI_KEPT_OWN, 2, BYTES), 2, BYTES);
}

static void memory_that_was_cut_off_holds_nothing(void **state)
{
    static const off_t ends[] = {0,          1,    HEADER - 1, HEADER,
                                 HEADER + 1, PAGE, 2 * PAGE,   3 * PAGE - 1};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int slot = keep(CDDPI_KEPT_OWN, i + 1, BYTES);

        assert_int_equal(ftruncate(memory.fd, ends[i]), 0);
        become_another();
        new_memory_holds_nothing(state);
        assert_holds(slot = keep(CDDPI_KEPT_OWN, i + 1, BYTES), i + 1, BYTES);
        cddpi_kept_forget_others(&memory, RUN, 0, 0);
    }
}

/* Whatever numbers are in the header: of what it says is there, each byte can be read. */
static void no_number_in_the_header_leads_outside_of_the_file(void **state)
{
    enum { WORDS = 64 };
    static const uint64_t odd[] = {0,
                                   1,
                                   5,
                                   HEADER - 1,
                                   HEADER,
                                   PAGE - 1,
                                   PAGE,
                                   PAGE + 1,
                                   2 * PAGE,
                                   3 * PAGE,
                                   5 * PAGE,
                                   6 * PAGE,
                                   (uint64_t)1 << 31,
                                   (uint64_t)1 << 32,
                                   INT64_MAX,
                                   UINT64_MAX,
                                   UINT64_MAX - PAGE + 1,
                                   UINT64_MAX - BYTES};
    unsigned sum = 0;
    int taken = 0;
    int empty = 0;

    (void)state;
    (void)keep(CDDPI_KEPT_OWN, 1, BYTES);
    (void)keep(CDDPI_KEPT_OTHER, 1, BYTES);
    for (int word = 1; word < WORDS; word++) { /* the first one is the mark of the form */
        uint64_t right;

        assert_int_equal(pread(memory.fd, &right, sizeof right, 8 * word), sizeof right);
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            assert_int_equal(pwrite(memory.fd, &odd[i], sizeof odd[i], 8 * word), sizeof odd[i]);
            become_another();
            for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
                const struct cddpi_kept_stamp stamp = cddpi_kept_stamp(&memory, slot);
                const unsigned char *data = stamp.step != 0 ? cddpi_kept_data(&memory, slot) : NULL;

                for (uint64_t at = 0; data != NULL && at < stamp.bytes; at++) {
                    sum += data[at];
                }
                if (stamp.step != 0) {
                    assert_true(stamp.bytes > 0 && stamp.part < stamp.parts);
                    assert_non_null(data);
                    assert_int_not_equal(*data, 'c'); /* with that, the header begins */
                }
                taken += data != NULL;
                empty += stamp.step == 0;
            }
        }
        assert_int_equal(pwrite(memory.fd, &right, sizeof right, 8 * word), sizeof right);
    }
    assert_true(sum > 0 && taken > WORDS && empty > taken);
}

static void what_another_process_has_moved_is_found_again(void **state)
{
    struct cddpi_kept_memory first;
    int slot = keep(CDDPI_KEPT_OWN, 1, BYTES);

    (void)state;
    assert_int_equal(cddpi_kept_open(memory.fd, &first), CDDP_OK);
    assert_non_null(cddpi_kept_data(&first, slot));
    assert_int_equal(cddpi_kept_reserve(&memory, slot, 3 * BYTES), CDDP_OK);
    cddpi_kept_begin(&memory, slot)[0] = 9;
    assert_int_equal(cddpi_kept_data(&first, slot)[0], 9);
    cddpi_kept_close(&first);
}

static void a_slot_that_lies_outside_gets_room_of_its_own(void **state)
{
    int slot = keep(CDDPI_KEPT_OWN, 1, BYTES);

    (void)state;
    assert_int_equal(ftruncate(memory.fd, 2 * PAGE), 0);
    assert_int_equal(step_of(slot), 0);
    assert_null(cddpi_kept_data(&memory, slot));
    assert_holds(keep(CDDPI_KEPT_OWN, 2, BYTES), 2, BYTES);
}

static void others_are_forgotten(void **state)
{
    (void)state;
    int older = keep(CDDPI_KEPT_OWN, 1, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 2, BYTES);
    int other = keep(CDDPI_KEPT_OTHER, 1, BYTES);

    cddpi_kept_forget_others(&memory, RUN, WRITER, 1);
    assert_holds(older, 1, BYTES);
    assert_holds(other, 1, BYTES);
    assert_int_equal(step_of(newer), 0);
    cddpi_kept_forget_others(&memory, RUN, WRITER + 1, 1);
    new_memory_holds_nothing(state);
}

/* Programs of one job may train several runs. */
static void what_another_run_has_kept_is_not_forgotten(void **state)
{
    (void)state;
    int slot = keep(CDDPI_KEPT_OWN, 3, BYTES);

    cddpi_kept_refuse(&memory, RUN);
    cddpi_kept_forget_others(&memory, RUN + 1, 0, 0);
    assert_holds(slot, 3, BYTES);
    assert_true(cddpi_kept_is_refused(&memory, RUN));
    assert_false(cddpi_kept_is_refused(&memory, RUN + 1));
    assert_false(cddpi_kept_is_refused(&memory, 0));
}

static void what_another_run_has_kept_is_overwritten_first(void **state)
{
    const struct cddpi_kept_stamp stamp = {
        .step = 1, .run = RUN + 1, .writer = WRITER, .bytes = BYTES, .parts = 1};
    int older = keep(CDDPI_KEPT_OWN, 8, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 9, BYTES);

    (void)state;
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN), older);
    (void)cddpi_kept_begin(&memory, older);
    cddpi_kept_end(&memory, older, &stamp);
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN), older);
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN + 1), newer);
}

/* Loops that take turns: the newest that one of them has kept stays. */
static void of_two_of_another_run_the_older_is_overwritten(void **state)
{
    int older = keep(CDDPI_KEPT_OWN, 1, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 2, BYTES);

    (void)state;
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN + 1), older);
    assert_int_equal(keep(CDDPI_KEPT_OWN, 3, BYTES), older);
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN + 1), newer);
    become_another();
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN + 1), newer);
    (void)cddpi_kept_begin(&memory, older);
    assert_int_equal(cddpi_kept_next(&memory, CDDPI_KEPT_OWN, RUN + 1), older);
}

static void a_step_that_is_kept_again_takes_the_other_slot(void **state)
{
    int first = keep(CDDPI_KEPT_OTHER, 5, BYTES);
    int second = keep(CDDPI_KEPT_OTHER, 5, BYTES);

    (void)state;
    assert_int_not_equal(first, second);
    assert_int_equal(keep(CDDPI_KEPT_OTHER, 5, BYTES), first);
    assert_int_equal(keep(CDDPI_KEPT_OTHER, 5, BYTES), second);
}

static void what_a_writer_has_kept_is_news_once(void **state)
{
    (void)state;
    assert_true(cddpi_kept_is_news(&memory, WRITER));
    become_another();
    assert_false(cddpi_kept_is_news(&memory, WRITER));
    cddpi_kept_forget_others(&memory, RUN, WRITER, 1);
    assert_false(cddpi_kept_is_news(&memory, WRITER));
    assert_true(cddpi_kept_is_news(&memory, WRITER + 1));
}

static void a_refusal_is_heard_by_later_processes_until_it_is_forgotten(void **state)
{
    (void)state;
    int slot = keep(CDDPI_KEPT_OWN, 1, BYTES);

    cddpi_kept_refuse(&memory, RUN);
    become_another();
    cddpi_kept_forget_others(&memory, RUN, WRITER, 1);
    cddpi_kept_forget_refusal(&memory, RUN + 1);
    assert_true(cddpi_kept_is_refused(&memory, RUN));
    assert_holds(slot, 1, BYTES);
    cddpi_kept_forget_refusal(&memory, RUN);
    assert_false(cddpi_kept_is_refused(&memory, RUN));
    assert_holds(slot, 1, BYTES);
}

static void room_is_what_slots_have_whatever_they_hold(void **state)
{
    uint64_t room;

    (void)state;
    assert_int_equal(cddpi_kept_room(&memory), 0);
    (void)keep(CDDPI_KEPT_OWN, 1, BYTES);
    room = cddpi_kept_room(&memory);
    assert_true(room >= BYTES);
    (void)half_keep(CDDPI_KEPT_OTHER, 1, BYTES);
    become_another();
    cddpi_kept_forget_others(&memory, RUN, 0, 0);
    assert_int_equal(cddpi_kept_room(&memory), 2 * room);
    assert_int_equal(ftruncate(memory.fd, 2 * PAGE), 0);
    assert_int_equal(cddpi_kept_room(&memory), 0);
}

/* Limit files to @p bytes; returns the limit before. */
static struct rlimit limit_files(rlim_t bytes)
{
    struct rlimit before, limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){bytes, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return before;
}

static void where_no_memory_is_left_the_other_slot_stays(void **state)
{
    int older = keep(CDDPI_KEPT_OWN, 1, BYTES);
    int newer = keep(CDDPI_KEPT_OWN, 2, BYTES);
    struct rlimit before = limit_files(16 * PAGE);
    cddp_status status = cddpi_kept_reserve(&memory, older, 20 * PAGE);

    (void)state;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, CDDP_ERR_NO_MEMORY);
    assert_non_null(strstr(cddp_last_error(), "memory that outlives a rank: "));
    assert_int_equal(step_of(older), 0);
    assert_null(cddpi_kept_data(&memory, older));
    assert_holds(newer, 2, BYTES);
    assert_holds(keep(CDDPI_KEPT_OWN, 3, BYTES), 3, BYTES);
    assert_holds(newer, 2, BYTES);
}

static void memory_that_may_not_grow_cannot_be_opened(void **state)
{
    struct cddpi_kept_memory other;
    int fd = memfd_create("small", MFD_CLOEXEC);
    struct rlimit before = limit_files(100);
    cddp_status status = cddpi_kept_open(fd, &other);

    (void)state;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, CDDP_ERR_IO);
    cddpi_kept_close(&other);
    assert_int_equal(close(fd), 0);
    assert_int_equal(cddpi_kept_open(fd, &other), CDDP_ERR_IO);
}

/* A case with memory of its own. */
#define WITH_MEMORY(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MEMORY(new_memory_holds_nothing),
        WITH_MEMORY(slots_take_turns),
        WITH_MEMORY(another_process_finds_what_the_one_before_has_kept),
        WITH_MEMORY(a_copy_that_ends_half_way_leaves_the_one_before),
        WITH_MEMORY(a_slot_without_room_grows_and_the_others_stay),
        WITH_MEMORY(a_slot_with_room_keeps_what_it_has_until_it_is_written),
        WITH_MEMORY(the_memory_of_a_slot_that_grows_is_given_back),
        WITH_MEMORY(what_another_version_wrote_is_no_state),
        WITH_MEMORY(memory_that_was_cut_off_holds_nothing),
        WITH_MEMORY(no_number_in_the_header_leads_outside_of_the_file),
        WITH_MEMORY(what_another_process_has_moved_is_found_again),
        WITH_MEMORY(a_slot_that_lies_outside_gets_room_of_its_own),
        WITH_MEMORY(others_are_forgotten),
        WITH_MEMORY(what_another_run_has_kept_is_not_forgotten),
        WITH_MEMORY(what_another_run_has_kept_is_overwritten_first),
        WITH_MEMORY(of_two_of_another_run_the_older_is_overwritten),
        WITH_MEMORY(a_step_that_is_kept_again_takes_the_other_slot),
        WITH_MEMORY(what_a_writer_has_kept_is_news_once),
        WITH_MEMORY(a_refusal_is_heard_by_later_processes_until_it_is_forgotten),
        WITH_MEMORY(room_is_what_slots_have_whatever_they_hold),
        WITH_MEMORY(where_no_memory_is_left_the_other_slot_stays),
        WITH_MEMORY(memory_that_may_not_grow_cannot_be_opened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
