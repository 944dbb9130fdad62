/** @file
 *  status.h - how every call of cddp reports success or failure. */
#ifndef CDDP_STATUS_H
#define CDDP_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the library offers to others. */
#define CDDP_API __attribute__((visibility("default")))
/** A function whose result must be looked at: compilers warn where it is not. */
#define CDDP_CHECKED CDDP_API __attribute__((warn_unused_result))

/** All statuses: X(name, value, sentence). In one place, so that none can lack its text. */
#define CDDP_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(ERR_ARGUMENT, -1, "an argument is outside its range")                                        \
    X(ERR_NO_MEMORY, -2, "memory could not be allocated")                                          \
    X(ERR_PEER, -3, "another rank failed or went away")                                            \
    X(ERR_TIMEOUT, -4, "the deadline passed")                                                      \
    X(ERR_MISMATCH, -5, "ranks disagree about what to do")                                         \
    X(ERR_IO, -6, "a file or a connection failed")                                                 \
    X(ERR_FORMAT, -7, "data from outside is not what it should be")                                \
    X(ERR_CONFIG, -8, "the configuration is wrong")                                                \
    X(ERR_AUTH, -9, "the job's token was refused")                                                 \
    X(ERR_NOT_FOUND, -10, "what was asked for does not exist")                                     \
    X(ERR_STATE, -11, "the call does not fit the object's state")                                  \
    X(ERR_UNAVAILABLE, -12, "this build or machine cannot do it")                                  \
    X(ERR_CLOSED, -13, "the object was closed or its group is broken")                             \
    X(ERR_DEVICE, -14, "a GPU or its libraries failed")
/** One line of cddp_status. */
#define CDDP_STATUS_VALUE(name, value, text) CDDP_##name = value,
/** What a call gives: CDDP_OK, or CDDP_ERR_ARGUMENT and so on, one for each line of
 *  CDDP_STATUS_MAP. */
typedef enum cddp_status { CDDP_STATUS_MAP(CDDP_STATUS_VALUE) } cddp_status;

/** The sentence of @p status; a static string, also for a number that is none. Any thread. */
CDDP_API const char *cddp_status_text(cddp_status status);

/** What failed in this thread's last failed call: rank, operation, peer and cause.
 *  Owned by cddp and valid until this thread's next cddp call; "" when nothing has failed yet. */
CDDP_API const char *cddp_last_error(void);

/** The library's version, "major.minor.patch"; a static string. Any thread. */
CDDP_API const char *cddp_version(void);

#ifdef __cplusplus
}
#endif
#endif
