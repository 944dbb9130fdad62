/* kept_memory.c - owns the layout of a rank's kept memory: a header page, then the slots' data. */
#include "recovery/kept_memory.h"

#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 4096,
    ALIGNMENT = 65536 /* of slots: the largest pages that a kernel has */
};

static const char magic[8] = "cddpkep3";

struct kept_slot {
    _Atomic uint64_t step; /* the stamp's; written last, so that a stamp with a step is whole */
    struct cddpi_kept_stamp stamp;
    uint64_t offset, capacity; /* in the file */
    uint64_t order;            /* of two slots that take turns, the one written later has more */
};

struct cddpi_kept_header {
    char magic[sizeof magic];
    _Atomic uint64_t refused; /* a run; 0: none */
    _Atomic uint64_t told;    /* a writer; 0: none */
    struct kept_slot slots[CDDPI_KEPT_SLOTS];
};

_Static_assert(sizeof(struct cddpi_kept_header) <= HEADER_BYTES, "the header is one page");

/* Whether @p fd is memory, and not a file that the variable names by mistake. A file of a tmpfs has
 * seals, too, but it has a name. */
static bool is_memory(int fd)
{
    struct stat info;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &info) == 0 && info.st_nlink == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

int cddpi_kept_files(int *out)
{
    const char *text = cddpi_env(CDDPI_ENV_KEEP_FDS);
    int count = 0;

    while (text != NULL && *text != '\0' && count < CDDPI_MACHINE_RANKS) {
        size_t length = strcspn(text, ",");
        char word[16] = "";
        int64_t fd;

        if (length < sizeof word) {
            memcpy(word, text, length);
        }
        if (!cddpi_parse_integer(word, 0, INT32_MAX, &fd) || !is_memory((int)fd)) {
            return 0;
        }
        out[count++] = (int)fd;
        text += length + (text[length] == ',');
    }
    return count;
}

static void init_header(struct cddpi_kept_header *header)
{
    memset(header, 0, sizeof *header);
    memcpy(header->magic, magic, sizeof magic);
}

cddp_status cddpi_kept_open(int fd, struct cddpi_kept_memory *out)
{
    struct stat info;
    void *page;

    *out = (struct cddpi_kept_memory){.fd = fd};
    if (fstat(fd, &info) != 0 ||
        (info.st_size < HEADER_BYTES && cddpi_file_resize(fd, HEADER_BYTES) != 0)) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "memory that outlives a rank");
    }
    page = mmap(NULL, HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "memory that outlives a rank");
    }
    out->header = page;
    if (memcmp(out->header->magic, magic, sizeof magic) != 0) {
        init_header(out->header);
    }
    return CDDP_OK;
}

static void unmap_slot(struct cddpi_kept_memory *memory, int slot)
{
    if (memory->data[slot] != NULL) {
        munmap(memory->data[slot], memory->mapped[slot]);
    }
    memory->data[slot] = NULL;
}

void cddpi_kept_close(struct cddpi_kept_memory *memory)
{
    if (memory->header == NULL) {
        return;
    }
    for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
        unmap_slot(memory, slot);
    }
    munmap(memory->header, HEADER_BYTES);
    memory->header = NULL;
}

/* Whether the file has all bytes of @p slot: reading others would end the process. */
static bool is_inside(const struct cddpi_kept_memory *memory, const struct kept_slot *slot)
{
    struct stat info;
    uint64_t size;

    if (fstat(memory->fd, &info) != 0) {
        return false;
    }
    size = (uint64_t)info.st_size;
    return slot->offset >= HEADER_BYTES && slot->offset % ALIGNMENT == 0 && slot->offset <= size &&
           slot->capacity <= size - slot->offset && slot->stamp.bytes <= slot->capacity;
}

struct cddpi_kept_stamp cddpi_kept_stamp(const struct cddpi_kept_memory *memory, int slot)
{
    struct kept_slot *found = &memory->header->slots[slot];
    struct cddpi_kept_stamp stamp = found->stamp;

    stamp.step = atomic_load_explicit(&found->step, memory_order_acquire);
    if (stamp.step != 0 && (stamp.bytes == 0 || stamp.parts == 0 || stamp.part >= stamp.parts ||
                            !is_inside(memory, found))) {
        stamp.step = 0;
    }
    return stamp;
}

static bool map_slot(struct cddpi_kept_memory *memory, int slot)
{
    const struct kept_slot *found = &memory->header->slots[slot];
    void *data;

    if (memory->data[slot] != NULL && memory->mapped[slot] == found->capacity &&
        memory->offset[slot] == found->offset) {
        return true;
    }
    unmap_slot(memory, slot);
    data = mmap(NULL, found->capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                memory->fd, (off_t)found->offset);
    if (data == MAP_FAILED) {
        return false;
    }
    memory->data[slot] = data;
    memory->mapped[slot] = found->capacity;
    memory->offset[slot] = found->offset;
    return true;
}

