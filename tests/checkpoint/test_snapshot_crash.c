/* test_snapshot_crash.c - a complete snapshot is found after a crash, a failure or a full disk at
 * any moment while another one is written. */
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/snapshot.h"
#include "support/disk.h"
#include "support/failure.h"
#include "support/snapshot.h"

#include <sys/resource.h>

enum { EXIT_INJECTED = 77 };

static unsigned operations_left;

static int no_space_at_the_last(const char *operation)
{
    (void)operation;
    return operations_left > 0 && --operations_left == 0 ? ENOSPC : 0;
}

static int no_space_from_the_last_on(const char *operation)
{
    (void)operation;
    if (operations_left > 0) {
        operations_left--;
    }
    return operations_left == 0 ? ENOSPC : 0;
}

static int exit_at_the_last(const char *operation)
{
    (void)operation;
    if (operations_left > 0 && --operations_left == 0) {
        _exit(EXIT_INJECTED);
    }
    return 0;
}

/* A first snapshot, and one that is written while things happen: of a later step or of the same. */
struct scene {
    uint64_t step;
    unsigned keep;
};
static const struct scene scenes[] = {{200, 0}, {200, 1}, {100, 0}, {100, 1}};

static int write_and_exit(int rank, int world_size, void *argument)
{
    const struct scene *scene = argument;

    (void)rank;
    (void)world_size;
    cddpi_file_set_hook(exit_at_the_last);
    CHECK(write_step(scene->step, 2, scene->keep) == CDDP_OK);
    return 0;
}

static void a_crash_at_any_moment_leaves_a_whole_snapshot(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        int status = -1;
        bool seen_new = false;

        for (unsigned n = 1; status != 0; n++) {
            uint64_t step;
            char *skipped;
            int mark;

            assert_int_equal(write_step(100, 1, 1), CDDP_OK);
            operations_left = n;
            (void)run_ranks_status(1, write_and_exit, (void *)&scenes[i], &status);
            assert_true(status == 0 || WEXITSTATUS(status) == EXIT_INJECTED);
            mark = found_mark(&step, &skipped);
            cddpi_free(skipped);
            assert_true(mark == 1 || mark == 2);
            assert_true(mark == 2 || !seen_new); /* there is one moment at which it changes */
            seen_new = mark == 2;
            assert_int_equal(step, mark == 1 ? 100 : scenes[i].step);
            /* the next writer clears away what is left, and nothing of value */
            assert_int_equal(write_step(300, 3, 0), CDDP_OK);
            assert_found(300, 3);
            assert_int_equal(count_hidden(), 0);
            assert_true(n < 200);
        }
        assert_true(seen_new);
    }
}

/* Remove all snapshots. */
static int clear_folder(void)
{
    char command[5000];

    snprintf(command, sizeof command, "rm -r '%s'/*", folder);
    return system(command);
}

static void recovering_after_a_crash_at_any_moment_leaves_nothing_to_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        int status = -1;

        for (unsigned n = 1; status != 0; n++) {
            uint64_t step;
            char *skipped = NULL;
            char *path = NULL;
            int mark;

            assert_int_equal(write_step(100, 1, 1), CDDP_OK);
            operations_left = n;
            (void)run_ranks_status(1, write_and_exit, (void *)&scenes[i], &status);
            assert_int_equal(cddp_snapshot_recover(folder, &path, &skipped), CDDP_OK);
            assert_null(skipped);
            mark = found_mark(&step, &skipped);
            assert_true(mark == 1 || mark == 2);
            assert_int_equal(step, mark == 1 ? 100 : scenes[i].step);
            assert_latest_is(strrchr(path, '/') + 1);
            assert_int_equal(count_hidden(), 0);
            cddpi_free(path);
            assert_int_equal(cddp_snapshot_recover(folder, &path, NULL), CDDP_OK);
            cddpi_free(path);
            assert_int_equal(clear_folder(), 0);
            assert_true(n < 200);
        }
    }
}

/* Let operation @p n fail, in the way of @p hook; returns whether the write came through. */
static bool write_with_failure(const struct scene *scene, unsigned n, int (*hook)(const char *))
{
    cddp_status status;

    assert_int_equal(write_step(100, 1, 1), CDDP_OK);
    operations_left = n;
    cddpi_file_set_hook(hook);
    status = write_step(scene->step, 2, scene->keep);
    cddpi_file_set_hook(NULL);
    if (status != CDDP_OK) {
        assert_int_equal(status, CDDP_ERR_IO);
        assert_int_equal(cddpi_last_errno(), ENOSPC);
        assert_true(last_error_has(folder));
    }
    return status == CDDP_OK;
}

