/* data_file.c - owns the memory of data files: mappings of plain files; for inflated ones, sealed
 * memory files or private memory, which grow by remapping while they are written. */
#include "data/files/data_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void cddpi_growable_mapping_free(struct cddpi_growable_mapping *mapping)
{
    if (mapping->data != NULL) {
        munmap(mapping->data, mapping->bytes);
    }
    cddpi_fd_close(&mapping->fd);
    mapping->data = NULL;
    mapping->fd = -1;
}

static cddp_status no_mapping(const char *path, size_t bytes)
{
    return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                            "%s: no memory for %zu bytes of its contents", path, bytes);
}

cddp_status cddpi_growable_mapping_create(const char *path, size_t bytes, bool shareable,
                                          struct cddpi_growable_mapping *out)
{
    struct cddpi_growable_mapping mapping = {NULL, bytes, -1};
    void *memory;

    if (shareable) {
        mapping.fd = memfd_create("cddp-data", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* else private */
    }
    if (mapping.fd >= 0 && cddpi_file_resize(mapping.fd, bytes) != 0) {
        goto fail;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  mapping.fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  mapping.fd, 0);
    if (memory == MAP_FAILED) {
        goto fail;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* only a hint */
    mapping.data = memory;
    *out = mapping;
    return CDDP_OK;

fail:
    (void)no_mapping(path, bytes);
    cddpi_growable_mapping_free(&mapping);
    return CDDP_ERR_NO_MEMORY;
}

cddp_status cddpi_growable_mapping_resize(const char *path, size_t bytes,
                                          struct cddpi_growable_mapping *mapping)
{
    void *memory;

    if (bytes == mapping->bytes) {
        return CDDP_OK;
    }
    if (mapping->fd >= 0 && cddpi_file_resize(mapping->fd, bytes) != 0) {
        return no_mapping(path, bytes);
    }
    memory = mremap(mapping->data, mapping->bytes, bytes, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) {
        return no_mapping(path, bytes);
    }
    mapping->data = memory;
    mapping->bytes = bytes;
    return CDDP_OK;
}

static const struct cddpi_data_file closed = CDDPI_DATA_FILE_CLOSED;

/* @param shared  The descriptor that other processes may map; -1: none. */
static cddp_status map_file(int fd, const char *path, const struct stat *info, int shared,
                            struct cddpi_data_file *out)
{
    struct cddpi_mapped_file *file;

    CDDPI_TRY(cddpi_mapped_file_open(fd, path, info, &file));
    *out = (struct cddpi_data_file){cddpi_mapped_file_data(file), (size_t)info->st_size, file,
                                    shared};
    return CDDP_OK;
}

/* Opening never blocks: a pipe opens at once, and is then refused. */
static cddp_status open_plain(const char *path, struct cddpi_data_file *out)
{
    int fd = cddpi_file_open_read(path);
    struct stat info;
    cddp_status status = CDDP_ERR_IO;

    if (fd < 0) {
        return cddpi_fail_errno(errno == ENOENT || errno == ENOTDIR ? CDDP_ERR_NOT_FOUND : status,
                                errno, "%s", path);
    }
    if (fstat(fd, &info) != 0) {
        status = cddpi_fail_errno(status, errno, "%s: reading its size", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = cddpi_fail(status, "%s: it is not a regular file", path);
    } else if (info.st_size == 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: the file is empty", path);
    } else {
        status = map_file(fd, path, &info, fd, out);
    }
    if (status != CDDP_OK) {
        close(fd);
    }
    return status;
}

/* After the seals, no process can change the data that ranks train on. */
cddp_status cddpi_data_file_freeze(const char *path, struct cddpi_growable_mapping *mapping,
                                   struct cddpi_data_file *out)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    struct stat info;

    if (mapping->fd < 0) {
        if (mprotect(mapping->data, mapping->bytes, PROT_READ) != 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: making its contents read-only", path);
        }
        *out = (struct cddpi_data_file){mapping->data, mapping->bytes, NULL, -1};
        return CDDP_OK;
    }
    munmap(mapping->data, mapping->bytes);
    mapping->data = NULL;
    if (fcntl(mapping->fd, F_ADD_SEALS, seals) != 0 || fstat(mapping->fd, &info) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: sealing its contents", path);
    }
    return map_file(mapping->fd, path, &info, mapping->fd, out);
}

cddp_status cddpi_data_file_open_plain(const char *path, struct cddpi_data_file *out)
{
    CDDPI_TRY(open_plain(path, out));
    cddpi_data_file_close_fd(out);
    return CDDP_OK;
}

cddp_status cddpi_data_file_open(const char *path, bool shareable, cddpi_size_of size_of,
                                 struct cddpi_data_file *out)
{
    struct cddpi_data_file file;
    struct cddpi_growable_mapping mapping = {NULL, 0, -1};
    cddp_status status;

    CDDPI_TRY(open_plain(path, &file));
    if (!cddpi_is_gzip(file.data, file.bytes)) {
        if (!shareable) {
            cddpi_data_file_close_fd(&file);
        }
        *out = file;
        return CDDP_OK;
    }
    (void)madvise((void *)file.data, file.bytes, MADV_WILLNEED); /* only a hint */
    status = cddpi_gunzip(path, file.data, file.bytes, shareable, size_of, &mapping);
    status = cddpi_data_file_finish(&file, status);
    if (status == CDDP_OK) {
        status = cddpi_data_file_freeze(path, &mapping, out);
    }
    if (status != CDDP_OK) {
        cddpi_growable_mapping_free(&mapping);
    }
    return status;
}

void cddpi_data_file_close_fd(struct cddpi_data_file *data_file)
{
    if (data_file->data != NULL && data_file->fd >= 0) {
        close(data_file->fd);
        data_file->fd = -1;
    }
}

void cddpi_data_file_close(struct cddpi_data_file *data_file)
{
    cddpi_data_file_close_fd(data_file);
    if (data_file->file != NULL) {
        cddpi_mapped_file_close(data_file->file);
    } else if (data_file->data != NULL) {
        munmap((void *)data_file->data, data_file->bytes);
    }
    *data_file = closed;
}

cddp_status cddpi_data_file_check(const struct cddpi_data_file *data_file)
{
    return cddpi_mapped_file_check(data_file->file);
}

cddp_status cddpi_data_file_finish(struct cddpi_data_file *data_file, cddp_status status)
{
    cddp_status whole = cddpi_data_file_check(data_file);

    cddpi_data_file_close(data_file);
    return whole == CDDP_OK ? status : whole;
}

void cddpi_data_file_address(const struct cddpi_data_file *data_file,
                             struct cddpi_data_file_address *out)
{
    struct cddpi_data_file_address address = {getpid(), -1, 0, 0, data_file->bytes};
    struct stat info;

    if (data_file->fd >= 0 && fstat(data_file->fd, &info) == 0) {
        address.fd = data_file->fd;
        address.dev = info.st_dev;
        address.inode = info.st_ino;
    }
    *out = address;
}

/* A file without a name must be a memory file of this user, sealed against change; otherwise it is
 * not mapped. */
static bool is_sealed(int fd, const struct stat *info)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_WRITE;

    return info->st_nlink > 0 ||
           (info->st_uid == geteuid() && (fcntl(fd, F_GET_SEALS) & seals) == seals);
}

cddp_status cddpi_data_file_map(const struct cddpi_data_file_address *address, const char *path,
                                struct cddpi_data_file *out)
{
    struct stat info;
    cddp_status status = CDDP_ERR_UNAVAILABLE;
    char link[64];
    int fd = -1;

    if (address->fd < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "process %lld does not share its data",
                          (long long)address->pid);
    }
    snprintf(link, sizeof link, "/proc/%lld/fd/%lld", (long long)address->pid,
             (long long)address->fd);
    if (cddpi_file_open_regular(link, O_RDONLY, 0, &fd) != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s", link);
    }
    if (fstat(fd, &info) == 0 && info.st_dev == address->dev && info.st_ino == address->inode &&
        (uint64_t)info.st_size == address->bytes && is_sealed(fd, &info)) {
        status = map_file(fd, path, &info, -1, out);
    } else {
        status = cddpi_fail(status, "%s is another file now", link);
    }
    close(fd);
    return status == CDDP_OK ? status : CDDP_ERR_UNAVAILABLE;
}
