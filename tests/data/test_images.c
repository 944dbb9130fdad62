/* test_images.c - single image files: the pixels equal Pillow's, before and after resizing, and
 * broken files are refused. */
#include "data/images/image_decode.h"
#include "data/images/sample.h"
#include "support/failure.h"
#include "support/images.h"

#include <cddp_config.h>
#include <libdeflate.h>

#if CDDP_HAVE_JPEG
#include <jpeglib.h>
#endif

static struct cddpi_image_memory memory;

static cddp_status decode(const char *name, const uint8_t *data, size_t bytes,
                          struct cddpi_image *out)
{
    /* exactly so many bytes, so that a sanitizer sees what is read behind them */
    uint8_t *copy = malloc(bytes + (bytes == 0));
    cddp_status status;

    memcpy(copy, data, bytes);
    status = cddpi_image_decode(name, copy, bytes, &memory, out);
    free(copy);
    return status;
}

static bool is_jpeg(const struct image_vector *vector)
{
    return strstr(vector->name, ".jpg") != NULL;
}

/* JPEG's inverse transform and its chroma's interpolation may differ by a little between versions
 * of the library. */
static void compare_file(const struct image_vector *vector)
{
    struct cddpi_image image;
    int most = is_jpeg(vector) ? 3 : 0;

    if ((is_jpeg(vector) ? cddpi_image_jpeg_available("") : cddpi_image_png_available("")) !=
        CDDP_OK) {
        return;
    }
    if (decode(vector->name, vector->file, vector->file_bytes, &image) != CDDP_OK) {
        fail_msg("%s: %s", vector->name, cddp_last_error());
    }
    assert_int_equal(image.width, vector->numbers[0]);
    assert_int_equal(image.height, vector->numbers[1]);
    assert_int_equal(vector->pixel_bytes, (size_t)image.width * (size_t)image.height * 3);
    for (size_t i = 0; i < vector->pixel_bytes; i++) {
        if (abs(image.pixels[i] - vector->pixels[i]) > most) {
            fail_msg("%s: byte %zu is %d, not %d", vector->name, i, image.pixels[i],
                     vector->pixels[i]);
        }
    }
}

static void every_kind_of_file_has_the_pixels_that_pillow_reads(void **state)
{
    (void)state;
    assert_int_equal(each_image_vector("file", compare_file), 16);
}

static uint8_t *make_pattern(int width, int height)
{
    uint8_t *pixels = malloc((size_t)(width * height * 3));

    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < 3; c++) {
                pixels[(y * width + x) * 3 + c] = (uint8_t)(x * 7 + y * 13 + c * 31 +
                                                            x * y % 11 * 17);
            }
        }
    }
    return pixels;
}

static void compare_view(const struct cddpi_image_view *view, int width, int height,
                         const struct image_vector *vector)
{
    uint8_t *pixels = make_pattern(width, height);
    uint8_t *out = malloc(vector->pixel_bytes);
    void *room = malloc(cddpi_image_resize_bytes(view));

    assert_int_equal(vector->pixel_bytes,
                     (size_t)view->window_width * (size_t)view->window_height * 3);
    cddpi_image_resize(pixels, width, view, room, out);
    assert_memory_equal(out, vector->pixels, vector->pixel_bytes);
    free(pixels);
    free(out);
    free(room);
}

static void compare_resized(const struct image_vector *vector)
{
    const int *n = vector->numbers;
    const struct cddpi_image_view view = {.left = n[2],
                                          .top = n[3],
                                          .width = n[4] - n[2],
                                          .height = n[5] - n[3],
                                          .whole_width = n[6],
                                          .whole_height = n[7],
                                          .window_width = n[6],
                                          .window_height = n[7]};

    compare_view(&view, n[0], n[1], vector);
}

static void resized_images_have_the_bits_of_pillows(void **state)
{
    (void)state;
    assert_int_equal(each_image_vector("resize", compare_resized), 6);
}

