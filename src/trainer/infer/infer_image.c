/* infer_image.c - makes a sample of a model's images from a file. */
#include "infer/infer.h"

#include <errno.h>

/* The part of @p image that the model sees: as in evaluations of folders; of other data all,
 * resized to the model's size. */
static struct cddpi_image_view view_of(const struct cddp_model *model,
                                       const struct cddpi_image *image)
{
    const struct cddpi_dataset *data = &model->data;

    if (model->config->data.type == CDDPI_DATA_IMAGE_FOLDER) {
        return cddpi_view_of_center(image->width, image->height, model->maker.use.resize,
                                    model->maker.use.size);
    }
    return (struct cddpi_image_view){.width = image->width,
                                     .height = image->height,
                                     .whole_width = data->width,
                                     .whole_height = data->height,
                                     .window_width = data->width,
                                     .window_height = data->height};
}

/* Brightness as Pillow's convert("L") weights it. */
static uint8_t brightness(const uint8_t *pixel)
{
    return (uint8_t)((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
}

static void to_planes(const struct cddpi_dataset *data, const uint8_t *pixels, uint8_t *out)
{
    size_t plane = (size_t)data->width * (size_t)data->height;

    for (size_t i = 0; i < plane; i++) {
        if (data->channels == 1) {
            out[i] = brightness(pixels + CDDPI_IMAGE_RGB * i);
            continue;
        }
        for (size_t c = 0; c < CDDPI_IMAGE_RGB; c++) {
            out[c * plane + i] = pixels[CDDPI_IMAGE_RGB * i + c];
        }
    }
}

static cddp_status read_file(const char *path, struct cddpi_image_memory *memory, size_t *out_bytes)
{
    cddp_status status = cddpi_image_read_file(path, memory, out_bytes);
    struct cddpi_failure failure = *cddpi_last_failure();

    return status == CDDP_ERR_IO && failure.error_number == ENOENT
               ? cddpi_fail_again(CDDP_ERR_NOT_FOUND, &failure)
               : status;
}

cddp_status cddp_model_read_image(cddp_model *model, const char *path, uint8_t *out, size_t bytes)
{
    struct cddpi_image image;
    struct cddpi_image_view view;
    size_t read = 0;

    CDDPI_ENTER(&model->handle, cddpi_infer_enter(model, "model_read_image"));
    if (path == NULL || out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model_read_image: %s is NULL",
                          path == NULL ? "path" : "out");
    }
    if (model->kind != CDDPI_INFER_IMAGES ||
        (model->data.channels != 1 && model->data.channels != CDDPI_IMAGE_RGB)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "model_read_image: the model takes no images of 1 or 3 channels");
    }
    if (bytes != model->sample_elements) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_read_image: room for %zu bytes, but an image has %zu", bytes,
                          model->sample_elements);
    }
    CDDPI_TRY(read_file(path, &model->scratch.file, &read));
    CDDPI_TRY(
        cddpi_image_decode(path, model->scratch.file.data, read, &model->scratch.pixels, &image));
    view = view_of(model, &image);
    CDDPI_TRY(cddpi_image_cut(path, &image, &view, &model->scratch));
    to_planes(&model->data, model->scratch.window.data, out);
    return CDDP_OK;
}
