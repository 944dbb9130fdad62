/* shell.h - quotes words for a POSIX shell, to print command lines. */
#ifndef CDDPI_BASE_SHELL_H
#define CDDPI_BASE_SHELL_H

#include <stdio.h>

/** Write @p word to @p to, quoted if necessary, so that any POSIX shell reads it back. */
void cddpi_shell_quote(FILE *to, const char *word);

/** The same for people: characters that a terminal would act on are escaped as in $'...', which not
 *  every shell can read. */
void cddpi_shell_print(FILE *to, const char *word);

#endif
