/* test_data.c - IDX files: what is read from good files, the messages for bad ones, and how ranks
 * share them. */
#include "base/alloc.h"
#include "data/dataset.h"
#include "data/files/data_file.h"
#include "support/failure.h"
#include "support/gzip.h"
#include "support/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define FASHION "/usr/share/datasets/fashion-mnist/"

enum { FILE_BYTES = 1 << 14 };

/* A folder with an images and a labels file that a test spoils as it likes. */
struct folder {
    char *path;
    char images[4200], labels[4200];
};

struct bytes {
    unsigned char data[FILE_BYTES];
    size_t count;
};

static const struct bytes good_images = {{0, 0, 8,  3,  0,  0,  0,  3,  0,  0,  0,  2,  0,  0,
                                          0, 2, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33},
                                         28};
static const struct bytes good_labels = {{0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 1}, 11};

static void write_good(const struct folder *folder)
{
    support_write_file(folder->images, good_images.data, good_images.count);
    support_write_file(folder->labels, good_labels.data, good_labels.count);
}

static int make_folder(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);

    folder->path = support_mkdtemp();
    snprintf(folder->images, sizeof folder->images, "%s/images", folder->path);
    snprintf(folder->labels, sizeof folder->labels, "%s/labels", folder->path);
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *folder = *state;

    support_rmdir(folder->path);
    free(folder);
    return 0;
}

static struct bytes gzip(const void *data, size_t count)
{
    struct bytes out;

    out.count = support_gzip(data, count, out.data, FILE_BYTES);
    return out;
}

