/** @file
 *  store.h - the key-value store in which ranks meet. Two forms behind one set of calls: a TCP
 * server ("tcp://host:port": inside cddp-run, or in rank 0 when there is no launcher) and a file on
 * a file system that all ranks share ("file:///path").
 *
 * Keys are text of 1 to CDDP_STORE_KEY_BYTES bytes without NUL; values are any bytes, at most
 * CDDP_STORE_VALUE_BYTES. All keys of a handle live under its prefix (job id and generation), so
 * that nothing of an earlier job or generation is ever read.
 *
 * A file lives as long as somebody has it open: the first to open it begins it anew, whatever an
 * earlier or crashed run left there, and the last to close it removes it. So every rank keeps its
 * handle until all have read what they need.
 *
 * A handle belongs to one thread at a time, and to the process that opened it: a forked one gets
 * CDDP_ERR_STATE and opens its own. Every call that waits has a deadline; after CDDP_ERR_TIMEOUT
 * the handle is as usable as before, and a change that was asked for may or may not have been made.
 * After CDDP_ERR_IO a TCP handle can only be closed.
 *
 * Besides the errors named below, every call on a handle may give CDDP_ERR_ARGUMENT (a key or value
 * out of its bounds), CDDP_ERR_STATE (a forked process), CDDP_ERR_TIMEOUT, CDDP_ERR_IO and
 * CDDP_ERR_NO_MEMORY (here, or where the store is). */
#ifndef CDDP_STORE_H
#define CDDP_STORE_H

#include <cddp/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CDDP_STORE_KEY_BYTES = 512, CDDP_STORE_VALUE_BYTES = 16 << 20 };

/** A connection to the store, or the open file. */
typedef struct cddp_store cddp_store;

/** Which store, and how to prove that one belongs to the job. */
typedef struct cddp_store_options {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** "tcp://host:port" or "file:///path"; borrowed for the call. */
    const char *url;
    /** The job's secret, borrowed for the call; NULL: $CDDP_TOKEN, else "". */
    const char *token;
    /** Put before every key, borrowed for the call; NULL: none. */
    const char *prefix;
    /** Of opening, and of each call that does not say; 0: 300000. */
    uint32_t timeout_ms;

} cddp_store_options;
/** A cddp_store_options of defaults. */
#define CDDP_STORE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_store_options), NULL, NULL, NULL, 0                                            \
    }

/** Connect, and prove the token. A TCP server that does not listen yet is tried again until the
 *  deadline.
 *  @param out  Release with cddp_store_close(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_AUTH, CDDP_ERR_IO, CDDP_ERR_TIMEOUT,
 *          CDDP_ERR_FORMAT (the file is no store, and is left as it is), CDDP_ERR_NO_MEMORY,
 *          CDDP_ERR_UNAVAILABLE (the system has no random numbers). */
CDDP_CHECKED cddp_status cddp_store_open(const cddp_store_options *options, cddp_store **out);
/** Release the handle; NULL is accepted. A forked process releases only its copy. */
CDDP_API void cddp_store_close(cddp_store *store);

/** Let @p key hold @p bytes bytes of @p value, whether or not it held something before. */
CDDP_CHECKED cddp_status cddp_store_set(cddp_store *store, const char *key, const void *value,
                                        size_t bytes);

/** Wait until @p key exists and copy its value.
 *  @param timeout_ms  0: as the store was opened with.
 *  @param out         New memory with a NUL byte (not counted) behind the value, so that text can
 *                    be used as it is. Release with cddp_free().
 *  @param out_bytes   Length of the value; may be NULL. CDDP_ERR_TIMEOUT names the key. */
CDDP_CHECKED cddp_status cddp_store_get(cddp_store *store, const char *key, uint32_t timeout_ms,
                                        void **out, size_t *out_bytes);

/** The same without waiting: CDDP_ERR_NOT_FOUND if @p key does not exist. */
CDDP_CHECKED cddp_status cddp_store_try_get(cddp_store *store, const char *key, void **out,
                                            size_t *out_bytes);

/** Add @p amount to the decimal number that @p key holds (0 if it does not exist), atomically.
 *  @param out  The new number; may be NULL.
 *  @return CDDP_ERR_FORMAT if the key holds no number; CDDP_ERR_ARGUMENT if the sum does not fit
 *          into 64 bits: then the key is as it was. */
CDDP_CHECKED cddp_status cddp_store_add(cddp_store *store, const char *key, int64_t amount,
                                        int64_t *out);

/** If @p key holds exactly @p expected, let it hold @p desired, atomically. A key that does not
 * exist matches @p expected_bytes of 0.
 *  @param out_swapped  Whether it was changed; may be NULL.
 *  @param out          The value afterwards, with its length in @p out_bytes, as cddp_store_get()
 * gives them; may be NULL. A key that still does not exist gives an empty value. */
CDDP_CHECKED cddp_status cddp_store_compare_set(cddp_store *store, const char *key,
                                                const void *expected, size_t expected_bytes,
                                                const void *desired, size_t desired_bytes,
                                                bool *out_swapped, void **out, size_t *out_bytes);

/** Wait until all @p count keys exist. CDDP_ERR_TIMEOUT names those that are missing (the first
 *  few, and how many).
 *  @param timeout_ms  0: as the store was opened with. */
CDDP_CHECKED cddp_status cddp_store_wait(cddp_store *store, const char *const *keys, size_t count,
                                         uint32_t timeout_ms);

/** Forget @p key.
 *  @param out_existed  Whether there was such a key; may be NULL. */
CDDP_CHECKED cddp_status cddp_store_delete(cddp_store *store, const char *key, bool *out_existed);

/** The keys that begin with @p start (below the handle's prefix, which they are given without),
 * sorted by bytes.
 *  @param start  "" for all.
 *  @param out    @p out_count texts in one block of memory: one cddp_free() releases all. NULL for
 *                none.
 *  @return CDDP_ERR_UNAVAILABLE if they are more than 64 MiB in all. */
CDDP_CHECKED cddp_status cddp_store_list(cddp_store *store, const char *start, char ***out,
                                         size_t *out_count);

/** Release memory that cddp gave to the caller; NULL is accepted. Any thread. */
CDDP_API void cddp_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
