/* test_tuning_file.c - files of choices that are damaged, or belong to somebody else, and disks and
 * memory that are full: no wrong choice is ever found. */
#include "base/alloc.h"
#include "base/file.h"
#include "support/tuning.h"

#include <fcntl.h>
#include <time.h>

/* --- a file that is damaged --- */

/* Each byte changed, and each length: what is found is right, or nothing is. */
static void a_damaged_file_never_gives_a_wrong_choice(void **state)
{
    static char page[8192];
    size_t bytes;
    int found = 0;

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) {
        keep_choice(key, 11 * key);
    }
    bytes = read_choices(page, sizeof page);
    for (size_t at = 0; at < 2 * bytes; at++) {
        char was = page[at % bytes];
        struct cddpi_tuning *tuning;

        page[at % bytes] = at < bytes ? (char)(was ^ 1) : was;
        support_write_file(file_of_choices(), page, at < bytes ? bytes : at - bytes);
        page[at % bytes] = was;
        tuning = open_card();
        for (uint64_t key = 0; key <= 4; key++) {
            uint64_t value = 0;

            if (cddpi_tuning_find(tuning, &key, sizeof key, &value, sizeof value) > 0) {
                assert_int_equal(value, 11 * key);
                found++;
            }
        }
        cddpi_tuning_close(tuning);
    }
    /* most bytes are in an entry, and leave the two others; of most lengths, the first ones are
     * whole */
    assert_true(found > (int)bytes);
    keep_choice(4, 44);
    assert_choice(tuning_card, 4, 44); /* and it is made whole again */
}

static void a_changed_entry_is_measured_again_and_the_others_are_not(void **state)
{
    static char page[8192];
    size_t bytes;

    (void)state;
    keep_choice(1, 11);
    keep_choice(2, 22);
    bytes = read_choices(page, sizeof page);
    support_change_byte(file_of_choices(), -2); /* of the last hash */
    assert_choice(tuning_card, 1, 11);
    assert_choice(tuning_card, 2, 0);
    keep_choice(2, 33);
    assert_choice(tuning_card, 2, 33);
    assert_int_equal(read_choices(page, sizeof page), bytes);
}

/* --- a file of others --- */

static void a_file_of_another_user_is_not_read(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    keep_choice(1, 11);
    assert_int_equal(chown(file_of_choices(), 12345, 12345), 0);
    assert_choice(tuning_card, 1, 0);
    keep_choice(1, 22); /* replaces it */
    assert_choice(tuning_card, 1, 22);
    assert_int_equal(chown(in_folder("cache"), 12345, 12345), 0);
    assert_null(cddpi_tuning_open("products", tuning_card));
}

static void what_others_can_write_is_not_read(void **state)
{
    (void)state;
    keep_choice(1, 11);
    assert_int_equal(chmod(file_of_choices(), 0606), 0);
    assert_choice(tuning_card, 1, 0);
    assert_int_equal(chmod(file_of_choices(), 0600), 0);
    assert_choice(tuning_card, 1, 11);
    assert_int_equal(chmod(in_folder("cache"), 0707), 0);
    assert_null(cddpi_tuning_open("products", tuning_card));
}

static void only_a_regular_file_is_read(void **state)
{
    static char page[8192];
    char path[4096];
    size_t bytes;

    (void)state;
    keep_choice(1, 11);
    snprintf(path, sizeof path, "%s", file_of_choices());
    bytes = read_choices(page, sizeof page);
    support_write_file(in_folder("elsewhere"), page, bytes);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(in_folder("elsewhere"), path), 0);
    assert_choice(tuning_card, 1, 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_choice(tuning_card, 1, 0);
    keep_choice(1, 22); /* is refused, and does not wait */
    assert_choice(tuning_card, 1, 0);
    assert_int_equal(unlink(path), 0);
    support_write_file(path, page, bytes);
    assert_int_equal(truncate(path, 64 << 20), 0);
    assert_choice(tuning_card, 1, 0);
}

