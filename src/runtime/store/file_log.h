/* file_log.h - owns the format of a file store's file: a header, then one entry per change, in
 * order.
 *
 *   header  magic u64, version u32, header bytes u32, run (random, 32 bytes), proof of the token
 *   entry   body_bytes u32, kind u8, 0 u8, key_bytes u16, hash (16 bytes), body: key and value
 *
 * Numbers are little-endian. An entry's hash is keyed with the token and the run, and it covers the
 * entry's offset. So an entry of another run, or a half-written one, never looks valid. A killed
 * writer may leave bytes after the last complete entry: readers ignore them, and the next writer
 * truncates them. */
#ifndef CDDPI_STORE_FILE_LOG_H
#define CDDPI_STORE_FILE_LOG_H

#include "store/auth.h"
#include "store/store_table.h"

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_file_log {
    int fd;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];   /* derived from the token */
    uint8_t entry_key[CDDPI_AUTH_BYTES]; /* derived from the token and this run */
    uint64_t end;                        /* offset after the last entry that the table contains */
};

/** What the file begins with. The caller holds the DATA lock. FOREIGN: not a file of this store. */
enum cddpi_file_kind { CDDPI_FILE_STORE, CDDPI_FILE_EMPTY, CDDPI_FILE_FOREIGN };
cddp_status cddpi_file_kind(int fd, enum cddpi_file_kind *out);

/** Truncate the file and begin a new run. The caller holds the exclusive lock and knows that no
 *  other handle uses the file. */
cddp_status cddpi_file_begin(struct cddpi_file_log *log);

/** Join the run in the file. CDDP_ERR_AUTH if that run has another token. */
cddp_status cddpi_file_join(struct cddpi_file_log *log);

/** Read the entries after log->end into @p table. The caller holds the lock, shared or exclusive.
 */
cddp_status cddpi_file_follow(struct cddpi_file_log *log, struct cddpi_table *table);

/** Append @p effect. The caller holds the exclusive lock and has called cddpi_file_follow().
 *  @param out_end  The offset after the entry. The caller sets log->end to it after the effect is
 * in the table. */
cddp_status cddpi_file_append(struct cddpi_file_log *log, const struct cddpi_effect *effect,
                              uint64_t *out_end);

/* Locks between processes that share the file: open file description locks (F_OFD_SETLK) on two
 * bytes far beyond the file's data. The kernel releases them however their process ends, and they
 * work over NFS. Unlike POSIX record locks, they belong to the open file description: two handles
 * in one process exclude each other, and a forked process shares its parent's locks.
 *
 * An operation holds the DATA lock, shared or exclusive, while it runs. Every handle holds the LIVE
 * lock, shared, while it is open. So a handle that holds DATA exclusively and also gets LIVE
 * exclusively knows that no other handle is open on any machine. */
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

#endif
