/* error.h - the text of this thread's last failure, worded once by whoever first knows the cause.
 */
#ifndef CDDPI_ERROR_H
#define CDDPI_ERROR_H

#include <cddp/status.h>

#include <stdbool.h>

/** Store the text of a failure and return @p status, so that a caller can `return cddpi_fail(...)`.
 */
cddp_status cddpi_fail(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The same with ": " and the text of @p error_number (an errno) at the end. */
cddp_status cddpi_fail_errno(cddp_status status, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Put "what: " before the stored text, for a caller that knows where it happened. Returns
 *  @p status. The arguments may not point into the stored text. */
cddp_status cddpi_fail_prefix(cddp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
