/** @file
 *  process.h - settings of the whole process: where cddp's messages go, where its memory comes
 *  from, and the signals that ask the process to stop. */
#ifndef CDDP_PROCESS_H
#define CDDP_PROCESS_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The level of a log line. $CDDP_LOG or cddp_log_set_level() sets the highest level that is
 *  logged. */
typedef enum cddp_log_level {
    CDDP_LOG_OFF = 0,   /**< no line has this level: log nothing */
    CDDP_LOG_ERROR = 1, /**< something has failed */
    CDDP_LOG_WARN = 2,  /**< something is wrong, but work continues */
    CDDP_LOG_INFO = 3,  /**< what was chosen, and why */
    CDDP_LOG_DEBUG = 4, /**< details for debugging cddp */
    CDDP_LOG_LEVEL_MAX_ENUM_ = 0x7fffffff
} cddp_log_level;

/** A log line, made by cddp. Later versions append fields. */
typedef struct cddp_log_record {
    size_t struct_size;   /**< which fields this version of cddp has filled */
    cddp_log_level level; /**< its level */
    int rank;             /**< the rank of this process in the job, from $CDDP_RANK; -1: unknown */
    uint64_t time_ns;     /**< nanoseconds since 1970, UTC */
    const char *line;     /**< without newline and without the rank */

} cddp_log_record;
CDDP_NO_TAIL(cddp_log_record, line);

/** Receives a log line. @p record and its line are valid during the call. Threads of cddp call it,
 *  several at once if need be. May call: nothing of cddp. */
typedef void (*cddp_log_fn)(void *state, const cddp_log_record *record);

/** Send log lines to @p sink instead of stderr. Call it before any other function of cddp, or while
 *  no other thread is in a call of cddp.
 *  Collective: no.
 *  @param sink   NULL: stderr again.
 *  @param state  Passed to @p sink. */
CDDP_API void cddp_log_set_sink(cddp_log_fn sink, void *state);

/** Log lines up to @p level from now on, whatever $CDDP_LOG says. Any thread.
 *  Collective: no. */
CDDP_API void cddp_log_set_level(cddp_log_level level);

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
CDDP_NO_TAIL(cddp_allocator, release);

/** Use a copy of @p allocator until the process ends. Call this before any other function of cddp.
 *  Collective: no.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (struct_size is not set, or a function is missing);
 *          CDDP_ERR_STATE (cddp has already allocated memory). */
CDDP_CHECKED cddp_status cddp_allocator_set(const cddp_allocator *allocator);

/** Free memory that a call of cddp returned; NULL is accepted. Any thread.
 *  Collective: no. */
CDDP_API void cddp_free(void *memory);

/** Treat signals as requests to stop: cddp_stop_requested() reports the request in this process,
 *  cddp_group_should_stop() in exchange.h to all ranks. The first signal is only a request. A
 *  second one, more than 200 ms later, ends the process as usual, unless it is SIGHUP. SIGUSR1 and
 *  SIGUSR2 only announce a time limit: they count neither as the first nor as the second. Signals
 * of cddp-run and those of others are counted apart. SIGTERM or SIGUSR1 of someone else asks this
 * rank to leave, and cddp-run is told of that: an elastic job goes on without the rank. SIGHUP and
 * SIGQUIT stay ignored if they are ignored now. SIGUSR1 also asks for a dump of each group's most
 * recent operations. The handlers run on their own stack, and interrupted system calls are
 * restarted. Call it once, in the main thread. A program with handlers of its own calls
 *  cddp_stop_request() in them instead.
 *  Collective: no.
 *  @param signals  @p count numbers of signals, borrowed for the call. NULL and 0: SIGTERM, SIGINT,
 *                  SIGHUP and SIGQUIT.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (one of them cannot be handled; none is, then). */
CDDP_CHECKED cddp_status cddp_stop_on_signals(const int *signals, size_t count);

/** Request this process to stop, as a first signal does. Any thread, and signal handlers.
 *  Collective: no. */
CDDP_API void cddp_stop_request(void);

/** Whether this process was requested to stop, by a signal or by cddp_stop_request(). Any thread,
 *  and signal handlers. cddp_group_should_stop() in exchange.h asks all ranks.
 *  Collective: no. */
CDDP_API bool cddp_stop_requested(void);

#ifdef __cplusplus
}
#endif
#endif
