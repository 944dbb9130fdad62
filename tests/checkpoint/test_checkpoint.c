/* test_checkpoint.c - safetensors files: what is written can be read, and replaces the old file
 * completely or not at all. Snapshots are in test_snapshot.c. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "support/failure.h"
#include "support/safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int count_entries(const char *folder)
{
    DIR *stream = opendir(folder);
    int count = -2; /* . and .. */

    while (readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    return count;
}

static void what_is_written_is_read(void **state)
{
    static const char *const metadata[] = {"format", "pt", "note", "a \"b\"", NULL};
    cddp_safetensors *file;

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, TENSORS, metadata), CDDP_OK);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    assert_int_equal(cddp_safetensors_count(file), TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const cddp_tensor *found = cddp_safetensors_find(file, tensors[i].name);
        size_t size = cddp_type_bytes(tensors[i].type);

        assert_non_null(found);
        assert_int_equal(found->type, tensors[i].type);
        assert_int_equal(found->dims, tensors[i].dims);
        for (int k = 0; k < found->dims; k++) {
            assert_int_equal(found->shape[k], tensors[i].shape[k]);
            size *= (size_t)found->shape[k];
        }
        if (size > 0) {
            assert_memory_equal(found->data, tensors[i].data, size);
        }
    }
    assert_string_equal(cddp_safetensors_at(file, 0)->name, "w");
    assert_int_equal((uintptr_t)cddp_safetensors_at(file, 0)->data % 64, 0);
    assert_string_equal(cddp_safetensors_at(file, TENSORS - 1)->name, "i");
    assert_null(cddp_safetensors_at(file, TENSORS));
    assert_null(cddp_safetensors_find(file, "absent"));
    assert_string_equal(cddp_safetensors_metadata(file, "note"), "a \"b\"");
    assert_null(cddp_safetensors_metadata(file, "absent"));
    cddp_safetensors_close(file);
    cddp_safetensors_close(NULL);
    assert_int_equal(count_entries(dir), 1);
}

static void no_tensors_are_a_file_too(void **state)
{
    cddp_safetensors *file;

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, NULL, 0, NULL), CDDP_OK);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    assert_int_equal(cddp_safetensors_count(file), 0);
    assert_null(cddp_safetensors_find(file, "w"));
    assert_null(cddp_safetensors_metadata(file, "w"));
    cddp_safetensors_close(file);
}

static void a_file_obeys_the_umask_and_replaces_the_old_one(void **state)
{
    struct stat info;
    mode_t old = umask(027);

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, TENSORS, NULL), CDDP_OK);
    umask(old);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, NULL), CDDP_OK);
    assert_int_equal(count_entries(dir), 1);
}