static void any_operation_may_fail_and_the_old_snapshot_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        unsigned failures = 0;

        for (unsigned n = 1; n < 100; n++) {
            if (write_with_failure(&scenes[i], n, no_space_at_the_last)) {
                assert_found(scenes[i].step, 2);
            } else {
                failures++;
                assert_found(100, 1);
                assert_latest_is("step-00000100");
                assert_int_equal(count_hidden(), 0);
            }
            if (operations_left > 0) {
                break; /* not so many operations */
            }
        }
        assert_true(failures > 20 && operations_left > 0);
    }
}

static void a_disk_that_stays_broken_leaves_a_whole_snapshot(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        for (unsigned n = 1; n < 100; n++) {
            uint64_t step;
            char *skipped;
            bool done = write_with_failure(&scenes[i], n, no_space_from_the_last_on);
            int mark = found_mark(&step, &skipped);

            cddpi_free(skipped);
            assert_true(done ? mark == 2 : mark == 1 || mark == 2);
            assert_int_equal(step, mark == 1 ? 100 : scenes[i].step);
            if (operations_left > 0) {
                break;
            }
        }
        assert_true(operations_left > 0);
    }
}

static const char *in_the_way; /* a snapshot that takes the room of the next one */

static int no_space_beside_what_is_in_the_way(const char *operation)
{
    return strcmp(operation, "write") == 0 && exists(in_the_way) ? ENOSPC : 0;
}

/* Three of three, and a fourth one that finds room only without the snapshot @p name. */
static cddp_status write_a_fourth_without(const char *name, unsigned keep, unsigned spare)
{
    struct cddpi_snapshot_room room = {.is_missing = false};
    struct trainer trainer;
    cddp_status status;

    for (int step = 1; step <= 3; step++) {
        assert_int_equal(write_step((uint64_t)step, (float)step, 3), CDDP_OK);
    }
    set_trainer(&trainer, 4, 4);
    in_the_way = name;
    cddpi_file_set_hook(no_space_beside_what_is_in_the_way);
    status = cddpi_snapshot_write(folder, &trainer.snapshot, NULL, keep, spare, &room);
    cddpi_file_set_hook(NULL);
    assert_int_equal(room.is_missing, status != CDDP_OK);
    assert_int_equal(count_hidden(), 0);
    return status;
}

static void the_oldest_snapshot_goes_first_where_there_is_no_room(void **state)
{
    (void)state;
    assert_int_equal(write_a_fourth_without("step-00000001", 3, 2), CDDP_OK);
    assert_found(4, 4);
    assert_latest_is("step-00000004");
    assert_true(exists("step-00000002") && exists("step-00000003") && !exists("step-00000001"));
}

static void no_more_go_than_is_needed_and_may(void **state)
{
    (void)state;
    assert_true(failure_is(write_a_fourth_without("step-00000002", 3, 2), CDDP_ERR_IO, -1, -1, ""));
    assert_true(failure_errno_is(ENOSPC));
    assert_found(3, 3);
    assert_true(exists("step-00000002") && !exists("step-00000001"));
    assert_int_equal(write_a_fourth_without("step-00000002", 3, 1), CDDP_OK);
    assert_found(4, 4);
    assert_true(exists("step-00000003") && !exists("step-00000002"));
}

static void the_newest_whole_snapshot_never_goes(void **state)
{
    (void)state;
    assert_int_equal(write_a_fourth_without("step-00000003", 3, 1), CDDP_ERR_IO);
    assert_found(3, 3);
    assert_latest_is("step-00000003");
    assert_false(exists("step-00000002"));
}

static void an_older_one_that_is_whole_outlives_newer_ones_that_are_not(void **state)
{
    char *skipped;
    uint64_t step;

    (void)state;
    assert_int_equal(write_step(2, 2, 3), CDDP_OK);
    assert_int_equal(write_step(3, 3, 3), CDDP_OK);
    assert_int_equal(truncate(in_folder("step-00000003/model.safetensors"), 9), 0);
    in_the_way = "step-00000002";
    cddpi_file_set_hook(no_space_beside_what_is_in_the_way);
    assert_int_equal(write_step(4, 4, 1), CDDP_ERR_IO);
    cddpi_file_set_hook(NULL);
    assert_int_equal(found_mark(&step, &skipped), 2);
    cddpi_free(skipped);
}

static void who_keeps_all_loses_none(void **state)
{
    (void)state;
    assert_int_equal(write_a_fourth_without("step-00000001", 0, 1), CDDP_ERR_IO);
    assert_found(3, 3);
    assert_true(exists("step-00000001") && exists("step-00000002"));
}

static int write_until_killed(int rank, int world_size, void *argument)
{
    (void)rank;
    (void)world_size;
    (void)argument;
    for (uint64_t step = 1;; step++) {
        CHECK(write_step(step, (float)step, 2) == CDDP_OK);
    }
}

