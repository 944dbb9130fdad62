/* grammar.c - owns a second grammar of configurations, which only finds where a text is wrong.
 * libconfig decides what is read, but its errors are a line and two words. */
#include "train/config/config_file.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DEPTH_MAX = 100, SHOWN_WORD = 24 };

struct scan {
    const char *text;
    const char *at;
    const char *fault; /* NULL: no fault so far */
    char *what;
    int depth;
};

static void scan_value(struct scan *scan, const char *key, int key_bytes);

static void __attribute__((format(printf, 3, 4)))
note_fault(struct scan *scan, const char *at, const char *format, ...)
{
    va_list arguments;

    if (scan->fault != NULL) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(scan->what, CDDPI_FAULT_BYTES, format, arguments);
    va_end(arguments);
    scan->fault = at;
}

bool cddpi_config_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '*';
}

/* Whether only blanks precede the place in its line. */
static bool begins_line(const struct scan *scan)
{
    const char *c = scan->at;

    while (c > scan->text && (c[-1] == ' ' || c[-1] == '\t')) {
        c--;
    }
    return c == scan->text || c[-1] == '\n';
}

/* Skip spaces, comments and @include lines. */
static void skip_blanks(struct scan *scan)
{
    static const char include[] = "@include";

    for (;;) {
        size_t opaque = scan->at[0] != '"' ? cddpi_config_opaque_length(scan->at, NULL) : 0;

        if (opaque > 0) {
            scan->at += opaque;
        } else if (scan->at[0] != '\0' && strchr(" \t\r\n\f", scan->at[0]) != NULL) {
            scan->at++;
        } else if (begins_line(scan) && strncmp(scan->at, include, sizeof include - 1) == 0) {
            scan->at += strcspn(scan->at, "\n");
        } else {
            return;
        }
    }
}

/* Describe what is at the place: a word, a character, or the end of the file. */
static const char *shown_at(const struct scan *scan, char out[64])
{
    static const char *const quotes[] = {"\xE2\x80\x9C", "\xE2\x80\x9D", "\xE2\x80\x9E",
                                         "\xE2\x80\x98", "\xE2\x80\x99", "\xC2\xAB",
                                         "\xC2\xBB"};
    size_t length = strspn(scan->at,
                           "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.+*");

    if (scan->at[0] == '\0') {
        return "the end of the file";
    }
    for (size_t i = 0; i < sizeof quotes / sizeof *quotes; i++) {
        if (strncmp(scan->at, quotes[i], strlen(quotes[i])) == 0) {
            return "a typographic quotation mark (the plain one is \")";
        }
    }
    if (strncmp(scan->at, "\xC2\xA0", 2) == 0) {
        return "a no-break space (U+00A0)";
    }
    if (length == 0) {
        length = cddpi_utf8_length(scan->at, strlen(scan->at));
        length = length > 0 && (unsigned char)scan->at[0] >= 0x20 ? length : 0;
    }
    if (length == 0) {
        snprintf(out, 64, "the byte 0x%02x", (unsigned char)scan->at[0]);
    } else {
        snprintf(out, 64, "%.*s", (int)(length < SHOWN_WORD ? length : SHOWN_WORD), scan->at);
    }
    return out;
}

/* Scan settings up to @p end, which is '}', or 0 for the whole file. */
static void scan_settings(struct scan *scan, char end)
{
    char text[64];

    for (skip_blanks(scan); scan->fault == NULL && scan->at[0] != end; skip_blanks(scan)) {
        const char *key = scan->at;
        int bytes;

        while (cddpi_config_is_name(scan->at[0])) {
            scan->at++;
        }
        if (scan->at == key || (!isalpha((unsigned char)key[0]) && key[0] != '*')) {
            scan->at = key;
            if (key[0] == '@') {
                note_fault(scan, key, "@include has to begin its line");
            } else if (key[0] == '}') {
                note_fault(scan, key, "there is no { that this one ends");
            } else if (key[0] != '\0') { /* at the end of the file, the open bracket is the fault */
                note_fault(scan, key, "a key is expected here, not %s", shown_at(scan, text));
            }
            return;
        }
        bytes = (int)(scan->at - key);
        skip_blanks(scan);
        if (scan->at[0] != '=' && scan->at[0] != ':') {
            note_fault(scan, scan->at, "= is expected behind %.*s, not %s",
                       bytes < SHOWN_WORD ? bytes : SHOWN_WORD, key, shown_at(scan, text));
            return;
        }
        scan->at++;
        skip_blanks(scan);
        scan_value(scan, key, bytes);
        skip_blanks(scan);
        scan->at += scan->at[0] == ';' || scan->at[0] == ',';
    }
}

