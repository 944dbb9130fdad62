/* streams.c - handles standard streams that are closed or cannot be written to. */
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
