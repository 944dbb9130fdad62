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

#endif
