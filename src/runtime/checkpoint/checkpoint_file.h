/* checkpoint_file.h - owns what checkpoints need beyond base/file.h: durable folders and file
 * hashes. */
#ifndef CDDPI_CHECKPOINT_FILE_H
#define CDDPI_CHECKPOINT_FILE_H

#include "base/file.h"
#include "base/shared.h"

#include <sodium.h>
#include <stdbool.h>

enum { CDDPI_DIGEST_BYTES = 32, CDDPI_DIGEST_HEX_BYTES = 2 * CDDPI_DIGEST_BYTES + 1 };

/** Open the file @p path for reading; a named pipe does not block. CDDP_ERR_NOT_FOUND: there is no
 *  such file. */
cddp_status cddpi_checkpoint_open(const char *path, int *out);
/** Open the folder @p path. If it or its parents are missing, create and flush them. */
cddp_status cddpi_file_open_dir(const char *path, int *out);

/* The hash of the bytes that go to a writer. libsodium needs it aligned to 64 bytes, which the heap
 * does not promise: keep it on the stack. */
struct cddpi_digest {
    crypto_generichash_state hash;
};

/** Hash all bytes that are put to @p writer from now on. @p digest must outlive the writer. */
cddp_status cddpi_digest_watch(struct cddpi_digest *digest, struct cddpi_writer *writer);
void cddpi_digest_take(struct cddpi_digest *digest, unsigned char out[CDDPI_DIGEST_BYTES]);

/** Get the size and the BLAKE2b-256 hash (hex digits) of the regular file @p path. */
cddp_status cddpi_file_digest(const char *path, uint64_t *out_bytes,
                              char out_hex[CDDPI_DIGEST_HEX_BYTES]);

/** Copy @p text to @p buffer for an error text, with control characters replaced and the length
 *  bounded: names inside files come from strangers. Returns @p buffer. */
CDDPI_SHARED const char *cddpi_printable(const char *text, char *buffer, size_t bytes);

#endif