const unsigned char *cddpi_kept_data(struct cddpi_kept_memory *memory, int slot)
{
    return is_inside(memory, &memory->header->slots[slot]) && map_slot(memory, slot)
               ? memory->data[slot]
               : NULL;
}

static uint64_t step_of(const struct cddpi_kept_memory *memory, int slot, uint64_t run)
{
    const struct cddpi_kept_stamp stamp = cddpi_kept_stamp(memory, slot);

    return stamp.run == run ? stamp.step : 0;
}

int cddpi_kept_next(const struct cddpi_kept_memory *memory, int first, uint64_t run)
{
    const struct kept_slot *slots = memory->header->slots;
    uint64_t here = step_of(memory, first, run);
    uint64_t there = step_of(memory, first + 1, run);

    if (here == there) { /* of another run, both, or nothing */
        here = cddpi_kept_stamp(memory, first).step == 0 ? 0 : slots[first].order;
        there = cddpi_kept_stamp(memory, first + 1).step == 0 ? 0 : slots[first + 1].order;
    }
    return there < here ? first + 1 : first;
}

/* Returns an errno; 0: the file has them. */
static int add_pages(int fd, uint64_t offset, uint64_t bytes)
{
    int failure;

    if (cddpi_file_resize(fd, offset + bytes) != 0) {
        return errno;
    }
    do {
        failure = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    } while (failure == EINTR); /* older kernels give up at any signal */
    return failure;
}

/* Nothing may use the memory in the way of what other processes do, so pages are taken here: a
 * write to a page that the kernel cannot give would end the process. */
cddp_status cddpi_kept_reserve(struct cddpi_kept_memory *memory, int slot, uint64_t bytes)
{
    struct kept_slot *found = &memory->header->slots[slot];
    struct stat info;
    uint64_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    int failure;

    if (found->capacity < capacity || !is_inside(memory, found)) {
        atomic_store_explicit(&found->step, 0, memory_order_release);
        unmap_slot(memory, slot);
        if (fstat(memory->fd, &info) != 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "memory that outlives a rank");
        }
        if (found->capacity > 0 && is_inside(memory, found)) { /* its pages are free again */
            (void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            (off_t)found->offset, (off_t)found->capacity);
        }
        found->capacity = 0;
        found->stamp.bytes = 0;
        found->offset = ((uint64_t)info.st_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        failure = add_pages(memory->fd, found->offset, capacity);
        if (failure != 0) {
            (void)ftruncate(memory->fd, info.st_size);
            return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, failure, "memory that outlives a rank");
        }
        found->capacity = capacity;
    }
    return map_slot(memory, slot)
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_NO_MEMORY, errno, "memory that outlives a rank");
}

unsigned char *cddpi_kept_begin(struct cddpi_kept_memory *memory, int slot)
{
    atomic_store_explicit(&memory->header->slots[slot].step, 0, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst); /* before any byte of the new data */
    return memory->data[slot];
}

void cddpi_kept_end(struct cddpi_kept_memory *memory, int slot,
                    const struct cddpi_kept_stamp *stamp)
{
    const struct kept_slot *other = &memory->header->slots[slot ^ 1];

    memory->header->slots[slot].stamp = *stamp;
    memory->header->slots[slot].order = other->order + 1;
    atomic_store_explicit(&memory->header->slots[slot].step, stamp->step, memory_order_release);
}

void cddpi_kept_forget_others(struct cddpi_kept_memory *memory, uint64_t run, uint64_t writer,
                              uint64_t step)
{
    for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
        const struct cddpi_kept_stamp stamp = cddpi_kept_stamp(memory, slot);

        if (stamp.run == run && (stamp.writer != writer || stamp.step != step)) {
            atomic_store_explicit(&memory->header->slots[slot].step, 0, memory_order_release);
        }
    }
}

void cddpi_kept_forget_refusal(struct cddpi_kept_memory *memory, uint64_t run)
{
    if (cddpi_kept_is_refused(memory, run)) {
        atomic_store(&memory->header->refused, 0);
    }
}

uint64_t cddpi_kept_room(const struct cddpi_kept_memory *memory)
{
    uint64_t room = 0;

    for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
        const struct kept_slot *found = &memory->header->slots[slot];

        room += is_inside(memory, found) ? found->capacity : 0;
    }
    return room;
}

bool cddpi_kept_is_news(struct cddpi_kept_memory *memory, uint64_t writer)
{
    return atomic_exchange(&memory->header->told, writer) != writer;
}

void cddpi_kept_refuse(const struct cddpi_kept_memory *memory, uint64_t run)
{
    atomic_store(&memory->header->refused, run);
}

bool cddpi_kept_is_refused(const struct cddpi_kept_memory *memory, uint64_t run)
{
    return run != 0 && atomic_load(&memory->header->refused) == run;
}