static void append(struct bytes *bytes, const void *data, size_t count)
{
    assert_true(bytes->count + count <= FILE_BYTES);
    memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

static cddp_status open_folder(const struct folder *folder, int classes, struct cddpi_dataset *out)
{
    return cddpi_dataset_open_idx(folder->images, folder->labels, classes, NULL, out);
}

static void folder_is_good(const struct folder *folder)
{
    struct cddpi_dataset dataset = {0};

    assert_int_equal(open_folder(folder, 0, &dataset), CDDP_OK);
    assert_int_equal(dataset.count, 3);
    assert_int_equal(dataset.channels, 1);
    assert_int_equal(dataset.height, 2);
    assert_int_equal(dataset.width, 2);
    assert_int_equal(dataset.classes, 3);
    assert_memory_equal(dataset.images, good_images.data + 16, 12);
    assert_memory_equal(dataset.labels, good_labels.data + 8, 3);
    cddpi_dataset_close(&dataset);
    cddpi_dataset_close(&dataset);
}

/* The folder's files must be refused with @p status and a text that has both parts in it. */
static void folder_is_refused(const struct folder *folder, int classes, cddp_status status,
                              const char *file, const char *what)
{
    struct cddpi_dataset dataset = {.count = 77};
    int descriptors = support_descriptors();

    assert_true(failure_is(open_folder(folder, classes, &dataset), status, -1, -1, ""));
    if (strncmp(cddp_last_error(), file, strlen(file)) != 0 || !last_error_has(what)) {
        fail_msg("'%s' should begin with '%s' and contain '%s'", cddp_last_error(), file, what);
    }
    assert_int_equal(dataset.count, 77);
    assert_int_equal(support_descriptors(), descriptors);
}

static void images_are_refused(const struct folder *folder, const struct bytes *images,
                               const char *what)
{
    write_good(folder);
    support_write_file(folder->images, images->data, images->count);
    folder_is_refused(folder, 0, CDDP_ERR_FORMAT, folder->images, what);
}

static void plain_files_are_read(void **state)
{
    int descriptors = support_descriptors();

    write_good(*state);
    folder_is_good(*state);
    assert_int_equal(support_descriptors(), descriptors);
}

static void gzipped_files_give_the_same(void **state)
{
    const struct folder *folder = *state;
    struct bytes images = gzip(good_images.data, good_images.count);
    struct bytes labels = gzip(good_labels.data, good_labels.count);
    int descriptors = support_descriptors();

    support_write_file(folder->images, images.data, images.count);
    support_write_file(folder->labels, labels.data, labels.count);
    folder_is_good(folder);
    assert_int_equal(support_descriptors(), descriptors);
}

static void several_gzip_members_are_one_file(void **state)
{
    const struct folder *folder = *state;
    struct bytes images = gzip(good_images.data, 5);
    struct bytes empty = gzip("", 0);
    struct bytes rest = gzip(good_images.data + 5, good_images.count - 5);

    write_good(folder);
    append(&images, empty.data, empty.count);
    append(&images, rest.data, rest.count);
    append(&images, empty.data, empty.count); /* so the last length is 0, too */
    support_write_file(folder->images, images.data, images.count);
    folder_is_good(folder);
}

static void all_optional_parts_of_a_gzip_header_are_skipped(void **state)
{
    const struct folder *folder = *state;
    const unsigned char header[] = {
        0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3, 3, 0, 1, 2, 3, 'n', 0, 'c', 0, 99, 99};
    struct bytes packed = gzip(good_images.data, good_images.count);
    struct bytes images = {.count = 0};

    write_good(folder);
    append(&images, header, sizeof header);
    append(&images, packed.data + 10, packed.count - 10);
    support_write_file(folder->images, images.data, images.count);
    folder_is_good(folder);
    for (size_t count = 1; count < sizeof header; count++) {
        images.count = count;
        images_are_refused(folder, &images,
                           count < 2 ? "truncated: the file has 1 bytes, too few"
                                     : "inside the gzip header that begins at byte 0");
    }
}

/* 12 MB of zeros: a thousandth when compressed, so the first guess of the memory is far too small
 * where the file's own length is wrong. */
static void a_length_that_lies_is_found_out(void **state)
{
    const struct folder *folder = *state;
    const unsigned char header[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0x10, 0, 0, 0, 0x03, 0xe8};
    size_t count = sizeof header + 3 * 4096 * 1000;
    unsigned char *image = calloc(1, count);
    struct bytes whole, first, second;
    struct cddpi_dataset dataset;

    memcpy(image, header, sizeof header);
    image[count - 1] = 7;
    write_good(folder);
    first = gzip(image, count - 2);
    second = gzip(image + count - 2, 2);
    append(&first, second.data, second.count);
    support_write_file(folder->images, first.data, first.count);
    free(image);
    assert_int_equal(open_folder(folder, 3, &dataset), CDDP_OK);
    assert_int_equal(dataset.height, 4096);
    assert_int_equal(dataset.width, 1000);
    assert_int_equal(dataset.images[3 * 4096 * 1000 - 1], 7);
    cddpi_dataset_close(&dataset);
    whole = gzip(good_images.data, good_images.count);
    memset(whole.data + whole.count - 4, 0xff, 4);
    images_are_refused(folder, &whole, "says 4294967295 bytes");
    memset(whole.data + whole.count - 4, 0, 4);
    images_are_refused(folder, &whole, "says 0 bytes (modulo 2^32), but the data have 28");
}

static void four_dimensions_are_samples_channels_height_width(void **state)
{
    const struct folder *folder = *state;
    struct bytes images = {{0, 0, 8, 4, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 1},
                           20 + 18};
    struct cddpi_dataset dataset;

    write_good(folder);
    support_write_file(folder->images, images.data, images.count);
    assert_int_equal(open_folder(folder, 10, &dataset), CDDP_OK);
    assert_int_equal(dataset.count, 3);
    assert_int_equal(dataset.channels, 2);
    assert_int_equal(dataset.height, 3);
    assert_int_equal(dataset.width, 1);
    assert_int_equal(dataset.classes, 10);
    assert_int_equal(dataset.images[0], 1);
    cddpi_dataset_close(&dataset);
}

static void a_file_that_is_not_there_or_no_file_is_named(void **state)
{
    const struct folder *folder = *state;

    folder_is_refused(folder, 0, CDDP_ERR_NOT_FOUND, folder->images, ": ");
    assert_true(failure_errno_is(ENOENT));
    support_write_file(folder->images, good_images.data, good_images.count);
    folder_is_refused(folder, 0, CDDP_ERR_NOT_FOUND, folder->labels, ": ");
    assert_true(failure_errno_is(ENOENT));
    assert_int_equal(mkdir(folder->labels, 0700), 0);
    folder_is_refused(folder, 0, CDDP_ERR_IO, folder->labels, "not a regular file");
    assert_int_equal(rmdir(folder->labels), 0);
    assert_int_equal(mkfifo(folder->labels, 0600), 0);
    folder_is_refused(folder, 0, CDDP_ERR_IO, folder->labels, "not a regular file");
    assert_int_equal(unlink(folder->labels), 0);
    support_write_file(folder->labels, "", 0);
    folder_is_refused(folder, 0, CDDP_ERR_FORMAT, folder->labels, "the file is empty");
}

static void wrong_headers_are_refused_where_they_are_wrong(void **state)
{
    static const struct {
        int at, value;
        const char *what;
    } rows[] = {
        {0, 7, "not an IDX file: it begins with 07 00 08 03, not with 00 00 08 03"},
        {2, 0x0d,
         "byte 2: the elements have type 0x0d, but only unsigned bytes (0x08) can be read"},
        {3, 1, "byte 3: the file has 1 dimensions, but images have 3 or 4"},
        {3, 5, "byte 3: the file has 5 dimensions"},
        {7, 0, "byte 4: dimension 0 is 0"},
        {11, 0, "byte 8: dimension 1 is 0"},
        {15, 0, "byte 12: dimension 2 is 0"},
        {7, 4,
         "truncated: the header says 4 x 2 x 2 elements from byte 16 on, but 12 bytes are there"},
        {7, 2, "too long: "},
        {4, 1, "truncated: the header says 16777219 x 2 x 2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes images = good_images;

        images.data[rows[i].at] = (unsigned char)rows[i].value;
        images_are_refused(*state, &images, rows[i].what);
        images = gzip(images.data, images.count);
        images_are_refused(*state, &images, rows[i].what);
    }
}

static void dimensions_beyond_all_memory_are_refused(void **state)
{
    struct bytes images = good_images;

    memset(images.data + 4, 0xff, 12);
    images_are_refused(*state, &images,
                       "byte 4: the dimensions 4294967295 x 4294967295 x 4294967295 are more than");
}

static void a_single_image_may_not_be_too_large(void **state)
{
    const struct folder *folder = *state;
    const unsigned char header[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0x40, 0, 0, 0, 0x40, 1};

    write_good(folder);
    support_write_file(folder->images, header, sizeof header);
    assert_int_equal(truncate(folder->images, 16 + 0x4000 * 0x4001), 0); /* a hole */
    folder_is_refused(folder, 0, CDDP_ERR_FORMAT, folder->images,
                      "byte 8: one image has more than");
}

static void every_truncated_file_is_refused(void **state)
{
    const struct folder *folder = *state;
    struct bytes plain = good_images;
    struct bytes packed = gzip(good_images.data, good_images.count);
    size_t count = packed.count;

    for (plain.count = 1; plain.count < good_images.count; plain.count++) {
        images_are_refused(folder, &plain, "truncated");
    }
    for (packed.count = 1; packed.count < count; packed.count++) {
        images_are_refused(folder, &packed, "");
    }
    packed.count = count - 3;
    images_are_refused(folder, &packed, "inside the gzip trailer");
    packed.count = 14;
    images_are_refused(folder, &packed, "from byte 10 on are corrupt, or cut off");
}

/* Bits that mean nothing (time, system, padding) may change; what is read stays the same. */
static void no_changed_bit_of_a_gzip_file_changes_what_is_read(void **state)
{
    const struct folder *folder = *state;
    struct bytes packed = gzip(good_images.data, good_images.count);
    int ignored = 0;

    write_good(folder);
    for (size_t i = 0; i < packed.count; i++) {
        for (int bit = 0; bit < 8; bit++) {
            struct bytes images = packed;
            struct cddpi_dataset dataset;
            cddp_status status;

            images.data[i] ^= (unsigned char)(1 << bit);
            support_write_file(folder->images, images.data, images.count);
            status = open_folder(folder, 0, &dataset);
            if (status == CDDP_OK) {
                ignored++;
                assert_memory_equal(dataset.images, good_images.data + 16, 12);
                cddpi_dataset_close(&dataset);
            } else {
                assert_true(failure_is(status, CDDP_ERR_FORMAT, -1, -1, ""));
                assert_memory_equal(cddp_last_error(), folder->images, strlen(folder->images));
            }
        }
    }
    assert_true(ignored < 8 * 8); /* time, extra flags, system, and the padding of one byte */
    packed.data[packed.count - 8] ^= 1;
    images_are_refused(folder, &packed, "corrupt: ");
}

static void bytes_after_the_end_are_refused(void **state)
{
    struct bytes plain = good_images;
    struct bytes packed = gzip(good_images.data, good_images.count);
    char text[128];

    append(&plain, "x", 1);
    images_are_refused(*state, &plain,
                       "too long: the header says 3 x 2 x 2 elements from byte 16 on");
    snprintf(text, sizeof text,
             "the gzip data end at byte %zu, but 3 bytes follow that are not gzip", packed.count);
    append(&packed, "abc", 3);
    images_are_refused(*state, &packed, text);
    packed = gzip("", 0);
    images_are_refused(*state, &packed, "the gzip file holds no data");
}

/* What follows the contents that the header gives is spoilt: whoever reads on says so. */
static void inflating_stops_at_the_size_that_the_header_gives(void **state)
{
    struct bytes packed = gzip(good_images.data, good_images.count);
    unsigned char *zeros = calloc(1, 1 << 20);
    struct bytes more = gzip(zeros, 1 << 20);

    free(zeros);
    memset(more.data + more.count - 8, 0x55, 8);
    append(&packed, more.data, more.count);
    images_are_refused(*state, &packed,
                       "too long: its header says that there are 28 bytes, but more follow");
}

static void contents_that_cannot_fit_are_not_inflated(void **state)
{
    const struct folder *folder = *state;
    const unsigned char header[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0x10, 0, 0, 0, 0x03, 0xe8};
    size_t count = sizeof header + 3 * 4096 * 1000;
    unsigned char *image = calloc(1, count);
    struct bytes packed;

    memcpy(image, header, sizeof header);
    packed = gzip(image, count);
    write_good(folder);
    support_write_file(folder->images, packed.data, packed.count);
    support_set_memory(folder->path, 1024);
    folder_is_refused(folder, 0, CDDP_ERR_NO_MEMORY, folder->images, "inflated: 11.7 MiB ");
    image[0] = 1; /* no header says how much it is */
    packed = gzip(image, count);
    support_write_file(folder->images, packed.data, packed.count);
    folder_is_refused(folder, 0, CDDP_ERR_NO_MEMORY, folder->images,
                      "inflates to more than the 1.0 MiB of memory that can be had (what is free "
                      "on this machine)");
    support_end_memory();
    free(image);
}

static void labels_must_fit_the_images_and_the_classes(void **state)
{
    const struct folder *folder = *state;
    const struct bytes two = {{0, 0, 8, 1, 0, 0, 0, 2, 2, 0}, 10};

    write_good(folder);
    folder_is_refused(folder, 2, CDDP_ERR_FORMAT, folder->labels,
                      "byte 8: sample 0 has label 2, but there are only 2 classes");
    folder_is_refused(folder, 1, CDDP_ERR_FORMAT, folder->labels, "byte 8: sample 0 has label 2");
    support_write_file(folder->labels, two.data, two.count);
    folder_is_refused(folder, 0, CDDP_ERR_FORMAT, folder->labels,
                      "byte 4: there are 2 labels, but ");
    support_write_file(folder->labels, good_images.data, good_images.count);
    folder_is_refused(folder, 0, CDDP_ERR_FORMAT, folder->labels,
                      "byte 3: the file has 3 dimensions, but labels have 1");
    folder_is_refused(folder, -1, CDDP_ERR_ARGUMENT, "data:", "classes (-1)");
}

static void a_lack_of_memory_is_reported(void **state)
{
    struct cddpi_dataset dataset;

    write_good(*state);
    cddpi_alloc_fail_nth(1);
    assert_int_equal(open_folder(*state, 0, &dataset), CDDP_ERR_NO_MEMORY);
    cddpi_alloc_fail_nth(0);
}

static void fashion_mnist_has_its_known_numbers(void **state)
{
    struct cddpi_dataset dataset;
    unsigned counts[10] = {0};
    uint64_t sum = 0;

    (void)state;
    if (access(FASHION "train-images-idx3-ubyte.gz", R_OK) != 0) {
        skip(); /* Debian's dataset-fashion-mnist is not installed */
    }
    assert_int_equal(cddpi_dataset_open_idx(FASHION "train-images-idx3-ubyte.gz",
                                            FASHION "train-labels-idx1-ubyte.gz", 10, NULL,
                                            &dataset),
                     CDDP_OK);
    assert_int_equal(dataset.count, 60000);
    assert_int_equal(dataset.channels, 1);
    assert_int_equal(dataset.height, 28);
    assert_int_equal(dataset.width, 28);
    assert_int_equal(dataset.classes, 10);
    assert_int_equal(dataset.labels[0], 9);
    for (int i = 0; i < 60000; i++) {
        counts[dataset.labels[i]]++;
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(counts[i], 6000);
    }
    for (size_t i = 0; i < (size_t)60000 * 28 * 28; i++) {
        sum += dataset.images[i];
    }
    /* the published mean of the pixels is 0.2860 */
    assert_true(sum > 0.28595 * 255 * 60000 * 784 && sum < 0.28615 * 255 * 60000 * 784);
    cddpi_dataset_close(&dataset);
}

static int map_in_a_child(int rank, int world_size, void *argument)
{
    struct cddpi_data_file_address address = *(struct cddpi_data_file_address *)argument;
    struct cddpi_data_file source;
    char path[64];

    (void)rank;
    (void)world_size;
    CHECK(cddpi_data_file_map(&address, "images", &source) == CDDP_OK);
    CHECK(source.bytes == good_images.count);
    CHECK(memcmp(source.data, good_images.data, source.bytes) == 0);
    cddpi_data_file_close(&source);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)address.pid, (int)address.fd);
    CHECK(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) < 0 && errno == EPERM); /* sealed */
    address.inode++;
    CHECK(cddpi_data_file_map(&address, "images", &source) == CDDP_ERR_UNAVAILABLE);
    address.inode--;
    address.bytes++;
    CHECK(cddpi_data_file_map(&address, "images", &source) == CDDP_ERR_UNAVAILABLE);
    address.pid = getpid();
    address.fd = 12345;
    CHECK(cddpi_data_file_map(&address, "images", &source) == CDDP_ERR_UNAVAILABLE);
    return 0;
}