static void compare_center(const struct image_vector *vector)
{
    const int *n = vector->numbers;
    struct cddpi_image_view view = cddpi_view_of_center(n[0], n[1], n[2], n[3]);

    compare_view(&view, n[0], n[1], vector);
}

static void the_middle_of_a_resized_image_has_the_bits_of_torchvisions(void **state)
{
    (void)state;
    assert_int_equal(each_image_vector("center", compare_center), 5);
}

static void a_random_part_lies_in_the_image_and_depends_on_seed_epoch_and_sample_alone(void **state)
{
    static const double area[2] = {0.08, 1};
    int flipped = 0;
    int others = 0;

    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        struct cddpi_view_key key = {5, i / 500, i};
        struct cddpi_view_key next = {5, i / 500 + 1, i};
        int width = 1 + (int)(i * 7 % 97), height = 1 + (int)(i * 11 % 83);
        bool flip, again_flip;
        struct cddpi_image_view view = cddpi_view_at_random(key, width, height, 8, area, &flip);
        struct cddpi_image_view again = cddpi_view_at_random(key, width, height, 8, area,
                                                             &again_flip);

        assert_memory_equal(&view, &again, sizeof view);
        assert_int_equal(flip, again_flip);
        assert_true(view.left >= 0 && view.top >= 0 && view.width > 0 && view.height > 0);
        assert_true(view.left + view.width <= width && view.top + view.height <= height);
        flipped += flip;
        again = cddpi_view_at_random(next, width, height, 8, area, &again_flip);
        others += memcmp(&view, &again, sizeof view) != 0;
    }
    assert_in_range(flipped, 900, 1100);
    assert_true(others > 1500);
}

static void a_part_of_the_whole_area_is_the_middle_with_a_ratio_of_three_to_four(void **state)
{
    static const double whole[2] = {1, 1};
    struct cddpi_view_key key = {1, 0, 3};
    bool flip;
    struct cddpi_image_view view;

    (void)state;
    view = cddpi_view_at_random(key, 1000, 30, 8, whole, &flip); /* no part of it is that large */
    assert_int_equal(view.width, 40);
    assert_int_equal(view.height, 30);
    assert_int_equal(view.left, 480);
    view = cddpi_view_at_random(key, 30, 1000, 8, whole, &flip);
    assert_int_equal(view.height, 40);
    assert_int_equal(view.top, 480);
}

/* A stop at any byte: an error that names the file, or, behind the last row, the image. */
static void cut(const struct image_vector *vector)
{
    for (size_t bytes = 0; bytes < vector->file_bytes; bytes++) {
        struct cddpi_image image;

        if (decode(vector->name, vector->file, bytes, &image) == CDDP_OK) {
            assert_true(is_jpeg(vector) && vector->file_bytes - bytes <= 2);
        } else {
            assert_ptr_equal(strstr(cddp_last_error(), vector->name), cddp_last_error());
        }
    }
}

static void a_file_that_is_cut_off_anywhere_is_an_error_that_names_it(void **state)
{
    (void)state;
    each_image_vector("file", cut);
}

static void change(const struct image_vector *vector)
{
    uint8_t *data = malloc(vector->file_bytes);

    memcpy(data, vector->file, vector->file_bytes);
    for (size_t at = 0; at < vector->file_bytes; at++) {
        for (int bit = 0; bit < 8; bit += 3) {
            struct cddpi_image image;

            data[at] ^= (uint8_t)(1 << bit);
            if (decode(vector->name, data, vector->file_bytes, &image) == CDDP_OK) {
                assert_true(image.width > 0 && image.height > 0);
            } else {
                assert_ptr_equal(strstr(cddp_last_error(), vector->name), cddp_last_error());
            }
            data[at] ^= (uint8_t)(1 << bit);
        }
    }
    free(data);
}

static void a_file_with_a_changed_bit_is_read_or_an_error_that_names_it(void **state)
{
    (void)state;
    each_image_vector("file", change);
}

