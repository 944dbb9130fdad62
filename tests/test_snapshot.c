/* test_snapshot.c - snapshot folders: whole or not there, whatever happens while one is written. */
#include "base/alloc.h"
#include "checkpoint/file.h"
#include "support.h"

#include <cddp/checkpoint.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { WEIGHTS = 300, EXIT_INJECTED = 77 };

static char *dir;

static int make_dir(void **state)
{
    (void)state;
    dir = support_mkdtemp();
    return dir == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    support_rmdir(dir);
    return 0;
}

/* What a trainer at @step has: every value tells which step, so a mixture would show. */
struct trainer {
    float weights[WEIGHTS];
    float momentum[WEIGHTS];
    int64_t step;
    cddp_tensor model[1];
    cddp_tensor optimizer[2];
    char state[64];
    cddp_snapshot snapshot;
};

static void set_trainer(struct trainer *trainer, uint64_t step, float mark)
{
    for (int i = 0; i < WEIGHTS; i++) {
        trainer->weights[i] = mark + (float)i;
        trainer->momentum[i] = -mark - (float)i;
    }
    trainer->step = (int64_t)mark;
    trainer->model[0] = (cddp_tensor){"w", CDDP_F32, 1, {WEIGHTS}, trainer->weights};
    trainer->optimizer[0] = (cddp_tensor){"step", CDDP_I64, 0, {0}, &trainer->step};
    trainer->optimizer[1] = (cddp_tensor){"momentum.w", CDDP_F32, 1, {WEIGHTS}, trainer->momentum};
    snprintf(trainer->state, sizeof trainer->state, "{\"mark\": %d, \"lr\": 0.1}", (int)mark);
    trainer->snapshot = (cddp_snapshot){step, trainer->model, 1, trainer->optimizer,
                                        2,    trainer->state};
}

static cddp_status write_step(uint64_t step, float mark, unsigned keep)
{
    struct trainer trainer;

    set_trainer(&trainer, step, mark);
    return cddp_snapshot_write(dir, &trainer.snapshot, keep);
}

/* The mark of the newest whole snapshot, checked to be all of one piece; 0: there is none. */
static int found_mark(uint64_t *out_step, char **out_skipped)
{
    struct trainer expected;
    struct trainer loaded;
    char text[64];
    char *path;
    char *json;
    uint64_t step;
    int mark = 0;

    *out_skipped = NULL;
    if (cddp_snapshot_find(dir, &path, out_skipped) != CDDP_OK) {
        return 0;
    }
    assert_int_equal(cddp_snapshot_read_state(path, &json, &step), CDDP_OK);
    assert_int_equal(sscanf(json, "{\"mark\":%d", &mark), 1);
    snprintf(text, sizeof text, "{\"mark\":%d,\"lr\":0.10000000000000001}", mark);
    assert_string_equal(json, text);
    set_trainer(&loaded, 0, 0);
    set_trainer(&expected, 0, (float)mark);
    assert_int_equal(cddp_snapshot_load(path, &loaded.snapshot), CDDP_OK);
    assert_memory_equal(loaded.weights, expected.weights, sizeof loaded.weights);
    assert_memory_equal(loaded.momentum, expected.momentum, sizeof loaded.momentum);
    assert_int_equal(loaded.step, mark);
    cddpi_free(path);
    cddpi_free(json);
    *out_step = step;
    return mark;
}

/* Fails unless the newest whole snapshot is that of @step with @mark, and none was skipped. */
static void assert_found(uint64_t step, int mark)
{
    uint64_t present = 0;
    char *skipped;

    assert_int_equal(found_mark(&present, &skipped), mark);
    assert_int_equal(present, step);
    if (skipped != NULL) {
        fail_msg("skipped: %s", skipped);
    }
}

/* Whether DIR/@name exists. */
static bool exists(const char *name)
{
    char path[5000];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return lstat(path, &info) == 0;
}

static int count_hidden(void)
{
    DIR *stream = opendir(dir);
    const struct dirent *row;
    int count = -2; /* . and .. */

    while ((row = readdir(stream)) != NULL) {
        count += row->d_name[0] == '.';
    }
    closedir(stream);
    return count;
}

static void put_text(const char *name, const char *text)
{
    char path[5000];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_latest_is(const char *name)
{
    char path[5000];
    char text[64] = "";
    FILE *file;

    snprintf(path, sizeof path, "%s/latest", dir);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), strlen(name) + 1);
    fclose(file);
    assert_int_equal(strncmp(text, name, strlen(name)), 0);
    assert_int_equal(text[strlen(name)], '\n');
}

