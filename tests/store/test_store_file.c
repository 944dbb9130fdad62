/* test_store_file.c - what only the file store does: which process creates, joins and removes the
 * file, and what happens to a file that a crash left behind. */
#include "support/failure.h"
#include "support/store.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static const char *path_of(const struct place *place)
{
    return place->url + strlen("file://");
}

static off_t size_of(const char *path)
{
    struct stat file;

    return stat(path, &file) == 0 ? file.st_size : -1;
}

static void append(const char *path, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

static void the_file_is_the_users_alone(void **state)
{
    struct place *place = *state;
    struct stat file;

    assert_int_equal(stat(path_of(place), &file), 0);
    assert_int_equal(file.st_mode & 07777, 0600);
}

static void the_last_one_to_close_removes_the_file(void **state)
{
    struct place *place = *state;
    cddp_store *second = open_place(place);
    cddp_store *third = open_place(place);

    cddp_store_close(place->store);
    assert_true(size_of(path_of(place)) > 0);
    cddp_store_close(third);
    assert_true(size_of(path_of(place)) > 0);
    assert_int_equal(cddp_store_set(second, "k", "v", 1), CDDP_OK);
    cddp_store_close(second);
    assert_int_equal(size_of(path_of(place)), -1);
    place->store = NULL;
}

static int crashing_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);

    (void)rank;
    (void)world_size;
    CHECK(store != NULL);
    CHECK(cddp_store_set(store, "address", "of a dead process", 17) == CDDP_OK);
    CHECK(cddp_store_add(store, "joined", 1, NULL) == CDDP_OK);
    kill(getpid(), SIGKILL);
    return 1;
}

/* Leaves the file of a run whose ranks were all killed. */
static void crash(struct place *place)
{
    cddp_store_close(place->store);
    place->store = NULL;
    assert_int_equal(run_ranks(3, crashing_rank, place), 3);
    assert_true(size_of(path_of(place)) > 0);
}

static void the_file_of_a_crashed_run_is_not_read(void **state)
{
    struct place *place = *state;
    void *value;
    int64_t joined;

    crash(place);
    place->store = open_place(place);
    assert_non_null(place->store);
    assert_int_equal(cddp_store_try_get(place->store, "address", &value, NULL), CDDP_ERR_NOT_FOUND);
    assert_int_equal(cddp_store_add(place->store, "joined", 1, &joined), CDDP_OK);
    assert_int_equal(joined, 1);
}

static int test_goes_on[2]; /* a pipe */

/* A rank with a child that lives on: it has begun, and so has let go of what is the rank's alone.
 */
static int orphaning_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    int child_lives[2];
    char end;

    (void)rank;
    (void)world_size;
    CHECK(store != NULL);
    CHECK(cddp_store_set(store, "address", "of a dead process", 17) == CDDP_OK);
    CHECK(pipe(child_lives) == 0);
    if (fork() == 0) {
        close(test_goes_on[1]);
        close(child_lives[0]);
        close(child_lives[1]);
        _exit(read(test_goes_on[0], &end, 1) != 0);
    }
    close(child_lives[1]);
    CHECK(read(child_lives[0], &end, 1) == 0); /* once the child has closed its end, too */
    kill(getpid(), SIGKILL);
    return 1;
}

static void a_crashed_run_ends_though_a_child_of_it_lives(void **state)
{
    struct place *place = *state;
    void *value;

    cddp_store_close(place->store);
    assert_int_equal(pipe(test_goes_on), 0);
    assert_int_equal(run_ranks(1, orphaning_rank, place), 1);
    place->store = open_place(place);
    assert_int_equal(cddp_store_try_get(place->store, "address", &value, NULL), CDDP_ERR_NOT_FOUND);
    close(test_goes_on[0]);
    close(test_goes_on[1]);
}

static void the_file_of_a_crashed_run_does_not_need_its_token(void **state)
{
    struct place *place = *state;

    crash(place);
    assert_int_equal(open_store(place->url, "a new token", NULL, SUPPORT_TIMEOUT_MS, &place->store),
                     CDDP_OK);
    assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_OK);
}

/* All open at once, on the remains of a crashed run: all must get the same, new file. */
static int racing_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    char key[32];

    CHECK(store != NULL);
    snprintf(key, sizeof key, "rank/%d", rank);
    CHECK(cddp_store_set(store, key, "", 0) == CDDP_OK);
    for (int peer = 0; peer < world_size; peer++) {
        void *value;

        snprintf(key, sizeof key, "rank/%d", peer);
        CHECK(cddp_store_get(store, key, 0, &value, NULL) == CDDP_OK);
        cddp_free(value);
    }
    cddp_store_close(store);
    return 0;
}

