/* test_npy.c - NumPy's files: which forms are read, and the message for each fault of a file. */
#include "base/machine.h"
#include "data/dataset.h"
#include "data/numbers.h"
#include "support/data_ranks.h"
#include "support/folder.h"
#include "support/npy.h"

static uint8_t file[NPY_MOST];
static const float six[] = {0, 1, 2, 3, 4, 5};
static const int64_t two[] = {1, 0};

/* Open @p inputs (and @p targets, or NULL) below the folder. */
static cddp_status open_npy_together(const char *inputs, const char *targets, bool real,
                                     cddp_group *group, struct cddpi_dataset *out)
{
    char *paths[2] = {strdup(in_folder(inputs)), targets ? strdup(in_folder(targets)) : NULL};
    struct cddpi_npy_options options = {.inputs = &paths[0],
                                        .input_count = 1,
                                        .targets = &paths[1],
                                        .target_count = targets != NULL,
                                        .input_name = "x",
                                        .target_name = "y",
                                        .real_targets = real};
    cddp_status status = cddpi_dataset_open_npy(&options, group, out);

    free(paths[0]);
    free(paths[1]);
    return status;
}

static cddp_status open_npy(const char *inputs, const char *targets, bool real,
                            struct cddpi_dataset *out)
{
    return open_npy_together(inputs, targets, real, NULL, out);
}

static void assert_row(const struct cddpi_dataset *dataset, uint64_t row, const float *input,
                       int32_t label)
{
    float found[8];
    int32_t found_label = -1;
    char text[256];

    assert_true(cddpi_dataset_numbers(dataset, row, found, &found_label, text, sizeof text));
    for (int i = 0; i < dataset->channels * dataset->height * dataset->width; i++) {
        assert_true(found[i] == input[i]);
    }
    assert_int_equal(found_label, label);
}

static void put_npy(const char *name, int version, const char *descr, const char *shape,
                    const void *values, size_t bytes)
{
    size_t size = support_npy(version, descr, shape, values, bytes, file);

    support_write_file(in_folder(name), file, size);
}

static void formats_1_to_3_are_read_with_samples_of_any_shape(void **state)
{
    static const struct {
        const char *shape;
        int channels, height, width;
    } cases[] = {{"(2, 3)", 3, 1, 1},
                 {"(2, 3, 1)", 1, 3, 1},
                 {"(2, 1, 3, 1)", 1, 3, 1},
                 {"(2, 3, 1, 1)", 3, 1, 1},
                 {"(2L, 3, 1, 1, 1)", 3, 1, 1}};

    (void)state;
    put_npy("y.npy", 1, "<i8", "(2,)", two, sizeof two);
    for (int version = 1; version <= 3; version++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct cddpi_dataset dataset = {0};
            int descriptors = support_descriptors();

            put_npy("x.npy", version, "<f4", cases[i].shape, six, sizeof six);
            if (open_npy("x.npy", "y.npy", false, &dataset) != CDDP_OK) {
                fail_msg("%s", cddp_last_error());
            }
            assert_int_equal(support_descriptors(), descriptors);
            assert_int_equal(dataset.count, 2);
            assert_int_equal(dataset.classes, 2);
            assert_int_equal(dataset.channels, cases[i].channels);
            assert_int_equal(dataset.height, cases[i].height);
            assert_int_equal(dataset.width, cases[i].width);
            assert_row(&dataset, 0, six, 1);
            assert_row(&dataset, 1, six + 3, 0);
            cddpi_dataset_close(&dataset);
        }
    }
}

static void real_targets_may_have_any_length(void **state)
{
    struct cddpi_dataset dataset = {0};

    (void)state;
    put_npy("x.npy", 1, "<f4", "(2, 3)", six, sizeof six);
    put_npy("y.npy", 1, "<f4", "(2, 3)", six, sizeof six);
    assert_int_equal(open_npy("x.npy", "y.npy", true, &dataset), CDDP_OK);
    assert_int_equal(dataset.target_count, 3);
    cddpi_dataset_close(&dataset);
    put_npy("y.npy", 1, "<i8", "(2,)", two, sizeof two); /* integers are real numbers, too */
    assert_int_equal(open_npy("x.npy", "y.npy", true, &dataset), CDDP_OK);
    assert_int_equal(dataset.target_count, 1);
    cddpi_dataset_close(&dataset);
}

