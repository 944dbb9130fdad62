/* test_checkpoint.c - safetensors files: what is written is read, and what strangers wrote is not
 * believed. Snapshots are in test_snapshot.c. */
#include "base/alloc.h"
#include "base/file.h"
#include "support.h"

#include <cddp/checkpoint.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char *dir;
static char path[5000];

static int make_dir(void **state)
{
    (void)state;
    dir = support_mkdtemp();
    snprintf(path, sizeof path, "%s/a.safetensors", dir);
    return dir == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    support_rmdir(dir);
    return 0;
}

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

static float weights[6] = {1, -2, 3.5f, 4, 5, 6};
static int64_t counter = 1234567890123;
static unsigned char bytes[3] = {7, 8, 9};
static uint16_t halves[4] = {0x3c00, 0x4000, 0xbc00, 0x7e00};
static double doubles[2] = {0.1, -1e300};
static int32_t numbers[2] = {-5, 6};

static const cddp_tensor tensors[] = {
    {"w", CDDP_F32, 2, {2, 3}, weights},   {"step", CDDP_I64, 0, {0}, &counter},
    {"none", CDDP_F32, 2, {0, 5}, NULL},   {"mask", CDDP_U8, 1, {3}, bytes},
    {"half", CDDP_F16, 2, {2, 2}, halves}, {"brain\"\xc3\xa4\n", CDDP_BF16, 1, {4}, halves},
    {"d", CDDP_F64, 1, {2}, doubles},      {"i", CDDP_I32, 1, {2}, numbers},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

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
        {{NULL, CDDP_F32, 1, {1}, weights}, "tensor 1 has no name"},
        {{"w", CDDP_F32, 1, {1}, weights}, "two tensors are named \"w\""},
        {{"__metadata__", CDDP_F32, 1, {1}, weights}, "__metadata__"},
        {{"bad", (cddp_type)50, 1, {1}, weights}, "\"bad\": 50 is no type"},
        {{"bad", CDDP_F32, 9, {1}, weights}, "\"bad\": 9 dimensions"},
        {{"bad", CDDP_F32, -1, {1}, weights}, "\"bad\": -1 dimensions"},
        {{"bad", CDDP_F32, 1, {-1}, weights}, "\"bad\": its shape is negative"},
        {{"bad", CDDP_F32, 2, {INT64_MAX, 3}, weights}, "\"bad\": its shape is negative or over"},
        {{"bad", CDDP_U8, 1, {INT64_MAX}, weights}, "\"bad\": too many bytes in all"},
        {{"bad", CDDP_F32, 1, {1}, NULL}, "\"bad\" has no data"},
        {{"\xff\xfe", CDDP_F32, 1, {1}, weights}, "not UTF-8"},
    };
    static const char *const odd[] = {"key", NULL};
    static const char *const twice[] = {"key", "a", "key", "b", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cddp_tensor both[2] = {tensors[0], cases[i].tensor};

        assert_int_equal(cddp_safetensors_write(path, both, 2, NULL), CDDP_ERR_ARGUMENT);
        if (strstr(cddp_last_error(), cases[i].text) == NULL ||
            strstr(cddp_last_error(), path) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), cases[i].text);
        }
    }
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, odd), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, twice), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_safetensors_write(NULL, tensors, 1, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_safetensors_write("", tensors, 1, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(count_entries(dir), 0);
}

static void put_file(const void *data, size_t size)
{
    support_write_file(path, data, size);
}

/* A file of @json, whose length the header gives as @length, and @data_bytes zeros. */
static void put_safetensors(const char *json, uint64_t length, size_t data_bytes)
{
    size_t text = strlen(json);
    unsigned char *all = calloc(1, 8 + text + data_bytes + 1);

    for (int i = 0; i < 8; i++) {
        all[i] = (unsigned char)(length >> 8 * i);
    }
    memcpy(all + 8, json, text);
    put_file(all, 8 + text + data_bytes);
    free(all);
}

#define W "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void a_hostile_file_is_refused_with_its_name_and_tensor(void **state)
{
    static const struct {
        const char *json;
        size_t data_bytes;
        const char *text;
    } cases[] = {
        {"", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {"{", 0, "not valid JSON"},
        {"{}{}", 0, "not valid JSON"},
        {"{\"w\xff\":1}", 0, "not valid JSON"},
        {"{\"w\":1}", 0, "tensor \"w\": its entry is not an object"},
        {"{\"w\":null}", 0, "tensor \"w\": its entry is not an object"},
        {"{\"w\":[[[[[[]]]]]]}", 0, "tensor \"w\": its entry is not an object"},
        {"{" W "," W "}", 8, "duplicate"},
        {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
         "duplicate"},
        {"{\"w\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor \"w\": it has no dtype"},
        {"{\"w\":{\"dtype\":{},\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": it has no dtype"},
        {"{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "tensor \"w\": dtype F8_E4M3"},
        {"{\"w\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": dtype f32"},
        {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "tensor \"w\": it has no shape"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": it has no shape"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": dimension 0"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": dimension 0"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": dimension 0"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": 9 dimensions"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967298],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": its shape overflows"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387906],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": its shape overflows"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", 8,
         "not valid JSON"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "tensor \"w\": its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
         "tensor \"w\": its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8,
         "tensor \"w\": its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[\"0\",8]}}", 8,
         "tensor \"w\": its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{}}}", 8,
         "tensor \"w\": its data_offsets"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8,
         "tensor \"w\": data_offsets [-8, 0] do not lie in the 8 bytes"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
         "tensor \"w\": data_offsets [8, 0] do not lie in the 8 bytes"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", 8,
         "do not lie in the 8 bytes"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9223372036854775800,"
         "9223372036854775807]}}",
         8, "do not lie in the 8 bytes"},
        {"{" W "}", 7, "tensor \"w\": data_offsets [0, 8] do not lie in the 7 bytes"},
        {"{" W "}", 9, "1 bytes after the last tensor"},
        {"{}", 1, "1 bytes after the last tensor"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
         "tensor \"w\": its shape takes 12 bytes, its data_offsets hold 8"},
        {"{" W ",\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}", 20,
         "tensor \"x\": it begins at byte 12 of the data, but what is before it ends at 8: a hole"},
        {"{" W ",\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
         "tensor \"x\": it begins at byte 4 of the data, but what is before it ends at 8: they"},
        {"{" W ",\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}", 8, "overlap"},
        {"{" W ",\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "overlap"},
        {"{\"__metadata__\":[]," W "}", 8, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}," W "}", 8, "__metadata__: \"a\" is not a string"},
        {"{\"a\\u0000b\":{}}", 0, "not valid JSON"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cddp_safetensors *file = NULL;

        put_safetensors(cases[i].json, strlen(cases[i].json), cases[i].data_bytes);
        if (cddp_safetensors_open(path, &file) != CDDP_ERR_FORMAT) {
            fail_msg("this was taken: %s", cases[i].json);
        }
        if (strstr(cddp_last_error(), cases[i].text) == NULL ||
            strstr(cddp_last_error(), path) == NULL) {
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].json, cddp_last_error(),
                     cases[i].text);
        }
        assert_null(file);
    }
}

