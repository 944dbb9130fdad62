/* snapshot_room.c - owns what happens if the disk is too full for a snapshot: how much space the
 * snapshot needs, and which older snapshot is deleted. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FILE_BYTES = 4096, TENSOR_BYTES = 128 }; /* overhead of each beyond its data, estimated */

bool cddpi_snapshot_wants_room(void)
{
    return cddpi_last_errno() == ENOSPC || cddpi_last_errno() == EDQUOT;
}

static uint64_t tensor_bytes(const cddp_tensor *tensors, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;

        (void)cddpi_tensor_bytes(tensors[i].type, tensors[i].dims, tensors[i].shape, &bytes);
        sum += bytes;
    }
    return sum;
}

void cddpi_snapshot_measure(int dir, const cddp_snapshot *snapshot, struct cddpi_snapshot_room *out)
{
    struct statvfs disk;

    out->least = tensor_bytes(snapshot->model, snapshot->model_count) +
                 tensor_bytes(snapshot->optimizer, snapshot->optimizer_count);
    out->wanted = out->least + (CDDPI_SNAPSHOT_FILES + 1) * FILE_BYTES +
                  (snapshot->model_count + snapshot->optimizer_count) * TENSOR_BYTES;
    out->available = fstatvfs(dir, &disk) == 0 ? (uint64_t)disk.f_bavail * disk.f_frsize : 0;
}

/* The bytes that the snapshot @p name takes on the disk. */
static uint64_t bytes_of(int dir, const char *name)
{
    uint64_t sum = 0;

    for (int i = 0; i < CDDPI_SNAPSHOT_FILES; i++) {
        char path[2 * CDDPI_SNAPSHOT_NAME_BYTES];
        struct stat info;

        snprintf(path, sizeof path, "%s/%s", name, cddpi_snapshot_files[i]);
        if (fstatat(dir, path, &info, AT_SYMLINK_NOFOLLOW) == 0) {
            sum += (uint64_t)info.st_blocks * 512;
        }
    }
    return sum;
}

static bool is_whole(const char *shown, const struct cddpi_snapshot_entry *entry)
{
    char *path = cddpi_format("%s/%s", shown, entry->name);
    bool whole = path != NULL && cddpi_snapshot_verify(path, entry->step) == CDDP_OK;

    cddpi_free(path);
    return whole;
}

/* Reduce @p entries (newest first) to the snapshots that may be deleted; returns how many.
 * @p out_bytes: the bytes that they take on the disk. */
static size_t pick(int dir, const char *shown, struct cddpi_snapshot_entry *entries, size_t count,
                   uint64_t step, unsigned spare, uint64_t *out_bytes)
{
    size_t may_go = 0;
    size_t there = 0;
    bool found_whole = false;

    *out_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].kind != CDDPI_SNAPSHOT_WHOLE) {
            continue;
        }
        there++;
        if (!found_whole && is_whole(shown, &entries[i])) {
            found_whole = true; /* the newest complete snapshot always stays */
        } else if (entries[i].step != step) {
            entries[may_go++] = entries[i];
        }
    }
    while (may_go > 0 && (!found_whole || there - may_go < spare)) {
        memmove(entries, entries + 1, --may_go * sizeof *entries);
    }
    for (size_t i = 0; i < may_go; i++) {
        *out_bytes += bytes_of(dir, entries[i].name);
    }
    return may_go;
}

bool cddpi_snapshot_make_room(int dir, const char *shown, uint64_t step, unsigned spare,
                              const struct cddpi_snapshot_room *room)
{
    struct cddpi_snapshot_entry *entries;
    uint64_t bytes = 0;
    size_t count;
    bool freed = false;

    if (cddpi_snapshot_list(dir, shown, &entries, &count) != CDDP_OK) {
        return false;
    }
    count = pick(dir, shown, entries, count, step, spare, &bytes);
    if (count > 0 && room->available + bytes >= room->least) {
        const struct cddpi_snapshot_entry *oldest = &entries[count - 1];

        cddpi_log(CDDPI_LOG_WARN, "checkpoint: no space for step %llu: %s/%s is deleted for it",
                  (unsigned long long)step, shown, oldest->name);
        cddpi_snapshot_discard(dir, shown, oldest);
        freed = faccessat(dir, oldest->name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    }
    cddpi_free(entries);
    return freed;
}
