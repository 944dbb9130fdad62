/* data_file.h - the contents of one data file as read-only memory: a plain file is mapped as it is,
 * a gzip'd one inflated. Other processes of the machine can map what one of them has opened. */
#ifndef CDDPI_DATA_FILES_DATA_FILE_H
#define CDDPI_DATA_FILES_DATA_FILE_H

#include "data/files/gzip.h"

struct cddpi_mapped_file;

/* A closed one; its descriptor means nothing, so those of zeroed memory are closed, too. */
#define CDDPI_DATA_FILE_CLOSED                                                                     \
    {                                                                                              \
        NULL, 0, NULL, -1                                                                          \
    }

struct cddpi_data_file {
    const uint8_t *data; /* NULL: closed */
    size_t bytes;
    struct cddpi_mapped_file *file; /* that is mapped; NULL: memory that cannot change */
    int fd; /* what other processes may map, -1 for nothing; see cddpi_data_file_close_fd() */
};

/* Where a process's data file is found by the others of its machine. */
struct cddpi_data_file_address {
    int64_t pid;
    int64_t fd;          /* of that process; -1: cannot be shared */
    uint64_t dev, inode; /* of its file, against numbers of another process namespace */
    uint64_t bytes;
};

/** Map or inflate the file at @p path.
 *  @param shareable  Keep a descriptor, and inflate into memory that has one, where there is such.
 *  @param size_of    What bounds inflated contents, see cddpi_gunzip(); may be NULL.
 *  @param out        Release with cddpi_data_file_close().
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY; texts
 *          begin with the path. */
CDDP_CHECKED cddp_status cddpi_data_file_open(const char *path, bool shareable,
                                              cddpi_size_of size_of, struct cddpi_data_file *out);
void cddpi_data_file_close(struct cddpi_data_file *data_file); /* accepts a zeroed or closed one */

/** Map the file at @p path as it is, for this process only; likewise. */
CDDP_CHECKED cddp_status cddpi_data_file_open_plain(const char *path, struct cddpi_data_file *out);

/** Make a data file of @p mapping: read-only from now on, also for others that map it. @p mapping
 * is left to the caller on failure only. */
CDDP_CHECKED cddp_status cddpi_data_file_freeze(const char *path,
                                                struct cddpi_growable_mapping *mapping,
                                                struct cddpi_data_file *out);

/** Others have mapped it by now: only the memory stays. */
void cddpi_data_file_close_fd(struct cddpi_data_file *data_file);

/** Whether what was read of @p data_file until now was in its file, which may have been cut off in
 * the meantime: to be asked after reading, before what was read is used.
 *  @return CDDP_OK, CDDP_ERR_IO: begins with the path. */
CDDP_CHECKED cddp_status cddpi_data_file_check(const struct cddpi_data_file *data_file);

/** Close @p data_file, of which enough was read.
 *  @return @p status, how reading went, unless the file was cut off meanwhile. */
CDDP_CHECKED cddp_status cddpi_data_file_finish(struct cddpi_data_file *data_file,
                                                cddp_status status);

/** Where this process's @p data_file is. */
void cddpi_data_file_address(const struct cddpi_data_file *data_file,
                             struct cddpi_data_file_address *out);

/** Map another process's data file, which comes of the file @p path. Fails where processes cannot
 * see each other's files (containers): CDDP_ERR_UNAVAILABLE; the caller then opens the
 * file itself. */
CDDP_CHECKED cddp_status cddpi_data_file_map(const struct cddpi_data_file_address *address,
                                             const char *path, struct cddpi_data_file *out);

#endif
