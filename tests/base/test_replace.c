/* test_replace.c - files that are replaced completely or not at all, whatever fails. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/replace.h"
#include "support/failure.h"
#include "support/folder.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { LARGE = 700000 }; /* more than a writer's buffer, twice */

static char large[LARGE];

static int make_all(void **state)
{
    for (int i = 0; i < LARGE; i++) {
        large[i] = (char)(i * 7 + i / 256);
    }
    return make_folder(state);
}

static int count_files(void)
{
    DIR *stream = opendir(folder);
    int count = 0;

    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(stream);
    return count;
}

static void assert_holds(const char *name, const void *wanted, size_t bytes)
{
    static char got[LARGE + 1];
    FILE *file = fopen(in_folder(name), "re");

    assert_non_null(file);
    assert_int_equal(fread(got, 1, sizeof got, file), bytes);
    fclose(file);
    assert_memory_equal(got, wanted, bytes);
}

/* In pieces of many sizes, small and larger than the buffer. */
static cddp_status put_large(void *context, struct cddpi_writer *writer)
{
    static const size_t pieces[] = {1, 200000, 70000, 5, 300000, LARGE - 570006};
    cddp_status status = CDDP_OK;
    size_t at = 0;

    (void)context;
    for (int i = 0; i < 6 && status == CDDP_OK; i++) {
        status = cddpi_writer_put(writer, large + at, pieces[i]);
        at += pieces[i];
    }
    return status;
}

static void a_file_appears_when_it_is_whole(void **state)
{
    struct cddpi_replacement file;

    (void)state;
    assert_int_equal(cddpi_replacement_open(in_folder("a"), &file), CDDP_OK);
    assert_int_equal(put_large(NULL, &file.writer), CDDP_OK);
    assert_int_equal(access(in_folder("a"), F_OK), -1);
    assert_int_equal(cddpi_replacement_finish(&file, NULL), CDDP_OK);
    assert_null(file.path);
    assert_holds("a", large, LARGE);
    assert_int_equal(count_files(), 1);
}

static char operations[256];

/* One after the other; several writes in a row are one. */
static int note_operation(const char *operation)
{
    size_t used = strlen(operations);
    const char *last = strrchr(operations, ' ');

    if (last == NULL || strcmp(last + 1, operation) != 0) {
        snprintf(operations + used, sizeof operations - used, " %s", operation);
    }
    return 0;
}

static void the_disk_has_a_file_before_its_name_and_then_the_name(void **state)
{
    (void)state;
    operations[0] = '\0';
    cddpi_file_set_hook(note_operation);
    assert_int_equal(cddpi_file_replace(in_folder("a"), put_large, NULL), CDDP_OK);
    cddpi_file_set_hook(NULL);
    assert_string_equal(operations, " open write fsync rename fsync");
}

static void an_older_file_stays_until_then(void **state)
{
    struct cddpi_replacement file;

    (void)state;
    assert_int_equal(cddpi_file_replace_line(in_folder("a"), "old"), CDDP_OK);
    assert_int_equal(cddpi_replacement_open(in_folder("a"), &file), CDDP_OK);
    assert_int_equal(cddpi_writer_put_line(&file.writer, "new"), CDDP_OK);
    assert_holds("a", "old\n", 4);
    assert_int_equal(cddpi_replacement_finish(&file, NULL), CDDP_OK);
    assert_holds("a", "new\n", 4);
    assert_int_equal(count_files(), 1);
}

static void what_is_discarded_leaves_nothing(void **state)
{
    struct cddpi_replacement file;

    (void)state;
    assert_int_equal(cddpi_file_replace_line(in_folder("a"), "old"), CDDP_OK);
    assert_int_equal(cddpi_replacement_open(in_folder("a"), &file), CDDP_OK);
    assert_int_equal(put_large(NULL, &file.writer), CDDP_OK);
    assert_int_equal(count_files(), 2);
    cddpi_replacement_discard(&file);
    cddpi_replacement_discard(&file); /* closed now */
    assert_holds("a", "old\n", 4);
    assert_int_equal(count_files(), 1);
}

static void its_head_may_come_last_and_its_name_change(void **state)
{
    struct cddpi_replacement file;

    (void)state;
    assert_int_equal(cddpi_replacement_open(in_folder("a"), &file), CDDP_OK);
    assert_int_equal(put_large(NULL, &file.writer), CDDP_OK);
    assert_int_equal(cddpi_writer_put_head(&file.writer, "head", 4), CDDP_OK);
    assert_int_equal(cddpi_writer_put(&file.writer, "tail", 4), CDDP_OK);
    assert_true(file.writer.bytes == LARGE + 4);
    assert_int_equal(cddpi_replacement_finish(&file, in_folder("b")), CDDP_OK);
    assert_int_equal(access(in_folder("a"), F_OK), -1);
    assert_int_equal(truncate(in_folder("b"), LARGE), 0);
    memcpy(large, "head", 4);
    assert_holds("b", large, LARGE);
}

static void two_at_once_do_not_meet(void **state)
{
    struct cddpi_replacement first, second;

    (void)state;
    assert_int_equal(cddpi_replacement_open(in_folder("a"), &first), CDDP_OK);
    assert_int_equal(cddpi_replacement_open(in_folder("a"), &second), CDDP_OK);
    assert_int_equal(cddpi_writer_put_line(&first.writer, "first"), CDDP_OK);
    assert_int_equal(cddpi_writer_put_line(&second.writer, "second"), CDDP_OK);
    assert_int_equal(cddpi_replacement_finish(&second, NULL), CDDP_OK);
    assert_holds("a", "second\n", 7);
    assert_int_equal(cddpi_replacement_finish(&first, NULL), CDDP_OK);
    assert_holds("a", "first\n", 6);
    assert_int_equal(count_files(), 1);
}

