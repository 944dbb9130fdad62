/* test_snapshot_saving.c - snapshots that a thread writes while the trainer goes on. */
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/saving.h"
#include "support/disk.h"
#include "support/failure.h"
#include "support/snapshot.h"

#include <cddp/process.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_int operations_left;
static atomic_bool overlapped; /* another thread changed files before step 6 was complete */

static int die_at_the_last(const char *operation)
{
    (void)operation;
    if (atomic_fetch_sub(&operations_left, 1) == 1) {
        raise(SIGKILL);
    }
    return 0;
}

/* The writer, which is a thread of cddp, stops before an operation of which none is left. It is
 * slow, so that a thread that does not wait for it comes before its end. */
static int hold_the_writer(const char *operation)
{
    char name[16] = "";

    (void)operation;
    (void)pthread_getname_np(pthread_self(), name, sizeof name);
    if (strcmp(name, "cddp-save") != 0) {
        overlapped = overlapped || !exists("step-00000006");
        return 0;
    }
    do {
        support_sleep_ms(1);
    } while (atomic_load(&operations_left) <= 0);
    atomic_fetch_sub(&operations_left, 1);
    return 0;
}

static void hold_after(int operations)
{
    atomic_store(&overlapped, false);
    atomic_store(&operations_left, operations);
    cddpi_file_set_hook(hold_the_writer);
}

static void let_go(void)
{
    atomic_store(&operations_left, 1 << 20);
}

/* A thread that has begun. */
static pthread_t start_thread(void *(*body)(void *), atomic_bool *has_begun)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, body, has_begun), 0);
    while (!atomic_load(has_begun)) {
        support_sleep_ms(1);
    }
    return thread;
}

static cddp_saving *start(struct trainer *trainer, uint64_t step, float mark)
{
    cddp_saving *saving = NULL;

    set_trainer(trainer, step, mark);
    assert_int_equal(cddp_snapshot_write(folder, &trainer->snapshot, NULL, &saving), CDDP_OK);
    return saving;
}

static void tensors_may_change_once_the_call_has_returned(void **state)
{
    struct trainer trainer;
    cddp_saving *saving;
    bool done = true;

    (void)state;
    hold_after(0);
    saving = start(&trainer, 5, 5);
    assert_int_equal(cddp_saving_test(saving, &done), CDDP_OK);
    assert_false(done);
    memset(&trainer, 0x7f, sizeof trainer);
    let_go();
    assert_int_equal(cddp_saving_wait(saving), CDDP_OK);
    assert_int_equal(cddp_saving_test(saving, &done), CDDP_OK);
    assert_true(done);
    assert_int_equal(cddp_saving_wait(saving), CDDP_OK);
    cddp_saving_destroy(saving);
    assert_found(5, 5);
}

static void *write_second(void *argument)
{
    atomic_store((atomic_bool *)argument, true);
    return write_step(7, 7, 0) == CDDP_OK ? argument : NULL;
}

static void a_second_write_waits_for_the_first(void **state)
{
    static atomic_bool has_begun;
    struct trainer trainer;
    cddp_saving *saving;
    pthread_t second;
    void *written = NULL;
    bool done = false;

    (void)state;
    hold_after(0);
    saving = start(&trainer, 6, 6);
    second = start_thread(write_second, &has_begun);
    let_go();
    pthread_join(second, &written);
    assert_ptr_equal(written, &has_begun);
    assert_false(overlapped);
    assert_int_equal(cddp_saving_test(saving, &done), CDDP_OK); /* its turn is over */
    assert_int_equal(cddp_saving_wait(saving), CDDP_OK);
    cddp_saving_destroy(saving);
    assert_true(exists("step-00000006"));
    assert_found(7, 7);
    cddp_saving_destroy(start(&trainer, 8, 8)); /* waits */
    assert_found(8, 8);
    assert_int_equal(count_hidden(), 0);
}

static void *recover(void *argument)
{
    char *path = NULL;
    char *skipped = NULL;

    atomic_store((atomic_bool *)argument, true);
    if (cddp_snapshot_recover(folder, &path, &skipped) != CDDP_OK) {
        return NULL;
    }
    cddp_free(path);
    cddp_free(skipped);
    return argument;
}

