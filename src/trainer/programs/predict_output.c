/* predict_output.c - the file of cddp-train --predict --output: NumPy's .npy or CSV, by its name.
 */
#include "programs/predict_output.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Magic number, version and length, then a line of text; its length is a multiple of 64. */
enum { HEAD_BYTES = 128, HEAD_TEXT = 10 };

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FLOAT_TYPE "<f4"
#else
#define FLOAT_TYPE ">f4"
#endif

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path);

    return length > strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

cddp_status cddpi_predict_output_check(const char *path)
{
    return ends_with(path, ".npy") || ends_with(path, ".csv")
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT,
                            "--output %s: the name must end in .npy or .csv, which says what is "
                            "written",
                            path);
}

/* The head of a .npy file, format 1.0, of a matrix of f32 in C order. */
static void fill_head(const struct cddpi_predict_output *output, char head[HEAD_BYTES])
{
    int used;

    memset(head, ' ', HEAD_BYTES);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = HEAD_BYTES - HEAD_TEXT; /* 16 bits, little-endian */
    head[9] = 0;
    used = snprintf(head + HEAD_TEXT, HEAD_BYTES - HEAD_TEXT,
                    "{'descr': '" FLOAT_TYPE "', 'fortran_order': False, 'shape': (%llu, %d), }",
                    (unsigned long long)output->rows, output->columns);
    head[HEAD_TEXT + used] = ' '; /* where snprintf put its NUL */
    head[HEAD_BYTES - 1] = '\n';
}

cddp_status cddpi_predict_output_open(const char *path, int columns, bool has_class,
                                      struct cddpi_predict_output *out)
{
    const char *names = has_class ? "sample,class" : "sample";
    struct cddpi_predict_output output = {.is_csv = ends_with(path, ".csv"), .columns = columns};
    char head[HEAD_BYTES];
    cddp_status status;

    CDDPI_TRY(cddpi_predict_output_check(path));
    CDDPI_TRY(cddpi_replacement_open(path, &output.file));
    fill_head(&output, head);
    status = output.is_csv ? cddpi_writer_put(&output.file.writer, names, strlen(names))
                           : cddpi_writer_put(&output.file.writer, head, sizeof head);
    if (status != CDDP_OK) {
        cddpi_replacement_discard(&output.file);
        return status;
    }
    *out = output;
    return CDDP_OK;
}

static cddp_status put_text(struct cddpi_predict_output *output, const char *text)
{
    return cddpi_writer_put(&output->file.writer, text, strlen(text));
}

/* A field of a CSV file, in quotes where it must be (RFC 4180). */
static cddp_status put_field(struct cddpi_predict_output *output, const char *text)
{
    if (text[strcspn(text, ",\"\r\n")] == '\0') {
        return put_text(output, text);
    }
    CDDPI_TRY(put_text(output, "\""));
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            CDDPI_TRY(put_text(output, "\""));
        }
        CDDPI_TRY(cddpi_writer_put(&output->file.writer, text, 1));
    }
    return put_text(output, "\"");
}

cddp_status cddpi_predict_output_column(struct cddpi_predict_output *output, const char *name)
{
    if (!output->is_csv) {
        return CDDP_OK;
    }
    CDDPI_TRY(put_text(output, ","));
    return put_field(output, name);
}

cddp_status cddpi_predict_output_row(struct cddpi_predict_output *output, const char *sample,
                                     const char *class_name, const float *values)
{
    output->rows++;
    if (!output->is_csv) {
        return cddpi_writer_put(&output->file.writer, values,
                                (size_t)output->columns * sizeof *values);
    }
    CDDPI_TRY(put_text(output, "\n"));
    CDDPI_TRY(put_field(output, sample));
    if (class_name != NULL) {
        CDDPI_TRY(put_text(output, ","));
        CDDPI_TRY(put_field(output, class_name));
    }
    for (int c = 0; c < output->columns; c++) {
        char text[32];

        snprintf(text, sizeof text, ",%.9g", (double)values[c]); /* reads back as the same f32 */
        CDDPI_TRY(put_text(output, text));
    }
    return CDDP_OK;
}

cddp_status cddpi_predict_output_finish(struct cddpi_predict_output *output, cddp_status status)
{
    char head[HEAD_BYTES];

    if (status == CDDP_OK && output->is_csv) {
        status = put_text(output, "\n");
    } else if (status == CDDP_OK) {
        fill_head(output, head);
        status = cddpi_writer_put_head(&output->file.writer, head, sizeof head);
    }
    if (status != CDDP_OK) {
        cddpi_replacement_discard(&output->file);
        return status;
    }
    return cddpi_replacement_finish(&output->file, NULL);
}
