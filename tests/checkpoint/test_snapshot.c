/* test_snapshot.c - snapshot folders: which snapshot is found, which are kept, which are refused.
 * Crashes and full disks are in test_snapshot_crash.c. */
#include "support/failure.h"
#include "support/snapshot.h"

#include <fcntl.h>

static void put_text(const char *name, const char *text)
{
    char path[5000];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
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
    char *top = folder;
    char path[4500];

    (void)state;
    snprintf(path, sizeof path, "%s/runs//a/checkpoints/", top);
    folder = path;
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    assert_found(1, 1);
    folder = top;
}

static void nothing_is_found_where_nothing_is(void **state)
{
    char *path = NULL;
    char *skipped = NULL;
    char missing[5000];

    (void)state;
    assert_true(
        failure_is(cddp_snapshot_find(folder, &path, &skipped), CDDP_ERR_NOT_FOUND, -1, -1, ""));
    assert_true(last_error_has("there are no checkpoints"));
    snprintf(missing, sizeof missing, "%s/absent", folder);
    assert_int_equal(cddp_snapshot_find(missing, &path, &skipped), CDDP_ERR_NOT_FOUND);
    put_text("step-5", "not a name of ours");
    put_text("step-00000005x", "nor this");
    put_text("step-000000005", "nor this");
    assert_int_equal(cddp_snapshot_find(folder, &path, NULL), CDDP_ERR_NOT_FOUND);
    assert_null(path);
    assert_null(skipped);
}

/* Change one byte of DIR/@p name, in its middle. */
static void damage(const char *name)
{
    char path[5000];
    struct stat info;
    unsigned char byte;
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
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
    snprintf(path, sizeof path, "%s/step-00000105/optimizer.safetensors", folder);
    assert_int_equal(truncate(path, 100), 0);
    snprintf(path, sizeof path, "%s/step-00000106/model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/step-00000107/state.json", folder);
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
    assert_true(last_error_has("step-00000100/model.safetensors"));
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

static void recovering_lets_latest_name_the_newest_whole_one(void **state)
{
    static const char *const wrong[] = {"step-00000001\n", "step-00000002", "", "../../etc\n"};
    char *path = NULL;
    char *skipped = NULL;

    (void)state;
    assert_int_equal(cddp_snapshot_recover(folder, &path, &skipped), CDDP_ERR_NOT_FOUND);
    assert_false(exists("latest"));
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    assert_int_equal(write_step(2, 2, 0), CDDP_OK);
    assert_int_equal(write_step(3, 3, 0), CDDP_OK);
    damage("step-00000003/model.safetensors");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put_text("latest", wrong[i]);
        assert_int_equal(cddp_snapshot_recover(folder, &path, &skipped), CDDP_OK);
        assert_non_null(strstr(path, "/step-00000002"));
        assert_non_null(strstr(skipped, "step-00000003"));
        assert_latest_is("step-00000002");
        cddpi_free(path);
        cddpi_free(skipped);
    }
}

/* Who recovers is the only writer: a process id that is in use is another program's by now. */
static void recovering_removes_also_what_a_living_process_seems_to_write(void **state)
{
    char name[64];
    char *path = NULL;

    (void)state;
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    snprintf(name, sizeof name, ".step-00000001.old-%ld", (long)getppid());
    assert_int_equal(rename(in_folder("step-00000001"), in_folder(name)), 0);
    snprintf(name, sizeof name, ".latest.tmp-%ld", (long)getppid());
    put_text(name, "step-0000");
    assert_int_equal(cddp_snapshot_recover(folder, &path, NULL), CDDP_OK);
    cddpi_free(path);
    assert_found(1, 1);
    assert_latest_is("step-00000001");
    assert_int_equal(count_hidden(), 0);
}

