/* sample.c - owns the path of a sample from its file to floats, and the choice of the part of an
 * image for training or evaluation. */
#include "data/images/sample.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10 };

/* A sample's Philox counter: the upper bits say what is drawn, the lower bits are the sample. */
static void draw(struct cddpi_view_key key, uint64_t use, uint32_t out[4])
{
    struct cddpi_philox stream = cddpi_philox_stream(key.seed, CDDPI_RANDOM_AUGMENT,
                                                     (uint32_t)(key.epoch ^ key.epoch >> 32));

    cddpi_philox4(&stream, key.sample | use << 56, out);
}

static double between(uint32_t word, double low, double high)
{
    return low + (high - low) * (word / 4294967296.0);
}

static int below(uint32_t word, int limit)
{
    return (int)((uint64_t)word * (uint32_t)limit >> 32);
}

/* The largest centred part whose aspect ratio is allowed. */
static void middle(const double ratios[2], struct cddpi_image_view *view, int width, int height)
{
    double ratio = (double)width / height;

    view->width = width;
    view->height = height;
    if (ratio < ratios[0]) {
        view->height = (int)rint(width / ratios[0]);
    } else if (ratio > ratios[1]) {
        view->width = (int)rint(height * ratios[1]);
    }
    view->left = (width - view->width) / 2;
    view->top = (height - view->height) / 2;
}

struct cddpi_image_view cddpi_view_at_random(struct cddpi_view_key key, int width, int height,
                                             int size, const double area[2], bool *out_flip)
{
    static const double ratios[2] = {3.0 / 4, 4.0 / 3};
    struct cddpi_image_view view = {
        .whole_width = size, .whole_height = size, .window_width = size, .window_height = size};
    uint32_t random[4];

    draw(key, TRIES, random);
    *out_flip = random[0] >> 31;
    for (uint64_t i = 0; i < TRIES; i++) {
        double pixels, ratio;

        draw(key, i, random);
        pixels = (double)width * height * between(random[0], area[0], area[1]);
        ratio = exp(between(random[1], log(ratios[0]), log(ratios[1])));
        view.width = (int)rint(sqrt(pixels * ratio));
        view.height = (int)rint(sqrt(pixels / ratio));
        if (view.width > 0 && view.width <= width && view.height > 0 && view.height <= height) {
            view.left = below(random[2], width - view.width + 1);
            view.top = below(random[3], height - view.height + 1);
            return view;
        }
    }
    middle(ratios, &view, width, height);
    return view;
}

struct cddpi_image_view cddpi_view_of_center(int width, int height, int resize, int size)
{
    struct cddpi_image_view view = {.width = width,
                                    .height = height,
                                    .whole_width = resize,
                                    .whole_height = resize,
                                    .window_width = size,
                                    .window_height = size};

    if (width < height) {
        view.whole_height = (int)((double)resize * height / width);
    } else {
        view.whole_width = (int)((double)resize * width / height);
    }
    view.window_left = (int)rint((view.whole_width - size) / 2.0);
    view.window_top = (int)rint((view.whole_height - size) / 2.0);
    return view;
}

void cddpi_image_scratch_free(struct cddpi_image_scratch *scratch)
{
    cddpi_image_memory_free(&scratch->file);
    cddpi_image_memory_free(&scratch->pixels);
    cddpi_image_memory_free(&scratch->resizing);
    cddpi_image_memory_free(&scratch->window);
}

static cddp_status read_all(const char *path, int fd, size_t bytes, uint8_t *out)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = read(fd, out + done, bytes - done);

        if (got < 0 && errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: reading at byte %zu", path, done);
        }
        if (got == 0) {
            return cddpi_fail(CDDP_ERR_IO,
                              "%s: the file was cut off while it was read: it has %zu "
                              "bytes of %zu",
                              path, done, bytes);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return CDDP_OK;
}

static cddp_status read_open(const char *path, int fd, struct cddpi_image_memory *memory,
                             size_t *out_bytes)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", path);
    }
    if (info.st_size > CDDPI_IMAGE_MOST_FILE_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: the file has %lld bytes, but at most %d are read",
                          path, (long long)info.st_size, CDDPI_IMAGE_MOST_FILE_BYTES);
    }
    if (cddpi_image_memory_reserve(memory, (size_t)info.st_size + 1) == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its %lld bytes", path,
                          (long long)info.st_size);
    }
    CDDPI_TRY(read_all(path, fd, (size_t)info.st_size, memory->data));
    *out_bytes = (size_t)info.st_size;
    return CDDP_OK;
}

cddp_status cddpi_image_read_file(const char *path, struct cddpi_image_memory *memory,
                                  size_t *out_bytes)
{
    int fd = -1;
    cddp_status status = cddpi_file_open_regular(path, O_RDONLY | O_CLOEXEC, 0, &fd);

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s", path);
    }
    status = read_open(path, fd, memory, out_bytes);
    close(fd);
    return status;
}

cddp_status cddpi_image_cut(const char *path, const struct cddpi_image *image,
                            const struct cddpi_image_view *view,
                            struct cddpi_image_scratch *scratch)
{
    size_t bytes = cddpi_image_resize_bytes(view);
    size_t pixels = (size_t)view->window_width * (size_t)view->window_height;

    if (cddpi_image_memory_reserve(&scratch->resizing, bytes) == NULL ||
        cddpi_image_memory_reserve(&scratch->window, pixels * CDDPI_IMAGE_RGB) == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes to resize it", path,
                          bytes);
    }
    cddpi_image_resize(image->pixels, image->width, view, scratch->resizing.data,
                       scratch->window.data);
    return CDDP_OK;
}

/* Copy the part of @p image that becomes the sample to scratch->window. */
static cddp_status cut_out(const char *path, const struct cddpi_image *image,
                           const struct cddpi_image_use *use, struct cddpi_view_key key,
                           struct cddpi_image_scratch *scratch, bool *out_flip)
{
    bool flip = false;
    struct cddpi_image_view view =
        use->random
            ? cddpi_view_at_random(key, image->width, image->height, use->size, use->area, &flip)
            : cddpi_view_of_center(image->width, image->height, use->resize, use->size);

    *out_flip = flip && use->flip;
    return cddpi_image_cut(path, image, &view, scratch);
}

static cddp_status make_pixels(const char *path, const struct cddpi_image_use *use,
                               struct cddpi_view_key key, const float tables[][256],
                               struct cddpi_image_scratch *scratch, float *out)
{
    struct cddpi_image image;
    size_t bytes = 0;
    bool flip = false;

    CDDPI_TRY(cddpi_image_read_file(path, &scratch->file, &bytes));
    CDDPI_TRY(cddpi_image_decode(path, scratch->file.data, bytes, &scratch->pixels, &image));
    CDDPI_TRY(cut_out(path, &image, use, key, scratch, &flip));
    cddpi_image_to_planes(scratch->window.data, use->size, use->size, flip, tables, out);
    return CDDP_OK;
}

cddp_status cddpi_image_sample(const struct cddpi_image_files *files,
                               const struct cddpi_image_use *use, struct cddpi_view_key key,
                               const float tables[][256], struct cddpi_image_scratch *scratch,
                               float *out)
{
    const char *name = files->names + files->offsets[key.sample];
    char *path = cddpi_format("%s/%s", files->root, name);
    cddp_status status;

    CDDPI_TRY_MEMORY(path != NULL, "%s: no memory", name);
    status = make_pixels(path, use, key, tables, scratch, out);
    cddpi_free(path);
    return status;
}
