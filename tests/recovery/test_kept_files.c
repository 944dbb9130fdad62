/* test_kept_files.c - CDDP_KEEP_FDS: the memory that a launcher holds for its ranks is found, and
 * no file that the variable names by mistake. */
#include "recovery/kept_memory.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/mman.h>

static int memory; /* a file as a launcher holds it */

static int begin(void **state)
{
    (void)state;
    memory = memfd_create("kept", MFD_CLOEXEC);
    return memory < 0;
}

static int end(void **state)
{
    (void)state;
    return close(memory);
}

static int files_of(const char *text, int *out)
{
    int count;

    setenv("CDDP_KEEP_FDS", text, 1);
    count = cddpi_kept_files(out);
    unsetenv("CDDP_KEEP_FDS");
    return count;
}

static void the_launchers_files_are_found_in_their_order(void **state)
{
    int fds[CDDPI_MACHINE_RANKS];
    int more = dup(memory); /* without close-on-exec, as a launcher passes it */
    char text[64];

    (void)state;
    snprintf(text, sizeof text, "%d,%d", more, memory);
    assert_int_equal(files_of(text, fds), 2);
    assert_int_equal(fds[0], more);
    assert_int_equal(fds[1], memory);
    assert_true((fcntl(more, F_GETFD) & FD_CLOEXEC) != 0);
    close(more);
}

static void without_a_launcher_there_are_none(void **state)
{
    int fds[CDDPI_MACHINE_RANKS];

    (void)state;
    unsetenv("CDDP_KEEP_FDS");
    assert_int_equal(cddpi_kept_files(fds), 0);
    assert_int_equal(files_of("", fds), 0);
}

/* Write @p pattern, with this memory's number for each "#". */
static void write_numbers(char *out, const char *pattern)
{
    for (; *pattern != '\0'; pattern++) {
        out += *pattern == '#' ? sprintf(out, "%d", memory) : sprintf(out, "%c", *pattern);
    }
}

/* One that is wrong means that all may be. */
static void what_names_no_memory_names_none(void **state)
{
    static const char *const wrong[] = {
        ",#",    "#,x",     "#,,#", "-1",       "#;#",        "99999",
        "0x#",   "# ",      " #",   "#,99999",  "#.0",        "99999999999999999999999",
        "#,#,-", "#,#,#,-", "x",    "nonsense", "2147483648", "4294967296"};
    int fds[CDDPI_MACHINE_RANKS];

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64];

        write_numbers(text, wrong[i]);
        if (files_of(text, fds) != 0) {
            fail_msg("\"%s\" names memory", text);
        }
    }
}

static void a_closed_descriptor_names_none(void **state)
{
    int fds[CDDPI_MACHINE_RANKS];
    int closed = dup(memory);
    char text[64];

    (void)state;
    close(closed);
    snprintf(text, sizeof text, "%d,%d", memory, closed);
    assert_int_equal(files_of(text, fds), 0);
}

/* Name the file @p path; nothing may happen to it. */
static void name_by_mistake(const char *path)
{
    static const char words[] = "somebody's work";
    char text[sizeof words + 1] = "";
    int fds[CDDPI_MACHINE_RANKS];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int count;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, words, sizeof words), sizeof words);
    snprintf(text, sizeof text, "%d", fd);
    count = files_of(text, fds);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(count, 0);
    assert_int_equal(pread(fd, text, sizeof text, 0), sizeof words);
    assert_string_equal(text, words);
    close(fd);
}

static void an_ordinary_file_is_not_touched(void **state)
{
    char *dir = support_mkdtemp();
    char path[4300];

    (void)state;
    snprintf(path, sizeof path, "%s/file", dir);
    name_by_mistake(path);
    support_rmdir(dir);
}

/* A case with memory of its own. */
#define WITH_MEMORY(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MEMORY(the_launchers_files_are_found_in_their_order),
        WITH_MEMORY(without_a_launcher_there_are_none),
        WITH_MEMORY(what_names_no_memory_names_none),
        WITH_MEMORY(a_closed_descriptor_names_none),
        WITH_MEMORY(an_ordinary_file_is_not_touched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
