/* pages.c - owns writable memory of whole pages. */
#include "data/pages.h"

#include "base/error.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

void cddpi_pages_free(struct cddpi_pages *pages)
{
    if (pages->data != NULL) {
        munmap(pages->data, pages->bytes);
    }
    if (pages->fd >= 0) {
        close(pages->fd);
    }
    pages->data = NULL;
    pages->fd = -1;
}

static cddp_status no_pages(const char *path, size_t bytes)
{
    return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                            "%s: no %zu bytes of memory for its contents", path, bytes);
}

cddp_status cddpi_pages_create(const char *path, size_t bytes, bool shareable,
                               struct cddpi_pages *out)
{
    struct cddpi_pages pages = {NULL, bytes, -1};
    void *memory;

    if (shareable) {
        pages.fd = memfd_create("cddp-data", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* or private */
    }
    if (pages.fd >= 0 && ftruncate(pages.fd, (off_t)bytes) != 0) {
        goto fail;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  pages.fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  pages.fd, 0);
    if (memory == MAP_FAILED) {
        goto fail;
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* only a wish */
    pages.data = memory;
    *out = pages;
    return CDDP_OK;

fail:
    (void)no_pages(path, bytes);
    cddpi_pages_free(&pages);
    return CDDP_ERR_NO_MEMORY;
}

cddp_status cddpi_pages_resize(const char *path, size_t bytes, struct cddpi_pages *pages)
{
    void *memory;

    if (bytes == pages->bytes) {
        return CDDP_OK;
    }
    if (pages->fd >= 0 && ftruncate(pages->fd, (off_t)bytes) != 0) {
        return no_pages(path, bytes);
    }
    memory = mremap(pages->data, pages->bytes, bytes, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) {
        return no_pages(path, bytes);
    }
    pages->data = memory;
    pages->bytes = bytes;
    return CDDP_OK;
}