static void first_openers_that_race_get_the_same_file(void **state)
{
    struct place *place = *state;

    for (int round = 0; round < 5; round++) {
        cddp_store_close(place->store);
        place->store = NULL;
        if (round % 2 == 0) {
            crash(place);
        }
        assert_int_equal(run_ranks(7, racing_rank, place), 0);
        assert_int_equal(size_of(path_of(place)), -1);
    }
}

/* Open and close without end, so that first openers meet last closers. */
static int coming_and_going_rank(int rank, int world_size, void *argument)
{
    (void)world_size;
    for (int i = 0; i < 60; i++) {
        cddp_store *store = open_place(argument);
        char key[32];
        void *value;

        CHECK(store != NULL);
        snprintf(key, sizeof key, "%d/%d", rank, i);
        CHECK(cddp_store_set(store, key, key, strlen(key)) == CDDP_OK);
        CHECK(cddp_store_get(store, key, 0, &value, NULL) == CDDP_OK);
        CHECK(strcmp(value, key) == 0);
        cddp_free(value);
        cddp_store_close(store);
    }
    return 0;
}

static void last_closers_and_first_openers_do_not_miss_each_other(void **state)
{
    struct place *place = *state;

    cddp_store_close(place->store);
    place->store = NULL;
    assert_int_equal(run_ranks(5, coming_and_going_rank, place), 0);
    assert_int_equal(size_of(path_of(place)), -1);
}

static void a_torn_tail_is_ignored_and_cut_off(void **state)
{
    struct place *place = *state;
    cddp_store *other = open_place(place);
    char tail[300];
    void *value;
    off_t whole;

    memset(tail, 0x11, sizeof tail);
    for (size_t bytes = 1; bytes < sizeof tail; bytes += 41) {
        assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_OK);
        whole = size_of(path_of(place));
        append(path_of(place), tail, bytes);
        assert_int_equal(cddp_store_get(other, "k", 0, &value, NULL), CDDP_OK);
        assert_string_equal(value, "v");
        cddp_free(value);
        assert_int_equal(cddp_store_set(other, "k", "w", 1), CDDP_OK);
        assert_true(size_of(path_of(place)) < whole + 100);
        assert_int_equal(cddp_store_get(place->store, "k", 0, &value, NULL), CDDP_OK);
        assert_string_equal(value, "w");
        cddp_free(value);
    }
    cddp_store_close(other);
}

/* The first part of a record is what a killed writer leaves. */
static void half_a_record_is_no_record(void **state)
{
    struct place *place = *state;
    off_t before = size_of(path_of(place));
    cddp_store *other = open_place(place);
    void *value;

    assert_int_equal(cddp_store_set(place->store, "first", "v", 1), CDDP_OK);
    before = size_of(path_of(place));
    assert_int_equal(cddp_store_set(place->store, "second", "v", 1), CDDP_OK);
    assert_int_equal(truncate(path_of(place), size_of(path_of(place)) - 1), 0);
    assert_int_equal(cddp_store_get(other, "first", 0, &value, NULL), CDDP_OK);
    cddp_free(value);
    assert_int_equal(cddp_store_try_get(other, "second", &value, NULL), CDDP_ERR_NOT_FOUND);
    assert_int_equal(cddp_store_delete(other, "first", NULL), CDDP_OK);
    assert_true(size_of(path_of(place)) > before);
    cddp_store_close(other);
}

static void damage_in_the_middle_is_an_error(void **state)
{
    struct place *place = *state;
    cddp_store *other = open_place(place);
    off_t at = size_of(path_of(place));
    void *value;
    int fd;

    assert_int_equal(cddp_store_set(place->store, "first", "value", 5), CDDP_OK);
    assert_int_equal(cddp_store_set(place->store, "second", "value", 5), CDDP_OK);
    fd = open(path_of(place), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, at + 30), 1);
    close(fd);
    assert_true(
        failure_is(cddp_store_try_get(other, "first", &value, NULL), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("damaged at byte 80"));
    cddp_store_close(other);
}

static void what_is_no_store_is_left_as_it_is(void **state)
{
    static const char text[] = "my thesis, the only copy\n";
    struct place *place = *state;
    cddp_store *store = NULL;
    char path[600];
    char url[640];
    char read_back[64] = "";
    int fd;

    snprintf(path, sizeof path, "%s/thesis", place->folder);
    snprintf(url, sizeof url, "file://%s", path);
    append(path, text, strlen(text));
    assert_true(
        failure_is(open_store(url, TOKEN, NULL, 5000, &store), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("is not a cddp store"));
    assert_null(store);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, read_back, sizeof read_back), strlen(text));
    close(fd);
    assert_string_equal(read_back, text);
    snprintf(url, sizeof url, "file://%s", place->folder);
    assert_int_equal(open_store(url, TOKEN, NULL, 5000, &store), CDDP_ERR_IO);
}