/* Scan values with commas between them, up to @p end. */
static void scan_values(struct scan *scan, char end, const char *key, int key_bytes)
{
    char text[64];

    for (skip_blanks(scan); scan->fault == NULL && scan->at[0] != end && scan->at[0] != '\0';
         skip_blanks(scan)) {
        scan_value(scan, key, key_bytes);
        skip_blanks(scan);
        if (scan->at[0] == ',') {
            scan->at++;
        } else if (scan->at[0] != end && scan->at[0] != '\0') {
            note_fault(scan, scan->at, ", or %c is expected here, not %s", end,
                       shown_at(scan, text));
        }
    }
}

/* Scan a bracket and its contents. */
static void scan_bracket(struct scan *scan, const char *key, int key_bytes)
{
    const char *begin = scan->at++;
    char end = begin[0] == '{' ? '}' : begin[0] == '[' ? ']' : ')';

    if (++scan->depth > DEPTH_MAX) {
        note_fault(scan, begin, "brackets lie in each other more than %d deep", DEPTH_MAX);
        return;
    }
    if (end == '}') {
        scan_settings(scan, end);
    } else {
        scan_values(scan, end, key, key_bytes);
    }
    scan->depth--;
    if (scan->at[0] == end) {
        scan->at++;
    } else {
        note_fault(scan, begin, "the %c here has no %c", begin[0], end);
    }
}

static void scan_word(struct scan *scan)
{
    size_t length = 0;

    while (cddpi_config_is_name(scan->at[length]) || scan->at[length] == '.' ||
           scan->at[length] == '/') {
        length++;
    }
    if (!(length == 4 && strncasecmp(scan->at, "true", 4) == 0) &&
        !(length == 5 && strncasecmp(scan->at, "false", 5) == 0)) {
        note_fault(scan, scan->at, "text has to be in quotes: \"%.*s\"",
                   (int)(length < SHOWN_WORD ? length : SHOWN_WORD), scan->at);
    }
    scan->at += length;
}

/* The length of the number at the beginning of @p text; 0: there is no number. */
static size_t number_length(const char *text)
{
    static const char digits[] = "0123456789";
    size_t length = text[0] == '+' || text[0] == '-';
    size_t whole = strspn(text + length, digits);
    size_t exponent;
    bool real = text[length + whole] == '.';

    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        size_t hex = strspn(text + 2, "0123456789abcdefABCDEF");

        length = hex > 0 ? 2 + hex : 1;
        length += hex > 0 && text[length] == 'L';
        return length + (hex > 0 && text[length] == 'L');
    }
    length += whole;
    if (real) {
        length += 1 + strspn(text + length + 1, digits);
    } else if (whole == 0) {
        return 0;
    }
    if (text[length] == 'e' || text[length] == 'E') {
        exponent = 1 + (text[length + 1] == '+' || text[length + 1] == '-');
        if (isdigit((unsigned char)text[length + exponent])) {
            return length + exponent + strspn(text + length + exponent, digits);
        }
    }
    for (int i = 0; i < 2 && !real; i++) {
        length += text[length] == 'L';
    }
    return length;
}

static void scan_number(struct scan *scan)
{
    size_t length = number_length(scan->at);
    char text[64];

    if (length == 0 ||
        (scan->at[length] != '\0' && strchr("0123456789.+-", scan->at[length]) != NULL)) {
        note_fault(scan, scan->at, "%s is not a number", shown_at(scan, text));
    }
    scan->at += length > 0 ? length : 1;
}

static void scan_value(struct scan *scan, const char *key, int key_bytes)
{
    char c = scan->at[0];
    char text[64];

    if (c == '"') {
        while (scan->at[0] == '"') { /* adjacent strings are joined */
            scan->at += cddpi_config_opaque_length(scan->at, NULL);
            skip_blanks(scan);
        }
    } else if (c == '{' || c == '[' || c == '(') {
        scan_bracket(scan, key, key_bytes);
    } else if (isalpha((unsigned char)c) || c == '/' || c == '_') {
        scan_word(scan);
    } else if (isdigit((unsigned char)c) || c == '+' || c == '-' || c == '.') {
        scan_number(scan);
    } else {
        note_fault(scan, scan->at, "a value of %.*s is expected here, not %s",
                   key_bytes < SHOWN_WORD ? key_bytes : SHOWN_WORD, key, shown_at(scan, text));
    }
}

long cddpi_config_find_fault(const char *text, char what[CDDPI_FAULT_BYTES])
{
    struct scan scan = {.text = text, .at = text, .what = what};

    scan_settings(&scan, '\0');
    return scan.fault != NULL ? (long)(scan.fault - text) : -1;
}
