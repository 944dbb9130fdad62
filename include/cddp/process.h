/** @file
 *  process.h - settings of the whole process: where cddp's messages go, where its memory comes
 *  from, and the signals that ask the process to stop. */
#ifndef CDDP_PROCESS_H
#define CDDP_PROCESS_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The level of a log line. $CDDP_LOG sets the highest level that is logged. */
typedef enum cddp_log_level {
    CDDP_LOG_ERROR = 1, /**< something has failed */
    CDDP_LOG_WARN = 2,  /**< something is wrong, but work continues */
    CDDP_LOG_INFO = 3,  /**< what was chosen, and why */
    CDDP_LOG_DEBUG = 4  /**< details for debugging cddp */

} cddp_log_level;

/** Receives a log line, without newline and without the rank. @p line is valid during the call.
 *  Threads of cddp call it, several at once if need be. It must not call cddp. */
typedef void (*cddp_log_fn)(void *state, cddp_log_level level, const char *line);

/** Send log lines to @p sink instead of stderr. Call it before any other function of cddp, or while
 *  no other thread is in a call of cddp.
 *  @param sink   NULL: stderr again.
 *  @param state  Passed to @p sink. */
CDDP_API void cddp_log_set_sink(cddp_log_fn sink, void *state);

/** Where the memory of cddp's objects comes from. Any thread may call these functions. Memory that
 *  ranks share, and memory that libraries used by cddp allocate, does not come from here. */
typedef struct cddp_allocator {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** Passed to the functions. */
    void *state;
    /** Allocate @p bytes > 0 bytes, aligned to @p alignment: a power of two, at least 16. NULL: no
     *  memory. */
    void *(*alloc)(void *state, size_t bytes, size_t alignment);
    /** Like realloc(), for memory with alignment 16. @p memory may be NULL. On failure it stays
     *  allocated. */
    void *(*resize)(void *state, void *memory, size_t bytes);
    /** Release memory that alloc or resize returned; never called with NULL. */
    void (*release)(void *state, void *memory);

} cddp_allocator;
/** A cddp_allocator without functions. */
#define CDDP_ALLOCATOR_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_allocator), NULL, NULL, NULL, NULL                                             \
    }

/** Use a copy of @p allocator until the process ends. Call this before any other function of cddp.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (struct_size is not set, or a function is missing);
 *          CDDP_ERR_STATE (cddp has already allocated memory). */
CDDP_CHECKED cddp_status cddp_allocator_set(const cddp_allocator *allocator);

/** Free memory that a call of cddp returned; NULL is accepted. Any thread. */
CDDP_API void cddp_free(void *memory);

/** Treat SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGUSR1 as requests to stop: cddp_should_stop() in
 *  exchange.h reports the request to all ranks. The first signal is only a request. A second
 *  SIGTERM, SIGINT or SIGQUIT, more than 200 ms later, ends the process as usual. SIGHUP and
 *  SIGQUIT stay ignored if they are ignored now. The handlers run on their own stack, and
 *  interrupted system calls are restarted. Call it once, in the main thread. */
CDDP_API void cddp_stop_on_signals(void);

#ifdef __cplusplus
}
#endif
#endif
