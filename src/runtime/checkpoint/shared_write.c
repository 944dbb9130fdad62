/* shared_write.c - owns how the ranks of a machine write one copy of a snapshot together: the
 * writer's offers, and the helpers' threads. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/process.h"
#include "checkpoint/saving.h"
#include "checkpoint/shared_head.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- the writer --- */

/* Offer the file that @p writer writes, whose data begins at @p offset. If the file cannot be
 * described, nobody helps. */
static uint32_t make_offer(struct cddpi_shared_copy *shared, int file,
                           const struct cddpi_writer *writer, uint64_t offset)
{
    struct cddpi_shared_head *head = shared->head;
    uint32_t offer = head->last_offer % (UINT32_MAX >> PIECE_STATE_BITS) + 1;
    uint32_t count = shared_piece_count(shared->layout.bytes[file]);
    struct stat info;

    head->last_offer = offer;
    for (uint32_t i = 0; i < count; i++) {
        atomic_store(&head->pieces[i], shared_mark(offer, PIECE_FREE));
    }
    if (fstat(writer->fd, &info) == 0) {
        atomic_store(&head->file, file);
        atomic_store(&head->disk, (uint64_t)info.st_dev);
        atomic_store(&head->inode, (uint64_t)info.st_ino);
        atomic_store(&head->offset, offset);
        atomic_store(&head->offer, offer);
        cddpi_shared_ring(head);
    }
    return offer;
}

/* A part is still in the processor's cache when it is written after it was hashed. */
enum { PART_BYTES = 1 << 18 };

static cddp_status put_piece(struct cddpi_writer *writer, const unsigned char *data, size_t bytes,
                             bool is_own, atomic_ullong *progress)
{
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        CDDPI_TRY(is_own ? cddpi_writer_put(writer, data + at, part)
                         : cddpi_writer_skip(writer, data + at, part));
        if (progress != NULL) {
            atomic_fetch_add(progress, part);
        }
    }
    return CDDP_OK;
}

/* Hash all pieces of offer @p offer in their order, and write those that nobody has taken. */
static cddp_status put_pieces(struct cddpi_shared_copy *shared, int file, uint32_t offer,
                              struct cddpi_writer *writer, atomic_ullong *progress)
{
    uint64_t bytes = shared->layout.bytes[file];

    for (uint32_t i = 0; i < shared_piece_count(bytes); i++) {
        const struct shared_piece piece = shared_piece(bytes, i);
        bool is_own = shared_piece_move(shared->head, offer, i, PIECE_FREE, PIECE_TAKEN);

        CDDPI_TRY(put_piece(writer, shared_data(shared, file) + piece.first, piece.bytes, is_own,
                            progress));
        if (is_own) {
            (void)shared_piece_move(shared->head, offer, i, PIECE_TAKEN, PIECE_DONE);
        }
    }
    return CDDP_OK;
}

/* Write what others have taken and not done. */
static cddp_status put_rest(struct cddpi_shared_copy *shared, int file, uint32_t offer,
                            struct cddpi_writer *writer, uint64_t offset)
{
    uint64_t bytes = shared->layout.bytes[file];

