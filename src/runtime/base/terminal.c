/* terminal.c - asks the terminal for its width, and makes a line fit. */
#include "base/terminal.h"

#include "base/number.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { USUAL_COLUMNS = 80 };

static bool is_dumb(void)
{
    const char *name = getenv("TERM");

    return name != NULL && strcmp(name, "dumb") == 0;
}

bool cddpi_terminal_redraws(int fd)
{
    return isatty(fd) == 1 && !is_dumb();
}

bool cddpi_terminal_has_colour(void)
{
    const char *name = getenv("TERM");
    const char *none = getenv("NO_COLOR");

    return name != NULL && name[0] != '\0' && !is_dumb() && (none == NULL || none[0] == '\0');
}

int cddpi_terminal_columns(int fd)
{
    const char *text = getenv("COLUMNS");
    struct winsize size = {0};
    bool is_terminal = ioctl(fd, TIOCGWINSZ, &size) == 0;
    int64_t columns;

    if (is_terminal && size.ws_col > 0) {
        return size.ws_col;
    }
    if (text != NULL && cddpi_parse_integer(text, 1, UINT16_MAX, &columns)) {
        return (int)columns;
    }
    return is_terminal ? USUAL_COLUMNS : 0;
}

/* The bytes of the colour that @p text begins with, "\033[...m"; 0: none. */
static size_t colour_bytes(const char *text, size_t bytes)
{
    size_t used = 2;

    if (bytes < 3 || text[0] != '\033' || text[1] != '[') {
        return 0;
    }
    while (used < bytes && (text[used] == ';' || (text[used] >= '0' && text[used] <= '9'))) {
        used++;
    }
    return used < bytes && text[used] == 'm' ? used + 1 : 0;
}

size_t cddpi_terminal_fit(const char *line, size_t bytes, int columns)
{
    size_t room = columns > 0 ? (size_t)columns - 1 : bytes;
    size_t taken = 0;  /* columns */
    size_t fields = 0; /* bytes of the whole fields that fit */
    size_t cut = 0;    /* bytes that fit */

    for (size_t at = 0; at < bytes;) {
        size_t colour = colour_bytes(line + at, bytes - at);

        if (colour > 0) {
            at += colour;
            continue;
        }
        if (bytes - at >= 2 && line[at] == ' ' && line[at + 1] == ' ' && taken <= room) {
            fields = at;
        }
        taken += ((unsigned char)line[at] & 0xc0) != 0x80; /* the first byte of a character */
        at++;
        cut = taken <= room ? at : cut;
    }
    if (taken <= room) {
        return bytes;
    }
    return fields > 0 ? fields : cut;
}
