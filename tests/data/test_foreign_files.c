/* test_foreign_files.c - a table of the kinds of files that other programs write, and the parts of
 * cddp that read files. Each reader refuses every kind but its own, and names the kind that it
 * got. */
#include "base/foreign.h"
#include "base/utf8.h"
#include "data/dataset.h"
#include "data/images/image_decode.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/weights/weights.h"
#include "support/failure.h"
#include "support/folder.h"

/* clang-format off */
enum { IDX = 1, SAFETENSORS = 2, TOKENS = 4, IMAGE = 8, GZIP = 16, TEXT = 32, JSON = 64 };

/* What each kind is called, and of which readers it is the own kind. */
static const struct {
    const char *data;
    size_t bytes;
    int is;
    const char *words;
} kinds[] = {
#define KIND(data, is, words) {data, sizeof data - 1, is, words}
    KIND("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 548105171\n", 0,
         "a git-lfs pointer in place of the file itself: run git lfs pull"),
    KIND("<!DOCTYPE html>\n<html><title>404</title>", TEXT, "an HTML page"),
    KIND("\n\n <HTML><body>Access denied", TEXT, "an HTML page"),
    KIND("\xEF\xBB\xBF<html>", TEXT, "an HTML page"),
    KIND("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", TEXT, "an XML document"),
    KIND("Entry not found", TEXT, "text that begins with \"Entry not found\""),
    KIND("label,p0,p1\n5,0,255\n", TEXT, "text that begins with \"label,p0,p1\" ..."),
    KIND("caf\xC3\xA9 \xE4\xBA\xBA", TEXT, "text that begins with \"caf\xC3\xA9 \xE4\xBA\xBA\""),
    KIND("{\"error\": \"Repository not found\"}", TEXT | JSON, "text that begins with \"{\"error\""),
    KIND("PK\3\4\0\0\10\10\0\0archive/data.pkl", 0, "PyTorch's own format (torch.save)"),
    KIND("\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20j\xa8P\x19.", 0, "PyTorch's own format (torch.save)"),
    KIND("\x80\4\x95\x10\0\0\0\0\0\0\0}", 0, "a pickle of Python's"),
    KIND("GGUF\3\0\0\0\x93\0\0\0\0\0\0\0", 0, "a GGUF file"),
    KIND("\x89HDF\r\n\x1a\n\0\0\0\0\0\10\10\0", 0, "an HDF5 file"),
    KIND("\x93NUMPY\1\0v\0{'descr': '<f4'}", 0, "a NumPy array"),
    KIND("\x28\xb5\x2f\xfd\4\0\x99\0\0""abc", 0, "a zstd file"),
    KIND("PAR1\x15\4\x15\x10\x15\x14\0\0", 0, "a Parquet file"),
    KIND("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", 0, "a PDF file"),
    KIND("\x7f" "ELF\2\1\1\0\0\0\0\0\0\0\0\0", 0, "a program"),
    KIND("II*\0\10\0\0\0\0\0\0\0", 0, "a TIFF image"),
    KIND("GIF89a\1\0\1\0\x80\0\0\xff\xff", 0, "a GIF image"),
    KIND("RIFF\x24\0\0\0WEBPVP8 \x18\0\0\0", 0, "a WebP image"),
    KIND("\xff\xfeh\0i\0!\0\n\0a\0b\0", 0, "text in UTF-16"),
    KIND("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", IMAGE, "a PNG image"),
    KIND("\xff\xd8\xff\xe0\0\x10JFIF\0\1\2", IMAGE, "a JPEG image"),
    KIND("\0\0\10\3\0\0\0\1\0\0\0\1\0\0\0\1\7", IDX, "an IDX file"),
    KIND("\0\0\15\1\0\0\0\1\0\0\0\0\0\0\0\0", IDX, "an IDX file"),
    KIND("\x88\xd8\x34\1\1\0\0\0\5\0\0\0\0\0\0\0", TOKENS, "a file of tokens of llm.c's"),
    KIND("\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",", SAFETENSORS, "a safetensors file"),
    KIND("\xde\xad\xbe\xef\0\1\2\3\4\5\6\7\1\2\3\4", TEXT, ""),
#undef KIND
};
/* clang-format on */

enum { KINDS = sizeof kinds / sizeof *kinds };

static cddp_status read_idx(const char *path)
{
    struct cddpi_dataset dataset;

    return cddpi_dataset_open_idx(path, path, 0, NULL, &dataset);
}

static cddp_status read_tokens(const char *path)
{
    char *patterns[] = {(char *)(uintptr_t)path};
    struct cddpi_dataset dataset;

    return cddpi_dataset_open_tokens(patterns, 1, 8, 0, NULL, &dataset);
}

static cddp_status read_text(const char *path)
{
    char *patterns[] = {(char *)(uintptr_t)path};
    struct cddpi_text_options options = {.patterns = patterns, .pattern_count = 1, .context = 2};
    struct cddpi_dataset dataset;
    cddp_status status = cddpi_dataset_open_text(&options, NULL, &dataset, NULL);

    if (status == CDDP_OK) {
        cddpi_dataset_close(&dataset);
    }
    return status;
}

static cddp_status read_vocabulary(const char *path)
{
    struct cddpi_tokenizer *tokenizer;

    return cddpi_tokenizer_open(path, &tokenizer);
}

static cddp_status read_weights(const char *path)
{
    struct cddpi_weights *weights;

    return cddpi_weights_open(path, &weights);
}

static cddp_status read_safetensors(const char *path)
{
    cddp_safetensors *file;

    return cddp_safetensors_open(path, &file);
}

static cddp_status read_image(const char *path)
{
    char data[1024];
    FILE *file = fopen(path, "rb");
    size_t bytes = fread(data, 1, sizeof data, file);
    struct cddpi_image_memory memory = {NULL, 0};
    struct cddpi_image image;
    cddp_status status;

    fclose(file);
    status = cddpi_image_decode(path, (const uint8_t *)data, bytes, &memory, &image);
    cddpi_image_memory_free(&memory);
    return status;
}

static const struct {
    const char *name;
    cddp_status (*read)(const char *path);
    int own; /* kinds whose refusal has words of their own, or that are read */
} readers[] = {{"images.idx", read_idx, IDX},
               {"tokens.bin", read_tokens, TOKENS},
               {"text.txt", read_text, TEXT},
               {"tokenizer.json", read_vocabulary, JSON},
               {"model.safetensors", read_weights, SAFETENSORS | TOKENS},
               {"any.safetensors", read_safetensors, SAFETENSORS},
               {"image.jpg", read_image, IMAGE}};

static void each_reader_says_what_a_foreign_file_is(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t r = 0; r < sizeof readers / sizeof *readers; r++) {
            const char *path = in_folder(readers[r].name);
            int descriptors = support_descriptors();
            cddp_status status;

            support_write_file(path, kinds[k].data, kinds[k].bytes);
            status = readers[r].read(path);
            assert_int_equal(support_descriptors(), descriptors);
            if ((kinds[k].is & readers[r].own) != 0) {
                assert_true(status == CDDP_OK || strstr(cddp_last_error(), path) != NULL);
                continue;
            }
            if (status != CDDP_ERR_FORMAT) {
                fail_msg("%s, kind %zu: status %d", readers[r].name, k, status);
            }
            if (!last_error_has(path) || !last_error_has(kinds[k].words)) {
                fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), kinds[k].words);
            }
        }
    }
}

