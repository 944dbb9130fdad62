/* shell.c - quotes words for a POSIX shell. */
#include "base/shell.h"

#include "base/utf8.h"

#include <string.h>

/* Write $'...', which bash, zsh, ksh and POSIX.1-2024 know. */
static void print_escaped(FILE *to, const char *word)
{
    fputs("$'", to);
    for (; *word != '\0'; word++) {
        unsigned char byte = (unsigned char)*word;

        if (byte == '\'' || byte == '\\') {
            fprintf(to, "\\%c", byte);
        } else if (byte < 0x20 || byte >= 0x7F) {
            fprintf(to, "\\%03o", byte);
        } else {
            fputc(byte, to);
        }
    }
    fputc('\'', to);
}

void cddpi_shell_quote(FILE *to, const char *word)
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

void cddpi_shell_print(FILE *to, const char *word)
{
    char shown[4096];

    snprintf(shown, sizeof shown, "%s", word);
    cddpi_text_clean(shown, sizeof shown, true);
    if (strcmp(shown, word) != 0) { /* a terminal would act on it, or it is too long to clean */
        print_escaped(to, word);
    } else {
        cddpi_shell_quote(to, word);
    }
}
