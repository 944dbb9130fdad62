/* shell.c - quotes words for a POSIX shell. */
#include "base/shell.h"

#include <string.h>

void cddpi_shell_print(FILE *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";

    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, to);
        return;
    }
    fputc('\'', to);
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            fputs("'\\''", to);
        } else {
            fputc(*word, to);
        }
    }
    fputc('\'', to);
}
