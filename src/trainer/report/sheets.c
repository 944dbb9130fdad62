/* sheets.c - reads sheets of generated images (netpbm files) for the page of a run. The folder is
 * not trusted. */
#include "report/sheets.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHEETS = 6, MOST_FILES = 1 << 16, MOST_SIDE = 4096, MOST_BYTES = 4 << 20 };

struct sheet_file {
    unsigned long long step;
    bool has_colours;
};

/* Whether @p name is that of a sheet: step-00000200.pgm, or .ppm. */
static bool parse_name(const char *name, struct sheet_file *out)
{
    char expected[64];

    if (sscanf(name, "step-%19llu.", &out->step) != 1) {
        return false;
    }
    for (int colours = 0; colours <= 1; colours++) {
        snprintf(expected, sizeof expected, "step-%08llu.%s", out->step, colours ? "ppm" : "pgm");
        if (strcmp(name, expected) == 0) {
            out->has_colours = colours;
            return true;
        }
    }
    return false;
}

static int by_step(const void *a, const void *b)
{
    const struct sheet_file *x = a;
    const struct sheet_file *y = b;

    return (x->step > y->step) - (x->step < y->step);
}

/* List the sheets in @p folder: none if there is no such folder, or it cannot be read. */
static cddp_status list_sheets(const char *folder, struct sheet_file **out, size_t *out_count)
{
    struct sheet_file *files = NULL;
    size_t count = 0;
    size_t room = 0;
    const char *name = NULL;
    DIR *listing = NULL;

    *out_count = 0;
    *out = NULL;
    if (cddpi_folder_open(folder, &listing) != CDDP_OK) {
        return CDDP_OK;
    }
    while (count < MOST_FILES && cddpi_folder_next(listing, folder, &name) == CDDP_OK &&
           name != NULL) {
        struct sheet_file *larger = cddpi_grow(files, &room, count + 1, sizeof *files);

        if (larger == NULL) {
            closedir(listing);
            cddpi_free(files);
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its list", folder);
        }
        files = larger;
        count += parse_name(name, &files[count]) ? 1 : 0;
    }
    closedir(listing);
    if (count > 0) {
        qsort(files, count, sizeof *files, by_step);
    }
    *out = files;
    *out_count = count;
    return CDDP_OK;
}

static char *to_base64(const uint8_t *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = cddpi_zalloc((count + 2) / 3 * 4 + 1);

    for (size_t i = 0; text != NULL && i < count; i += 3) {
        uint32_t bits = (uint32_t)bytes[i] << 16 |
                        (uint32_t)(i + 1 < count ? bytes[i + 1] : 0) << 8 |
                        (uint32_t)(i + 2 < count ? bytes[i + 2] : 0);
        char *to = text + i / 3 * 4;

        to[0] = digits[bits >> 18];
        to[1] = digits[bits >> 12 & 63];
        to[2] = i + 1 < count ? digits[bits >> 6 & 63] : '=';
        to[3] = i + 2 < count ? digits[bits & 63] : '=';
    }
    return text;
}

/* Read the pixels behind the header that cddp-train writes. NULL: the file is not such a sheet. */
static uint8_t *read_pixels(FILE *file, bool has_colours, unsigned *out_width, unsigned *out_height)
{
    size_t channels = has_colours ? 3 : 1;
    uint8_t *pixels;
    char kind;
    size_t bytes;

    if (fscanf(file, "P%c %5u %5u 255", &kind, out_width, out_height) != 3 ||
        kind != (has_colours ? '6' : '5') || fgetc(file) != '\n' || *out_width == 0 ||
        *out_height == 0 || *out_width > MOST_SIDE || *out_height > MOST_SIDE) {
        return NULL;
    }
    bytes = channels * *out_width * *out_height;
    pixels = bytes <= MOST_BYTES ? cddpi_zalloc(bytes) : NULL;
    if (pixels != NULL && fread(pixels, 1, bytes, file) != bytes) {
        cddpi_free(pixels);
        return NULL;
    }
    return pixels;
}

/* Read one sheet. NULL: there is none in that file. */
static json_t *read_sheet(const char *folder, const struct sheet_file *sheet)
{
    char *path = cddpi_format("%s/step-%08llu.%s", folder, sheet->step,
                              sheet->has_colours ? "ppm" : "pgm");
    FILE *file = NULL;
    unsigned width;
    unsigned height;
    uint8_t *pixels = NULL;
    char *text = NULL;
    json_t *object = NULL;

    if (path != NULL && cddpi_file_stream(path, "r", &file) == CDDP_OK) {
        pixels = read_pixels(file, sheet->has_colours, &width, &height);
    }
    if (pixels != NULL) {
        int channels = sheet->has_colours ? 3 : 1;

        text = to_base64(pixels, (size_t)channels * width * height);
        object = text != NULL ? json_pack("{s:I, s:i, s:i, s:i, s:s}", "step",
                                          (json_int_t)sheet->step, "width", (int)width, "height",
                                          (int)height, "channels", channels, "pixels", text)
                              : NULL;
    }
    cddpi_free(text);
    cddpi_free(pixels);
    cddpi_stream_close(file);
    cddpi_free(path);
    return object;
}

cddp_status cddpi_sheets_read(const char *dir, json_t *run)
{
    char *folder = cddpi_format("%s/images", dir);
    struct sheet_file *files = NULL;
    json_t *sheets = json_array();
    size_t count = 0;
    cddp_status status;

    if (folder == NULL || json_object_set_new(run, "sheets", sheets) != 0) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its images", dir);
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, list_sheets(folder, &files, &count));
    for (size_t i = 0, shown = count < MOST_SHEETS ? count : MOST_SHEETS; i < shown; i++) {
        size_t at = shown > 1 ? i * (count - 1) / (shown - 1) : count - 1;
        json_t *sheet = read_sheet(folder, &files[at]);

        if (sheet != NULL) {
            (void)json_array_append_new(sheets, sheet);
        }
    }

out:
    cddpi_free(files);
    cddpi_free(folder);
    return status;
}