static void a_mask_of_bools_is_read_as_bytes(void **state)
{
    cddp_safetensors *file;

    (void)state;
    put_safetensors("{\"m\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", 55, 3);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    assert_int_equal(cddp_safetensors_find(file, "m")->type, CDDP_U8);
    cddp_safetensors_close(file);
}

static void a_wrong_header_length_is_refused(void **state)
{
    static const uint64_t lengths[] = {
        0, 1, 4, 1000, 100000001, 1u << 31u, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    cddp_safetensors *file;

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put_safetensors("{" W "}", lengths[i], 8);
        assert_int_equal(cddp_safetensors_open(path, &file), CDDP_ERR_FORMAT);
        assert_non_null(strstr(cddp_last_error(), path));
    }
}

static void a_file_cut_short_anywhere_is_refused(void **state)
{
    static unsigned char all[4096];
    cddp_safetensors *file;
    size_t size;
    FILE *stream;

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, TENSORS, NULL), CDDP_OK);
    stream = fopen(path, "rb");
    size = fread(all, 1, sizeof all, stream);
    fclose(stream);
    for (size_t cut = 0; cut < size; cut++) {
        put_file(all, cut);
        assert_int_equal(cddp_safetensors_open(path, &file), CDDP_ERR_FORMAT);
    }
    put_file(all, size);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    cddp_safetensors_close(file);
}

/* Any byte may be anything: the answer may be yes or no, but nothing outside the file is touched
 * (the sanitizers would tell). */
static void a_file_with_any_byte_changed_is_read_or_refused(void **state)
{
    static unsigned char all[4096];
    size_t size;
    FILE *stream;

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, TENSORS, NULL), CDDP_OK);
    stream = fopen(path, "rb");
    size = fread(all, 1, sizeof all, stream);
    fclose(stream);
    for (size_t i = 0; i < size; i++) {
        unsigned char old = all[i];
        cddp_safetensors *file = NULL;
        cddp_status status;

        all[i] = (unsigned char)(old ^ (1u << i % 8));
        put_file(all, size);
        status = cddp_safetensors_open(path, &file);
        assert_true(status == CDDP_OK || status == CDDP_ERR_FORMAT);
        for (size_t k = 0; file != NULL && k < cddp_safetensors_count(file); k++) {
            const cddp_tensor *tensor = cddp_safetensors_at(file, k);
            size_t length = cddp_type_bytes(tensor->type);
            volatile unsigned char sum = 0;

            for (int d = 0; d < tensor->dims; d++) {
                length *= (size_t)tensor->shape[d];
            }
            for (size_t b = 0; b < length; b++) {
                sum = (unsigned char)(sum + ((unsigned char *)tensor->data)[b]);
            }
        }
        cddp_safetensors_close(file);
        all[i] = old;
    }
}

