/* test_safetensors_malformed.c - safetensors files from strangers are not trusted. */
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "support/failure.h"
#include "support/safetensors.h"

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
         "tensor \"w\": dimension 0 is not a whole number >= 0: it is written with a point"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}}", 8,
         "its data_offsets are not two whole numbers: it is written with a point, as 8.0 for 8"},
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
        if (!last_error_has(cases[i].text) || !last_error_has(path)) {
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
    assert_int_equal(cddp_safetensors_find(file, "m")->type, CDDP_BOOL);
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
        assert_true(failure_is(cddp_safetensors_open(path, &file), CDDP_ERR_FORMAT, -1, -1, ""));
        assert_true(last_error_has(path));
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

static void a_file_that_is_cut_off_while_it_is_open_is_named(void **state)
{
    enum { ELEMENTS = 100000 };
    float *many = calloc(ELEMENTS, sizeof *many);
    const cddp_tensor tensor = {.name = "w", .dims = 1, .shape = {ELEMENTS}, .data = many};
    const cddp_param into = {.name = "w", .dims = 1, .shape = {ELEMENTS}, .data = many};
    cddp_safetensors *file = NULL;

    (void)state;
    cddpi_mapped_files_catch();
    assert_int_equal(cddp_safetensors_write(path, &tensor, 1, NULL), CDDP_OK);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    assert_int_equal(truncate(path, 1000), 0);
    assert_true(failure_is(cddpi_safetensors_copy(file, &into, 1), CDDP_ERR_IO, -1, -1, ""));
    assert_true(last_error_has("a.safetensors: "));
    cddp_safetensors_close(file);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_hostile_file_is_refused_with_its_name_and_tensor),
        CASE(a_mask_of_bools_is_read_as_bytes),
        CASE(a_wrong_header_length_is_refused),
        CASE(a_file_cut_short_anywhere_is_refused),
        CASE(a_file_with_any_byte_changed_is_read_or_refused),
        CASE(what_is_no_file_is_refused),
        CASE(a_file_that_is_cut_off_while_it_is_open_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