/* The folder is checked once, so what is put in its place later does not count. */
static void another_folder_in_its_place_gets_nothing(void **state)
{
    struct cddpi_tuning *tuning;
    char aside[4096];
    uint64_t key = 1;

    (void)state;
    keep_choice(2, 22);
    tuning = open_card();
    snprintf(aside, sizeof aside, "%s", in_folder("aside"));
    assert_int_equal(rename(in_folder("cache"), aside), 0);
    assert_int_equal(mkdir(in_folder("cache"), 0777), 0);
    cddpi_tuning_keep(tuning, &key, sizeof key, &key, sizeof key);
    cddpi_tuning_close(tuning);
    assert_int_equal(rmdir(in_folder("cache")), 0); /* nothing is in it */
    assert_int_equal(rename(aside, in_folder("cache")), 0);
    assert_choice(tuning_card, key, key);
    assert_choice(tuning_card, 2, 22);
}

/* What a process that was killed has left, but not what another one is writing now. */
static void old_temporary_files_are_removed(void **state)
{
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 7200}, {.tv_sec = time(NULL) - 7200}};
    const char *name;
    char paths[3][4096];

    (void)state;
    keep_choice(1, 11);
    name = strrchr(file_of_choices(), '/') + 1;
    snprintf(paths[0], sizeof paths[0], "%s/.%s.tmp-17-4294967295", in_folder("cache"), name);
    snprintf(paths[1], sizeof paths[1], "%s/.%s.tmp-17-5", in_folder("cache"), name);
    snprintf(paths[2], sizeof paths[2], "%s/.other.tmp-17-5", in_folder("cache"));
    for (int i = 0; i < 3; i++) {
        support_write_file(paths[i], "", 0);
        assert_int_equal(i == 1 ? 0 : utimensat(AT_FDCWD, paths[i], old, 0), 0);
    }
    assert_choice(tuning_card, 1, 11);
    assert_int_equal(access(paths[0], F_OK), -1);
    assert_int_equal(access(paths[1], F_OK), 0);
    assert_int_equal(access(paths[2], F_OK), 0);
}

/* --- faults --- */

static const char *fails;

static int fail_operation(const char *operation)
{
    return strcmp(operation, fails) == 0 ? ENOSPC : 0;
}

static void a_full_disk_leaves_the_file_as_it_was(void **state)
{
    static const char *const operations[] = {"open", "write", "rename"};

    (void)state;
    keep_choice(1, 11);
    for (int i = 0; i < 3; i++) {
        fails = operations[i];
        cddpi_file_set_hook(fail_operation);
        keep_choice(2, 22);
        cddpi_file_set_hook(NULL);
        assert_choice(tuning_card, 1, 11);
        assert_choice(tuning_card, 2, 0);
    }
    file_of_choices();
    keep_choice(2, 22);
    assert_choice(tuning_card, 2, 22);
}

static void without_memory_nothing_is_kept(void **state)
{
    (void)state;
    keep_choice(1, 11);
    for (unsigned nth = 1; nth < 40; nth++) {
        struct cddpi_tuning *tuning;
        uint64_t key = nth + 1;
        uint64_t found = 0;

        cddpi_alloc_fail_nth(nth);
        tuning = cddpi_tuning_open("products", tuning_card);
        cddpi_tuning_keep(tuning, &key, sizeof key, &key, sizeof key);
        cddpi_alloc_fail_nth(0);
        if (cddpi_tuning_find(tuning, &key, sizeof key, &found, sizeof found) > 0) {
            assert_int_equal(found, key);
        }
        cddpi_tuning_close(tuning);
        assert_choice(tuning_card, 1, 11);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CACHE(a_damaged_file_never_gives_a_wrong_choice),
        IN_CACHE(a_changed_entry_is_measured_again_and_the_others_are_not),
        IN_CACHE(a_file_of_another_user_is_not_read),
        IN_CACHE(what_others_can_write_is_not_read),
        IN_CACHE(only_a_regular_file_is_read),
        IN_CACHE(another_folder_in_its_place_gets_nothing),
        IN_CACHE(old_temporary_files_are_removed),
        IN_CACHE(a_full_disk_leaves_the_file_as_it_was),
        IN_CACHE(without_memory_nothing_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