static void the_newest_snapshot_is_found_and_loaded(void **state)
{
    (void)state;
    assert_int_equal(write_step(500, 5, 0), CDDP_OK);
    assert_int_equal(write_step(1000, 10, 0), CDDP_OK);
    assert_int_equal(write_step(123456789012, 12, 0), CDDP_OK);
    assert_found(123456789012, 12);
    assert_latest_is("step-123456789012");
    assert_true(exists("step-00000500") && exists("step-00001000"));
    assert_int_equal(count_hidden(), 0);
}

static void the_folder_is_made_with_its_parents(void **state)
{
    char *top = dir;
    char path[4500];

    (void)state;
    snprintf(path, sizeof path, "%s/runs//a/checkpoints/", top);
    dir = path;
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    assert_found(1, 1);
    dir = top;
}

static void nothing_is_found_where_nothing_is(void **state)
{
    char *path = NULL;
    char *skipped = NULL;
    char missing[5000];

    (void)state;
    assert_int_equal(cddp_snapshot_find(dir, &path, &skipped), CDDP_ERR_NOT_FOUND);
    assert_non_null(strstr(cddp_last_error(), "there are no snapshots"));
    snprintf(missing, sizeof missing, "%s/absent", dir);
    assert_int_equal(cddp_snapshot_find(missing, &path, &skipped), CDDP_ERR_NOT_FOUND);
    put_text("step-5", "not a name of ours");
    put_text("step-00000005x", "nor this");
    put_text("step-000000005", "nor this");
    assert_int_equal(cddp_snapshot_find(dir, &path, NULL), CDDP_ERR_NOT_FOUND);
    assert_null(path);
    assert_null(skipped);
}

/* Change one byte of DIR/@name, in its middle. */
static void damage(const char *name)
{
    char path[5000];
    struct stat info;
    unsigned char byte;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(pread(fd, &byte, 1, info.st_size / 2), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, info.st_size / 2), 1);
    close(fd);
}

static void broken_snapshots_are_passed_over_with_reasons(void **state)
{
    static const struct {
        uint64_t step;
        const char *text;
    } reasons[] = {
        {107, "step-00000107/state.json: No such file"},
        {106, "step-00000106/model.safetensors: No such file"},
        {105, "step-00000105/optimizer.safetensors: 100 bytes, but"},
        {104, "step-00000104/state.json"},
        {103, "step-00000103/optimizer.safetensors: its contents do not match"},
        {102, "step-00000102/model.safetensors: its contents do not match"},
    };
    char path[5000];
    char *skipped;
    uint64_t step;

    (void)state;
    for (uint64_t i = 100; i <= 107; i++) {
        assert_int_equal(write_step(i, (float)i, 0), CDDP_OK);
    }
    damage("step-00000102/model.safetensors");
    damage("step-00000103/optimizer.safetensors");
    damage("step-00000104/state.json");
    snprintf(path, sizeof path, "%s/step-00000105/optimizer.safetensors", dir);
    assert_int_equal(truncate(path, 100), 0);
    snprintf(path, sizeof path, "%s/step-00000106/model.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/step-00000107/state.json", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(found_mark(&step, &skipped), 101);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (strstr(skipped, reasons[i].text) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", skipped, reasons[i].text);
        }
    }
    cddpi_free(skipped);
    damage("step-00000100/model.safetensors");
    damage("step-00000101/state.json");
    assert_int_equal(found_mark(&step, &skipped), 0);
    assert_null(skipped);
    assert_non_null(strstr(cddp_last_error(), "step-00000100/model.safetensors"));
}

static void a_wrong_latest_does_not_mislead(void **state)
{
    (void)state;
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    assert_int_equal(write_step(2, 2, 0), CDDP_OK);
    put_text("latest", "../../etc\n");
    assert_found(2, 2);
    put_text("latest", "step-00000001\n");
    assert_found(2, 2);
}

static void a_damaged_snapshot_is_not_loaded(void **state)
{
    struct trainer loaded;
    char path[5000];

    (void)state;
    assert_int_equal(write_step(3, 3, 0), CDDP_OK);
    set_trainer(&loaded, 0, 0);
    snprintf(path, sizeof path, "%s/step-00000003", dir);
    loaded.optimizer[1].shape[0]--;
    assert_int_equal(cddp_snapshot_load(path, &loaded.snapshot), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "momentum.w"));
    assert_float_equal(loaded.weights[0], 0, 0); /* nor was the model, which fits */
    loaded.optimizer[1].shape[0]++;
    damage("step-00000003/optimizer.safetensors");
    assert_int_equal(cddp_snapshot_load(path, &loaded.snapshot), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "optimizer.safetensors"));
    assert_float_equal(loaded.weights[0], 0, 0);
}

static void only_the_newest_are_kept(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(write_step(i, (float)i, 3), CDDP_OK);
    }
    assert_false(exists("step-00000001") || exists("step-00000002"));
    assert_true(exists("step-00000003") && exists("step-00000004") && exists("step-00000005"));
    /* one that goes back is never its own victim */
    assert_int_equal(write_step(2, 2, 1), CDDP_OK);
    assert_true(exists("step-00000002"));
    assert_false(exists("step-00000003") || exists("step-00000004") || exists("step-00000005"));
    assert_found(2, 2);
    assert_int_equal(count_hidden(), 0);
}