/* A copy of the writer's process has no writer. It may write snapshots of its own. */
static int use_in_fork(cddp_saving *saving)
{
    bool done;

    cddpi_file_set_hook(NULL);
    alarm(SUPPORT_LIMIT_S); /* in case that it waits for the turn */
    CHECK(failure_is(cddp_saving_test(saving, &done), CDDP_ERR_STATE, -1, -1, NULL));
    CHECK(failure_is(cddp_saving_wait(saving), CDDP_ERR_STATE, -1, -1, NULL));
    cddp_saving_destroy(saving);
    folder = in_folder("child");
    CHECK(write_step(7, 7, 0) == CDDP_OK && exists("step-00000007"));
    return 0;
}

static void a_fork_has_no_part_in_a_snapshot_and_writes_its_own(void **state)
{
    struct trainer trainer;
    cddp_saving *saving;
    int status = -1;
    pid_t child;

    (void)state;
    hold_after(0);
    saving = start(&trainer, 6, 6);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(use_in_fork(saving));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    let_go();
    assert_int_equal(status, 0);
    assert_int_equal(cddp_saving_wait(saving), CDDP_OK);
    cddp_saving_destroy(saving);
    assert_found(6, 6);
}

static void recovering_leaves_what_a_thread_is_writing(void **state)
{
    static atomic_bool has_begun;
    struct trainer trainer;
    cddp_saving *saving;
    pthread_t other;
    void *recovered = NULL;
    bool done = false;

    (void)state;
    cddpi_file_set_hook(NULL);
    assert_int_equal(write_step(5, 5, 0), CDDP_OK);
    hold_after(4);
    saving = start(&trainer, 6, 6);
    while (count_hidden() == 0) {
        assert_int_equal(cddp_saving_test(saving, &done), CDDP_OK);
        assert_false(done);
        support_sleep_ms(1);
    }
    other = start_thread(recover, &has_begun);
    let_go();
    pthread_join(other, &recovered);
    assert_ptr_equal(recovered, &has_begun);
    assert_false(overlapped);
    assert_int_equal(cddp_saving_wait(saving), CDDP_OK);
    cddp_saving_destroy(saving);
    assert_found(6, 6);
}

static int start_and_die(int rank, int world_size, void *argument)
{
    struct trainer trainer;
    cddp_saving *saving = NULL;
    cddp_status status;

    (void)rank;
    (void)world_size;
    (void)argument;
    set_trainer(&trainer, 200, 2);
    cddpi_file_set_hook(die_at_the_last);
    CHECK(cddp_snapshot_write(folder, &trainer.snapshot, NULL, &saving) == CDDP_OK);
    status = cddp_saving_wait(saving);
    cddp_saving_destroy(saving);
    CHECK(status == CDDP_OK);
    return 0;
}

static void a_process_that_is_killed_at_any_moment_leaves_a_whole_snapshot(void **state)
{
    bool seen_old = false;
    bool seen_new = false;
    int status = -1;

    (void)state;
    for (int n = 1; status != 0; n++) {
        char *skipped = NULL;
        uint64_t step = 0;
        int mark;

        cddpi_file_set_hook(NULL);
        assert_int_equal(write_step(100, 1, 1), CDDP_OK);
        atomic_store(&operations_left, n);
        (void)run_ranks_status(1, start_and_die, NULL, &status);
        assert_true(status == 0 || WTERMSIG(status) == SIGKILL);
        mark = found_mark(&step, &skipped);
        cddpi_free(skipped);
        assert_true(mark == 1 || mark == 2);
        assert_true(mark == 2 || !seen_new); /* there is one moment at which it changes */
        seen_old = seen_old || mark == 1;
        seen_new = mark == 2;
        assert_int_equal(step, mark == 1 ? 100 : 200);
        assert_true(n < 200);
    }
    assert_true(seen_old && seen_new);
}

static char logged[4096];

static void keep_line(void *state, const cddp_log_record *record)
{
    (void)state;
    snprintf(logged, sizeof logged, "%s", record->line);
}

static void a_failure_is_told_by_wait_or_by_the_log(void **state)
{
    cddp_saving *saving = NULL;
    struct trainer trainer;
    char path[5000];
    bool done = false;
    FILE *file;

    (void)state;
    cddpi_file_set_hook(NULL);
    snprintf(path, sizeof path, "%s/file", folder);
    file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
    set_trainer(&trainer, 1, 1);
    for (int told = 0; told < 2; told++) {
        assert_int_equal(cddp_snapshot_write(path, &trainer.snapshot, NULL, &saving), CDDP_OK);
        logged[0] = '\0';
        if (told == 1) {
            assert_int_equal(cddp_saving_wait(saving), CDDP_ERR_IO);
            assert_int_equal(cddp_saving_test(saving, &done), CDDP_ERR_IO);
            assert_true(done);
            assert_true(last_error_has(path));
        }
        cddp_log_set_sink(keep_line, NULL);
        cddp_saving_destroy(saving);
        cddp_log_set_sink(NULL, NULL);
        assert_int_equal(strstr(logged, "a snapshot was not written: ") != NULL, told == 0);
    }
    trainer.tensors[0].data = NULL; /* what the copy needs is checked at once */
    assert_int_equal(cddp_snapshot_write(folder, &trainer.snapshot, NULL, &saving),
                     CDDP_ERR_ARGUMENT);
}

