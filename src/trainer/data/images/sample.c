/* sample.c - owns the path of a sample from its file to floats. */
#include "data/images/sample.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

static cddp_status read_file(const char *path, struct cddpi_image_memory *memory, size_t *out_bytes)
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
    size_t bytes = cddpi_image_resize_bytes(&view);

    if (cddpi_image_memory_reserve(&scratch->resizing, bytes) == NULL ||
        cddpi_image_memory_reserve(&scratch->window, (size_t)use->size * (size_t)use->size *
                                                         CDDPI_IMAGE_RGB) == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes to resize it", path,
                          bytes);
    }
    cddpi_image_resize(image->pixels, image->width, &view, scratch->resizing.data,
                       scratch->window.data);
    *out_flip = flip && use->flip;
    return CDDP_OK;
}

static cddp_status make_pixels(const char *path, const struct cddpi_image_use *use,
                               struct cddpi_view_key key, const float tables[][256],
                               struct cddpi_image_scratch *scratch, float *out)
{
    struct cddpi_image image;
    size_t bytes = 0;
    bool flip = false;

    CDDPI_TRY(read_file(path, &scratch->file, &bytes));
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

    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", name);
    }
    status = make_pixels(path, use, key, tables, scratch, out);
    cddpi_free(path);
    return status;
}