static void what_is_not_ours_is_never_deleted(void **state)
{
    char outside[5000];
    char command[5100];
    char link[5000];
    char name[64];

    (void)state;
    snprintf(outside, sizeof outside, "%s-outside", dir);
    assert_int_equal(mkdir(outside, 0700), 0);
    for (int i = 0; i < 2; i++) {
        char file[5100];

        snprintf(file, sizeof file, "%s/%s", outside, i ? "model.safetensors" : "state.json");
        assert_int_equal(close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    }
    snprintf(link, sizeof link, "%s/step-00000001", dir);
    assert_int_equal(symlink(outside, link), 0);
    snprintf(link, sizeof link, "%s/.step-00000001.tmp-%ld", dir, (long)getpid());
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(write_step(2, 2, 1), CDDP_OK);
    put_text("step-00000002/notes.txt", "the good one");
    assert_int_equal(write_step(3, 3, 1), CDDP_OK);
    assert_true(exists("step-00000001"));
    assert_true(exists("step-00000002/notes.txt") && exists("step-00000002/model.safetensors"));
    snprintf(name, sizeof name, "../%s/model.safetensors", strrchr(outside, '/') + 1);
    assert_true(exists(name));
    snprintf(name, sizeof name, "../%s/state.json", strrchr(outside, '/') + 1);
    assert_true(exists(name));
    assert_found(3, 3);
    snprintf(command, sizeof command, "rm -rf '%s'", outside);
    assert_int_equal(system(command), 0);
}

static void leftovers_of_crashed_writers_are_removed(void **state)
{
    char name[64];
    pid_t gone = fork();

    (void)state;
    if (gone == 0) {
        _exit(0);
    }
    waitpid(gone, NULL, 0);
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    for (int i = 0; i < 2; i++) {
        char path[5000];

        snprintf(name, sizeof name, ".step-00000002.tmp-%ld", i ? (long)gone : (long)getppid());
        snprintf(path, sizeof path, "%s/%s", dir, name);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(name, sizeof name, "%s/model.safetensors", strrchr(path, '/') + 1);
        put_text(name, "half of a f");
    }
    snprintf(name, sizeof name, ".latest.tmp-%ld", (long)gone);
    put_text(name, "step-0000");
    assert_int_equal(count_hidden(), 3);
    assert_int_equal(write_step(2, 2, 0), CDDP_OK);
    /* our parent lives: it may be at work */
    assert_int_equal(count_hidden(), 1);
    snprintf(name, sizeof name, ".step-00000002.tmp-%ld", (long)getppid());
    assert_true(exists(name));
}

static void a_step_can_be_written_again(void **state)
{
    (void)state;
    assert_int_equal(write_step(7, 1, 2), CDDP_OK);
    assert_int_equal(write_step(7, 2, 2), CDDP_OK);
    assert_found(7, 2);
    damage("step-00000007/model.safetensors");
    assert_int_equal(write_step(7, 3, 2), CDDP_OK);
    assert_found(7, 3);
    assert_int_equal(count_hidden(), 0);
    put_text("step-00000008", "a file");
    assert_int_equal(write_step(8, 4, 2), CDDP_ERR_IO);
    assert_non_null(strstr(cddp_last_error(), "step-00000008 is in the way"));
    assert_int_equal(count_hidden(), 0);
}

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
    cddpi_checkpoint_set_hook(exit_at_the_last);
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
            (void)run_ranks_status(1, 20, write_and_exit, (void *)&scenes[i], &status);
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
            assert_int_equal(write_step(50, 1, 1), CDDP_OK);
            assert_true(n < 200);
        }
        assert_true(seen_new);
    }
}