static void senseless_tensors_are_refused_by_name(void **state)
{
    static const struct {
        cddp_tensor tensor;
        const char *text;
    } cases[] = {
        {{.name = NULL, .dims = 1, .shape = {1}, .data = weights}, "tensor 1 has no name"},
        {{.name = "w", .dims = 1, .shape = {1}, .data = weights}, "two tensors are named \"w\""},
        {{.name = "__metadata__", .dims = 1, .shape = {1}, .data = weights}, "__metadata__"},
        {{.name = "bad", .type = (cddp_type)50, .dims = 1, .shape = {1}, .data = weights},
         "\"bad\": there is no type 50"},
        {{.name = "bad", .dims = 9, .shape = {1}, .data = weights}, "\"bad\": 9 dimensions"},
        {{.name = "bad", .dims = -1, .shape = {1}, .data = weights}, "\"bad\": -1 dimensions"},
        {{.name = "bad", .dims = 1, .shape = {-1}, .data = weights},
         "\"bad\": its shape is negative"},
        {{.name = "bad", .dims = 2, .shape = {INT64_MAX, 3}, .data = weights},
         "\"bad\": its shape is negative or over"},
        {{.name = "bad", .type = CDDP_U8, .dims = 1, .shape = {INT64_MAX}, .data = weights},
         "\"bad\": too many bytes in all"},
        {{.name = "bad", .dims = 1, .shape = {1}}, "\"bad\" has no data"},
        {{.name = "\xff\xfe", .dims = 1, .shape = {1}, .data = weights}, "not UTF-8"},
    };
    static const cddp_tensor newer[] = {{.name = "bad", .data = weights, .flags = 1},
                                        {.name = "bad", .data = weights, .reserved = 1}};
    static const char *const odd[] = {"key", NULL};
    static const char *const twice[] = {"key", "a", "key", "b", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cddp_tensor both[2] = {tensors[0], cases[i].tensor};

        assert_true(
            failure_is(cddp_safetensors_write(path, both, 2, NULL), CDDP_ERR_ARGUMENT, -1, -1, ""));
        if (!last_error_has(cases[i].text) || !last_error_has(path)) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i].text);
        }
    }
    assert_true(failure_is(cddp_safetensors_write(path, &newer[0], 1, NULL), CDDP_ERR_UNAVAILABLE,
                           -1, -1, ""));
    assert_true(last_error_has("\"bad\": flags 0x1 "));
    assert_int_equal(cddp_safetensors_write(path, &newer[1], 1, NULL), CDDP_ERR_UNAVAILABLE);
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, odd), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, twice), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_safetensors_write(NULL, tensors, 1, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_safetensors_write("", tensors, 1, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(count_entries(dir), 0);
}

static void tensors_may_lie_in_any_order(void **state)
{
    static const char json[] = "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
                               "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[3,3]},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}   ";
    cddp_safetensors *file;

    (void)state;
    put_safetensors(json, strlen(json), 5);
    if (cddp_safetensors_open(path, &file) != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
    assert_string_equal(cddp_safetensors_at(file, 0)->name, "a");
    assert_string_equal(cddp_safetensors_at(file, 1)->name, "e");
    assert_string_equal(cddp_safetensors_at(file, 2)->name, "b");
    cddp_safetensors_close(file);
}

static void a_missing_tensor_is_told_with_the_name_that_may_be_meant(void **state)
{
    static const char *const cases[][3] = {
        {"module.fc1.weight", "fc1.weight",
         "\"fc1.weight\" (f32 [1]) is missing; the nearest name in it "
         "is \"module.fc1.weight\""},
        {"fc1.wieght", "fc1.weight", "is missing; the nearest name in it is \"fc1.wieght\""},
        {"conv2d.7.bias", "fc1.weight", "\"fc1.weight\" (f32 [1]) is missing"}};
    float one = 1;

    (void)state;
    for (int i = 0; i < 3; i++) {
        cddp_tensor is = {.name = cases[i][0], .dims = 1, .shape = {1}, .data = &one};
        cddp_param wanted = {.name = cases[i][1], .dims = 1, .shape = {1}, .data = &one};

        assert_int_equal(cddp_safetensors_write(path, &is, 1, NULL), CDDP_OK);
        assert_true(
            failure_is(cddp_safetensors_load(path, &wanted, 1), CDDP_ERR_FORMAT, -1, -1, ""));
        assert_true(last_error_has(cases[i][2]));
        assert_int_equal(strstr(cddp_last_error(), "nearest") != NULL, i < 2);
    }
}

static void load_fills_memory_or_leaves_it_alone(void **state)
{
    float w[6] = {0};
    int64_t step = 0;
    const cddp_param good[] = {{.name = "step", .type = CDDP_I64, .data = &step},
                               {.name = "w", .dims = 2, .shape = {2, 3}, .data = w}};
    cddp_param bad[3] = {
        good[0], good[1], {.name = "extra", .dims = 1, .shape = {1}, .data = weights}};

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, 2, NULL), CDDP_OK);
    assert_true(failure_is(cddp_safetensors_load(path, bad, 3), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("\"extra\" (f32 [1]) is missing"));
    assert_true(failure_is(cddp_safetensors_load(path, bad, 1), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("\"w\" (f32 [2, 3]) is one that nothing wants"));
    bad[1].shape[0] = 3;
    bad[1].shape[1] = 2;
    assert_true(failure_is(cddp_safetensors_load(path, bad, 2), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("\"w\" is f32 [2, 3], but f32 [3, 2] is wanted"));
    bad[1] = good[1];
    bad[1].type = CDDP_I32;
    assert_int_equal(cddp_safetensors_load(path, bad, 2), CDDP_ERR_FORMAT);
    bad[1] = good[0];
    assert_true(failure_is(cddp_safetensors_load(path, bad, 2), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("wanted twice"));
    bad[1] = good[1];
    bad[1].flags = CDDP_PARAM_FROZEN | 2;
    assert_true(failure_is(cddp_safetensors_load(path, bad, 2), CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("\"w\": flags 0x2 "));
    bad[1].flags = CDDP_PARAM_FROZEN;
    bad[1].reserved2[0] = 5;
    assert_int_equal(cddp_safetensors_load(path, bad, 2), CDDP_ERR_UNAVAILABLE);
    bad[1] = good[1];
    bad[1].dims = CDDP_MAX_DIMS + 1;
    assert_true(failure_is(cddp_safetensors_load(path, bad, 2), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("\"w\" is wanted with type 0 and 9 dimensions"));
    assert_int_equal(step, 0);
    assert_int_equal(cddp_safetensors_load(path, good, 2), CDDP_OK);
    assert_memory_equal(w, weights, sizeof w);
    assert_int_equal(step, counter);
}

static void some_of_a_files_tensors_are_loaded(void **state)
{
    const float values[] = {1, 2, 3};
    const cddp_tensor both[] = {
        {.name = "a.weight", .dims = 1, .shape = {3}, .data = values},
        {.name = "b.weight", .dims = 1, .shape = {2}, .data = values},
    };
    float into[3] = {0};
    cddp_param wanted = {.name = "b.weight", .dims = 1, .shape = {2}, .data = into};

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, both, 2, NULL), CDDP_OK);
    assert_int_equal(cddpi_safetensors_load_some(path, &wanted, 1), CDDP_OK);
    assert_float_equal(into[1], 2, 0);
    wanted.shape[0] = 3;
    assert_true(
        failure_is(cddpi_safetensors_load_some(path, &wanted, 1), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("tensor \"b.weight\" is f32 [2], but f32 [3] is wanted"));
    wanted.name = "b.wieght";
    assert_true(
        failure_is(cddpi_safetensors_load_some(path, &wanted, 1), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("tensor \"b.wieght\" "));
    wanted = (cddp_param){.name = "a.weight", .dims = 1, .shape = {3}};
    assert_int_equal(cddpi_safetensors_load_some(path, &wanted, 1), CDDP_ERR_ARGUMENT);
}

static void tensors_are_listed_if_all_their_words_are_known(void **state)
{
    cddp_param params[2] = {{.name = "a", .data = weights, .flags = CDDP_PARAM_FROZEN},
                            {.name = "b", .dims = 1, .shape = {3}, .data = weights}};
    cddp_tensor out[2];

    (void)state;
    assert_int_equal(cddp_tensors_of(params, 2, out), CDDP_OK);
    assert_int_equal(out[0].flags, 0);
    assert_string_equal(out[1].name, "b");
    params[1].flags = CDDP_PARAM_FROZEN | 2;
    assert_true(failure_is(cddp_tensors_of(params, 2, out), CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("tensors_of: param 1 (b): flags 0x2 "));
    params[1].flags = 0;
    params[1].reserved2[1] = 1;
    assert_int_equal(cddp_tensors_of(params, 2, out), CDDP_ERR_UNAVAILABLE);
}

static unsigned operations_left;

static int fail_the_last(const char *operation)
{
    (void)operation;
    return operations_left > 0 && --operations_left == 0 ? ENOSPC : 0;
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    cddp_status status = CDDP_ERR_IO;
    unsigned n;
    float w[6];
    const cddp_param old = {.name = "w", .dims = 2, .shape = {2, 3}, .data = w};

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, NULL), CDDP_OK);
    for (n = 1; status != CDDP_OK; n++) {
        operations_left = n;
        cddpi_file_set_hook(fail_the_last);
        status = cddp_safetensors_write(path, tensors, TENSORS, NULL);
        cddpi_file_set_hook(NULL);
        assert_int_equal(count_entries(dir), 1);
        if (status != CDDP_OK) {
            assert_true(failure_is(status, CDDP_ERR_IO, -1, -1, ""));
            assert_true(last_error_has(path));
            assert_true(failure_errno_is(ENOSPC));
            /* all but the last operation, flushing the folder, come before the rename */
            if (strstr(cddp_last_error(), "may bring the old one back") == NULL) {
                assert_int_equal(cddp_safetensors_load(path, &old, 1), CDDP_OK);
            }
        }
    }
    assert_true(n > 10); /* open, several short writes, fsync, rename, fsync */
}

static int write_beyond_the_limit(int rank, int world_size, void *argument)
{
    static float many[100000];
    const cddp_tensor large = {.name = "large", .dims = 1, .shape = {100000}, .data = many};
    const struct rlimit limit = {100000, 100000};

    (void)rank;
    (void)world_size;
    (void)argument;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(cddp_safetensors_write(path, &large, 1, NULL) == CDDP_ERR_IO);
    CHECK(cddpi_last_errno() == EFBIG);
    CHECK(last_error_has(path));
    CHECK(count_entries(dir) == 1);
    return 0;
}

static void a_file_above_the_limit_leaves_the_old_one(void **state)
{
    cddp_safetensors *file;

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, TENSORS, NULL), CDDP_OK);
    assert_int_equal(run_ranks(1, write_beyond_the_limit, NULL), 0);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    assert_int_equal(cddp_safetensors_count(file), TENSORS);
    cddp_safetensors_close(file);
}

static void a_leftover_of_the_same_process_id_is_no_obstacle(void **state)
{
    char leftover[6000];

    (void)state;
    snprintf(leftover, sizeof leftover, "%s/.a.safetensors.tmp-%ld-0", dir, (long)getpid());
    assert_int_equal(close(open(leftover, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, NULL), CDDP_OK);
    assert_int_equal(count_entries(dir), 2);
}

static void without_memory_everything_fails_and_nothing_leaks(void **state)
{
    float w[6] = {0};
    const cddp_param into = {.name = "w", .dims = 2, .shape = {2, 3}, .data = w};
    cddp_status status = CDDP_ERR_NO_MEMORY;

    (void)state;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddp_safetensors_write(path, tensors, 1, NULL);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        assert_int_equal(count_entries(dir), status == CDDP_OK);
    }
    status = CDDP_ERR_NO_MEMORY;
    for (unsigned nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddp_safetensors_load(path, &into, 1);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
        assert_true(status == CDDP_OK || w[0] == 0.0f);
    }
    cddpi_alloc_fail_nth(0);
    assert_memory_equal(w, weights, sizeof w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_written_is_read),
        CASE(no_tensors_are_a_file_too),
        CASE(a_file_obeys_the_umask_and_replaces_the_old_one),
        CASE(senseless_tensors_are_refused_by_name),
        CASE(tensors_may_lie_in_any_order),
        CASE(a_missing_tensor_is_told_with_the_name_that_may_be_meant),
        CASE(load_fills_memory_or_leaves_it_alone),
        CASE(some_of_a_files_tensors_are_loaded),
        CASE(tensors_are_listed_if_all_their_words_are_known),
        CASE(a_full_disk_leaves_the_old_file),
        CASE(a_file_above_the_limit_leaves_the_old_one),
        CASE(a_leftover_of_the_same_process_id_is_no_obstacle),
        CASE(without_memory_everything_fails_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