static void archives_are_read_stored_deflated_and_wide(void **state)
{
    static uint8_t x[4096], y[4096];
    size_t x_bytes = support_npy(1, "<f4", "(2, 3)", six, sizeof six, file);
    size_t y_bytes;

    (void)state;
    memcpy(x, file, x_bytes);
    y_bytes = support_npy(1, "<i8", "(2,)", two, sizeof two, file);
    memcpy(y, file, y_bytes);
    for (int form = 0; form < 4; form++) {
        struct npz_member members[] = {{"y.npy", y, y_bytes, form & 1},
                                       {"x.npy", x, x_bytes, form & 1}};
        struct cddpi_dataset dataset = {0};
        size_t bytes = support_npz(members, 2, form >> 1, file);

        support_write_file(in_folder("both.npz"), file, bytes);
        if (open_npy("both.npz", NULL, false, &dataset) != CDDP_OK) {
            fail_msg("form %d: %s", form, cddp_last_error());
        }
        assert_row(&dataset, 1, six + 3, 0);
        cddpi_dataset_close(&dataset);
    }
}

/* The file "x.npy" or "x.npz" must be refused with exactly what follows its path. */
static void is_refused(const char *name, const char *what)
{
    struct cddpi_dataset dataset = {.count = 77};
    int descriptors = support_descriptors();
    const char *path = in_folder(name);
    cddp_status status = open_npy(name, strstr(name, ".npz") ? NULL : "y.npy", false, &dataset);

    if (status != CDDP_ERR_FORMAT || strncmp(cddp_last_error(), path, strlen(path)) != 0 ||
        strstr(cddp_last_error(), what) == NULL) {
        fail_msg("status %d, '%s' should begin with '%s' and contain '%s'", (int)status,
                 cddp_last_error(), path, what);
    }
    assert_int_equal(dataset.count, 77);
    assert_int_equal(support_descriptors(), descriptors);
}

static void headers_that_are_not_numpys_are_refused(void **state)
{
    static const struct {
        const char *header, *what;
    } cases[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }",
         "byte 20: the numbers are big-endian (>f4): save them with .astype(\"<f4\")"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }",
         "byte 20: the elements are Python objects (|O)"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3), }", "complex numbers (<c8)"},
        {"{'descr': '<U5', 'fortran_order': False, 'shape': (2, 3), }", "texts (<U5)"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (2, 3), }", "unknown type (<f3)"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
         "byte 20: the elements are structures of several fields"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
         "byte 44: the array is in Fortran's order"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 3), }", "True or False should be"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 6, }", "a shape in parentheses"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }", "a number should be"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3 4), }", "a comma or a closing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
         "a smaller number should be"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
         "the header says more numbers than any file can hold"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "the array is a single number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", "dimension 0 of the array"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }",
         "truncated: the header says 32 bytes of numbers from byte 128 on, but 24 bytes are there"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }",
         "too long: the header says 16 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, }", "each of 'descr'"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
         "byte 27: the header is not one that NumPy writes: 'descr'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", "each once,"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } print(1)",
         "the end of the header"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3), }", "unknown type (<f4, )"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3), }", "a comma or a }"},
        {"__import__('os').system('true')",
         "byte 10: the header is not one that NumPy writes: a {"},
        {"{'descr': '<f\\x34', 'fortran_order': False, 'shape': (2, 3), }", "plain letters"},
    };

    (void)state;
    put_npy("y.npy", 1, "<i8", "(2,)", two, sizeof two);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        support_write_file(in_folder("x.npy"), file,
                           support_npy_text(1, cases[i].header, six, sizeof six, file));
        is_refused("x.npy", cases[i].what);
    }
}

static void cut_off_files_are_refused_at_any_length(void **state)
{
    size_t bytes = support_npy(1, "<f4", "(2, 3)", six, sizeof six, file);
    static uint8_t zipped[4096];

    (void)state;
    put_npy("y.npy", 1, "<i8", "(2,)", two, sizeof two);
    support_npy(1, "<f4", "(2, 3)", six, sizeof six, file);
    for (size_t left = 6; left < bytes; left++) {
        support_write_file(in_folder("x.npy"), file, left);
        is_refused("x.npy", "truncated");
    }
    for (int wide = 0; wide < 2; wide++) {
        struct npz_member member = {"x.npy", NULL, bytes, 1};
        size_t zip_bytes;

        support_npy(1, "<f4", "(2, 3)", six, sizeof six, file);
        member.data = memcpy(zipped, file, bytes);
        zip_bytes = support_npz(&member, 1, wide, file);
        for (size_t left = 6; left < zip_bytes; left++) {
            support_write_file(in_folder("x.npz"), file, left);
            is_refused("x.npz", "");
        }
    }
}