static void waiting_has_a_limit_and_tells_of_the_end(void **state)
{
    const struct cddpi_saving_options options = {.spare = 1};
    struct cddpi_snapshot_copy copy = {.memory = NULL};
    struct trainer trainer;
    cddp_saving *saving = NULL;
    unsigned char *memory;
    bool done = true;

    (void)state;
    hold_after(0);
    set_trainer(&trainer, 5, 5);
    assert_int_equal(cddpi_snapshot_copy_take(&copy, &trainer.snapshot, NULL), CDDP_OK);
    assert_true(copy.bytes >= cddpi_snapshot_copy_bytes(&trainer.snapshot));
    memory = copy.memory;
    assert_int_equal(cddpi_saving_begin(folder, &copy, &options, &saving), CDDP_OK);
    assert_int_equal(cddpi_saving_wait_for(saving, 20, &done), CDDP_OK);
    assert_false(done);
    assert_int_equal(cddpi_saving_progress(saving), 0);
    let_go();
    while (!done) {
        assert_int_equal(cddpi_saving_wait_for(saving, 60000, &done), CDDP_OK);
    }
    assert_true(cddpi_saving_progress(saving) > 0);
    cddp_saving_destroy(saving);
    assert_found(5, 5);
    set_trainer(&trainer, 6, 6); /* in the same memory */
    assert_int_equal(cddpi_snapshot_copy_take(&copy, &trainer.snapshot, NULL), CDDP_OK);
    assert_ptr_equal(copy.memory, memory);
    assert_int_equal(cddpi_saving_begin(folder, &copy, &options, &saving), CDDP_OK);
    cddp_saving_destroy(saving);
    assert_found(6, 6);
    cddpi_snapshot_copy_release(&copy);
}

enum { PIECE = 1 << 18, SIZES = 7 }; /* of snapshot_write.c */

static const size_t sizes[SIZES] = {1, PIECE - 1, PIECE, PIECE + 1, 0, 2 * PIECE, 3 * PIECE + 5};

/* Tensors whose bytes do not repeat in pieces. All are the model's but the last, the optimizer's.
 */
static void make_sizes(cddp_param params[SIZES], unsigned char *data)
{
    static const char *const names[SIZES] = {"a", "b", "c", "d", "e", "f", "momentum.f"};
    uint32_t value = 1;

    for (size_t i = 0; i < SIZES; i++) {
        params[i] = (cddp_param){.name = names[i],
                                 .type = CDDP_U8,
                                 .dims = 1,
                                 .shape = {(int64_t)sizes[i]},
                                 .data = data};
        for (size_t at = 0; at < sizes[i]; at++) {
            value = value * 1664525 + 1013904223;
            *data++ = (unsigned char)(value >> 24);
        }
    }
}

/* A cddpi_snapshot_source's, whose context is the list of parameters. */
static cddp_status fetch_param(void *context, size_t index, void *out)
{
    const cddp_param *params = context;

    memcpy(out, params[index].data, (size_t)params[index].shape[0]);
    return CDDP_OK;
}

/* Write @p snapshot in one of three ways. Returns how many bytes were said to be written. */
static unsigned long long write_sizes(const cddp_snapshot *snapshot, cddp_param *params, int way)
{
    const struct cddpi_saving_options options = {.spare = 1};
    atomic_ullong progress = 0;
    struct cddpi_snapshot_source source = {
        .fetch = fetch_param, .contexts = {params, params + SIZES - 1}, .progress = &progress};
    struct cddpi_snapshot_copy copy = {.memory = NULL};
    struct cddpi_snapshot_room room;
    cddp_saving *saving = NULL;

    if (way < 2) {
        assert_int_equal(cddpi_snapshot_write(folder, snapshot, &source, 0, 1, &room), CDDP_OK);
        return atomic_load(&progress);
    }
    assert_int_equal(cddpi_snapshot_copy_take(&copy, snapshot, &source), CDDP_OK);
    assert_int_equal(cddpi_saving_begin(folder, &copy, &options, &saving), CDDP_OK);
    assert_int_equal(cddp_saving_wait(saving), CDDP_OK);
    progress = cddpi_saving_progress(saving);
    cddp_saving_destroy(saving);
    cddpi_snapshot_copy_release(&copy);
    return atomic_load(&progress);
}

