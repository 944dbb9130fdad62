/* streams.c - handles standard streams that are closed or cannot be written to, and quotes words
 * for a POSIX shell. */
#include "base/streams.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

void cddpi_streams_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            /* open() returns the lowest free number, which is fd: the lower ones are open by now */
            (void)open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
        }
    }
}

void cddpi_say(FILE *to, const char *format, ...)
{
    char text[8192];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cddpi_text_clean(text, sizeof text, false);
    fputs(text, to);
}

int cddpi_streams_end(const char *program, int status)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: standard output: %s\n", program,
                errno != 0 ? strerror(errno) : "not all could be written");
        return status != 0 ? status : 1;
    }
    return status;
}

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
