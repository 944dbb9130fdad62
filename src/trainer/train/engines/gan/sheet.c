/* sheet.c - owns the sheets of generated images: the same latent vectors after every evaluation, as
 * a netpbm file, which programs read easily, and as a PNG file, which browsers show. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/replace.h"
#include "group/group_info.h"
#include "train/engines/gan/gan_state.h"
#include "train/engines/gan/sheet_png.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = CDDPI_GAN_SHEET_SIDE * CDDPI_GAN_SHEET_SIDE, GAP = 1 /* pixel between images */ };

/* Undo the normalisation: convert a generated value to a pixel value of the data. */
static uint8_t pixel_of(const struct cddpi_config *config, size_t channel, float value)
{
    const struct cddpi_real_list *mean = &config->data.mean;
    const struct cddpi_real_list *std = &config->data.std;
    double pixel = 255 * (value * std->values[std->count > 1 ? channel : 0] +
                          mean->values[mean->count > 1 ? channel : 0]);

    return (uint8_t)(pixel < 0 ? 0 : pixel > 255 ? 255 : pixel + 0.5);
}

struct sheet {
    const struct cddpi_trainer *trainer;
    const float *images;
    size_t channels, shown; /* of an image; of the file: 1 or 3 */
    size_t side;            /* of an image, in pixels */
    size_t width;           /* and height of the sheet */
    uint8_t *pixels;        /* of the sheet */
};

static void fill_image(const struct sheet *sheet, size_t number)
{
    size_t area = sheet->side * sheet->side;
    const float *image = sheet->images + number * sheet->channels * area;
    size_t top = number / CDDPI_GAN_SHEET_SIDE * (sheet->side + GAP) + GAP;
    size_t left = number % CDDPI_GAN_SHEET_SIDE * (sheet->side + GAP) + GAP;

    for (size_t y = 0; y < sheet->side; y++) {
        for (size_t x = 0; x < sheet->side; x++) {
            for (size_t c = 0; c < sheet->shown; c++) {
                sheet->pixels[((top + y) * sheet->width + left + x) * sheet->shown + c] = pixel_of(
                    sheet->trainer->config, c, image[c * area + y * sheet->side + x]);
            }
        }
    }
}

static cddp_status put_netpbm(void *context, struct cddpi_writer *writer)
{
    const struct sheet *sheet = context;
    char header[64];

    snprintf(header, sizeof header, "P%c\n%zu %zu\n255\n", sheet->shown == 3 ? '6' : '5',
             sheet->width, sheet->width);
    CDDPI_TRY(cddpi_writer_put(writer, header, strlen(header)));
    return cddpi_writer_put(writer, sheet->pixels, sheet->width * sheet->width * sheet->shown);
}

static cddp_status put_png(void *context, struct cddpi_writer *writer)
{
    const struct sheet *sheet = context;

    return cddpi_sheet_put_png(writer, sheet->pixels, sheet->width, sheet->width, sheet->shown);
}

static cddp_status write_file(struct sheet *sheet, const char *folder, const char *ending,
                              cddpi_file_put_fn put)
{
    char *path = cddpi_format("%s/step-%08llu.%s", folder,
                              (unsigned long long)sheet->trainer->cursor.step, ending);
    cddp_status status;

    CDDPI_TRY_MEMORY(path != NULL, "%s: no memory", folder);
    status = cddpi_file_replace(path, put, sheet);
    cddpi_free(path);
    return status;
}

static cddp_status write_files(const struct cddpi_trainer *trainer, const float *images,
                               const char *folder)
{
    const struct cddpi_dataset *data = &trainer->data.train.data;
    struct sheet sheet = {.trainer = trainer,
                          .images = images,
                          .channels = (size_t)data->channels,
                          .shown = data->channels == 3 ? 3 : 1,
                          .side = (size_t)data->height};
    cddp_status status;

    sheet.width = CDDPI_GAN_SHEET_SIDE * (sheet.side + GAP) + GAP;
    sheet.pixels = cddpi_zalloc(sheet.width * sheet.width * sheet.shown);
    CDDPI_TRY_MEMORY(sheet.pixels != NULL, "no memory for %zu pixels of images",
                     sheet.width * sheet.width);
    for (size_t n = 0; n < COUNT; n++) {
        fill_image(&sheet, n);
    }
    CDDPI_TRY_GOTO(end, status, cddpi_folder_make(folder));
    CDDPI_TRY_GOTO(end, status,
                   write_file(&sheet, folder, sheet.shown == 3 ? "ppm" : "pgm", put_netpbm));
    status = write_file(&sheet, folder, "png", put_png);
end:
    cddpi_free(sheet.pixels);
    return status;
}

/* Generate the images and copy them to host memory. */
static cddp_status generate_images(struct cddpi_trainer *trainer, size_t bytes, float *out)
{
    const struct cddpi_device_ops *ops = trainer->device->ops;
    uint32_t timeout_ms = cddpi_group_timeout_ms(trainer->group);
    struct cddpi_batch batch = {.count = COUNT};

    CDDPI_TRY(cddpi_gan_draw(trainer, CDDPI_RANDOM_SHEET, 0, cddpi_gan_of(trainer)->ids, COUNT));
    CDDPI_TRY(cddpi_gan_forward(trainer, &batch, false));
    /* A copy to unpinned memory has no deadline. */
    CDDPI_TRY(ops->finish(trainer->device, timeout_ms));
    CDDPI_TRY(
        ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, out, cddpi_gan_of(trainer)->fake, bytes));
    return ops->finish(trainer->device, timeout_ms);
}

cddp_status cddpi_gan_write_sheet(struct cddpi_trainer *trainer)
{
    size_t bytes = COUNT * cddpi_gan_of(trainer)->image * sizeof(float);
    float *images;
    char *folder;
    cddp_status status;

    if (trainer->rank != 0) {
        return CDDP_OK;
    }
    images = cddpi_alloc_aligned(bytes);
    status = images != NULL ? generate_images(trainer, bytes, images)
                            : cddpi_fail(CDDP_ERR_NO_MEMORY,
                                         "trainer: no memory for %zu bytes of images", bytes);
    folder = cddpi_format("%s/images", cddpi_trainer_run_dir(trainer));
    if (status == CDDP_OK && (folder == NULL || write_files(trainer, images, folder) != CDDP_OK)) {
        cddpi_trainer_warn(trainer, "no generated images: %s; training goes on",
                           folder != NULL ? cddp_last_error() : "no memory");
    }
    cddpi_free(folder);
    cddpi_free(images);
    return status;
}
