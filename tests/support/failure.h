/* failure.h - what tests ask about a failure: the data that programs decide by. The words of each
 * failure are the business of one test. */
#ifndef CDDP_TESTS_SUPPORT_FAILURE_H
#define CDDP_TESTS_SUPPORT_FAILURE_H

#include <cddp/status.h>

enum { ANY_RANK = -2 };

/* Whether a call returned @p want, this thread's last failure has that status, and its rank (whose
 * name the text begins with), culprit and operation (the beginning of its title; "": none; NULL:
 * any) are these. Prints the failure if it is another one. */
bool failure_is(cddp_status got, cddp_status want, int rank, int culprit, const char *operation);

/* Whether this thread's last failure was caused by the errno @p want; 0: by none. Prints the
 * failure if not. */
bool failure_errno_is(int want);

/* Whether the words of this thread's last failure contain @p text. Prints them if they do not. */
bool last_error_has(const char *text);

/* Assert that a call succeeded. Not for ranks. */
void must(cddp_status status);

#endif
