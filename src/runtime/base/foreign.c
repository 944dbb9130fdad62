/* foreign.c - owns the list of file formats that users confuse with ours. It is consulted only
 * after a file has turned out not to have the expected format. */
#include "base/foreign.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SHOWN_TEXT = 40 };

#define PICKLE                                                                                     \
    "PyTorch's own format (torch.save), which can run programs when it is read, so cddp does not " \
    "read it: write safetensors from Python"

/* Formats that are recognised by these bytes at this offset. */
static const struct {
    size_t at;
    const char *magic;
    size_t bytes;
    const char *words;
} kinds[] = {
#define MAGIC(at, magic, words)                                                                    \
    {                                                                                              \
        at, magic, sizeof(magic) - 1, words                                                        \
    }
    MAGIC(0, "PK\003\004", "a zip archive: an archive to unpack, or " PICKLE),
    MAGIC(0, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", PICKLE),
    MAGIC(0, "\x80\002", "a pickle of Python's, perhaps " PICKLE),
    MAGIC(0, "\x80\003", "a pickle of Python's, perhaps " PICKLE),
    MAGIC(0, "\x80\004", "a pickle of Python's, perhaps " PICKLE),
    MAGIC(0, "\x80\005", "a pickle of Python's, perhaps " PICKLE),
    MAGIC(0, "GGUF", "a GGUF file, which llama.cpp reads: take the model's safetensors"),
    MAGIC(0, "ggjt", "a GGML file, which llama.cpp reads: take the model's safetensors"),
    MAGIC(0, "tjgg", "a GGML file, which llama.cpp reads: take the model's safetensors"),
    MAGIC(0, "lmgg", "a GGML file, which llama.cpp reads: take the model's safetensors"),
    MAGIC(0, "\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes it: take the model's safetensors"),
    MAGIC(0, "\x93NUMPY", "a NumPy array (.npy)"),
    MAGIC(0, "\x1f\x8b", "a gzip file: gunzip it"),
    MAGIC(0, "\x28\xb5\x2f\xfd", "a zstd file: unzstd it"),
    MAGIC(0,
          "\xfd"
          "7zXZ\0",
          "an xz file: unxz it"),
    MAGIC(0, "BZh", "a bzip2 file: bunzip2 it"),
    MAGIC(0, "7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it"),
    MAGIC(0, "Rar!\x1a\x07", "a RAR archive: unpack it"),
    MAGIC(257, "ustar", "a tar archive: unpack it"),
    MAGIC(0, "%PDF", "a PDF file"),
    MAGIC(0,
          "\x7f"
          "ELF",
          "a program or a library"),
    MAGIC(0, "PAR1", "a Parquet file"),
    MAGIC(0, "ARROW1", "an Arrow file"),
    MAGIC(0, "SQLite format 3", "an SQLite database"),
    MAGIC(0, "\x89PNG\r\n\x1a\n", "a PNG image"),
    MAGIC(0, "\xff\xd8\xff", "a JPEG image"),
    MAGIC(0, "GIF8", "a GIF image"),
    MAGIC(8, "WEBP", "a WebP image"),
    MAGIC(0, "II*\0", "a TIFF image"),
    MAGIC(0, "MM\0*", "a TIFF image"),
    MAGIC(4, "ftypavif", "an AVIF image"),
    MAGIC(4, "ftyphei", "a HEIC image"),
    MAGIC(0, "\xff\xfe", "text in UTF-16: save it as UTF-8"),
    MAGIC(0, "\xfe\xff", "text in UTF-16: save it as UTF-8"),
#undef MAGIC
};

/* llm.c's files begin with a little-endian number. */
static const struct {
    uint32_t magic;
    const char *words;
} numbers[] = {
    {20240326, "a model of llm.c's"},
    {20240520, "a file of tokens of llm.c's"},
    {20240801, "a file of tokens of llm.c's"},
    {20240328, "a tokenizer of llm.c's"},
};

/* Skip a byte order mark and leading white space. */
static const unsigned char *skip_space(const unsigned char *data, size_t *bytes)
{
    size_t at = cddpi_utf8_mark((const char *)data, *bytes);

    while (at < *bytes && data[at] != '\0' && strchr(" \t\r\n", data[at]) != NULL) {
        at++;
    }
    *bytes -= at;
    return data + at;
}

/* HTML and XML, whose tags may be in either case. */
static const char *markup(const unsigned char *data, size_t bytes)
{
    static const struct {
        const char *begin, *words;
    } tags[] = {{"<!doctype html", "an HTML page, as a failed download leaves it: look into it"},
                {"<html", "an HTML page, as a failed download leaves it: look into it"},
                {"<head", "an HTML page, as a failed download leaves it: look into it"},
                {"<body", "an HTML page, as a failed download leaves it: look into it"},
                {"<?xml", "an XML document, as a failed download leaves it: look into it"}};
    const unsigned char *at = skip_space(data, &bytes);

    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        size_t length = strlen(tags[i].begin);

        if (bytes >= length && strncasecmp((const char *)at, tags[i].begin, length) == 0) {
            return tags[i].words;
        }
    }
    return NULL;
}

