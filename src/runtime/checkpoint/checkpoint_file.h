/* checkpoint_file.h - what checkpoints need of files beyond base/file.h: durable folders, and
 * hashes. */
#ifndef CDDPI_CHECKPOINT_FILE_H
#define CDDPI_CHECKPOINT_FILE_H

#include "base/file.h"

#include <sodium.h>
#include <stdbool.h>

enum { CDDPI_DIGEST_BYTES = 32, CDDPI_DIGEST_HEX_BYTES = 2 * CDDPI_DIGEST_BYTES + 1 };

/** Make the folder @p path and its parents where they are missing, durably; open it. */
cddp_status cddpi_file_open_dir(const char *path, int *out);

/* The hash of what goes to a writer. It wants 64-byte alignment, so it lives on the stack. */
struct cddpi_digest {
    crypto_generichash_state hash;
};

/** Hash all that is put from now on. @p digest lives as long as the writer. */
cddp_status cddpi_digest_watch(struct cddpi_digest *digest, struct cddpi_writer *writer);
void cddpi_digest_take(struct cddpi_digest *digest, unsigned char out[CDDPI_DIGEST_BYTES]);

/** Bytes and BLAKE2b-256 (as hex digits) of the regular file @p path. */
cddp_status cddpi_file_digest(const char *path, uint64_t *out_bytes,
                              char out_hex[CDDPI_DIGEST_HEX_BYTES]);

/** @p text with control characters replaced and its length bounded, for error texts: names in files
 * come from strangers. Returns @p buffer. */
const char *cddpi_printable(const char *text, char *buffer, size_t bytes);

#endif
