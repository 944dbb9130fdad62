/* growable_mapping.c - owns writable memory from mmap(), which grows by remapping. */
#include "data/files/growable_mapping.h"

#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

void cddpi_growable_mapping_free(struct cddpi_growable_mapping *mapping)
{
    if (mapping->data != NULL) {
        munmap(mapping->data, mapping->bytes);
    }
    if (mapping->fd >= 0) {
        close(mapping->fd);
    }
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
