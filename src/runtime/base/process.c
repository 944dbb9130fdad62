/* process.c - caches this process's id, reads /proc/PID/stat, and opens files of other processes
 * through /proc/PID/fd; reads cmdline and environ of this process and its ancestors. */
#include "base/process.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The size of shared memory is sealed: if it shrank, an access to the mapping would raise
 * SIGBUS. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* This process's id, or 0, in a page that the kernel zeroes in a fork. NULL: not possible here. */
static _Atomic(_Atomic int32_t *) known_id;

/* Zero the id ourselves as well: emulators such as user-mode qemu 7.2 accept MADV_WIPEONFORK but do
 * not do it. */
static void forget_known_id(void)
{
    atomic_store_explicit(known_id, 0, memory_order_relaxed);
}

static void map_known_id(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        return;
    }
    if (madvise(page, bytes, MADV_WIPEONFORK) != 0) { /* Linux before 4.14 */
        munmap(page, bytes);
        return;
    }
    atomic_store_explicit(&known_id, page, memory_order_release); /* never unmapped */
    (void)pthread_atfork(NULL, NULL, forget_known_id);
}

int cddpi_process_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    _Atomic int32_t *page = atomic_load_explicit(&known_id, memory_order_acquire);
    int32_t id;

    if (page == NULL) {
        (void)pthread_once(&once, map_known_id);
        page = atomic_load_explicit(&known_id, memory_order_acquire);
    }
    if (page == NULL) {
        return getpid();
    }
    id = atomic_load_explicit(page, memory_order_relaxed);
    if (id == 0) {
        id = getpid();
        atomic_store_explicit(page, id, memory_order_relaxed);
    }
    return id;
}

bool cddpi_process_read(long pid, struct cddpi_process *out)
{
    char path[64];
    char text[1024];
    const char *begin;
    const char *end;
    ssize_t length;
    int fd;

    /* the first thread's stat, which is the same: qemu makes up a process's own /proc/PID/stat */
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/stat", pid, pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    begin = strchr(text, '(');
    end = strrchr(text, ')'); /* the name before it may contain any character */
    if (begin == NULL || end == NULL ||
        sscanf(end + 1,
               " %c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
               "%" SCNu64,
               &out->state, &out->parent, &out->start_time) != 3) {
        return false;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - begin - 1), begin + 1);
    return true;
}

uint64_t cddpi_process_start_time(void)
{
    struct cddpi_process own;

    return cddpi_process_read(getpid(), &own) ? own.start_time : 0;
}

bool cddpi_process_is_alive(int pid, uint64_t start_time)
{
    struct cddpi_process process;

    return cddpi_process_read(pid, &process) && process.start_time == start_time &&
           process.state != 'Z' && process.state != 'X';
}

bool cddpi_process_is_stopped(int pid)
{
    struct cddpi_process process;

    return cddpi_process_read(pid, &process) && (process.state == 'T' || process.state == 't');
}

cddp_status cddpi_process_check_proc(void)
{
    return access("/proc/self/stat", R_OK) == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                  "/proc is not mounted here, through which the ranks of a machine "
                                  "open each other's memory (mount -t proc proc /proc)");
}

cddp_status cddpi_process_share(const char *name, size_t bytes, int *out_fd)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || cddpi_file_resize(fd, bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        cddp_status status = cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno,
                                              "%zu bytes of shared memory", bytes);

        cddpi_fd_close(&fd);
        return status;
    }
    *out_fd = fd;
    return CDDP_OK;
}

/* Whether owner and type show that @p info may be shared memory of this user. */
static bool may_be_shared(const struct stat *info)
{
    return S_ISREG(info->st_mode) && info->st_uid == geteuid();
}

static cddp_status fail_foreign(const char *path)
{
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "%s is no memory that a process of this user shares, or has another size: it "
                      "is not opened",
                      path);
}

void cddpi_process_place(char out[CDDPI_PROCESS_PLACE_BYTES])
{
    char machine[CDDPI_MACHINE_BYTES];
    char space[64] = "";

    cddpi_machine(machine);
    (void)!readlink("/proc/self/ns/pid", space, sizeof space - 1);
    snprintf(out, CDDPI_PROCESS_PLACE_BYTES, "%s|%s", machine, space);
}