/* The ways: from memory, fetched as they are written, fetched into a copy. */
static void tensors_of_several_pieces_are_whole(void **state)
{
    static unsigned char written[9 * PIECE], loaded[9 * PIECE];
    cddp_param params[SIZES], read[SIZES];
    cddp_tensor tensors[SIZES];
    char path[5000];
    size_t bytes = 0;

    (void)state;
    cddpi_file_set_hook(NULL);
    make_sizes(params, written);
    for (size_t i = 0; i < SIZES; i++) {
        bytes += sizes[i];
    }
    for (int way = 0; way < 3; way++) {
        cddp_snapshot snapshot = CDDP_SNAPSHOT_INIT;

        assert_int_equal(cddp_tensors_of(params, SIZES, tensors), CDDP_OK);
        for (size_t i = 0; way > 0 && i < SIZES; i++) {
            tensors[i].data = NULL;
        }
        snapshot.step = 5 + (uint64_t)way;
        snapshot.model = tensors;
        snapshot.model_count = SIZES - 1;
        snapshot.optimizer = tensors + SIZES - 1;
        snapshot.optimizer_count = 1;
        snapshot.state_json = "{}";
        assert_int_equal(write_sizes(&snapshot, params, way), bytes);
        make_sizes(read, loaded);
        memset(loaded, 0, sizeof loaded);
        snprintf(path, sizeof path, "%s/step-%08d", folder, 5 + way);
        assert_int_equal(cddp_snapshot_load(path, read, SIZES - 1, read + SIZES - 1, 1), CDDP_OK);
        assert_memory_equal(loaded, written, bytes);
    }
}

static cddp_status refuse(const cddp_snapshot *snapshot)
{
    return cddpi_fail(CDDP_ERR_STATE, "step %d is refused", (int)snapshot->step);
}

static void what_a_check_refuses_is_not_written(void **state)
{
    const struct cddpi_saving_options options = {.spare = 1, .check = refuse};
    struct cddpi_snapshot_copy copy = {.memory = NULL};
    struct trainer trainer;
    cddp_saving *saving = NULL;

    (void)state;
    cddpi_file_set_hook(NULL);
    assert_int_equal(write_step(5, 5, 0), CDDP_OK);
    set_trainer(&trainer, 6, 6);
    assert_int_equal(cddpi_snapshot_copy_take(&copy, &trainer.snapshot, NULL), CDDP_OK);
    assert_int_equal(cddpi_saving_begin(folder, &copy, &options, &saving), CDDP_OK);
    assert_int_equal(cddp_saving_wait(saving), CDDP_ERR_STATE);
    assert_true(last_error_has("step 6 is refused"));
    cddp_saving_destroy(saving);
    cddpi_snapshot_copy_release(&copy);
    assert_found(5, 5);
    assert_int_equal(count_hidden(), 0);
}

static void flags_that_are_not_known_are_refused(void **state)
{
    cddp_snapshot_options options = {CDDP_SIZED(cddp_snapshot_options), .flags = 2};
    struct trainer trainer;

    (void)state;
    set_trainer(&trainer, 1, 1);
    assert_true(failure_is(cddp_snapshot_write(folder, &trainer.snapshot, &options, NULL),
                           CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("flags 0x2 "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tensors_may_change_once_the_call_has_returned),
        IN_FOLDER(a_second_write_waits_for_the_first),
        IN_FOLDER(a_fork_has_no_part_in_a_snapshot_and_writes_its_own),
        IN_FOLDER(recovering_leaves_what_a_thread_is_writing),
        IN_FOLDER(a_process_that_is_killed_at_any_moment_leaves_a_whole_snapshot),
        IN_FOLDER(a_failure_is_told_by_wait_or_by_the_log),
        IN_FOLDER(waiting_has_a_limit_and_tells_of_the_end),
        IN_FOLDER(tensors_of_several_pieces_are_whole),
        IN_FOLDER(what_a_check_refuses_is_not_written),
        IN_FOLDER(flags_that_are_not_known_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
