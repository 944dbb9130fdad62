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

/* The columns that the UTF-8 character that begins at @p text takes: 2 for those of East Asia and
 * pictures, 0 for accents that go onto the one before, 0 for the later bytes of a character. (The
 * blocks of Unicode, coarsely; wcwidth() would need the caller's locale.) */
static size_t columns_of(const char *text, size_t bytes)
{
    static const uint32_t wide[][2] = {{0x1100, 0x115f},  {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                       {0xf900, 0xfaff},  {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                       {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff},
                                       {0x20000, 0x3fffd}};
    unsigned char first = (unsigned char)text[0];
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t code = length == 1 ? first : first & (0x7fU >> length);

    if ((first & 0xc0) == 0x80) {
        return 0;
    }
    for (size_t i = 1; i < length && i < bytes; i++) {
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (code >= 0x300 && code <= 0x36f) {
        return 0;
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (code >= wide[i][0] && code <= wide[i][1]) {
            return 2;
        }
    }
    return 1;
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
        taken += columns_of(line + at, bytes - at);
        at++;
        cut = taken <= room ? at : cut;
    }
    if (taken <= room) {
        return bytes;
    }
    return fields > 0 ? fields : cut;
}