/* Let operation @n fail, in the way of @hook; returns whether the write came through. */
static bool write_with_failure(const struct scene *scene, unsigned n, int (*hook)(const char *))
{
    cddp_status status;

    assert_int_equal(write_step(50, 1, 1), CDDP_OK);
    assert_int_equal(write_step(100, 1, 1), CDDP_OK);
    operations_left = n;
    cddpi_checkpoint_set_hook(hook);
    status = write_step(scene->step, 2, scene->keep);
    cddpi_checkpoint_set_hook(NULL);
    if (status != CDDP_OK) {
        assert_int_equal(status, CDDP_ERR_IO);
        assert_non_null(strstr(cddp_last_error(), "No space left on device"));
        assert_non_null(strstr(cddp_last_error(), dir));
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
    CHECK(write_step(2, 2, 1) == CDDP_ERR_IO);
    CHECK(strstr(cddp_last_error(), "model.safetensors: File too large") != NULL);
    return 0;
}

static void a_file_size_limit_leaves_the_old_snapshot(void **state)
{
    (void)state;
    assert_int_equal(write_step(1, 1, 1), CDDP_OK);
    assert_int_equal(run_ranks(1, 20, write_beyond_the_limit, NULL), 0);
    assert_found(1, 1);
    assert_int_equal(count_hidden(), 0);
}

static void a_full_file_system_leaves_the_old_snapshot(void **state)
{
    cddp_status status = CDDP_OK;
    uint64_t step;

    (void)state;
    if (mount("tmpfs", dir, "tmpfs", MS_NODEV | MS_NOEXEC, "size=64k") != 0) {
        print_message("no tmpfs can be mounted here (%s)\n", strerror(errno));
        skip();
    }
    for (step = 1; step < 40 && status == CDDP_OK; step++) {
        status = write_step(step, (float)step, 0);
    }
    print_message("step %d: %s\n", (int)step - 1, cddp_last_error());
    assert_int_equal(status, CDDP_ERR_IO);
    assert_non_null(strstr(cddp_last_error(), "No space left on device"));
    assert_found(step - 2, (int)step - 2);
    assert_int_equal(count_hidden(), 0);
    assert_int_equal(umount(dir), 0);
}

static void a_senseless_snapshot_is_refused(void **state)
{
    struct trainer trainer;

    (void)state;
    set_trainer(&trainer, 1, 1);
    trainer.snapshot.state_json = "[1]";
    assert_int_equal(cddp_snapshot_write(dir, &trainer.snapshot, 0), CDDP_ERR_ARGUMENT);
    trainer.snapshot.state_json = "{";
    assert_int_equal(cddp_snapshot_write(dir, &trainer.snapshot, 0), CDDP_ERR_ARGUMENT);
    trainer.snapshot.state_json = "{\"a\":1,\"a\":2}";
    assert_int_equal(cddp_snapshot_write(dir, &trainer.snapshot, 0), CDDP_ERR_ARGUMENT);
    set_trainer(&trainer, UINT64_MAX, 1);
    assert_int_equal(cddp_snapshot_write(dir, &trainer.snapshot, 0), CDDP_ERR_ARGUMENT);
    set_trainer(&trainer, 1, 1);
    trainer.optimizer[1].name = "step";
    assert_int_equal(cddp_snapshot_write(dir, &trainer.snapshot, 0), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "optimizer.safetensors: two tensors are named"));
    assert_int_equal(count_hidden(), 0);
    assert_false(exists("step-00000001"));
}

static void without_memory_snapshots_fail_and_nothing_leaks(void **state)
{
    struct trainer loaded;
    cddp_status status = CDDP_ERR_NO_MEMORY;
    char path[5000];
    char *found;
    char *skipped;
    char *json;
    uint64_t step;

    (void)state;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = write_step(1, 1, 1);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        assert_int_equal(count_hidden(), 0);
        assert_true(nth < 100);
    }
    cddpi_alloc_fail_nth(0);
    assert_int_equal(write_step(2, 2, 0), CDDP_OK);
    damage("step-00000002/model.safetensors");
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddp_snapshot_find(dir, &found, &skipped);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    }
    cddpi_free(found);
    cddpi_free(skipped);
    snprintf(path, sizeof path, "%s/step-00000001", dir);
    set_trainer(&loaded, 0, 0);
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddp_snapshot_load(path, &loaded.snapshot);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    }
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddp_snapshot_read_state(path, &json, &step);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    }
    cddpi_alloc_fail_nth(0);
    cddpi_free(json);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_newest_snapshot_is_found_and_loaded),
        CASE(the_folder_is_made_with_its_parents),
        CASE(nothing_is_found_where_nothing_is),
        CASE(broken_snapshots_are_passed_over_with_reasons),
        CASE(a_wrong_latest_does_not_mislead),
        CASE(a_damaged_snapshot_is_not_loaded),
        CASE(only_the_newest_are_kept),
        CASE(what_is_not_ours_is_never_deleted),
        CASE(leftovers_of_crashed_writers_are_removed),
        CASE(a_step_can_be_written_again),
        CASE(a_crash_at_any_moment_leaves_a_whole_snapshot),
        CASE(any_operation_may_fail_and_the_old_snapshot_stays),
        CASE(a_disk_that_stays_broken_leaves_a_whole_snapshot),
        CASE(a_writer_can_be_killed_at_any_time),
        CASE(a_file_size_limit_leaves_the_old_snapshot),
        CASE(a_full_file_system_leaves_the_old_snapshot),
        CASE(a_senseless_snapshot_is_refused),
        CASE(without_memory_snapshots_fail_and_nothing_leaks),
    };

    setenv("CDDP_LOG", "error", 0); /* the warnings of hundreds of injected failures */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