static void a_png_with_a_changed_pixel_fails_by_its_checksum(void **state)
{
    size_t bytes;
    uint8_t *file = image_vector_file("rgb.png", &bytes);
    struct cddpi_image image;

    (void)state;
    need_png();
    file[bytes - 20] ^= 1;
    assert_true(failure_is(decode("rgb.png", file, bytes, &image), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("rgb.png: the PNG file is damaged"));
    free(file);
}

static void an_image_that_says_it_is_huge_is_refused(void **state)
{
    size_t bytes;
    uint8_t *file = image_vector_file("rgb.jpg", &bytes);
    struct cddpi_image image;

    (void)state;
    need_jpeg();
    for (size_t i = 0; i + 9 < bytes; i++) {
        if (file[i] == 0xff && file[i + 1] == 0xc0) {
            memcpy(file + i + 5, (const uint8_t[]){0xea, 0x60, 0xea, 0x60}, 4);
        }
    }
    assert_true(failure_is(decode("rgb.jpg", file, bytes, &image), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("rgb.jpg: the image has 60000 x 60000 pixels"));
    free(file);
}

#if CDDP_HAVE_JPEG

/* A grey image whose coefficients come one by one, and each in three parts: 190 scans. */
static uint8_t *make_scans(unsigned side, unsigned long *out_bytes)
{
    static jpeg_scan_info scans[1 + 63 * 3];
    struct jpeg_compress_struct library;
    struct jpeg_error_mgr errors;
    uint8_t *row = calloc(side, 1);
    uint8_t *file = NULL;
    int count = 0;

    library.err = jpeg_std_error(&errors);
    jpeg_create_compress(&library);
    *out_bytes = 0;
    jpeg_mem_dest(&library, &file, out_bytes);
    library.image_width = library.image_height = side;
    library.input_components = 1;
    library.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&library);
    scans[count++] = (jpeg_scan_info){.comps_in_scan = 1};
    for (int low = 2; low >= 0; low--) {
        for (int k = 1; k < 64; k++) {
            scans[count++] = (jpeg_scan_info){
                .comps_in_scan = 1, .Ss = k, .Se = k, .Ah = low == 2 ? 0 : low + 1, .Al = low};
        }
    }
    library.scan_info = scans;
    library.num_scans = count;
    jpeg_start_compress(&library, TRUE);
    while (library.next_scanline < side) {
        (void)jpeg_write_scanlines(&library, &row, 1);
    }
    jpeg_finish_compress(&library);
    jpeg_destroy_compress(&library);
    free(row);
    return file;
}

static void a_large_image_of_many_scans_is_refused(void **state)
{
    static const struct {
        unsigned side;
        cddp_status status;
    } cases[] = {{64, CDDP_OK}, {4096, CDDP_ERR_FORMAT}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        unsigned long bytes;
        uint8_t *file = make_scans(cases[i].side, &bytes);
        struct cddpi_image image;

        assert_int_equal(decode("s.jpg", file, bytes, &image), cases[i].status);
        free(file);
    }
    assert_string_equal(
        cddp_last_error(),
        "s.jpg: the JPEG file has more than 128 scans of 4096 x 4096 pixels: no camera "
        "makes such files");
}

#else

static void a_large_image_of_many_scans_is_refused(void **state)
{
    (void)state;
    skip();
}

#endif

static uint8_t *put_u32(uint8_t *out, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        *out++ = (uint8_t)(value >> shift);
    }
    return out;
}

/* A chunk of a PNG file whose text is 16 MiB long once it is inflated. */
static size_t make_text_chunk(const char *type, uint8_t *out)
{
    enum { TEXT_BYTES = 1 << 24, ROOM = 1 << 16 };
    static const uint8_t key[] = "key\0"; /* and the method, 0 */
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
    uint8_t *text = calloc(TEXT_BYTES, 1);
    size_t bytes = libdeflate_zlib_compress(compressor, text, TEXT_BYTES, out + 8 + sizeof key,
                                            ROOM);

    memcpy(out + 4, type, 4);
    memcpy(out + 8, key, sizeof key);
    bytes += sizeof key;
    put_u32(out, (uint32_t)bytes);
    put_u32(out + 8 + bytes, libdeflate_crc32(0, out + 4, 4 + bytes));
    libdeflate_free_compressor(compressor);
    free(text);
    return bytes + 12;
}

