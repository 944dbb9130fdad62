/* mapped_file.h - files that are mapped for reading, and what happens when one is truncated
 * meanwhile: its pages are gone, and the kernel sends SIGBUS to the thread that reads them. If the
 * program catches the signal (cddpi_mapped_files_catch()), those pages read as zeros instead, and
 * cddpi_mapped_file_check() tells the reader that the data is not the file's. */
#ifndef CDDPI_BASE_MAPPED_FILE_H
#define CDDPI_BASE_MAPPED_FILE_H

#include "base/shared.h"

#include <cddp/status.h>

#include <sys/stat.h>

struct cddpi_mapped_file;

/** For programs, at the start of main(): catch SIGBUS. A SIGBUS that is not about a mapped file
 *  ends the process as usual. Threads that read mapped files must not block the signal. */
void cddpi_mapped_files_catch(void);

/** Map the whole file @p fd for reading. @p path is its path, @p info its stat. The caller may
 *  close @p fd afterwards. Any thread.
 *  @param out  Release with cddpi_mapped_file_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_IO, CDDP_ERR_NO_MEMORY; texts begin with the path. */
CDDP_CHECKED cddp_status cddpi_mapped_file_open(int fd, const char *path, const struct stat *info,
                                                struct cddpi_mapped_file **out);
CDDPI_SHARED void cddpi_mapped_file_close(struct cddpi_mapped_file *file);

/** The file's contents; their size is what @p info said when the file was opened. */
CDDPI_SHARED const void *cddpi_mapped_file_data(const struct cddpi_mapped_file *file);

/** Check that everything read from @p file so far was really in the file. CDDP_OK for NULL. Cheap.
 *  Any thread.
 *  @return CDDP_OK, CDDP_ERR_IO: names the file and how it has changed. */
CDDP_CHECKED cddp_status cddpi_mapped_file_check(const struct cddpi_mapped_file *file);

/** The same, and check that the file has not become shorter: if only a few bytes are cut off its
 *  end, they read as zeros without a signal. Calls stat(). */
CDDP_CHECKED cddp_status cddpi_mapped_file_look(const struct cddpi_mapped_file *file);

#endif