static void a_writer_can_be_killed_at_any_time(void **state)
{
    (void)state;
    assert_int_equal(write_step(0, 77, 2), CDDP_OK);
    for (int round = 0; round < 20; round++) {
        uint64_t step;
        char *skipped;
        pid_t writer = fork();

        if (writer == 0) {
            _exit(write_until_killed(0, 1, NULL));
        }
        support_sleep_ms(1 + round);
        kill(writer, SIGKILL);
        waitpid(writer, NULL, 0);
        assert_int_not_equal(found_mark(&step, &skipped), 0);
        if (skipped != NULL) {
            fail_msg("round %d: skipped: %s", round, skipped);
        }
    }
}

static int write_beyond_the_limit(int rank, int world_size, void *argument)
{
    const struct rlimit limit = {1000, 1000};

    (void)rank;
    (void)world_size;
    (void)argument;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(failure_is(write_step(2, 2, 1), CDDP_ERR_IO, -1, -1, ""));
    CHECK(failure_errno_is(EFBIG));
    CHECK(last_error_has("model.safetensors"));
    return 0;
}

static void a_file_size_limit_leaves_the_old_snapshot(void **state)
{
    (void)state;
    assert_int_equal(write_step(1, 1, 1), CDDP_OK);
    assert_int_equal(run_ranks(1, write_beyond_the_limit, NULL), 0);
    assert_found(1, 1);
    assert_int_equal(count_hidden(), 0);
}

static void a_full_file_system_leaves_the_old_snapshot(void **state)
{
    cddp_status status = CDDP_OK;
    uint64_t step;

    (void)state;
    need_small_disk(folder, "64k");
    for (step = 1; step < 40 && status == CDDP_OK; step++) {
        status = write_step(step, (float)step, 0);
    }
    print_message("step %d: %s\n", (int)step - 1, cddp_last_error());
    assert_int_equal(status, CDDP_ERR_IO);
    assert_int_equal(cddpi_last_errno(), ENOSPC);
    assert_found(step - 2, (int)step - 2);
    assert_int_equal(count_hidden(), 0);
    assert_int_equal(umount(folder), 0);
}

/* Three would fit, and a fourth not beside them. */
static void a_full_file_system_holds_as_many_as_it_can(void **state)
{
    (void)state;
    need_small_disk(folder, "64k");
    for (uint64_t step = 1; step < 10; step++) {
        assert_int_equal(write_step(step, (float)step, 3), CDDP_OK);
        assert_found(step, (int)step);
        assert_int_equal(count_hidden(), 0);
    }
    assert_true(exists("step-00000008"));
    assert_int_equal(umount(folder), 0);
}

static void nothing_goes_that_would_not_help(void **state)
{
    static float weights[50000];
    const cddp_tensor model = {.name = "w", .dims = 1, .shape = {50000}, .data = weights};
    const cddp_snapshot_options two = {CDDP_SIZED(cddp_snapshot_options), .keep = 2};
    const cddp_snapshot large = {sizeof large, .step = 9, .model = &model, .model_count = 1};

    (void)state;
    need_small_disk(folder, "64k");
    assert_int_equal(write_step(1, 1, 3), CDDP_OK);
    assert_int_equal(write_step(2, 2, 3), CDDP_OK);
    assert_true(
        failure_is(cddp_snapshot_write(folder, &large, &two, NULL), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("a checkpoint takes about 0.2"));
    assert_found(2, 2);
    assert_true(exists("step-00000001"));
    assert_int_equal(umount(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_crash_at_any_moment_leaves_a_whole_snapshot),
        IN_FOLDER(recovering_after_a_crash_at_any_moment_leaves_nothing_to_do),
        IN_FOLDER(any_operation_may_fail_and_the_old_snapshot_stays),
        IN_FOLDER(a_disk_that_stays_broken_leaves_a_whole_snapshot),
        IN_FOLDER(a_writer_can_be_killed_at_any_time),
        IN_FOLDER(a_file_size_limit_leaves_the_old_snapshot),
        IN_FOLDER(a_full_file_system_leaves_the_old_snapshot),
        IN_FOLDER(the_oldest_snapshot_goes_first_where_there_is_no_room),
        IN_FOLDER(no_more_go_than_is_needed_and_may),
        IN_FOLDER(the_newest_whole_snapshot_never_goes),
        IN_FOLDER(an_older_one_that_is_whole_outlives_newer_ones_that_are_not),
        IN_FOLDER(who_keeps_all_loses_none),
        IN_FOLDER(a_full_file_system_holds_as_many_as_it_can),
        IN_FOLDER(nothing_goes_that_would_not_help),
    };

    setenv("CDDP_LOG", "error", 0); /* the warnings of hundreds of injected failures */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
