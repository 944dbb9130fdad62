/** @file
 *  process.h - what concerns the whole process that embeds cddp: where its messages go, where its
 *  memory comes from, and the signals that ask it to stop. */
#ifndef CDDP_PROCESS_H
#define CDDP_PROCESS_H

#include <cddp/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How much a line of the log matters. $CDDP_LOG says up to which level there are lines. */
typedef enum cddp_log_level {
    CDDP_LOG_ERROR = 1, /**< something has failed */
    CDDP_LOG_WARN = 2,  /**< something is not as it should be, and goes on */
    CDDP_LOG_INFO = 3,  /**< what was chosen, and why */
    CDDP_LOG_DEBUG = 4  /**< for those who look inside */

} cddp_log_level;

/** Gets a line of the log, without newline and without the rank; valid for the call. Called by any
 *  thread of cddp's, also by several at once. Calls no function of cddp's. */
typedef void (*cddp_log_fn)(void *state, cddp_log_level level, const char *line);

/** Let @p sink have the lines that would go to stderr. Before other calls of cddp, or while no
 * other thread is in one.
 *  @param sink   NULL: to stderr again.
 *  @param state  Given to it. */
CDDP_API void cddp_log_set_sink(cddp_log_fn sink, void *state);

/** Where the memory of cddp's objects comes from. All functions may be called by any thread. What
 *  ranks share, and what libraries below cddp allocate, does not come from here. */
typedef struct cddp_allocator {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** Given to the functions. */
    void *state;
    /** @p bytes > 0 bytes of memory aligned to @p alignment, a power of two of at least 16; NULL:
     *  there is none. */
    void *(*alloc)(void *state, size_t bytes, size_t alignment);
    /** As realloc(), of memory with alignment 16: @p memory may be NULL, and stays on failure. */
    void *(*resize)(void *state, void *memory, size_t bytes);
    /** Release memory of either function; never NULL. */
    void (*release)(void *state, void *memory);

} cddp_allocator;
/** A cddp_allocator without functions. */
#define CDDP_ALLOCATOR_INIT                                                                        \
    {                                                                                              \
        sizeof(cddp_allocator), NULL, NULL, NULL, NULL                                             \
    }

/** Use @p allocator, which is copied, from now on until the process ends. Before any other call of
 *  cddp.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (no initialiser, or a function is missing); CDDP_ERR_STATE
 *          (cddp has allocated already). */
CDDP_CHECKED cddp_status cddp_allocator_set(const cddp_allocator *allocator);

/** Let the signals SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGUSR1 ask this process to stop, which
 *  cddp_should_stop() in exchange.h then tells all ranks. The first only asks; a second SIGTERM,
 *  SIGINT or SIGQUIT later than 200 ms after it ends the process as usual. Ignored SIGHUP and
 *  SIGQUIT stay so. Handlers run on a stack of their own; system calls go on. Once, by the main
 *  thread. */
CDDP_API void cddp_stop_on_signals(void);

#ifdef __cplusplus
}
#endif
#endif