static void what_is_no_file_is_refused(void **state)
{
    cddp_safetensors *file;

    (void)state;
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_ERR_NOT_FOUND);
    assert_int_equal(cddp_safetensors_open(dir, &file), CDDP_ERR_FORMAT);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_ERR_FORMAT);
    assert_int_equal(cddp_safetensors_open(NULL, &file), CDDP_ERR_ARGUMENT);
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

static void load_fills_memory_or_leaves_it_alone(void **state)
{
    float w[6] = {0};
    int64_t step = 0;
    const cddp_tensor good[] = {{"step", CDDP_I64, 0, {0}, &step}, {"w", CDDP_F32, 2, {2, 3}, w}};
    cddp_tensor bad[3] = {good[0], good[1], {"extra", CDDP_F32, 1, {1}, weights}};

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, 2, NULL), CDDP_OK);
    assert_int_equal(cddp_safetensors_load(path, bad, 3), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "\"extra\" (f32 [1]) is missing"));
    assert_int_equal(cddp_safetensors_load(path, bad, 1), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "\"w\" (f32 [2, 3]) is one that nothing wants"));
    bad[1].shape[0] = 3;
    bad[1].shape[1] = 2;
    assert_int_equal(cddp_safetensors_load(path, bad, 2), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "\"w\" is f32 [2, 3], but f32 [3, 2] is wanted"));
    bad[1] = good[1];
    bad[1].type = CDDP_I32;
    assert_int_equal(cddp_safetensors_load(path, bad, 2), CDDP_ERR_FORMAT);
    bad[1] = good[0];
    assert_int_equal(cddp_safetensors_load(path, bad, 2), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "wanted twice"));
    assert_int_equal(step, 0);
    assert_int_equal(cddp_safetensors_load(path, good, 2), CDDP_OK);
    assert_memory_equal(w, weights, sizeof w);
    assert_int_equal(step, counter);
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
    const cddp_tensor old = {"w", CDDP_F32, 2, {2, 3}, w};

    (void)state;
    assert_int_equal(cddp_safetensors_write(path, tensors, 1, NULL), CDDP_OK);
    for (n = 1; status != CDDP_OK; n++) {
        operations_left = n;
        cddpi_file_set_hook(fail_the_last);
        status = cddp_safetensors_write(path, tensors, TENSORS, NULL);
        cddpi_file_set_hook(NULL);
        assert_int_equal(count_entries(dir), 1);
        if (status != CDDP_OK) {
            assert_int_equal(status, CDDP_ERR_IO);
            assert_non_null(strstr(cddp_last_error(), path));
            assert_non_null(strstr(cddp_last_error(), "No space left on device"));
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
    const cddp_tensor large = {"large", CDDP_F32, 1, {100000}, many};
    const struct rlimit limit = {100000, 100000};

    (void)rank;
    (void)world_size;
    (void)argument;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(cddp_safetensors_write(path, &large, 1, NULL) == CDDP_ERR_IO);
    CHECK(strstr(cddp_last_error(), "File too large") != NULL);
    CHECK(strstr(cddp_last_error(), path) != NULL);
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
    const cddp_tensor into = {"w", CDDP_F32, 2, {2, 3}, w};
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

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_written_is_read),
        CASE(no_tensors_are_a_file_too),
        CASE(a_file_obeys_the_umask_and_replaces_the_old_one),
        CASE(senseless_tensors_are_refused_by_name),
        CASE(a_hostile_file_is_refused_with_its_name_and_tensor),
        CASE(a_mask_of_bools_is_read_as_bytes),
        CASE(a_wrong_header_length_is_refused),
        CASE(a_file_cut_short_anywhere_is_refused),
        CASE(a_file_with_any_byte_changed_is_read_or_refused),
        CASE(what_is_no_file_is_refused),
        CASE(tensors_may_lie_in_any_order),
        CASE(load_fills_memory_or_leaves_it_alone),
        CASE(a_full_disk_leaves_the_old_file),
        CASE(a_file_above_the_limit_leaves_the_old_one),
        CASE(a_leftover_of_the_same_process_id_is_no_obstacle),
        CASE(without_memory_everything_fails_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
