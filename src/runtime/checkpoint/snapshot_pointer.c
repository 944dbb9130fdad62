/* snapshot_pointer.c - owns `latest`, and recovering a folder after a crash of its writer. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/log.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

cddp_status cddpi_snapshot_write_text(int dir, const char *name, const char *shown,
                                      const char *text)
{
    struct cddpi_writer writer;
    cddp_status status;

    CDDPI_TRY(cddpi_writer_open(&writer, dir, name, shown));
    status = cddpi_writer_put_line(&writer, text);
    status = status == CDDP_OK ? cddpi_writer_finish(&writer) : status;
    cddpi_writer_close(&writer);
    return status;
}

cddp_status cddpi_pointer_write(int dir, const char *shown, const char *name)
{
    char beside[CDDPI_SNAPSHOT_NAME_BYTES];
    char *path;
    cddp_status status;

    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, 0, beside);
    path = cddpi_format("%s/%s", shown, beside);
    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", shown);
    }
    status = cddpi_snapshot_write_text(dir, beside, path, name);
    cddpi_free(path);
    return status;
}

cddp_status cddpi_pointer_move(int dir, const char *shown)
{
    char beside[CDDPI_SNAPSHOT_NAME_BYTES];

    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, 0, beside);
    if (cddpi_file_renameat(dir, beside, "latest") != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s/%s to latest", shown, beside);
    }
    if (cddpi_file_fsync(dir) != 0) {
        /* only a warning: the snapshot itself is flushed, and it is found without `latest` */
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: flush the folder %s: %s", shown, strerror(errno));
    }
    return CDDP_OK;
}

void cddpi_pointer_discard(int dir)
{
    char beside[CDDPI_SNAPSHOT_NAME_BYTES];

    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, 0, beside);
    (void)cddpi_file_unlinkat(dir, beside, 0);
}

/* Whether `latest` contains @p name and a newline. */
static bool points_to(int dir, const char *name)
{
    char text[CDDPI_SNAPSHOT_NAME_BYTES + 1];
    size_t length = strlen(name);
    ssize_t bytes = -1;
    int fd = cddpi_file_open_read_at(dir, "latest");

    if (fd >= 0) {
        bytes = read(fd, text, sizeof text);
        close(fd);
    }
    return bytes == (ssize_t)length + 1 && memcmp(text, name, length) == 0 && text[length] == '\n';
}

void cddpi_pointer_set(int dir, const char *shown, const char *name)
{
    cddp_status status;

    if (points_to(dir, name)) {
        return;
    }
    status = cddpi_pointer_write(dir, shown, name);
    if (status != CDDP_OK && cddpi_snapshot_wants_room()) {
        cddpi_pointer_discard(dir);
        (void)cddpi_file_unlinkat(dir, "latest", 0); /* frees space for the new one */
        status = cddpi_pointer_write(dir, shown, name);
    }
    if (status == CDDP_OK) {
        status = cddpi_pointer_move(dir, shown);
    }
    if (status != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: %s/latest does not name %s: %s", shown, name,
                  cddp_last_error());
        cddpi_pointer_discard(dir);
    }
}

cddp_status cddp_snapshot_recover(const char *dir, char **out_path, char **out_skipped)
{
    cddp_status status;
    int fd;

    if (dir == NULL || out_path == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_recover: %s is NULL",
                          dir == NULL ? "dir" : "out_path");
    }
    fd = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    if (fd >= 0) {
        cddpi_snapshot_sweep(fd, dir, true);
    }
    status = cddp_snapshot_find(dir, out_path, out_skipped); /* fails if there is no folder */
    if (status == CDDP_OK && fd >= 0) {
        cddpi_pointer_set(fd, dir, strrchr(*out_path, '/') + 1);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