static void archives_say_what_is_wrong(void **state)
{
    size_t bytes = support_npy(1, "<f4", "(2, 3)", six, sizeof six, file);
    static uint8_t x[4096];
    struct npz_member members[] = {{"images.npy", x, bytes, 0}, {"x.npy", x, bytes, 1}};
    size_t size;

    (void)state;
    memcpy(x, file, bytes);
    size = support_npz(members, 1, 0, file);
    support_write_file(in_folder("x.npz"), file, size);
    is_refused("x.npz", "the archive has no array \"x\"; its arrays are: images");
    size = support_npz(members + 1, 1, 0, file);
    support_write_file(in_folder("x.npz"), file, size);
    is_refused("x.npz", "the archive has no array \"y\"; its arrays are: x");
    file[60] ^= 1; /* in the compressed bytes */
    support_write_file(in_folder("x.npz"), file, size);
    is_refused("x.npz", "array \"x\": the compressed bytes are damaged");
}

static void targets_must_fit_their_samples(void **state)
{
    struct cddpi_dataset dataset = {.count = 77};

    (void)state;
    put_npy("x.npy", 1, "<f4", "(2, 3)", six, sizeof six);
    put_npy("y.npy", 1, "<f4", "(6,)", six, sizeof six);
    assert_int_equal(open_npy("x.npy", "y.npy", true, &dataset), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "y.npy: there are 6 targets, but 2 samples in "));
    put_npy("y.npy", 1, "<f4", "(2, 3)", six, sizeof six);
    assert_int_equal(open_npy("x.npy", "y.npy", false, &dataset), CDDP_ERR_FORMAT);
    assert_non_null(
        strstr(cddp_last_error(), "the array is of 2 x 3, but classes are one integer"));
    put_npy("y.npy", 1, "<f4", "(2,)", six, 8);
    assert_int_equal(open_npy("x.npy", "y.npy", false, &dataset), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "the targets are floats, but classes are integers"));
    put_npy("y.npy", 1, "<i8", "(2,)", ((int64_t[]){1, -1}), 16);
    assert_int_equal(open_npy("x.npy", "y.npy", false, &dataset), CDDP_ERR_FORMAT);
    assert_non_null(strstr(cddp_last_error(), "the class of sample 1 is negative"));
    assert_int_equal(open_npy("x.npy", NULL, false, &dataset), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "x.npy: where are its targets?"));
    assert_int_equal(dataset.count, 77);
}

enum { MANY = 200, EACH = 50 };

/* 100 KiB are free: enough for one rank that inflates 42 KB, but not for three. */
static int open_packed_rank(int rank, int world_size, void *argument)
{
    cddp_group *group = NULL;
    struct cddpi_dataset dataset = {0};
    cddp_status status;

    (void)argument;
    CHECK(support_join(folder, TOGETHER, rank, world_size, &group) == CDDP_OK);
    cddpi_kernel_files_set_root(folder);
    status = open_npy_together("many.npz", NULL, false, group, &dataset);
    cddpi_kernel_files_set_root(NULL);
    if (world_size == 2) {
        CHECK(status == CDDP_OK);
        cddpi_dataset_close(&dataset);
    } else {
        CHECK(status == CDDP_ERR_NO_MEMORY);
        CHECK(strstr(cddp_last_error(), "the compressed arrays of ") != NULL);
        CHECK(strstr(cddp_last_error(), " in 3 ranks of this machine") != NULL);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void every_rank_that_inflates_counts(void **state)
{
    static float x[MANY * EACH];
    static int64_t y[MANY];
    static uint8_t members[2][64 * 1024];
    struct npz_member both[] = {{"x.npy", members[0], 0, 1}, {"y.npy", members[1], 0, 1}};

    (void)state;
    for (int i = 0; i < MANY * EACH; i++) {
        x[i] = (float)i;
    }
    both[0].bytes = support_npy(1, "<f4", "(200, 50)", x, sizeof x, file);
    memcpy(members[0], file, both[0].bytes);
    both[1].bytes = support_npy(1, "<i8", "(200,)", y, sizeof y, file);
    memcpy(members[1], file, both[1].bytes);
    support_write_file(in_folder("many.npz"), file, support_npz(both, 2, 0, file));
    put_in_folder("/proc/meminfo", "MemAvailable:   100 kB\nSwapFree:              0 kB\n");
    assert_int_equal(run_ranks(2, open_packed_rank, NULL), 0);
    support_new_store(folder);
    assert_int_equal(run_ranks(3, open_packed_rank, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(formats_1_to_3_are_read_with_samples_of_any_shape),
        IN_FOLDER(real_targets_may_have_any_length),
        IN_FOLDER(archives_are_read_stored_deflated_and_wide),
        IN_FOLDER(headers_that_are_not_numpys_are_refused),
        IN_FOLDER(cut_off_files_are_refused_at_any_length),
        IN_FOLDER(archives_say_what_is_wrong),
        IN_FOLDER(targets_must_fit_their_samples),
        IN_FOLDER(every_rank_that_inflates_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