static void another_process_maps_what_was_inflated_and_cannot_change_it(void **state)
{
    const struct folder *folder = *state;
    struct bytes images = gzip(good_images.data, good_images.count);
    struct cddpi_data_file_address address;
    struct cddpi_data_file source;

    support_write_file(folder->images, images.data, images.count);
    assert_int_equal(cddpi_data_file_open(folder->images, true, NULL, &source), CDDP_OK);
    assert_true(source.fd >= 0);
    cddpi_data_file_address(&source, &address);
    assert_int_equal(run_ranks(2, map_in_a_child, &address), 0);
    cddpi_data_file_close_fd(&source);
    cddpi_data_file_address(&source, &address);
    assert_int_equal(address.fd, -1);
    assert_memory_equal(source.data, good_images.data, good_images.count);
    cddpi_data_file_close(&source);
    assert_int_equal(cddpi_data_file_map(&address, "images", &source), CDDP_ERR_UNAVAILABLE);
}

/* A rank's word is not enough: what is mapped must be memory that nobody can change or cut. */
static void memory_that_is_not_sealed_and_devices_are_not_mapped(void **state)
{
    int fds[2] = {memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                  open("/dev/zero", O_RDWR | O_CLOEXEC)};

    (void)state;
    assert_int_equal(ftruncate(fds[0], 4096), 0);
    for (int i = 0; i < 2; i++) {
        struct cddpi_data_file_address address = {getpid(), fds[i], 0, 0, i == 0 ? 4096 : 0};
        struct cddpi_data_file source;
        struct stat info;

        assert_int_equal(fstat(fds[i], &info), 0);
        address.dev = info.st_dev;
        address.inode = info.st_ino;
        assert_int_equal(cddpi_data_file_map(&address, "images", &source), CDDP_ERR_UNAVAILABLE);
        close(fds[i]);
    }
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(plain_files_are_read),
        CASE(gzipped_files_give_the_same),
        CASE(several_gzip_members_are_one_file),
        CASE(all_optional_parts_of_a_gzip_header_are_skipped),
        CASE(a_length_that_lies_is_found_out),
        CASE(four_dimensions_are_samples_channels_height_width),
        CASE(a_file_that_is_not_there_or_no_file_is_named),
        CASE(wrong_headers_are_refused_where_they_are_wrong),
        CASE(dimensions_beyond_all_memory_are_refused),
        CASE(a_single_image_may_not_be_too_large),
        CASE(every_truncated_file_is_refused),
        CASE(no_changed_bit_of_a_gzip_file_changes_what_is_read),
        CASE(bytes_after_the_end_are_refused),
        CASE(inflating_stops_at_the_size_that_the_header_gives),
        CASE(contents_that_cannot_fit_are_not_inflated),
        CASE(labels_must_fit_the_images_and_the_classes),
        CASE(a_lack_of_memory_is_reported),
        cmocka_unit_test(fashion_mnist_has_its_known_numbers),
        CASE(another_process_maps_what_was_inflated_and_cannot_change_it),
        CASE(memory_that_is_not_sealed_and_devices_are_not_mapped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
