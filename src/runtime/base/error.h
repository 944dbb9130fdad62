/* error.h - this thread's last failure. The code that first knows the cause words the failure once;
 * the failure then travels as data to the launcher's report. The text is for people: code decides
 * by the other members. */
#ifndef CDDPI_ERROR_H
#define CDDPI_ERROR_H

#include "base/shared.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { CDDPI_FAILURE_TEXT_BYTES = 4096, CDDPI_FAILURE_OPERATION_BYTES = 128 };

/* A failure. Ranks also send it to each other in this form. */
struct cddpi_failure {
    int32_t status;       /* a cddp_status; CDDP_OK: nothing has failed */
    int32_t rank;         /* R if the text begins with "rank R: "; -1: the text names no rank */
    int32_t culprit;      /* the rank of the job that caused this failure; -1: unknown */
    int32_t error_number; /* the errno that caused the failure; 0: none */
    int32_t is_stopped;   /* the process that was waited for is stopped by a signal or a debugger */
    int32_t has_left;     /* the culprit has left the group, as a rank does when it has finished */
    int32_t is_fatal;     /* it broke the group, or the cddp_ddp, that it is kept in */
    uint32_t unnamed;     /* offset in the text of the part after the rank's name */
    char operation[CDDPI_FAILURE_OPERATION_BYTES]; /* the group operation, such as "all_reduce #12";
                                                      "": none */
    char text[CDDPI_FAILURE_TEXT_BYTES];
};

/** This thread's last failure. Valid and unchanged until the thread's next failure. */
CDDPI_SHARED const struct cddpi_failure *cddpi_last_failure(void);

/** Return the status of @p call from this function unless it is CDDP_OK. @p call has already worded
 *  its failure. */
#define CDDPI_TRY(call)                                                                            \
    do {                                                                                           \
        const cddp_status tried_ = (call);                                                         \
        if (tried_ != CDDP_OK) {                                                                   \
            return tried_;                                                                         \
        }                                                                                          \
    } while (0)

/** The same for a function that must undo something first: store the status in @p status and go to
 *  @p label. */
#define CDDPI_TRY_GOTO(label, status, call)                                                        \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != CDDP_OK) {                                                                 \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/** Return CDDP_ERR_NO_MEMORY from this function, with this text, unless @p has: the pointers that
 *  were allocated are not NULL. */
#define CDDPI_TRY_MEMORY(has, ...)                                                                 \
    do {                                                                                           \
        if (!(has)) {                                                                              \
            return cddpi_fail(CDDP_ERR_NO_MEMORY, __VA_ARGS__);                                    \
        }                                                                                          \
    } while (0)

/** Store a failure's text and return @p status, so that a caller can `return cddpi_fail(...)`. */
CDDPI_SHARED cddp_status cddpi_fail(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Like cddpi_fail(), with "rank R: " before the text and R as the failure's rank. @p rank is -1
 *  for no rank. */
CDDPI_SHARED cddp_status cddpi_fail_rank(cddp_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Like cddpi_fail(), with ": " and the text of @p error_number (an errno) at the end. */
CDDPI_SHARED cddp_status cddpi_fail_errno(cddp_status status, int error_number, const char *format,
                                          ...) __attribute__((format(printf, 3, 4)));

/** Whether @p value, from another process, is the status of an error that this library knows. */
bool cddpi_is_error(int32_t value);

/** The errno of this thread's last failure, as cddpi_fail_errno() or cddpi_error_number() stored
 *  it. A prefix keeps it. 0: none. */
int cddpi_last_errno(void);

/** " (ulimit -f)" or similar if a resource limit of this process makes calls fail with
 *  @p error_number; else "". */
const char *cddpi_limit_text(int error_number);

/** Put "what: " before the stored text, for a caller that knows where the failure happened. Returns
 *  @p status. The arguments must not point into the stored text. */
CDDPI_SHARED cddp_status cddpi_fail_prefix(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Append to the stored text. Returns @p status. The arguments must not point into the stored
 *  text. */
CDDPI_SHARED cddp_status cddpi_fail_suffix(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Put "rank R: " before the stored text, unless the text already begins with a rank's name.
 *  Returns @p status. */
cddp_status cddpi_fail_name(cddp_status status, int rank);

/** Store a failure that was kept earlier or that came from another rank, with the status @p status.
 *  Returns @p status. */
CDDPI_SHARED cddp_status cddpi_fail_again(cddp_status status, const struct cddpi_failure *failure);

/** After a function of the caller has returned @p status, which is not CDDP_OK: word the failure as
 *  "WHAT: the status's text", unless it has words, from cddp_fail() or a call of cddp that failed
 *  with this status. @p what "": only the text.
 *  @return @p status; CDDP_ERR_ARGUMENT if that is no error. */
cddp_status cddpi_fail_callback(cddp_status status, const char *what);

/** The same for the function of a rank or of a device's thread, where C programs return any number.
 *  One that is no error gives the thread's last failure; if there is none, @p otherwise. */
cddp_status cddpi_fail_returned(cddp_status status, cddp_status otherwise);

/** Forget the stored failure. */
void cddpi_error_clear(void);

/* The following functions add facts to the stored failure. A prefix keeps these facts; the next
 * failure replaces them. */

/** Rank @p rank of the job is the culprit: its failure caused this one. -1: unknown. */
void cddpi_error_blame(int rank);
/** The culprit; -1: unknown. */
int cddpi_error_culprit(void);
/** The failure was caused by @p error_number, but its text does not come from strerror(). */
void cddpi_error_number(int error_number);
/** The process that was waited for is stopped. */
void cddpi_error_stopped(void);
/** The culprit has left the group. */
void cddpi_error_left(void);
/** The failure breaks the group, or the cddp_ddp, of the call. */
void cddpi_error_fatal(void);
/** The failure happened in this operation of a group. */
void cddpi_error_during(const char *operation);

#endif
