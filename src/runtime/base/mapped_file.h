/* mapped_file.h - files that are mapped to be read, and what happens when one is cut off meanwhile:
 * its pages are gone, and the kernel sends SIGBUS to the thread that reads them. Where a program
 * catches that, they read as zeros instead, and cddpi_mapped_file_check() tells the reader that the
 * data is not the file's. */
#ifndef CDDPI_BASE_MAPPED_FILE_H
#define CDDPI_BASE_MAPPED_FILE_H

#include <cddp/status.h>

#include <sys/stat.h>

struct cddpi_mapped_file;

/** For programs, at the start of main(): catch SIGBUS. One that is not about a mapped file ends the
 *  process as it would have. Threads that read mapped files may not block the signal. */
void cddpi_mapped_files_catch(void);

/** Map all of @p fd, the file at @p path with @p info, to be read. @p fd may be closed then. Any
 *  thread.
 *  @param out  Release with cddpi_mapped_file_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY; texts begin with the path. */
CDDP_CHECKED cddp_status cddpi_mapped_file_open(int fd, const char *path, const struct stat *info,
                                                struct cddpi_mapped_file **out);
void cddpi_mapped_file_close(struct cddpi_mapped_file *file);

/** Its contents, as many bytes as @p info said. */
const void *cddpi_mapped_file_data(const struct cddpi_mapped_file *file);

/** Whether all that was read of @p file until now was in it; CDDP_OK for NULL. Cheap. Any thread.
 *  @return CDDP_OK, CDDP_ERR_IO: names the file and how it has changed. */
CDDP_CHECKED cddp_status cddpi_mapped_file_check(const struct cddpi_mapped_file *file);

/** The same, and whether the file is as long as it was: a few bytes cut off its end read as zeros
 *  without a signal. Asks the file system. */
CDDP_CHECKED cddp_status cddpi_mapped_file_look(const struct cddpi_mapped_file *file);

#endif
