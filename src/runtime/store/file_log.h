/* file_log.h - the file of a file store: a header, then one entry for each change, in order.
 *
 *   header  magic u64, version u32, header bytes u32, run (random, 32 bytes), proof of the token
 *   entry   body_bytes u32, kind u8, 0 u8, key_bytes u16, hash (16 bytes), body: key and value
 *
 * Numbers are little-endian. An entry's hash is keyed with the token and the run and covers the
 * entry's place, so neither an entry of another run nor one that is half written passes for a valid
 * one. Readers ignore what a killed writer left after the last complete entry, and the next writer
 * cuts it off. */
#ifndef CDDPI_STORE_FILE_LOG_H
#define CDDPI_STORE_FILE_LOG_H

#include "store/auth.h"
#include "store/store_table.h"

struct cddpi_file_log {
    int fd;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];   /* of the token */
    uint8_t entry_key[CDDPI_AUTH_BYTES]; /* of the token and this run */
    uint64_t end;                        /* of the last entry that the table has */
};

/** What is at the beginning of the file, read with the file locked. */
enum cddpi_file_kind { CDDPI_FILE_STORE, CDDPI_FILE_EMPTY, CDDPI_FILE_FOREIGN };
cddp_status cddpi_file_kind(int fd, enum cddpi_file_kind *out);

/** Empty the file and begin a new run. The caller holds the exclusive lock and knows that nobody
 *  else uses the file. */
cddp_status cddpi_file_begin(struct cddpi_file_log *log);

/** Join the run that the file holds. CDDP_ERR_AUTH if it was begun with another token. */
cddp_status cddpi_file_join(struct cddpi_file_log *log);

/** Bring @p table up to date. The caller holds the lock, shared or exclusive. */
cddp_status cddpi_file_follow(struct cddpi_file_log *log, struct cddpi_table *table);

/** Append @p effect. The caller holds the exclusive lock and has called cddpi_file_follow().
 *  @param out_end  Where the entry ends: log->end once the table has it. */
cddp_status cddpi_file_append(struct cddpi_file_log *log, const struct cddpi_effect *effect,
                              uint64_t *out_end);

#endif
