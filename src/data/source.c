/* source.c - owns the memory of data files: mappings of plain files, sealed memory files or private
 * memory for inflated ones. */
#include "data/source.h"

#include "base/error.h"
#include "data/gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A closed source's descriptor means nothing: those of zeroed memory are closed, too. */
static const struct cddpi_source closed = {NULL, 0, -1};

/* A private mapping that nobody writes shares its pages with everyone; unlike a shared one it is
 * allowed on sealed memory by kernels before 6.7 too. */
static const uint8_t *map_file(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Never waits: a pipe opens at once and is refused then. */
static cddp_status open_plain(const char *path, struct cddpi_source *out)
{
    struct cddpi_source file = closed;
    struct stat info;
    cddp_status status = CDDP_ERR_IO;

    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.fd < 0) {
        return cddpi_fail_errno(errno == ENOENT || errno == ENOTDIR ? CDDP_ERR_NOT_FOUND : status,
                                errno, "%s", path);
    }
    if (fstat(file.fd, &info) != 0) {
        status = cddpi_fail_errno(status, errno, "%s: fstat", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = cddpi_fail(status, "%s: is not a regular file", path);
    } else if (info.st_size == 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: the file is empty", path);
    } else {
        file.bytes = (size_t)info.st_size;
        file.data = map_file(file.fd, file.bytes);
        if (file.data != NULL) {
            *out = file;
            return CDDP_OK;
        }
        status = cddpi_fail_errno(status, errno, "%s: mmap of %zu bytes", path, file.bytes);
    }
    close(file.fd);
    return status;
}

/* After the seals nobody can change what the ranks train on. */
cddp_status cddpi_source_freeze(const char *path, struct cddpi_pages *pages,
                                struct cddpi_source *out)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    struct cddpi_source source = {pages->data, pages->bytes, pages->fd};

    if (pages->fd < 0) {
        if (mprotect(pages->data, pages->bytes, PROT_READ) != 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: mprotect", path);
        }
    } else {
        munmap(pages->data, pages->bytes);
        pages->data = NULL;
        if (fcntl(pages->fd, F_ADD_SEALS, seals) != 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: sealing its contents", path);
        }
        source.data = map_file(pages->fd, pages->bytes);
        if (source.data == NULL) {
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "%s: mmap of %zu bytes", path,
                                    source.bytes);
        }
    }
    *out = source;
    return CDDP_OK;
}

cddp_status cddpi_source_open_plain(const char *path, struct cddpi_source *out)
{
    cddp_status status = open_plain(path, out);

    if (status == CDDP_OK) {
        cddpi_source_close_fd(out);
    }
    return status;
}

cddp_status cddpi_source_open(const char *path, bool shareable, struct cddpi_source *out)
{
    struct cddpi_source file;
    struct cddpi_pages pages;
    cddp_status status = open_plain(path, &file);

    if (status != CDDP_OK) {
        return status;
    }
    if (!cddpi_is_gzip(file.data, file.bytes)) {
        if (!shareable) {
            cddpi_source_close_fd(&file);
        }
        *out = file;
        return CDDP_OK;
    }
    (void)madvise((void *)file.data, file.bytes, MADV_WILLNEED); /* only a wish */
    status = cddpi_gunzip(path, file.data, file.bytes, shareable, &pages);
    cddpi_source_close(&file);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_source_freeze(path, &pages, out);
    if (status != CDDP_OK) {
        cddpi_pages_free(&pages);
    }
    return status;
}

void cddpi_source_close_fd(struct cddpi_source *source)
{
    if (source->data != NULL && source->fd >= 0) {
        close(source->fd);
        source->fd = -1;
    }
}

void cddpi_source_close(struct cddpi_source *source)
{
    cddpi_source_close_fd(source);
    if (source->data != NULL) {
        munmap((void *)source->data, source->bytes);
    }
    *source = closed;
}

void cddpi_source_address(const struct cddpi_source *source, struct cddpi_source_address *out)
{
    struct cddpi_source_address address = {getpid(), -1, 0, 0, source->bytes};
    struct stat info;

    if (source->fd >= 0 && fstat(source->fd, &info) == 0) {
        address.fd = source->fd;
        address.dev = info.st_dev;
        address.inode = info.st_ino;
    }
    *out = address;
}

cddp_status cddpi_source_map(const struct cddpi_source_address *address, struct cddpi_source *out)
{
    struct cddpi_source source = closed;
    struct stat info;
    char path[64];
    int fd;

    if (address->fd < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "process %lld does not share its data",
                          (long long)address->pid);
    }
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)address->pid,
             (long long)address->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno, "%s", path);
    }
    if (fstat(fd, &info) == 0 && info.st_dev == address->dev && info.st_ino == address->inode &&
        (uint64_t)info.st_size == address->bytes) {
        source.bytes = (size_t)address->bytes;
        source.data = map_file(fd, source.bytes);
    }
    close(fd);
    if (source.data == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: is another file here, or no memory to map it",
                          path);
    }
    *out = source;
    return CDDP_OK;
}
