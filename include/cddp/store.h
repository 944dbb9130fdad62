/** @file
 *  store.h - the key-value store in which ranks meet. It is either a TCP server ("tcp://host:port",
 *  inside cddp-run, or in rank 0 if there is no launcher) or a file on a file system that all ranks
 *  share ("file:///path"). Both have the same calls.
 *
 *  A key is a text of 1 to CDDP_STORE_KEY_BYTES bytes without NUL. A value is any bytes, at most
 *  CDDP_STORE_VALUE_BYTES. All keys of a handle are under its prefix. cddp's own prefix contains
 *  the job id and the generation, so ranks never read keys of an earlier job or generation.
 *
 *  A file exists as long as a process has it open. The process that opens it first discards
 *  whatever an earlier or crashed run left there, and the last one to close it removes it. So every
 *  rank keeps its handle open until all ranks have read what they need.
 *
 *  One thread at a time uses a handle. It belongs to the process that opened it: a forked child
 *  gets CDDP_ERR_STATE, and opens a handle of its own. Every call that waits has a deadline. After
 *  CDDP_ERR_TIMEOUT the handle is as usable as before, and a requested change may or may not have
 *  been made. After CDDP_ERR_IO, a TCP handle can only be closed.
 *
 *  Besides the errors named below, every call on a handle may return CDDP_ERR_ARGUMENT (the key or
 *  the value is too long, or the key is empty), CDDP_ERR_STATE (a forked child), CDDP_ERR_BUSY
 *  (another thread is in a call), CDDP_ERR_CLOSED (closed before), CDDP_ERR_TIMEOUT, CDDP_ERR_IO or
 *  CDDP_ERR_NO_MEMORY (in this process, or in the server). */
#ifndef CDDP_STORE_H
#define CDDP_STORE_H

#include <cddp/process.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CDDP_STORE_KEY_BYTES = 512, CDDP_STORE_VALUE_BYTES = 16 << 20 };

/** A connection to the store, or the open file. */
typedef struct cddp_store cddp_store;

/** Which store to open, and the secret that proves that this process belongs to the job. */
typedef struct cddp_store_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** "tcp://host:port" or "file:///path"; borrowed for the call. */
    const char *url;
    /** The job's secret, borrowed for the call; NULL: $CDDP_TOKEN, else "". */
    const char *token;
    /** Prepended to every key, borrowed for the call; NULL: no prefix. */
    const char *prefix;
    /** Time limit for opening the store, and for each call that gets no time limit of its own; 0:
     *  300000. */
    uint32_t timeout_ms;
    /** Zero. */
    uint32_t reserved;

} cddp_store_options;
/** The defaults of cddp_store_options. */
#define CDDP_STORE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_store_options), NULL, NULL, NULL, 0, 0                                         \
    }
CDDP_NO_TAIL(cddp_store_options, reserved);

/* Collective: no, all of these. A call waits only where its comment says so. */
/** Connect, and prove knowledge of the token. If the TCP server does not listen yet, the call tries
 *  again until the deadline.
 *  @param out  Release with cddp_store_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_AUTH, CDDP_ERR_IO, CDDP_ERR_TIMEOUT,
 *          CDDP_ERR_FORMAT (the file is not a store, and stays as it is), CDDP_ERR_NO_MEMORY,
 *          CDDP_ERR_UNAVAILABLE (the system has no random numbers). */
CDDP_CHECKED cddp_status cddp_store_open(const cddp_store_options *options, cddp_store **out);
/** Release the handle; NULL is accepted. A forked child releases only its copy. */
CDDP_API void cddp_store_close(cddp_store *store);

/** Set @p key to the @p bytes bytes of @p value, whether or not it exists. */
CDDP_CHECKED cddp_status cddp_store_set(cddp_store *store, const char *key, const void *value,
                                        size_t bytes);

/** Wait until @p key exists and copy its value.
 *  @param timeout_ms  0: the store's.
 *  @param out         New memory with the value, then a NUL byte, which does not count, so that
 *                     text can be used as it is. Release with cddp_free().
 *  @param out_bytes   Length of the value; may be NULL.
 *  @return CDDP_ERR_TIMEOUT if @p key does not exist in time; the text names it. */
CDDP_CHECKED cddp_status cddp_store_get(cddp_store *store, const char *key, uint32_t timeout_ms,
                                        void **out, size_t *out_bytes);

/** Like cddp_store_get(), but without waiting: CDDP_ERR_NOT_FOUND if @p key does not exist. */
CDDP_CHECKED cddp_status cddp_store_try_get(cddp_store *store, const char *key, void **out,
                                            size_t *out_bytes);

/** Add @p amount to the decimal number in @p key, atomically. A key that does not exist counts as
 *  0.
 *  @param out  The new number; may be NULL.
 *  @return CDDP_ERR_FORMAT if the value is not a number; CDDP_ERR_ARGUMENT if the sum does not fit
 *          into 64 bits. Both leave the key unchanged. */
CDDP_CHECKED cddp_status cddp_store_add(cddp_store *store, const char *key, int64_t amount,
                                        int64_t *out);

/** Set @p key to @p desired if its value is exactly @p expected, atomically. A key that does not
 *  exist matches if @p expected_bytes is 0.
 *  @param out_swapped  Whether the key was set; may be NULL.
 *  @param out          The value afterwards, as from cddp_store_get(); may be NULL. If the key
 *                      still does not exist, the value is empty.
 *  @param out_bytes    Length of that value; may be NULL. */
CDDP_CHECKED cddp_status cddp_store_compare_set(cddp_store *store, const char *key,
                                                const void *expected, size_t expected_bytes,
                                                const void *desired, size_t desired_bytes,
                                                bool *out_swapped, void **out, size_t *out_bytes);

/** Wait until all @p count keys exist.
 *  @param timeout_ms  0: the store's.
 *  @return CDDP_ERR_TIMEOUT if keys are still missing; the text says how many, and names the first
 *          few. */
CDDP_CHECKED cddp_status cddp_store_wait(cddp_store *store, const char *const *keys, size_t count,
                                         uint32_t timeout_ms);

/** Delete @p key.
 *  @param out_existed  Whether @p key existed; may be NULL. */
CDDP_CHECKED cddp_status cddp_store_delete(cddp_store *store, const char *key, bool *out_existed);

/** List the keys that begin with @p start, sorted by bytes. The handle's prefix is not part of
 *  @p start, nor of the keys.
 *  @param start      "" for all keys.
 *  @param out        @p out_count texts in one block of memory: one cddp_free() releases all. NULL
 *                    if there are no keys.
 *  @param out_count  How many keys there are.
 *  @return CDDP_ERR_UNAVAILABLE if the keys have more than 64 MiB in all. */
CDDP_CHECKED cddp_status cddp_store_list(cddp_store *store, const char *start, char ***out,
                                         size_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
