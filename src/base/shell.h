/* shell.h - words as a POSIX shell reads them back, for command lines that are shown. */
#ifndef CDDPI_BASE_SHELL_H
#define CDDPI_BASE_SHELL_H

#include <stdio.h>

/** Write @p word to @p to, in quotes if it needs them. */
void cddpi_shell_print(FILE *to, const char *word);

#endif