/* Inflating texts takes a hundred times as long as passing over chunks of a type that nobody knows.
 */
static void texts_of_a_png_file_are_not_inflated(void **state)
{
    enum { CHUNKS = 1000, HEAD = 8 + 25 };
    static const char *const types[] = {"prVt", "zTXt", "iCCP", "iTXt"};
    uint8_t *chunk = malloc(1 << 17);
    char *folder = support_mkdtemp();
    char path[4200];
    uint8_t plain[2048];
    uint8_t *pattern = make_pattern(4, 4);
    clock_t unknown = 0;
    size_t plain_bytes;
    FILE *file;

    (void)state;
    need_png();
    snprintf(path, sizeof path, "%s/a.png", folder);
    write_png(path, 4, 4, pattern);
    file = fopen(path, "rbe");
    plain_bytes = fread(plain, 1, sizeof plain, file);
    fclose(file);
    for (int t = 0; t < 4; t++) {
        size_t bytes = make_text_chunk(types[t], chunk);
        uint8_t *all = malloc(plain_bytes + CHUNKS * bytes);
        struct cddpi_image image;
        clock_t begun;

        memcpy(all, plain, HEAD);
        for (size_t i = 0; i < CHUNKS; i++) {
            memcpy(all + HEAD + i * bytes, chunk, bytes);
        }
        memcpy(all + HEAD + CHUNKS * bytes, plain + HEAD, plain_bytes - HEAD);
        begun = clock(); /* of this process's own time: others do not count */
        assert_int_equal(decode("a.png", all, plain_bytes + CHUNKS * bytes, &image), CDDP_OK);
        unknown = t == 0 ? clock() - begun : unknown;
        assert_true(clock() - begun <= 10 * unknown + CLOCKS_PER_SEC / 5);
        assert_memory_equal(image.pixels, pattern, 4 * 4 * 3);
        free(all);
    }
    free(pattern);
    free(chunk);
    support_rmdir(folder);
}

static void other_files_are_no_images(void **state)
{
    struct cddpi_image image;

    (void)state;
    assert_true(failure_is(decode("a.jpg", (const uint8_t *)"GIF89a", 6, &image), CDDP_ERR_FORMAT,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "a.jpg: neither a JPEG nor a PNG file: it has 6 bytes and "
                        "begins with 47 49 46 38: it is text that begins with \"GIF89a\"");
    assert_true(
        failure_is(decode("b.png", (const uint8_t *)"", 0, &image), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_string_equal(cddp_last_error(), "b.png: the file is empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_file_has_the_pixels_that_pillow_reads),
        cmocka_unit_test(resized_images_have_the_bits_of_pillows),
        cmocka_unit_test(the_middle_of_a_resized_image_has_the_bits_of_torchvisions),
        cmocka_unit_test(
            a_random_part_lies_in_the_image_and_depends_on_seed_epoch_and_sample_alone),
        cmocka_unit_test(a_part_of_the_whole_area_is_the_middle_with_a_ratio_of_three_to_four),
        cmocka_unit_test(a_file_that_is_cut_off_anywhere_is_an_error_that_names_it),
        cmocka_unit_test(a_file_with_a_changed_bit_is_read_or_an_error_that_names_it),
        cmocka_unit_test(a_png_with_a_changed_pixel_fails_by_its_checksum),
        cmocka_unit_test(an_image_that_says_it_is_huge_is_refused),
        cmocka_unit_test(a_large_image_of_many_scans_is_refused),
        cmocka_unit_test(texts_of_a_png_file_are_not_inflated),
        cmocka_unit_test(other_files_are_no_images),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    cddpi_image_memory_free(&memory);
    return failed;
}
