/* output.c - files that are complete or not there. */
#include "data/output.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10 };

static void release(struct cddpi_output *output)
{
    cddpi_free(output->path);
    cddpi_free(output->beside);
    cddpi_free(output->buffer);
    memset(output, 0, sizeof *output);
}

cddp_status cddpi_output_open(const char *path, struct cddpi_output *out)
{
    struct cddpi_output output = {.fd = -1};
    cddp_status status;

    output.path = cddpi_strdup(path);
    output.beside = cddpi_format("%s.%ld.part", path, (long)getpid());
    output.buffer = cddpi_alloc_aligned(BUFFER_BYTES);
    if (output.path == NULL || output.beside == NULL || output.buffer == NULL) {
        release(&output);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %d bytes", path, BUFFER_BYTES);
    }
    output.fd = open(output.beside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (output.fd < 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "create %s", output.beside);
        release(&output);
        return status;
    }
    *out = output;
    return CDDP_OK;
}

static cddp_status write_all(struct cddpi_output *output, const unsigned char *data, size_t bytes,
                             uint64_t offset)
{
    while (bytes > 0) {
        ssize_t written = pwrite(output->fd, data, bytes, (off_t)offset);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, written < 0 ? errno : EIO,
                                    "write %zu bytes at offset %llu of %s", bytes,
                                    (unsigned long long)offset, output->beside);
        }
        data += written;
        bytes -= (size_t)written;
        offset += (uint64_t)written;
    }
    return CDDP_OK;
}

static cddp_status empty_buffer(struct cddpi_output *output)
{
    size_t used = output->used;

    output->used = 0;
    return write_all(output, output->buffer, used, output->bytes - used);
}

cddp_status cddpi_output_put(struct cddpi_output *output, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    while (bytes > 0) {
        size_t taken = BUFFER_BYTES - output->used;

        taken = taken < bytes ? taken : bytes;
        memcpy(output->buffer + output->used, at, taken);
        output->used += taken;
        output->bytes += taken;
        at += taken;
        bytes -= taken;
        if (output->used == BUFFER_BYTES) {
            cddp_status status = empty_buffer(output);

            if (status != CDDP_OK) {
                return status;
            }
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_output_put_head(struct cddpi_output *output, const void *data, size_t bytes)
{
    cddp_status status = empty_buffer(output);

    return status == CDDP_OK ? write_all(output, data, bytes, 0) : status;
}

cddp_status cddpi_output_finish(struct cddpi_output *output, const char *path)
{
    const char *name = path != NULL ? path : output->path;
    cddp_status status = empty_buffer(output);

    if (status == CDDP_OK && fsync(output->fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "flush %s", output->beside);
    }
    if (status == CDDP_OK && rename(output->beside, name) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s to %s", output->beside, name);
    }
    if (status != CDDP_OK) {
        cddpi_output_discard(output);
        return status;
    }
    close(output->fd);
    release(output);
    return CDDP_OK;
}

void cddpi_output_discard(struct cddpi_output *output)
{
    if (output->path == NULL) {
        return;
    }
    close(output->fd);
    (void)unlink(output->beside);
    release(output);
}
