/* shell.h - words as a POSIX shell reads them back, for command lines. */
#ifndef CDDPI_BASE_SHELL_H
#define CDDPI_BASE_SHELL_H

#include <stdio.h>

/** Write @p word to @p to for any shell, in quotes if it needs them. */
void cddpi_shell_quote(FILE *to, const char *word);

/** The same for people: what a terminal would obey is escaped as in $'...', which not every shell
 *  reads. */
void cddpi_shell_print(FILE *to, const char *word);

#endif
