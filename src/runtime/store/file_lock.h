/* file_lock.h - owns the locks between processes that share a file store's file: open file
 * description locks (F_OFD_SETLK) on two bytes far beyond the file's data. The kernel releases them
 * however their process ends, and they work over NFS. Unlike POSIX record locks, they belong to the
 * open file description: two handles in one process exclude each other, and a forked process shares
 * its parent's locks.
 *
 * An operation holds the DATA lock, shared or exclusive, while it runs. Every handle holds the LIVE
 * lock, shared, while it is open. So a handle that holds DATA exclusively and also gets LIVE
 * exclusively knows that no other handle is open on any machine. */
#ifndef CDDPI_STORE_FILE_LOCK_H
#define CDDPI_STORE_FILE_LOCK_H

#include <cddp/status.h>

#include <stdbool.h>

enum cddpi_file_lock { CDDPI_LOCK_DATA, CDDPI_LOCK_LIVE };

/** Lock without waiting, or convert between shared and exclusive.
 *  @param out_locked  False if another handle's lock conflicts. This handle then keeps the lock
 *                     that it had. */
cddp_status cddpi_file_lock_try(int fd, enum cddpi_file_lock lock, bool exclusive,
                                bool *out_locked);

/** Like cddpi_file_lock_try(), but try again until @p deadline_ns.
 *  @return CDDP_OK, CDDP_ERR_TIMEOUT, CDDP_ERR_IO. */
cddp_status cddpi_file_lock_wait(int fd, enum cddpi_file_lock lock, bool exclusive,
                                 int64_t deadline_ns);

void cddpi_file_unlock(int fd, enum cddpi_file_lock lock);

/** Sleep for between half of @p us and @p us microseconds, chosen at random, and at most until
 *  @p deadline_ns. */
void cddpi_file_pause(uint32_t us, int64_t deadline_ns);

#endif
