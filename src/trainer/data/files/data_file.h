/* data_file.h - owns the contents of one data file as read-only memory: a plain file is mapped, a
 * gzip'd one (RFC 1952, one or more members) is inflated. Other processes of the machine can map
 * what one process has opened. */
#ifndef CDDPI_DATA_FILES_DATA_FILE_H
#define CDDPI_DATA_FILES_DATA_FILE_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_mapped_file;

/* Writable memory that grows by remapping: decoded and inflated files go there. */
struct cddpi_growable_mapping {
    uint8_t *data;
    size_t bytes;
    int fd; /* its memory file; -1: private memory */
};

/** @param path       For error texts.
 *  @param bytes      > 0; zeros, which take no memory until they are written.
 *  @param shareable  Use a memory file, if the system has them.
 *  @param out        Release with cddpi_growable_mapping_free().
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_growable_mapping_create(const char *path, size_t bytes,
                                                       bool shareable,
                                                       struct cddpi_growable_mapping *out);

/** Grow or shrink @p mapping; its data may move. Returns as create. */
CDDP_CHECKED cddp_status cddpi_growable_mapping_resize(const char *path, size_t bytes,
                                                       struct cddpi_growable_mapping *mapping);
void cddpi_growable_mapping_free(struct cddpi_growable_mapping *mapping);

/* gzip.c */
/** Whether the contents begin as a gzip file does. */
bool cddpi_is_gzip(const uint8_t *in, size_t in_bytes);

/** The size of the contents that begin with @p head, according to their own header; 0: unknown. */
typedef uint64_t (*cddpi_size_of)(const uint8_t *head, size_t head_bytes);

/** Inflate @p in, checking every member's CRC and length. The length in a gzip file is only a first
 *  guess. The result is bounded by what @p in_bytes can hold, by the free memory, and by 16 GiB.
 *  @param path       For error texts.
 *  @param size_of    Upper bound of the result; memory for it is reserved before inflating. NULL:
 *                    unknown.
 *  @param shareable  Inflate into a memory file, if the system has them.
 *  @param out        Exactly as long as the contents. Release with cddpi_growable_mapping_free().
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_gunzip(const char *path, const uint8_t *in, size_t in_bytes,
                                      bool shareable, cddpi_size_of size_of,
                                      struct cddpi_growable_mapping *out);

/* A closed data file. The descriptor of a closed one is not used, so zeroed memory is closed,
 * too. */
#define CDDPI_DATA_FILE_CLOSED                                                                     \
    {                                                                                              \
        NULL, 0, NULL, -1                                                                          \
    }

struct cddpi_data_file {
    const uint8_t *data; /* NULL: closed */
    size_t bytes;
    struct cddpi_mapped_file *file; /* the file that is mapped; NULL: the memory cannot change */
    int fd; /* what other processes may map; -1: nothing; see cddpi_data_file_close_fd() */
};

/* Where the other processes of a machine find this process's data file. */
struct cddpi_data_file_address {
    int64_t pid;
    int64_t fd;          /* in that process; -1: cannot be shared */
    uint64_t dev, inode; /* of its file: tell if pid is of another namespace */
    uint64_t bytes;
};

/* data_file.c */
/** Map or inflate the file at @p path.
 *  @param shareable  Keep a descriptor for others, and inflate into a memory file if the system has
 *                    them.
 *  @param size_of    Bounds the inflated contents, see cddpi_gunzip(); may be NULL.
 *  @param out        Release with cddpi_data_file_close().
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY; error
 *          texts begin with the path. */
CDDP_CHECKED cddp_status cddpi_data_file_open(const char *path, bool shareable,
                                              cddpi_size_of size_of, struct cddpi_data_file *out);
void cddpi_data_file_close(struct cddpi_data_file *data_file); /* accepts a zeroed or closed one */

/** As cddpi_data_file_open(), but map the file as it is, without inflating, for this process
 *  only. */
CDDP_CHECKED cddp_status cddpi_data_file_open_plain(const char *path, struct cddpi_data_file *out);

/** Turn @p mapping into a data file. From now on it is read-only, also for others that map it. On
 *  success @p out owns the memory; on failure the caller still owns @p mapping. */
CDDP_CHECKED cddp_status cddpi_data_file_freeze(const char *path,
                                                struct cddpi_growable_mapping *mapping,
                                                struct cddpi_data_file *out);

/** Call it when the other processes have mapped the file: closes the descriptor, keeps the
 *  memory. */
void cddpi_data_file_close_fd(struct cddpi_data_file *data_file);

/** Check that everything read from @p data_file until now was really in its file, which may have
 *  been truncated. Call it after reading and before using what was read.
 *  @return CDDP_OK; CDDP_ERR_IO: the text begins with the path. */
CDDP_CHECKED cddp_status cddpi_data_file_check(const struct cddpi_data_file *data_file);

/** Close @p data_file after the last read.
 *  @return @p status, the result of reading; if the file was truncated meanwhile, CDDP_ERR_IO. */
CDDP_CHECKED cddp_status cddpi_data_file_finish(struct cddpi_data_file *data_file,
                                                cddp_status status);

/** The address under which other processes find this process's @p data_file. */
void cddpi_data_file_address(const struct cddpi_data_file *data_file,
                             struct cddpi_data_file_address *out);

/** Map another process's data file, which was made of the file at @p path. Fails with
 *  CDDP_ERR_UNAVAILABLE where processes cannot see each other's files (containers); the caller then
 *  opens the file itself. */
CDDP_CHECKED cddp_status cddpi_data_file_map(const struct cddpi_data_file_address *address,
                                             const char *path, struct cddpi_data_file *out);

#endif