static void an_empty_file_may_become_a_store(void **state)
{
    struct place *place = *state;

    cddp_store_close(place->store);
    append(path_of(place), "", 0);
    assert_int_equal(size_of(path_of(place)), 0);
    place->store = open_place(place);
    assert_int_equal(cddp_store_set(place->store, "k", "v", 1), CDDP_OK);
}

static void a_symbolic_link_is_not_followed(void **state)
{
    struct place *place = *state;
    cddp_store *store = NULL;
    char path[600];
    char url[640];

    snprintf(path, sizeof path, "%s/link", place->folder);
    snprintf(url, sizeof url, "file://%s", path);
    assert_int_equal(symlink(path_of(place), path), 0);
    assert_true(failure_is(open_store(url, TOKEN, NULL, 5000, &store), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("/link: "));
    snprintf(url, sizeof url, "file://%s/none/store", place->folder);
    assert_true(failure_is(open_store(url, TOKEN, NULL, 5000, &store), CDDP_ERR_IO, -1, -1, ""));
    assert_true(failure_errno_is(ENOENT));
}

static void a_file_that_somebody_removed_is_an_error(void **state)
{
    struct place *place = *state;
    int fd;

    assert_int_equal(unlink(path_of(place)), 0);
    assert_true(failure_is(cddp_store_set(place->store, "k", "v", 1), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("somebody removed the file"));
    /* and what has come in its place is not removed by the one who closes the old file */
    fd = open(path_of(place), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    close(fd);
    cddp_store_close(place->store);
    place->store = NULL;
    assert_int_equal(size_of(path_of(place)), 0);
}

/* Writers are killed at any moment; whoever lives reads only whole values. */
static int writing_rank(int rank, int world_size, void *argument)
{
    cddp_store *store = open_place(argument);
    size_t bytes = 300000;
    char *value = malloc(bytes);

    (void)world_size;
    CHECK(store != NULL);
    for (int i = 0;; i++) {
        memset(value, 'a' + (i + rank) % 26, bytes);
        CHECK(cddp_store_set(store, "k", value, bytes) == CDDP_OK);
        if (i == 3) {
            CHECK(cddp_store_add(store, "going", 1, NULL) == CDDP_OK);
        }
    }
}

static void writers_killed_at_any_moment_leave_whole_values(void **state)
{
    struct place *place = *state;

    for (int round = 0; round < 8; round++) {
        pid_t pid = fork();
        int64_t going = 0;
        char *value;
        size_t bytes;

        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
            _exit(writing_rank(round, 0, place));
        }
        while (going <= round) {
            assert_int_equal(cddp_store_add(place->store, "going", 0, &going), CDDP_OK);
            support_sleep_ms(1);
        }
        support_sleep_ms(round);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(cddp_store_get(place->store, "k", 0, (void **)&value, &bytes), CDDP_OK);
        assert_int_equal(bytes, 300000);
        for (size_t i = 1; i < bytes; i++) {
            assert_true(value[i] == value[0]);
        }
        cddp_free(value);
    }
}

#define WITH_FILE(test) PLACE_TEST("file", test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FILE(the_file_is_the_users_alone),
        WITH_FILE(the_last_one_to_close_removes_the_file),
        WITH_FILE(the_file_of_a_crashed_run_is_not_read),
        WITH_FILE(a_crashed_run_ends_though_a_child_of_it_lives),
        WITH_FILE(the_file_of_a_crashed_run_does_not_need_its_token),
        WITH_FILE(first_openers_that_race_get_the_same_file),
        WITH_FILE(last_closers_and_first_openers_do_not_miss_each_other),
        WITH_FILE(a_torn_tail_is_ignored_and_cut_off),
        WITH_FILE(half_a_record_is_no_record),
        WITH_FILE(damage_in_the_middle_is_an_error),
        WITH_FILE(what_is_no_store_is_left_as_it_is),
        WITH_FILE(an_empty_file_may_become_a_store),
        WITH_FILE(a_symbolic_link_is_not_followed),
        WITH_FILE(a_file_that_somebody_removed_is_an_error),
        WITH_FILE(writers_killed_at_any_moment_leave_whole_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
