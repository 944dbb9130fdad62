/* utf8.c - decides which bytes are a UTF-8 character (RFC 3629), and which characters can be
 * shown. */
#include "base/utf8.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t cddpi_utf8_length(const char *text, size_t bytes)
{
    /* the smallest code for each length in bytes */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *in = (const unsigned char *)text;
    size_t length;
    uint32_t code;

    if (bytes == 0) {
        return 0;
    }
    length = in[0] < 0x80           ? 1
             : (in[0] >> 5) == 0x06 ? 2
             : (in[0] >> 4) == 0x0E ? 3
             : (in[0] >> 3) == 0x1E ? 4
                                    : 0;
    if (length <= 1 || length > bytes) {
        return length == 1 ? 1 : 0;
    }
    code = in[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((in[i] & 0xC0) != 0x80) {
            return 0;
        }
        code = code << 6 | (in[i] & 0x3F);
    }
    return code >= least[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) ? length
                                                                                         : 0;
}

size_t cddpi_utf8_mark(const char *text, size_t bytes)
{
    static const char mark[] = "\xEF\xBB\xBF";

    return bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0 ? sizeof mark - 1
                                                                                : 0;
}

/* C0, DEL and C1 (bytes C2 80 to C2 9F). */
static bool is_control(const char *text, size_t length)
{
    unsigned char first = (unsigned char)text[0];

    if (length == 2) {
        return first == 0xC2 && (unsigned char)text[1] < 0xA0;
    }
    return length == 1 && (first == 0x7F || (first < 0x20 && first != '\n' && first != '\t'));
}

char *cddpi_utf8_clean(const char *text, size_t bytes)
{
    static const char unknown[] = "\xEF\xBF\xBD";
    char *out = cddpi_zalloc_array(bytes + 1, sizeof unknown - 1);
    size_t used = 0;

    for (size_t i = 0; out != NULL && i < bytes;) {
        size_t length = cddpi_utf8_length(text + i, bytes - i);

        if (length == 0 || is_control(text + i, length)) {
            memcpy(out + used, unknown, sizeof unknown - 1);
            used += sizeof unknown - 1;
        } else {
            memcpy(out + used, text + i, length);
            used += length;
        }
        i += length > 0 ? length : 1;
    }
    return out;
}

static uint32_t code_of(const char *text, size_t length)
{
    const unsigned char *in = (const unsigned char *)text;
    uint32_t code = length == 1 ? in[0] : in[0] & (0x7Fu >> length);

    for (size_t i = 1; i < length; i++) {
        code = code << 6 | (in[i] & 0x3F);
    }
    return code;
}

/* Characters that are invisible or change how others appear: direction marks and overrides, line
 * and paragraph separators, the byte order mark. */
static bool is_invisible(uint32_t code)
{
    return code == 0x061C || code == 0x200B || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x2069) ||
           code == 0xFEFF;
}

/* Write the escape of the @p length bytes at @p text. A length of 0 is one byte that is not UTF-8.
 * "": no escape is needed. */
static void escape(const char *text, size_t length, bool one_line, char out[16])
{
    uint32_t code = length > 0 ? code_of(text, length) : 0;

    out[0] = '\0';
    if (length == 0) {
        snprintf(out, 16, "\\x%02x", (unsigned char)text[0]);
    } else if (length == 1 &&
               (is_control(text, 1) || (one_line && (text[0] == '\n' || text[0] == '\t')))) {
        snprintf(out, 16, "\\x%02x", (unsigned)code);
    } else if (is_control(text, length) || is_invisible(code)) {
        snprintf(out, 16, "\\u%04x", (unsigned)code);
    }
}

void cddpi_text_clean(char *text, size_t room, bool one_line)
{
    size_t bytes = strnlen(text, room - 1);

    text[bytes] = '\0';
    for (size_t i = 0; i < bytes;) {
        size_t length = cddpi_utf8_length(text + i, bytes - i);
        size_t taken = length > 0 ? length : 1;
        char form[16];
        size_t added, after;

        escape(text + i, length, one_line, form);
        added = strlen(form);
        if (added == 0) {
            i += taken;
            continue;
        }
        if (i + added >= room) {
            text[i] = '\0';
            return;
        }
        after = bytes - i - taken;
        after = after < room - 1 - i - added ? after : room - 1 - i - added;
        memmove(text + i + added, text + i + taken, after);
        memcpy(text + i, form, added);
        bytes = i + added + after;
        text[bytes] = '\0';
        i += added;
    }
}
