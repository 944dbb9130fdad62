/* test_trusted_file.c - nothing that belongs to another user is run in this process or mapped into
 * it: modules that somebody placed beside a program, and descriptors that are not shared memory. */
#include "base/env.h"
#include "base/folder.h"
#include "base/module_loader.h"
#include "base/process.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { NOBODY = 65534, ME = -1 };

struct trial {
    mode_t folder, file;
    int owner_folder, owner_file; /* ME, or a user's number: needs root */
    int group_file;
    bool is_trusted;
    const char *why;
};

static const struct trial trials[] = {
    {0755, 0755, ME, ME, ME, true, NULL},
    {0700, 0600, ME, ME, ME, true, NULL},
    {0755, 0777, ME, ME, ME, false, "others can write"},
    {0755, 0702, ME, ME, ME, false, "others can write"},
    {0777, 0755, ME, ME, ME, false, "others can write"},
    {01777, 0755, ME, ME, ME, false, "(mode 1777)"},
    {0755, 0755, ME, NOBODY, ME, false, "belongs to another user (65534)"},
    {0755, 0755, NOBODY, ME, ME, false, "belongs to another user (65534)"},
    {0755, 0775, ME, ME, NOBODY, false, "others can write"}, /* a group of many */
};

static void put(const char *path, mode_t mode, int owner, int group)
{
    if (owner != ME || group != ME) {
        assert_int_equal(chown(path, (uid_t)owner, (gid_t)group), 0);
    }
    assert_int_equal(chmod(path, mode), 0);
}

/* A file in a folder below the test's own, which is this user's. */
static void set_up(const struct trial *trial, const char *folder, char path[4200])
{
    FILE *file;

    snprintf(path, 4200, "%s/folder", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, 4200, "%s/folder/libcddp-mpi.so", folder);
    file = fopen(path, "w");
    fputs("no library\n", file);
    fclose(file);
    put(path, trial->file, trial->owner_file, trial->group_file);
    snprintf(path, 4200, "%s/folder", folder);
    put(path, trial->folder, trial->owner_folder, ME);
    snprintf(path, 4200, "%s/folder/libcddp-mpi.so", folder);
}

static bool can(const struct trial *trial)
{
    return geteuid() == 0 ||
           (trial->owner_folder == ME && trial->owner_file == ME && trial->group_file == ME);
}

static void what_another_user_could_have_put_there_is_not_trusted(void **state)
{
    char real[PATH_MAX];
    char why[4400];
    char path[4200];

    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        char *folder = support_mkdtemp();

        if (can(&trials[i])) {
            set_up(&trials[i], folder, path);
            if (cddpi_file_is_trusted(path, NULL, real, why, sizeof why) != trials[i].is_trusted) {
                fprintf(stderr, "trial %zu: %s\n", i, why);
                fail();
            }
            assert_true(trials[i].is_trusted || strstr(why, trials[i].why) != NULL);
        }
        support_rmdir(folder);
    }
}

static void a_link_to_a_file_that_others_can_write_is_not_trusted(void **state)
{
    char *folder = support_mkdtemp();
    char path[4200];
    char link[4300];
    char real[PATH_MAX];
    char why[4400];

    (void)state;
    set_up(&trials[4], folder, path);
    snprintf(link, sizeof link, "%s/libcddp-mpi.so", folder);
    assert_int_equal(symlink(path, link), 0);
    assert_false(cddpi_file_is_trusted(link, NULL, real, why, sizeof why));
    support_rmdir(folder);
}

/* In a process for each, since a module that is open stays so. A file that is no library shows how
 * far it came: the loader would say so. */
static int module_rank(int rank, int world_size, void *argument)
{
    const struct trial *trial = argument;
    char *folder = support_mkdtemp();
    const void *table;
    char path[4200];
    const char *text;

    (void)rank;
    (void)world_size;
    set_up(trial, folder, path);
    setenv("CDDP_MPI_MODULE", path, 1);
    CHECK(cddpi_module_file_open(&cddpi_mpi_module_file, &table) == CDDP_ERR_UNAVAILABLE);
    text = cddp_last_error();
    CHECK(strstr(text, path) != NULL && strstr(text, "CDDP_MPI_MODULE") != NULL);
    CHECK((strstr(text, "cannot be opened") != NULL) == trial->is_trusted);
    CHECK((strstr(text, "somebody else could have put it there") != NULL) == !trial->is_trusted);
    support_rmdir(folder);
    return 0;
}

static void a_module_that_another_user_could_have_put_there_is_not_opened(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        if (can(&trials[i])) {
            assert_int_equal(run_ranks(1, module_rank, (void *)(uintptr_t)&trials[i]), 0);
        }
    }
}

static void only_memory_that_this_user_shares_is_opened_of_another_process(void **state)
{
    uint64_t start = cddpi_process_start_time();
    char *folder = support_mkdtemp();
    char path[4200];
    int fds[7];
    int opened;

    (void)state;
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(cddpi_process_share("test", 4096, &fds[0]), CDDP_OK);
    fds[1] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* of which the size may change */
    fds[2] = memfd_create("test", MFD_CLOEXEC);
    fds[3] = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(pipe2(fds + 4, O_CLOEXEC), 0);
    assert_int_equal(cddpi_process_share("test", 4096, &fds[6]), CDDP_OK);
    for (int i = 0; i < 7; i++) {
        bool is_foreign = geteuid() == 0 && i == 6 && fchown(fds[6], NOBODY, ME) == 0;
        bool is_good = i == 0 || (i == 6 && !is_foreign);

        assert_int_equal(cddpi_process_open_fd(getpid(), start, fds[i], 4096, &opened),
                         is_good ? CDDP_OK : CDDP_ERR_UNAVAILABLE);
        if (is_good) {
            close(opened);
        }
        close(fds[i]);
    }
    assert_int_equal(cddpi_process_share("test", 4096, &fds[0]), CDDP_OK);
    assert_int_equal(cddpi_process_open_fd(getpid(), start, fds[0], 4097, &opened),
                     CDDP_ERR_UNAVAILABLE); /* who maps it would meet its end */
    assert_int_not_equal(ftruncate(fds[0], 0), 0);
    close(fds[0]);
    support_rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_another_user_could_have_put_there_is_not_trusted),
        cmocka_unit_test(a_link_to_a_file_that_others_can_write_is_not_trusted),
        cmocka_unit_test(a_module_that_another_user_could_have_put_there_is_not_opened),
        cmocka_unit_test(only_memory_that_this_user_shares_is_opened_of_another_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