    for (uint32_t i = 0; i < shared_piece_count(bytes); i++) {
        const struct shared_piece piece = shared_piece(bytes, i);

        if (atomic_load(&shared->head->pieces[i]) != shared_mark(offer, PIECE_DONE)) {
            CDDPI_TRY(cddpi_writer_put_at(writer, shared_data(shared, file) + piece.first,
                                          piece.bytes, offset + piece.first));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_shared_copy_write(struct cddpi_shared_copy *shared, int file,
                                    struct cddpi_writer *writer, atomic_ullong *progress)
{
    uint64_t offset = writer->bytes;
    uint32_t offer = make_offer(shared, file, writer, offset);
    cddp_status status = put_pieces(shared, file, offer, writer, progress);

    if (status == CDDP_OK) {
        status = put_rest(shared, file, offer, writer, offset);
    }
    atomic_store(&shared->head->offer, 0);
    return status;
}

/* --- the others --- */

struct cddpi_helper {
    struct cddpi_shared_copy *shared;
    char *dir;
    uint64_t part, parts;
    pthread_t thread;
    atomic_bool stops;
};

/* An offer as a helper has read it. */
struct offer {
    uint32_t number;
    int file;
    uint64_t disk, inode, offset;
};

/* Read the offer that there is. False: none, or it changed meanwhile. */
static bool read_offer(struct cddpi_shared_head *head, struct offer *out)
{
    out->number = atomic_load(&head->offer);
    out->file = atomic_load(&head->file);
    out->disk = atomic_load(&head->disk);
    out->inode = atomic_load(&head->inode);
    out->offset = atomic_load(&head->offset);
    return out->number != 0 && out->number == atomic_load(&head->offer) && out->file >= 0 &&
           out->file < CDDPI_SNAPSHOT_DATA_FILES;
}

/* Open the file that @p offer is about, if this process sees the same one. */
static bool open_offered(const struct cddpi_helper *helper, const struct offer *offer,
                         struct cddpi_writer *out)
{
    int dir = cddpi_folder_open_fd(AT_FDCWD, helper->dir, true);
    int folder = dir >= 0 ? cddpi_folder_open_fd(dir, helper->shared->head->temporary, false) : -1;
    const char *name = cddpi_snapshot_files[offer->file];
    struct stat info;
    bool is_open = folder >= 0 && cddpi_writer_join(out, folder, name, name) == CDDP_OK;

    cddpi_fd_close(&dir);
    cddpi_fd_close(&folder);
    if (is_open && (fstat(out->fd, &info) != 0 || (uint64_t)info.st_dev != offer->disk ||
                    (uint64_t)info.st_ino != offer->inode)) {
        cddpi_writer_close(out);
        return false;
    }
    return is_open;
}

/* Write pieces that nobody has taken, first of this rank's part, then of all. An error is the
 * writer's to tell, who writes the piece again. */
static void write_pieces(struct cddpi_helper *helper, const struct offer *offer,
                         struct cddpi_writer *file)
{
    struct cddpi_shared_head *head = helper->shared->head;
    uint64_t bytes = helper->shared->layout.bytes[offer->file];
    uint32_t count = shared_piece_count(bytes);
    uint32_t first = (uint32_t)(count * helper->part / helper->parts);

    for (uint32_t i = 0; i < count && !atomic_load(&helper->stops); i++) {
        uint32_t index = (first + i) % count;
        const struct shared_piece piece = shared_piece(bytes, index);
        const unsigned char *data = shared_data(helper->shared, offer->file) + piece.first;

        if (!shared_piece_move(head, offer->number, index, PIECE_FREE, PIECE_TAKEN)) {
            continue;
        }
        if (cddpi_writer_put_at(file, data, piece.bytes, offer->offset + piece.first) != CDDP_OK) {
            (void)shared_piece_move(head, offer->number, index, PIECE_TAKEN, PIECE_FREE);
            return;
        }
        (void)shared_piece_move(head, offer->number, index, PIECE_TAKEN, PIECE_DONE);
    }
}

/* Sleep until the bell is not @p heard any more, but not long. */
static void await_bell(struct cddpi_shared_head *head, uint32_t heard)
{
    const struct timespec limit = {.tv_nsec = 100000000};

    syscall(SYS_futex, &head->bell, FUTEX_WAIT, heard, &limit, NULL, 0);
}

static void *help(void *argument)
{
    struct cddpi_helper *helper = argument;
    struct cddpi_shared_head *head = helper->shared->head;
    uint32_t last = 0;

    while (!atomic_load(&helper->stops)) {
        uint32_t heard = atomic_load(&head->bell);
        struct cddpi_writer file;
        struct offer offer;

        if (atomic_load(&head->is_over) != 0) {
            break;
        }
        if (read_offer(head, &offer) && offer.number != last) {
            last = offer.number;
            if (open_offered(helper, &offer, &file)) {
                write_pieces(helper, &offer, &file);
                cddpi_writer_close(&file);
            }
        } else {
            await_bell(head, heard);
            if (!cddpi_process_is_alive(head->place.pid, head->place.start_time)) {
                break;
            }
        }
    }
    return NULL;
}

cddp_status cddpi_helper_begin(struct cddpi_shared_copy *shared, const char *dir, int part,
                               int parts, struct cddpi_helper **out)
{
    struct cddpi_helper *helper = cddpi_zalloc(sizeof *helper);
    cddp_status status;

    CDDPI_TRY_MEMORY(helper != NULL, "checkpoint: no memory for %zu bytes", sizeof *helper);
    helper->shared = shared;
    helper->part = (uint64_t)part;
    helper->parts = (uint64_t)parts;
    helper->dir = cddpi_strdup(dir);
    status = helper->dir != NULL
                 ? cddpi_saving_thread("cddp-save-part", help, helper, &helper->thread)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
    if (status != CDDP_OK) {
        cddpi_free(helper->dir);
        cddpi_free(helper);
        return status;
    }
    *out = helper;
    return CDDP_OK;
}

bool cddpi_helper_end(struct cddpi_helper *helper, uint32_t limit_ms)
{
    struct timespec end;

    if (helper == NULL) {
        return true;
    }
    atomic_store(&helper->stops, true);
    cddpi_shared_ring(helper->shared->head);
    clock_gettime(CLOCK_REALTIME, &end); /* the clock of pthread_timedjoin_np() */
    end.tv_sec += limit_ms / 1000;
    if (pthread_timedjoin_np(helper->thread, NULL, &end) != 0) {
        return false;
    }
    cddpi_free(helper->dir);
    cddpi_free(helper);
    return true;
}
