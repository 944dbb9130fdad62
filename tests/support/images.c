/* images.c - writes image files for tests. */
#include "support/images.h"

#include "data/images/image_decode.h"

void need_png(void)
{
    if (cddpi_image_png_available("") != CDDP_OK) {
        print_message("%s\n", cddp_last_error());
        skip();
    }
}

void need_jpeg(void)
{
    if (cddpi_image_jpeg_available("") != CDDP_OK) {
        print_message("%s\n", cddp_last_error());
        skip();
    }
}

static uint32_t crc32_of(const uint8_t *data, size_t bytes)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

static uint8_t *put_u32(uint8_t *out, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        *out++ = (uint8_t)(value >> shift);
    }
    return out;
}

static uint8_t *put_chunk(uint8_t *out, const char *kind, const void *data, size_t bytes)
{
    uint8_t *begin = put_u32(out, (uint32_t)bytes);

    memcpy(begin, kind, 4);
    if (bytes > 0) {
        memcpy(begin + 4, data, bytes);
    }
    return put_u32(begin + 4 + bytes, crc32_of(begin, 4 + bytes));
}

/* Write rows, each with filter 0, as one stored block. */
static size_t deflate_rows(int width, int height, const uint8_t *pixels, uint8_t *out)
{
    size_t row = (size_t)width * 3;
    size_t bytes = (row + 1) * (size_t)height;
    uint32_t a = 1, b = 0;
    uint8_t *at = out + 7;

    assert_true(bytes < 65536);
    memcpy(out, (const uint8_t[]){0x78, 1, 1, bytes & 255, bytes >> 8, ~bytes & 255, ~bytes >> 8},
           7);
    for (int y = 0; y < height; y++) {
        *at++ = 0;
        memcpy(at, pixels + (size_t)y * row, row);
        at += row;
    }
    for (const uint8_t *byte = out + 7; byte < at; byte++) {
        a = (a + *byte) % 65521;
        b = (b + a) % 65521;
    }
    return (size_t)(put_u32(at, b << 16 | a) - out);
}

void write_png(const char *path, int width, int height, const uint8_t *pixels)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t head[13] = {0};
    uint8_t *rows = malloc((size_t)(width * 3 + 1) * (size_t)height + 64);
    uint8_t *file = malloc((size_t)(width * 3 + 1) * (size_t)height + 256);
    size_t bytes = deflate_rows(width, height, pixels, rows);
    uint8_t *at = file + sizeof signature;

    memcpy(file, signature, sizeof signature);
    put_u32(put_u32(head, (uint32_t)width), (uint32_t)height);
    head[8] = 8;
    head[9] = 2;
    at = put_chunk(at, "IHDR", head, sizeof head);
    at = put_chunk(at, "IDAT", rows, bytes);
    at = put_chunk(at, "IEND", NULL, 0);
    support_write_file(path, file, (size_t)(at - file));
    free(rows);
    free(file);
}

static void write_image(const char *path, int class, int side, unsigned *random)
{
    uint8_t *pixels = malloc((size_t)side * (size_t)side * 3);

    for (int i = 0; i < side * side; i++) {
        for (int c = 0; c < 3; c++) {
            *random = *random * 1664525u + 1013904223u;
            pixels[i * 3 + c] = (uint8_t)((c == class % 3 ? 150 : 40) + class * 7 +
                                          (int)(*random >> 26));
        }
    }
    write_png(path, side, side, pixels);
    free(pixels);
}

void make_image_folder(const char *root, int classes, int per_class, int side, unsigned seed)
{
    unsigned random = seed;
    char path[4600];

    assert_int_equal(mkdir(root, 0700), 0);
    for (int class = 0; class < classes; class ++) {
        snprintf(path, sizeof path, "%s/c%d", root, class);
        assert_int_equal(mkdir(path, 0700), 0);
        for (int i = 0; i < per_class; i++) {
            snprintf(path, sizeof path, "%s/c%d/%03d.png", root, class, i);
            write_image(path, class, side, &random);
        }
    }
}

static uint8_t *from_hex(const char *word, size_t *out_bytes)
{
    size_t bytes = strlen(word) / 2;
    uint8_t *out = malloc(bytes + 1);

    for (size_t i = 0; i < bytes; i++) {
        unsigned value;

        assert_int_equal(sscanf(word + 2 * i, "%2x", &value), 1);
        out[i] = (uint8_t)value;
    }
    *out_bytes = bytes;
    return out;
}

static void parse(char *line, struct image_vector *out)
{
    char *rest = NULL;
    char *word = strtok_r(line, " \n", &rest);
    bool is_file;

    memset(out, 0, sizeof *out);
    snprintf(out->kind, sizeof out->kind, "%s", word);
    is_file = strcmp(out->kind, "file") == 0;
    if (is_file) {
        snprintf(out->name, sizeof out->name, "%s", strtok_r(NULL, " \n", &rest));
    }
    while ((word = strtok_r(NULL, " \n", &rest)) != NULL && strlen(word) < 6) {
        assert_true(out->number_count < 8);
        out->numbers[out->number_count++] = atoi(word);
    }
    assert_non_null(word);
    if (is_file) {
        out->file = from_hex(word, &out->file_bytes);
        word = strtok_r(NULL, " \n", &rest);
    }
    out->pixels = from_hex(word, &out->pixel_bytes);
}

static FILE *open_vectors(void)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/vectors/image_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

int each_image_vector(const char *kind, void (*use)(const struct image_vector *vector))
{
    FILE *file = open_vectors();
    char *line = NULL;
    size_t room = 0;
    int count = 0;

    while (getline(&line, &room, file) > 0) {
        struct image_vector vector;

        if (strncmp(line, kind, strlen(kind)) == 0) {
            parse(line, &vector);
            use(&vector);
            free(vector.file);
            free(vector.pixels);
            count++;
        }
    }
    free(line);
    fclose(file);
    return count;
}

uint8_t *image_vector_file(const char *name, size_t *out_bytes)
{
    FILE *file = open_vectors();
    uint8_t *found = NULL;
    char *line = NULL;
    size_t room = 0;

    while (found == NULL && getline(&line, &room, file) > 0) {
        struct image_vector vector;

        if (strncmp(line, "file ", 5) == 0) {
            parse(line, &vector);
            free(vector.pixels);
            if (strcmp(vector.name, name) == 0) {
                found = vector.file;
                *out_bytes = vector.file_bytes;
            } else {
                free(vector.file);
            }
        }
    }
    free(line);
    fclose(file);
    assert_non_null(found);
    return found;
}