int cddpi_process_pidfd(int pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    return -1;
#endif
}

cddp_status cddpi_process_open_fd(int pid, uint64_t start_time, int fd, size_t bytes, int *out_fd)
{
    char path[64];
    struct cddpi_process process;
    struct stat info;
    int opened;

    if (!cddpi_process_read(pid, &process) || process.start_time != start_time) {
        CDDPI_TRY(cddpi_process_check_proc());
        return cddpi_fail(CDDP_ERR_PEER, "process %d, which shares its memory, is gone", pid);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    /* Check before opening, since opening a device may have effects, and again after, since the
     * path may lead to another file by then. */
    if (stat(path, &info) == 0 && !may_be_shared(&info)) {
        return fail_foreign(path);
    }
    opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) {
        return cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                "the memory of process %d cannot be shared: open %s", pid, path);
    }
    if (fstat(opened, &info) != 0 || !may_be_shared(&info) || info.st_size < (off_t)bytes ||
        (fcntl(opened, F_GET_SEALS) & SEALS) != SEALS) {
        close(opened);
        return fail_foreign(path);
    }
    *out_fd = opened;
    return CDDP_OK;
}

enum { MOST_BYTES = 4 << 20, STEP_BYTES = 16384 };

/* The contents of /proc/PID/@p file with a NUL appended. NULL: not readable, or too long. */
static char *read_all(long pid, const char *file, size_t *out_bytes)
{
    char path[64];
    char *text = NULL;
    size_t used = 0;
    ssize_t got = 1;
    int fd;

    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && used < MOST_BYTES) {
        char *longer = cddpi_realloc(text, used + STEP_BYTES + 1);

        if (longer == NULL) {
            break;
        }
        text = longer;
        got = read(fd, text + used, STEP_BYTES);
        used += got > 0 ? (size_t)got : 0;
        text[used] = '\0';
    }
    cddpi_fd_close(&fd);
    if (got != 0) {
        cddpi_free(text);
        return NULL;
    }
    *out_bytes = used;
    return text;
}

void cddpi_ancestors_read(struct cddpi_ancestors *out)
{
    long pid = (long)getpid();

    *out = (struct cddpi_ancestors){.count = 0};
    while (pid > 0 && out->count < CDDPI_ANCESTORS) {
        struct cddpi_ancestor *ancestor = &out->list[out->count];

        if (!cddpi_process_read(pid, &ancestor->process)) {
            return;
        }
        ancestor->pid = pid;
        ancestor->words = read_all(pid, "cmdline", &ancestor->word_bytes);
        ancestor->environment = read_all(pid, "environ", &ancestor->environment_bytes);
        out->count++;
        pid = ancestor->process.parent;
    }
}

void cddpi_ancestors_fini(struct cddpi_ancestors *ancestors)
{
    for (int i = 0; i < ancestors->count; i++) {
        cddpi_free(ancestors->list[i].words);
        cddpi_free(ancestors->list[i].environment);
    }
    ancestors->count = 0;
}

bool cddpi_ancestor_has(const struct cddpi_ancestor *ancestor, const char *name, const char *value)
{
    size_t length = strlen(name);
    size_t at = 0;

    while (ancestor->environment != NULL && at < ancestor->environment_bytes) {
        const char *entry = ancestor->environment + at;

        if (strncmp(entry, name, length) == 0 && entry[length] == '=') {
            return strcmp(entry + length + 1, value) == 0;
        }
        at += strlen(entry) + 1;
    }
    return false;
}

bool cddpi_ancestor_says(const struct cddpi_ancestor *ancestor, const char *text)
{
    size_t at = 0;

    while (ancestor->words != NULL && at < ancestor->word_bytes) {
        const char *word = ancestor->words + at;

        if (strstr(word, text) != NULL) {
            return true;
        }
        at += strlen(word) + 1;
    }
    return false;
}
