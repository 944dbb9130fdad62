/* file_lock.h - locks between the processes that share a file store's file: open file description
 * locks on two bytes far beyond its data. They end with their process however it ends, work over
 * NFS, and (unlike POSIX locks) belong to the opened file: two handles in one process exclude each
 * other, and a forked process shares its parent's.
 *
 * An operation holds DATA, shared or exclusive, while it runs. Every handle holds LIVE shared while
 * it is open. So a handle that holds DATA exclusively and also gets LIVE exclusively knows that no
 * other handle is open, on any machine. */
#ifndef CDDPI_STORE_FILE_LOCK_H
#define CDDPI_STORE_FILE_LOCK_H

#include <cddp/status.h>

#include <stdbool.h>

enum cddpi_file_lock { CDDPI_LOCK_DATA, CDDPI_LOCK_LIVE };

/** Lock now, or turn a shared lock into an exclusive one or back.
 *  @param out_locked  False if another handle's lock is in the way; then what was held still is. */
cddp_status cddpi_file_lock_try(int fd, enum cddpi_file_lock lock, bool exclusive,
                                bool *out_locked);

/** The same, trying until @p deadline_ns. */
cddp_status cddpi_file_lock_wait(int fd, enum cddpi_file_lock lock, bool exclusive,
                                 int64_t deadline_ns);

void cddpi_file_unlock(int fd, enum cddpi_file_lock lock);

/** Sleep for about @p us microseconds, at most until @p deadline_ns. */
void cddpi_file_pause(uint32_t us, int64_t deadline_ns);

#endif