static void words_about_a_file_can_be_printed(void **state)
{
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    unsigned char data[600];
    unsigned seed = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        size_t bytes = (size_t)i % sizeof data;

        for (size_t b = 0; b < bytes; b++) {
            seed = seed * 1664525u + 1013904223u;
            data[b] = i % 2 == 0
                          ? (unsigned char)(seed >> 24)
                          : (unsigned char)"\x1b[2J\xc2\x9b\n\t a<\xef\xbb\xbf"[(seed >> 16) % 14];
        }
        cddpi_foreign_words(data, bytes, words);
        assert_true(strlen(words) < sizeof words);
        for (const char *c = words; *c != '\0';) {
            size_t length = cddpi_utf8_length(c, strlen(c));

            assert_true(length > 0 && (unsigned char)*c >= 0x20 && *c != 0x7f);
            assert_false(length == 2 && (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] < 0xa0);
            c += length;
        }
    }
}

/* The same words at the beginning of a text are a text about them. */
static void a_text_that_begins_with_a_formats_name_is_a_text(void **state)
{
    static const char *const texts[] = {
        "GGUF is a format", "%PDF begins each",      "BZh", "PAR1", "ustar",
        "GIF89a",           "SQLite format 3 is old"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_null(cddpi_foreign_to_text(texts[i], strlen(texts[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_reader_says_what_a_foreign_file_is),
        cmocka_unit_test(words_about_a_file_can_be_printed),
        cmocka_unit_test(a_text_that_begins_with_a_formats_name_is_a_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
