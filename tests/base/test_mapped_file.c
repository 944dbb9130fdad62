/* test_mapped_file.c - files that are truncated while they are mapped: what readers get, and that
 * no other SIGBUS is hidden. */
#include "base/mapped_file.h"
#include "support/failure.h"
#include "support/folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { PAGES = 3 };

static size_t page_bytes;

static struct cddpi_mapped_file *map(const char *path)
{
    struct cddpi_mapped_file *file = NULL;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    assert_int_equal(cddpi_mapped_file_open(fd, path, &info, &file), CDDP_OK);
    close(fd);
    return file;
}

/* A mapped file of ones in each byte. From now on SIGBUS is caught: cmocka has its own handler at
 * the beginning of each test. */
static struct cddpi_mapped_file *map_ones(const char *path)
{
    unsigned char *ones = malloc(PAGES * page_bytes);

    memset(ones, 1, PAGES * page_bytes);
    support_write_file(path, ones, PAGES * page_bytes);
    free(ones);
    cddpi_mapped_files_catch();
    return map(path);
}

static size_t sum(const struct cddpi_mapped_file *file)
{
    const volatile unsigned char *data = cddpi_mapped_file_data(file);
    size_t sum = 0;

    for (size_t i = 0; i < PAGES * page_bytes; i++) {
        sum += data[i];
    }
    return sum;
}

static void is_truncated(cddp_status status, const char *path, size_t bytes)
{
    char expected[4600];

    assert_int_equal(status, CDDP_ERR_IO);
    snprintf(expected, sizeof expected,
             "%s: was truncated while it was in use: it had %zu bytes, and has %zu now", path,
             PAGES * page_bytes, bytes);
    assert_string_equal(cddp_last_error(), expected);
}

static void a_file_that_is_cut_off_reads_as_zeros_and_is_named(void **state)
{
    const char *path = in_folder("cut");
    struct cddpi_mapped_file *other = map_ones(in_folder("other"));
    struct cddpi_mapped_file *file = map_ones(path);

    (void)state;
    assert_int_equal(sum(file), PAGES * page_bytes);
    assert_int_equal(cddpi_mapped_file_check(file), CDDP_OK);
    assert_int_equal(cddpi_mapped_file_look(file), CDDP_OK);
    assert_int_equal(truncate(path, (off_t)page_bytes), 0);
    assert_int_equal(cddpi_mapped_file_check(file), CDDP_OK); /* nobody has read it */
    is_truncated(cddpi_mapped_file_look(file), path, page_bytes);
    assert_int_equal(sum(file), page_bytes);
    is_truncated(cddpi_mapped_file_check(file), path, page_bytes);
    assert_int_equal(cddpi_mapped_file_check(other), CDDP_OK);
    cddpi_mapped_file_close(file);
    assert_int_equal(sum(other), PAGES * page_bytes);
    cddpi_mapped_file_close(other);
}

static void a_few_bytes_cut_off_are_seen_by_looking(void **state)
{
    const char *path = in_folder("cut");
    struct cddpi_mapped_file *file = map_ones(path);

    (void)state;
    assert_int_equal(truncate(path, (off_t)(PAGES * page_bytes - 10)), 0);
    (void)sum(file);
    is_truncated(cddpi_mapped_file_look(file), path, PAGES * page_bytes - 10);
    cddpi_mapped_file_close(file);
}

/* What is cut off and put back is worth nothing; a file that takes the name changes nothing. */
static void what_lies_at_the_path_later_does_not_matter(void **state)
{
    const char *path = in_folder("cut");
    struct cddpi_mapped_file *file = map_ones(path);

    (void)state;
    support_write_file(in_folder("short"), "1", 1);
    assert_int_equal(rename(in_folder("short"), path), 0);
    assert_int_equal(sum(file), PAGES * page_bytes);
    assert_int_equal(cddpi_mapped_file_look(file), CDDP_OK);
    cddpi_mapped_file_close(file);
    file = map_ones(path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(sum(file), 0);
    assert_int_equal(truncate(path, (off_t)(PAGES * page_bytes)), 0);
    assert_true(failure_is(cddpi_mapped_file_look(file), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("cut: could not be read from byte 0 on"));
    cddpi_mapped_file_close(file);
}

static void *sum_in_a_thread(void *argument)
{
    const struct cddpi_mapped_file *file = argument;

    return (void *)sum(file);
}

static void threads_may_read_at_once(void **state)
{
    enum { THREADS = 4, TIMES = 50 };
    const char *path = in_folder("cut");

    (void)state;
    for (int time = 0; time < TIMES; time++) {
        struct cddpi_mapped_file *file = map_ones(path);
        pthread_t threads[THREADS];

        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, sum_in_a_thread, file), 0);
        }
        assert_int_equal(truncate(path, 0), 0);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        (void)sum(file);
        assert_int_equal(cddpi_mapped_file_check(file), CDDP_ERR_IO);
        cddpi_mapped_file_close(file);
    }
}

enum fault { SENT, FOREIGN };

static int die(int rank, int world_size, void *argument)
{
    const enum fault fault = *(enum fault *)argument;
    int fd = memfd_create("foreign", MFD_CLOEXEC);
    volatile unsigned char *foreign = mmap(NULL, page_bytes, PROT_READ, MAP_SHARED, fd, 0);

    (void)rank;
    (void)world_size;
    CHECK(foreign != MAP_FAILED);
    (void)signal(SIGBUS, SIG_DFL);
    cddpi_mapped_files_catch();
    if (fault == SENT) {
        kill(getpid(), SIGBUS);
    } else {
        (void)foreign[0];
    }
    return 0;
}

static void every_other_bus_error_ends_the_process_as_before(void **state)
{
    struct cddpi_mapped_file *file = map_ones(in_folder("a"));

    (void)state;
    for (enum fault fault = SENT; fault <= FOREIGN; fault++) {
        int status = 0;

        assert_int_equal(run_ranks_status(1, die, &fault, &status), 1);
        if (!WIFSIGNALED(status)) { /* a sanitizer has its own end */
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) > 1);
        } else {
            assert_int_equal(WTERMSIG(status), SIGBUS);
        }
    }
    cddpi_mapped_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_file_that_is_cut_off_reads_as_zeros_and_is_named),
        IN_FOLDER(a_few_bytes_cut_off_are_seen_by_looking),
        IN_FOLDER(what_lies_at_the_path_later_does_not_matter),
        IN_FOLDER(threads_may_read_at_once),
        IN_FOLDER(every_other_bus_error_ends_the_process_as_before),
    };

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
