/* error.h - this thread's last failure: worded once by whoever first knows the cause, and carried
 * as data from there to the launcher's report. The text is for people: code decides by the other
 * members. */
#ifndef CDDPI_ERROR_H
#define CDDPI_ERROR_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { CDDPI_FAILURE_TEXT_BYTES = 4096, CDDPI_FAILURE_OPERATION_BYTES = 40 };

/* A failure, as it also goes from rank to rank. */
struct cddpi_failure {
    int32_t status;       /* a cddp_status; CDDP_OK: nothing has failed */
    int32_t rank;         /* R if the text begins with "rank R: "; -1: no rank's name is there */
    int32_t culprit;      /* rank of the job whose failure this one follows from; -1: not known */
    int32_t error_number; /* the errno it was worded with; 0: with none */
    int32_t is_stopped;   /* a process that was waited for is stopped, by a signal or a debugger */
    int32_t has_left;     /* the culprit has left the group, as a rank does that is through */
    uint32_t unnamed;     /* where in the text the part behind the rank's name begins */
    char operation[CDDPI_FAILURE_OPERATION_BYTES]; /* of a group: "all_reduce #12"; "": of none */
    char text[CDDPI_FAILURE_TEXT_BYTES];
};

/** This thread's last failure; valid, and the same, until its next one. */
const struct cddpi_failure *cddpi_last_failure(void);

/** Leave this function with the status of @p call unless it is CDDP_OK. The call has worded its
 * failure. */
#define CDDPI_TRY(call)                                                                            \
    do {                                                                                           \
        const cddp_status tried_ = (call);                                                         \
        if (tried_ != CDDP_OK) {                                                                   \
            return tried_;                                                                         \
        }                                                                                          \
    } while (0)

/** The same where something is to be undone: keep the status in @p status and go to @p label. */
#define CDDPI_TRY_GOTO(label, status, call)                                                        \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != CDDP_OK) {                                                                 \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/** Store the text of a failure and return @p status, so that a caller can `return cddpi_fail(...)`.
 */
cddp_status cddpi_fail(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The same with "rank R: " before the text, and R as the failure's rank. @p rank: -1 for none. */
cddp_status cddpi_fail_rank(cddp_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** As cddpi_fail(), with ": " and the text of @p error_number (an errno) at the end. */
cddp_status cddpi_fail_errno(cddp_status status, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The errno that this thread's last failure was worded with by cddpi_fail_errno(), also after a
 *  prefix; 0: it was worded otherwise. */
int cddpi_last_errno(void);

/** " (ulimit -f)" and the like where a limit of this process is what makes calls fail with
 *  @p error_number; else "". */
const char *cddpi_limit_text(int error_number);

/** Put "what: " before the stored text, for a caller that knows where it happened. Returns
 *  @p status. The arguments may not point into the stored text. */
cddp_status cddpi_fail_prefix(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Append to the stored text. Returns @p status. The arguments may not point into the stored text.
 */
cddp_status cddpi_fail_suffix(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Put "rank R: " before the stored text, unless that begins with a rank's name. Returns @p status.
 */
cddp_status cddpi_fail_name(cddp_status status, int rank);

/** Store a failure that was kept, or has come from another rank, with the status @p status. Returns
 *  @p status. */
cddp_status cddpi_fail_again(cddp_status status, const struct cddpi_failure *failure);

/** Forget the stored failure. */
void cddpi_error_clear(void);

/* More about the stored failure. A prefix keeps it; the next failure replaces it. */

/** @p rank of the job is the culprit, from whose failure this one follows; -1: it is not known. */
void cddpi_error_blame(int rank);
/** The culprit; -1: not known. */
int cddpi_error_culprit(void);
/** It was worded of this errno, in words of its own. */
void cddpi_error_number(int error_number);
/** A process that was waited for is stopped. */
void cddpi_error_stopped(void);
/** The culprit has left the group. */
void cddpi_error_left(void);
/** It happened in this operation of a group. */
void cddpi_error_during(const char *operation);

#endif
