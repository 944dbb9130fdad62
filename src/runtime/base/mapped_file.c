/* mapped_file.c - owns the list of mapped files and the SIGBUS handler. The list is shared by the
 * whole process, because signal handlers are. */
#include "base/mapped_file.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct cddpi_mapped_file {
    char *path;
    uint8_t *data;
    size_t bytes;
    dev_t dev;
    ino_t inode;
    atomic_size_t lost_at; /* the first missing byte plus 1; 0: none is missing */
    struct cddpi_mapped_file *next;
};

/* A thread that holds the lock touches no mapped file, so the handler never waits for its own
 * thread. */
static atomic_flag lock = ATOMIC_FLAG_INIT;
static struct cddpi_mapped_file *files;

static uintptr_t page_bytes;
static struct sigaction before;

static void take_lock(void)
{
    while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) {
    }
}

static void release_lock(void)
{
    atomic_flag_clear_explicit(&lock, memory_order_release);
}

/* Map zeros over a page with a raw system call, where mmap() maps directly to one. ThreadSanitizer
 * treats a call of mmap() as a write to the whole range, and so as a race with the threads that
 * read it. */
static bool map_zeros(void *page, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

#if defined __x86_64__ || defined __aarch64__
    return syscall(SYS_mmap, page, bytes, PROT_READ, flags, -1, 0L) != -1;
#else
    return mmap(page, bytes, PROT_READ, flags, -1, 0) != MAP_FAILED;
#endif
}

/* Replace the page of @p address and all pages after it by zeros: the file was truncated at or
 * before that page, or cannot be read for another reason. False: @p address is in no mapped
 * file. */
static bool put_zeros(void *address)
{
    uint8_t *page = (uint8_t *)((uintptr_t)address / page_bytes * page_bytes);
    struct cddpi_mapped_file *file;
    bool done = false;

    take_lock();
    for (file = files; file != NULL; file = file->next) {
        if (page >= file->data && page < file->data + file->bytes) {
            size_t at = (size_t)(page - file->data);
            size_t none = 0;

            atomic_compare_exchange_strong(&file->lost_at, &none, at + 1);
            done = map_zeros(page, file->bytes - at);
            break;
        }
    }
    release_lock();
    return done;
}

/* When this returns, the read runs again: it finds zeros, or the signal has its former effect. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;

    (void)context;
    if (info->si_code <= 0 || !put_zeros(info->si_addr)) {
        (void)sigaction(number, &before, NULL);
        if (info->si_code <= 0) { /* a process sent it: returning would not raise it again */
            (void)raise(number);
        }
    }
    errno = error;
}

void cddpi_mapped_files_catch(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction old;

    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &old) == 0 && old.sa_sigaction != on_bus_error) {
        before = old;
    }
}

cddp_status cddpi_mapped_file_open(int fd, const char *path, const struct stat *info,
                                   struct cddpi_mapped_file **out)
{
    struct cddpi_mapped_file *file = cddpi_zalloc(sizeof *file);
    size_t bytes = (size_t)info->st_size;
    void *data;

    if (file != NULL) {
        file->path = cddpi_strdup(path);
    }
    if (file == NULL || file->path == NULL) {
        cddpi_free(file);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to describe it", path);
    }
    /* A private mapping that nobody writes still shares its pages with other processes. Unlike a
     * shared mapping, kernels before 6.7 allow it on sealed memory, too. */
    data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        cddpi_free(file->path);
        cddpi_free(file);
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: mmap of %zu bytes", path, bytes);
    }
    file->data = data;
    file->bytes = bytes;
    file->dev = info->st_dev;
    file->inode = info->st_ino;
    take_lock();
    file->next = files;
    files = file;
    release_lock();
    *out = file;
    return CDDP_OK;
}

void cddpi_mapped_file_close(struct cddpi_mapped_file *file)
{
    struct cddpi_mapped_file **link = &files;

    if (file == NULL) {
        return;
    }
    take_lock();
    while (*link != file) {
        link = &(*link)->next;
    }
    *link = file->next;
    release_lock();
    munmap(file->data, file->bytes);
    cddpi_free(file->path);
    cddpi_free(file);
}

const void *cddpi_mapped_file_data(const struct cddpi_mapped_file *file)
{
    return file->data;
}

/* Whether the file is shorter than when it was opened. A file that replaced it under the same name
 * does not count. */
static bool is_shorter(const struct cddpi_mapped_file *file, struct stat *out)
{
    return stat(file->path, out) == 0 && out->st_dev == file->dev && out->st_ino == file->inode &&
           (uint64_t)out->st_size < file->bytes;
}

cddp_status cddpi_mapped_file_look(const struct cddpi_mapped_file *file)
{
    struct stat info;

    if (file != NULL && is_shorter(file, &info)) {
        return cddpi_fail(
            CDDP_ERR_IO,
            "%s: was truncated while it was in use: it had %zu bytes, and has %lld now", file->path,
            file->bytes, (long long)info.st_size);
    }
    return cddpi_mapped_file_check(file);
}

cddp_status cddpi_mapped_file_check(const struct cddpi_mapped_file *file)
{
    size_t lost_at = file != NULL ? atomic_load(&file->lost_at) : 0;
    struct stat info;

    if (lost_at == 0) {
        return CDDP_OK;
    }
    if (is_shorter(file, &info)) {
        return cddpi_mapped_file_look(file);
    }
    return cddpi_fail(
        CDDP_ERR_IO,
        "%s: could not be read from byte %zu on: its disk failed, or it was truncated "
        "while it was in use",
        file->path, lost_at - 1);
}
