/* test_launcher_rank_memory.c - the memory that cddp-run holds for its ranks, without ranks. */
#include "launcher/supervise/rank_memory.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/stat.h>

static ino_t inode_of(int fd)
{
    struct stat info;

    assert_int_equal(fstat(fd, &info), 0);
    return info.st_ino;
}

static void memory_grows_and_never_shrinks(void **state)
{
    struct cddpi_rank_memory memory = {.fds = NULL};
    char text[CDDPI_RANK_MEMORY_TEXT_BYTES];
    char expected[64];
    char found[8] = "";
    ino_t inodes[4];

    (void)state;
    assert_int_equal(cddpi_rank_memory_hold(&memory, 2, 1024), CDDP_OK);
    assert_int_equal(pwrite(memory.fds[1], "state", 5, 0), 5);
    for (int i = 0; i < 2; i++) {
        inodes[i] = inode_of(memory.fds[i]);
        assert_int_equal(fcntl(memory.fds[i], F_GETFD), FD_CLOEXEC);
    }
    assert_int_equal(cddpi_rank_memory_hold(&memory, 4, 1024), CDDP_OK);
    assert_int_equal(memory.count, 4);
    assert_int_equal(cddpi_rank_memory_hold(&memory, 1, 1024), CDDP_OK);
    assert_int_equal(memory.count, 4);
    for (int i = 0; i < 4; i++) {
        inodes[i] = i < 2 ? inodes[i] : inode_of(memory.fds[i]);
        assert_int_equal(inode_of(memory.fds[i]), inodes[i]);
        for (int k = 0; k < i; k++) {
            assert_int_not_equal(inodes[i], inodes[k]);
        }
    }
    assert_int_equal(pread(memory.fds[1], found, sizeof found, 0), 5);
    assert_string_equal(found, "state");
    snprintf(expected, sizeof expected, "%d,%d,%d,%d", memory.fds[0], memory.fds[1], memory.fds[2],
             memory.fds[3]);
    cddpi_rank_memory_text(&memory, text);
    assert_string_equal(text, expected);
    cddpi_rank_memory_release(&memory);
    assert_int_equal(memory.count, 0);
    cddpi_rank_memory_text(&memory, text);
    assert_string_equal(text, "");
}

/* A rank that had memory before could otherwise go on alone from another step. */
static void if_there_is_none_for_one_rank_there_is_none_for_any(void **state)
{
    static const struct {
        int ranks;
        rlim_t file_limit;
        const char *text;
    } rows[] = {
        {129, 1024, "129 descriptors, and ranks may open only 1024 (ulimit -n)"},
        {3, 0, "3 descriptors, and ranks may open only 0 (ulimit -n)"},
        {513, RLIM_INFINITY, "at most 512 ranks can have it"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cddpi_rank_memory memory = {.fds = NULL};
        int fd;

        assert_int_equal(cddpi_rank_memory_hold(&memory, 2, 1024), CDDP_OK);
        fd = memory.fds[0];
        assert_int_not_equal(cddpi_rank_memory_hold(&memory, rows[i].ranks, rows[i].file_limit),
                             CDDP_OK);
        assert_non_null(strstr(cddp_last_error(), rows[i].text));
        assert_int_equal(memory.count, 0);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        /* the user knows, and ranks of later generations do not have what others lack */
        assert_int_equal(cddpi_rank_memory_hold(&memory, 2, 1024), CDDP_OK);
        assert_int_equal(memory.count, 0);
        cddpi_rank_memory_release(&memory);
    }
}

static void no_descriptor_is_left_if_there_are_too_few(void **state)
{
    struct cddpi_rank_memory memory = {.fds = NULL};
    struct rlimit limit;
    struct rlimit low;
    int next = dup(STDIN_FILENO);

    (void)state;
    assert_true(next > 2);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = (struct rlimit){(rlim_t)next + 2, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(cddpi_rank_memory_hold(&memory, 3, 1024), CDDP_ERR_NO_MEMORY);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(memory.count, 0);
    assert_int_equal(dup(STDIN_FILENO), next);
    close(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_grows_and_never_shrinks),
        cmocka_unit_test(if_there_is_none_for_one_rank_there_is_none_for_any),
        cmocka_unit_test(no_descriptor_is_left_if_there_are_too_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