static int operations_left;

static int fail_the_last(const char *operation)
{
    (void)operation;
    return operations_left > 0 && --operations_left == 0 ? ENOSPC : 0;
}

static void a_full_disk_at_any_time_leaves_the_old_file(void **state)
{
    cddp_status status = CDDP_ERR_IO;
    int n;

    (void)state;
    assert_int_equal(cddpi_file_replace_line(in_folder("a"), "old"), CDDP_OK);
    for (n = 1; status != CDDP_OK; n++) {
        bool is_new;

        operations_left = n;
        cddpi_file_set_hook(fail_the_last);
        status = cddpi_file_replace(in_folder("a"), put_large, NULL);
        cddpi_file_set_hook(NULL);
        is_new = status == CDDP_OK || strstr(cddp_last_error(), "may bring the old one back");
        assert_int_equal(count_files(), 1);
        assert_holds("a", is_new ? large : "old\n", is_new ? LARGE : 4);
        if (status != CDDP_OK) {
            assert_true(failure_is(status, CDDP_ERR_IO, -1, -1, ""));
            assert_true(last_error_has(in_folder("a")));
            assert_int_equal(cddpi_last_errno(), ENOSPC);
            assert_int_equal(cddpi_file_replace_line(in_folder("a"), "old"), CDDP_OK);
        }
    }
    assert_true(n > 20); /* open, many short writes, fsync, rename, fsync */
}

static cddp_status put_nothing(void *context, struct cddpi_writer *writer)
{
    (void)context;
    (void)writer;
    return CDDP_ERR_FORMAT;
}

static void who_cannot_put_leaves_the_old_file(void **state)
{
    (void)state;
    assert_int_equal(cddpi_file_replace_line(in_folder("a"), "old"), CDDP_OK);
    assert_int_equal(cddpi_file_replace(in_folder("a"), put_nothing, NULL), CDDP_ERR_FORMAT);
    assert_holds("a", "old\n", 4);
    assert_int_equal(count_files(), 1);
}

static void a_place_that_cannot_be_is_named(void **state)
{
    (void)state;
    assert_true(
        failure_is(cddpi_file_replace_line(in_folder("no/a"), ""), CDDP_ERR_IO, -1, -1, ""));
    assert_true(failure_errno_is(ENOENT));
    assert_true(last_error_has(in_folder("no/a")));
    assert_true(
        failure_is(cddpi_file_replace_line(in_folder(""), ""), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("is not a file name"));
    assert_int_equal(count_files(), 0);
}

static void what_is_no_regular_file_is_not_replaced(void **state)
{
    struct stat info;

    (void)state;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", in_folder("link")), 0);
    assert_int_equal(mkdir(in_folder("folder"), 0700), 0);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"pipe", "link", "folder"};

        assert_true(failure_is(cddpi_file_replace_line(in_folder(names[i]), "x"), CDDP_ERR_ARGUMENT,
                               -1, -1, ""));
        assert_true(last_error_has(in_folder(names[i])));
        assert_true(last_error_has(": it exists and is not a regular file"));
    }
    assert_int_equal(count_files(), 3);
    assert_int_equal(lstat(in_folder("pipe"), &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(lstat(in_folder("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void without_memory_it_fails_and_leaves_nothing(void **state)
{
    cddp_status status = CDDP_ERR_NO_MEMORY;
    unsigned n;

    (void)state;
    for (n = 1; status != CDDP_OK; n++) {
        cddpi_alloc_fail_nth(n);
        status = cddpi_file_replace_line(in_folder("a"), "new");
        cddpi_alloc_fail_nth(0);
        if (status != CDDP_OK) {
            assert_int_equal(status, CDDP_ERR_NO_MEMORY);
            assert_int_equal(count_files(), 0);
        }
    }
    assert_true(n > 4);
    assert_holds("a", "new\n", 4);
}

static void what_crashed_writers_left_is_swept_and_nothing_else(void **state)
{
    static const char *const kept[] = {".b.tmp-1-0",  ".a.tmp-1",     ".a.tmp-x-0",
                                       ".a.tmp-1-0x", "a.tmp-1-0",    ".a.tmp-1-",
                                       "a",           ".aa.tmp-12-0", ".a.tmp-1-0.gz"};
    static const char *const swept[] = {".a.tmp-1-0", ".a.tmp-4194304-63"};

    (void)state;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        support_write_file(in_folder(kept[i]), "x", 1);
    }
    for (size_t i = 0; i < sizeof swept / sizeof swept[0]; i++) {
        support_write_file(in_folder(swept[i]), "x", 1);
    }
    cddpi_replacement_sweep(in_folder("a"));
    assert_int_equal(count_files(), sizeof kept / sizeof kept[0]);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        assert_int_equal(access(in_folder(kept[i]), F_OK), 0);
    }
    cddpi_replacement_sweep(in_folder("absent/a"));
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_all, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_file_appears_when_it_is_whole),
        CASE(the_disk_has_a_file_before_its_name_and_then_the_name),
        CASE(an_older_file_stays_until_then),
        CASE(what_is_discarded_leaves_nothing),
        CASE(its_head_may_come_last_and_its_name_change),
        CASE(two_at_once_do_not_meet),
        CASE(a_full_disk_at_any_time_leaves_the_old_file),
        CASE(who_cannot_put_leaves_the_old_file),
        CASE(a_place_that_cannot_be_is_named),
        CASE(what_is_no_regular_file_is_not_replaced),
        CASE(what_crashed_writers_left_is_swept_and_nothing_else),
        CASE(without_memory_it_fails_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