static const char *binary(const unsigned char *data, size_t bytes)
{
    uint32_t number = 0; /* at the beginning; none of them is 0 */

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (bytes >= kinds[i].at + kinds[i].bytes &&
            memcmp(data + kinds[i].at, kinds[i].magic, kinds[i].bytes) == 0) {
            return kinds[i].words;
        }
    }
    if (bytes >= 4) {
        number = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                 (uint32_t)data[3] << 24;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (number == numbers[i].magic) {
            return numbers[i].words;
        }
    }
    if (bytes >= 4 && data[0] == 0 && data[1] == 0 && data[2] >= 0x08 && data[2] <= 0x0e &&
        data[3] >= 1 && data[3] <= 4) {
        return "an IDX file";
    }
    if (bytes >= 9 && data[8] == '{' && data[4] == 0 && data[5] == 0 && data[6] == 0 &&
        data[7] == 0) {
        return "a safetensors file";
    }
    return NULL;
}

static bool is_control(const unsigned char *at, size_t length)
{
    return at[0] < 0x20 || at[0] == 0x7f || (length == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

/* Whether the data is UTF-8 without control characters that no text contains. Only the beginning of
 * the file is here, which may end in the middle of a character. */
static bool is_text(const unsigned char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t length = cddpi_utf8_length((const char *)data + at, bytes - at);

        if (length == 0) {
            return bytes == CDDPI_FOREIGN_LOOKED_AT && bytes - at < 4;
        }
        if (is_control(data + at, length) &&
            (data[at] == '\0' || strchr("\t\r\n\f", data[at]) == NULL)) {
            return false;
        }
        at += length;
    }
    return true;
}

/* How many bytes of the text can be shown: its first line, up to SHOWN_TEXT bytes. */
static size_t first_line(const unsigned char *text, size_t bytes)
{
    size_t shown = 0;

    while (shown < bytes) {
        size_t length = cddpi_utf8_length((const char *)text + shown, bytes - shown);

        if (length == 0 || shown + length > SHOWN_TEXT || is_control(text + shown, length)) {
            break;
        }
        shown += length;
    }
    return shown;
}

const char *cddpi_foreign_to_text(const void *data, size_t bytes)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    const unsigned char *in = data;
    size_t looked_at = bytes < CDDPI_FOREIGN_LOOKED_AT ? bytes : CDDPI_FOREIGN_LOOKED_AT;

    if (looked_at >= sizeof pointer - 1 && memcmp(in, pointer, sizeof pointer - 1) == 0) {
        return "a git-lfs pointer in place of the file itself: run git lfs pull there";
    }
    return is_text(in, looked_at) ? NULL : binary(in, looked_at);
}

const char *cddpi_foreign_words(const void *data, size_t bytes,
                                char buffer[CDDPI_FOREIGN_WORDS_BYTES])
{
    const unsigned char *in = data;
    size_t looked_at = bytes < CDDPI_FOREIGN_LOOKED_AT ? bytes : CDDPI_FOREIGN_LOOKED_AT;
    const char *known = cddpi_foreign_to_text(data, bytes);
    size_t left = looked_at;
    const unsigned char *text = skip_space(in, &left);
    size_t shown = first_line(text, left);

    known = known != NULL ? known : markup(in, looked_at);
    if (known != NULL) {
        snprintf(buffer, CDDPI_FOREIGN_WORDS_BYTES, ": it is %s", known);
    } else if (shown > 0 && is_text(in, looked_at)) {
        snprintf(buffer, CDDPI_FOREIGN_WORDS_BYTES, ": it is text that begins with \"%.*s\"%s",
                 (int)shown, (const char *)text, shown < left ? " ..." : "");
    } else {
        buffer[0] = '\0';
    }
    return buffer;
}