static void a_damaged_snapshot_is_not_loaded(void **state)
{
    struct trainer loaded;
    char path[5000];

    (void)state;
    assert_int_equal(write_step(3, 3, 0), CDDP_OK);
    set_trainer(&loaded, 0, 0);
    snprintf(path, sizeof path, "%s/step-00000003", folder);
    loaded.params[2].shape[0]--;
    assert_true(failure_is(load_trainer(path, &loaded), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("momentum.w"));
    assert_float_equal(loaded.weights[0], 0, 0); /* nor was the model, which fits */
    loaded.params[2].shape[0]++;
    damage("step-00000003/optimizer.safetensors");
    assert_true(failure_is(load_trainer(path, &loaded), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("optimizer.safetensors"));
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
    snprintf(outside, sizeof outside, "%s-outside", folder);
    assert_int_equal(mkdir(outside, 0700), 0);
    for (int i = 0; i < 2; i++) {
        char file[5100];

        snprintf(file, sizeof file, "%s/%s", outside, i ? "model.safetensors" : "state.json");
        assert_int_equal(close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    }
    snprintf(link, sizeof link, "%s/step-00000001", folder);
    assert_int_equal(symlink(outside, link), 0);
    snprintf(link, sizeof link, "%s/.step-00000001.tmp-%ld", folder, (long)getpid());
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
    char other[64];
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
        snprintf(path, sizeof path, "%s/%s", folder, name);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(name, sizeof name, "%s/model.safetensors", strrchr(path, '/') + 1);
        put_text(name, "half of a f");
    }
    snprintf(name, sizeof name, ".latest.tmp-%ld", (long)gone);
    put_text(name, "step-0000");
    snprintf(other, sizeof other, ".latest.tmp-%lld", 5LL << 32 | gone);
    put_text(other, "step-0000");
    assert_int_equal(count_hidden(), 4);
    assert_int_equal(write_step(2, 2, 0), CDDP_OK);
    /* our parent lives: it may be at work; so may a process of another host in a shared folder */
    assert_int_equal(count_hidden(), 2);
    assert_true(exists(other));
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
    assert_true(failure_is(write_step(8, 4, 2), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("step-00000008 is in the way"));
    assert_int_equal(count_hidden(), 0);
}

static void a_senseless_snapshot_is_refused(void **state)
{
    struct trainer trainer;

    (void)state;
    set_trainer(&trainer, 1, 1);
    trainer.snapshot.state_json = "[1]";
    assert_int_equal(cddp_snapshot_write(folder, &trainer.snapshot, NULL, NULL), CDDP_ERR_ARGUMENT);
    trainer.snapshot.state_json = "{";
    assert_int_equal(cddp_snapshot_write(folder, &trainer.snapshot, NULL, NULL), CDDP_ERR_ARGUMENT);
    trainer.snapshot.state_json = "{\"a\":1,\"a\":2}";
    assert_int_equal(cddp_snapshot_write(folder, &trainer.snapshot, NULL, NULL), CDDP_ERR_ARGUMENT);
    set_trainer(&trainer, UINT64_MAX, 1);
    assert_int_equal(cddp_snapshot_write(folder, &trainer.snapshot, NULL, NULL), CDDP_ERR_ARGUMENT);
    set_trainer(&trainer, 1, 1);
    trainer.tensors[2].name = "step";
    assert_true(failure_is(cddp_snapshot_write(folder, &trainer.snapshot, NULL, NULL),
                           CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("optimizer.safetensors: "));
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
        status = cddp_snapshot_find(folder, &found, &skipped);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    }
    cddpi_free(found);
    cddpi_free(skipped);
    snprintf(path, sizeof path, "%s/step-00000001", folder);
    set_trainer(&loaded, 0, 0);
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = load_trainer(path, &loaded);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(the_newest_snapshot_is_found_and_loaded),
        IN_FOLDER(the_folder_is_made_with_its_parents),
        IN_FOLDER(nothing_is_found_where_nothing_is),
        IN_FOLDER(broken_snapshots_are_passed_over_with_reasons),
        IN_FOLDER(a_wrong_latest_does_not_mislead),
        IN_FOLDER(recovering_lets_latest_name_the_newest_whole_one),
        IN_FOLDER(recovering_removes_also_what_a_living_process_seems_to_write),
        IN_FOLDER(a_damaged_snapshot_is_not_loaded),
        IN_FOLDER(only_the_newest_are_kept),
        IN_FOLDER(what_is_not_ours_is_never_deleted),
        IN_FOLDER(leftovers_of_crashed_writers_are_removed),
        IN_FOLDER(a_step_can_be_written_again),
        IN_FOLDER(a_senseless_snapshot_is_refused),
        IN_FOLDER(without_memory_snapshots_fail_and_nothing_leaks),
    };

    setenv("CDDP_LOG", "error", 0); /* the warnings of injected failures */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
