/* test_tuning.c - choices that processes keep for each other: what they find again, where, and what
 * happens if several write at once. */
#include "support/tuning.h"

#include <cddp/process.h>

#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>

/* --- what is found --- */

static void what_was_kept_the_next_process_finds(void **state)
{
    struct stat info;

    (void)state;
    assert_choice(tuning_card, 1, 0);
    keep_choice(1, 11);
    keep_choice(2, 22);
    assert_choice(tuning_card, 1, 11);
    assert_choice(tuning_card, 2, 22);
    assert_choice(tuning_card, 3, 0);
    assert_int_equal(stat(file_of_choices(), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(stat(in_folder("cache"), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
}

static void another_card_or_library_finds_nothing(void **state)
{
    char other[4096];
    char page[4096];
    size_t bytes;
    struct cddpi_tuning *tuning;
    uint64_t key = 1;
    uint64_t value = 11;

    (void)state;
    keep_choice(key, value);
    snprintf(other, sizeof other, "%s", file_of_choices());
    bytes = read_choices(page, sizeof page);
    assert_choice("a card, driver 1, a library 3", 1, 0);
    tuning = cddpi_tuning_open("cudnn", tuning_card);
    assert_int_equal(cddpi_tuning_find(tuning, &key, sizeof key, &value, sizeof value), 0);
    cddpi_tuning_close(tuning);
    /* nor does it help to rename the file, or to change the line that says what it is for */
    assert_int_equal(unlink(other), 0);
    tuning = cddpi_tuning_open("products", "b card, driver 1, a library 2");
    cddpi_tuning_keep(tuning, &key, sizeof key, &value, sizeof value);
    cddpi_tuning_close(tuning);
    support_write_file(file_of_choices(), page, bytes);
    assert_choice("b card, driver 1, a library 2", 1, 0);
    *strstr(page, "a card") = 'b';
    support_write_file(file_of_choices(), page, bytes);
    assert_choice("b card, driver 1, a library 2", 1, 0);
}

static void two_that_write_in_turn_lose_nothing(void **state)
{
    struct cddpi_tuning *a = open_card();
    struct cddpi_tuning *b = open_card();
    uint64_t found = 0;

    (void)state;
    for (uint64_t key = 1; key <= 40; key++) {
        uint64_t value = 100 + key;

        cddpi_tuning_keep(key % 2 == 0 ? a : b, &key, sizeof key, &value, sizeof value);
    }
    for (uint64_t key = 1; key <= 40; key++) {
        assert_choice(tuning_card, key, 100 + key);
    }
    found = 1; /* and a knows what b had measured when it last wrote */
    assert_int_equal(cddpi_tuning_find(a, &found, sizeof found, &found, sizeof found), 8);
    assert_int_equal(found, 101);
    cddpi_tuning_close(a);
    cddpi_tuning_close(b);
}

static void who_was_first_stays(void **state)
{
    struct cddpi_tuning *late = open_card();
    uint64_t key = 1;
    uint64_t value = 22;

    (void)state;
    keep_choice(1, 11);
    cddpi_tuning_keep(late, &key, sizeof key, &value, sizeof value);
    cddpi_tuning_close(late);
    assert_choice(tuning_card, 1, 11);
}

static void what_is_rejected_is_gone_and_can_be_replaced(void **state)
{
    struct cddpi_tuning *tuning;
    uint64_t key = 1;
    uint64_t value = 33;

    (void)state;
    keep_choice(1, 11);
    keep_choice(2, 22);
    tuning = open_card();
    cddpi_tuning_reject(tuning, &key, sizeof key);
    assert_int_equal(cddpi_tuning_find(tuning, &key, sizeof key, &value, sizeof value), 0);
    assert_choice(tuning_card, 1, 0);
    assert_choice(tuning_card, 2, 22);
    cddpi_tuning_keep(tuning, &key, sizeof key, &value, sizeof value);
    cddpi_tuning_close(tuning);
    assert_choice(tuning_card, 1, 33);
}

/* A process that has rejected a choice leaves alone what others keep afterwards. */
static void who_rejects_a_choice_keeps_the_next_one_of_others(void **state)
{
    struct cddpi_tuning *tuning;
    uint64_t key = 1;
    uint64_t other = 2;
    uint64_t value = 33;

    (void)state;
    keep_choice(key, 11);
    tuning = open_card();
    cddpi_tuning_reject(tuning, &key, sizeof key);
    keep_choice(key, 22);
    cddpi_tuning_keep(tuning, &other, sizeof other, &value, sizeof value);
    assert_choice(tuning_card, key, 22);
    assert_int_equal(cddpi_tuning_find(tuning, &key, sizeof key, &value, sizeof value),
                     sizeof value);
    assert_int_equal(value, 22);
    cddpi_tuning_reject(tuning, &key, sizeof key);
    cddpi_tuning_keep(tuning, &key, sizeof key, &value, sizeof value);
    assert_int_equal(unlink(file_of_choices()), 0);
    keep_choice(key, 44);
    cddpi_tuning_keep(tuning, &other, sizeof other, &value, sizeof value);
    assert_choice(tuning_card, key, 44);
    cddpi_tuning_close(tuning);
}

/* A process that does not know of it writes the rejected choice once more. */
static void what_is_rejected_does_not_come_back(void **state)
{
    struct cddpi_tuning *rejects;
    struct cddpi_tuning *knows;
    uint64_t key = 1;
    uint64_t other = 2;
    uint64_t value = 33;

    (void)state;
    keep_choice(key, 11);
    rejects = open_card();
    knows = open_card();
    cddpi_tuning_reject(rejects, &key, sizeof key);
    cddpi_tuning_keep(knows, &other, sizeof other, &value, sizeof value);
    cddpi_tuning_keep(rejects, &other, sizeof other, &value, sizeof value);
    assert_choice(tuning_card, key, 0);
    assert_choice(tuning_card, other, 33);
    cddpi_tuning_close(knows);
    cddpi_tuning_close(rejects);
}

static void the_oldest_go_if_there_are_too_many(void **state)
{
    struct cddpi_tuning *tuning = open_card();
    static unsigned char large[CDDPI_TUNING_VALUE_BYTES + 1];

    (void)state;
    for (uint64_t key = 1; key <= CDDPI_TUNING_ENTRIES + 3; key++) {
        uint64_t value = 7 * key;

        cddpi_tuning_keep(tuning, &key, sizeof key, &value, sizeof value);
    }
    cddpi_tuning_keep(tuning, large, 8, large, sizeof large); /* too large */
    cddpi_tuning_keep(tuning, large, CDDPI_TUNING_KEY_BYTES + 1, large, 8);
    cddpi_tuning_close(tuning);
    assert_choice(tuning_card, 3, 0);
    assert_choice(tuning_card, 4, 28);
    assert_choice(tuning_card, CDDPI_TUNING_ENTRIES + 3, 7 * (CDDPI_TUNING_ENTRIES + 3));
}

/* --- processes at once --- */

enum { EACH = 20 };

static int keep_many(int rank, int world_size, void *argument)
{
    struct cddpi_tuning *tuning = cddpi_tuning_open("products", tuning_card);

    (void)argument;
    CHECK(tuning != NULL);
    for (int i = 0; i < EACH; i++) {
        uint64_t own = (uint64_t)(1000 * (rank + 1) + i);
        uint64_t shared = (uint64_t)i;

        cddpi_tuning_keep(tuning, &own, sizeof own, &own, sizeof own);
        cddpi_tuning_keep(tuning, &shared, sizeof shared, &world_size, sizeof world_size);
    }
    cddpi_tuning_close(tuning);
    return 0;
}

static void processes_at_once_lose_nothing(void **state)
{
    enum { PROCESSES = 6 };

    (void)state;
    assert_int_equal(run_ranks(PROCESSES, keep_many, NULL), 0);
    for (uint64_t i = 0; i < EACH; i++) {
        assert_choice(tuning_card, i, PROCESSES);
        for (uint64_t rank = 0; rank < PROCESSES; rank++) {
            assert_choice(tuning_card, 1000 * (rank + 1) + i, 1000 * (rank + 1) + i);
        }
    }
    file_of_choices(); /* and leave nothing else */
}

/* A process that was stopped while it wrote, say. */
static void a_lock_that_is_never_free_holds_nobody_up(void **state)
{
    int fd;

    (void)state;
    keep_choice(1, 11);
    fd = open(in_folder("cache/lock"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    alarm(SUPPORT_LIMIT_S); /* ends this test */
    keep_choice(2, 22);
    alarm(0);
    close(fd);
    assert_choice(tuning_card, 1, 11);
    assert_choice(tuning_card, 2, 22);
}

/* --- where it is --- */

static bool is_kept_in(const char *path)
{
    struct cddpi_tuning *tuning = cddpi_tuning_open("products", tuning_card);
    uint64_t key = 1;
    bool is_so;

    cddpi_tuning_keep(tuning, &key, sizeof key, &key, sizeof key);
    cddpi_tuning_close(tuning);
    is_so = access(path, F_OK) == 0;
    return is_so;
}

static void the_folder_is_the_users_cache_folder(void **state)
{
    const char *home = getenv("HOME");
    char *was = home != NULL ? strdup(home) : NULL;

    (void)state;
    assert_int_equal(mkdir(in_folder("home"), 0755), 0);
    setenv("HOME", in_folder("home"), 1);
    setenv("XDG_CACHE_HOME", in_folder("shared"), 1);
    assert_true(is_kept_in(in_folder("cache/lock")));
    unsetenv("CDDP_CACHE");
    assert_true(is_kept_in(in_folder("shared/cddp/lock")));
    setenv("XDG_CACHE_HOME", "relative", 1); /* such a one does not count, says its specification */
    assert_true(is_kept_in(in_folder("home/.cache/cddp/lock")));
    setenv("CDDP_CACHE", "~/mine", 1);
    assert_true(is_kept_in(in_folder("home/mine/lock")));
    setenv("CDDP_CACHE", "off", 1);
    assert_null(cddpi_tuning_open("products", tuning_card));
    assert_int_equal(access("off", F_OK), -1);
    assert_int_equal(access("relative", F_OK), -1);
    unsetenv("XDG_CACHE_HOME");
    if (was != NULL) {
        setenv("HOME", was, 1);
    }
    free(was);
}

/* Rows that are logged. */
static int lines;

static void count_line(void *state, const cddp_log_record *record)
{
    (void)state;
    lines += strstr(record->line, "choices that are measured are not kept") != NULL;
}

/* As a rank, because once in a process means that. */
static int try_without(int rank, int world_size, void *argument)
{
    const char *home = argument;

    (void)rank;
    (void)world_size;
    cddp_log_set_level(CDDP_LOG_INFO);
    cddp_log_set_sink(count_line, NULL);
    unsetenv("CDDP_CACHE");
    unsetenv("XDG_CACHE_HOME");
    if (home != NULL) {
        setenv("HOME", home, 1);
    } else {
        unsetenv("HOME");
    }
    for (int i = 0; i < 3; i++) {
        uint64_t key = 1;
        struct cddpi_tuning *tuning = cddpi_tuning_open("products", tuning_card);

        CHECK(tuning == NULL);
        cddpi_tuning_keep(tuning, &key, sizeof key, &key, sizeof key);
        cddpi_tuning_reject(tuning, &key, sizeof key);
        CHECK(cddpi_tuning_find(tuning, &key, sizeof key, &key, sizeof key) == 0);
        cddpi_tuning_close(tuning);
    }
    CHECK(lines == 1);
    return 0;
}

static void without_a_home_it_is_said_once_and_nothing_is_kept(void **state)
{
    (void)state;
    support_write_file(in_folder("file"), "", 0);
    assert_int_equal(run_ranks(1, try_without, NULL), 0);
    assert_int_equal(run_ranks(1, try_without, "/proc"), 0);
    assert_int_equal(run_ranks(1, try_without, in_folder("file")), 0);
    if (geteuid() == 0) { /* with sudo, say */
        assert_int_equal(mkdir(in_folder("others"), 0755), 0);
        assert_int_equal(chown(in_folder("others"), 12345, 12345), 0);
        assert_int_equal(run_ranks(1, try_without, in_folder("others")), 0);
        assert_int_equal(rmdir(in_folder("others")), 0); /* nothing is in it */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CACHE(without_a_home_it_is_said_once_and_nothing_is_kept), /* before others say it */
        IN_CACHE(what_was_kept_the_next_process_finds),
        IN_CACHE(another_card_or_library_finds_nothing),
        IN_CACHE(two_that_write_in_turn_lose_nothing),
        IN_CACHE(who_was_first_stays),
        IN_CACHE(what_is_rejected_is_gone_and_can_be_replaced),
        IN_CACHE(who_rejects_a_choice_keeps_the_next_one_of_others),
        IN_CACHE(what_is_rejected_does_not_come_back),
        IN_CACHE(the_oldest_go_if_there_are_too_many),
        IN_CACHE(processes_at_once_lose_nothing),
        IN_CACHE(a_lock_that_is_never_free_holds_nobody_up),
        IN_CACHE(the_folder_is_the_users_cache_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
