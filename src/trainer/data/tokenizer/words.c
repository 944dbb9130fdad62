/* words.c - owns the matching of GPT-2's pattern,
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * written by hand, so that each character is read only once, however long the word is. A byte that
 * belongs to no UTF-8 character counts as OTHER, like a punctuation mark. */
#include "data/tokenizer/words.h"

#include <utf8proc.h>

enum words_kind { LETTER = 'L', NUMBER = 'N', SPACE = 's', OTHER = '.' };

/* Kinds of the characters below 128. */
static const char ascii_kinds[] = ".........sssss.................."
                                  "s...............NNNNNNNNNN......"
                                  ".LLLLLLLLLLLLLLLLLLLLLLLLLL....."
                                  ".LLLLLLLLLLLLLLLLLLLLLLLLLL.....";

/* Unicode's White_Space above 127. */
static bool is_wide_space(utf8proc_int32_t point)
{
    return point == 0x85 || point == 0xa0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
           point == 0x202f || point == 0x205f || point == 0x3000;
}

static enum words_kind wide_kind(utf8proc_int32_t point)
{
    switch (utf8proc_category(point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    default:
        return is_wide_space(point) ? SPACE : OTHER;
    }
}

/* The kind of the character at @p text, and its length in bytes. */
static enum words_kind kind_at(const unsigned char *text, size_t bytes, size_t *out_length)
{
    utf8proc_int32_t point;
    utf8proc_ssize_t length;

    if (*text < 0x80) {
        *out_length = 1;
        return (enum words_kind)ascii_kinds[*text];
    }
    length = utf8proc_iterate(text, bytes < 4 ? (utf8proc_ssize_t)bytes : 4, &point);
    if (length < 1) {
        *out_length = 1;
        return OTHER;
    }
    *out_length = (size_t)length;
    return wide_kind(point);
}

/* The end of the run of characters of @p kind that begins at @p at. @p out_last: where the last
 * character of the run begins. */
static size_t end_of_run(const unsigned char *text, size_t bytes, size_t at, enum words_kind kind,
                         size_t *out_last)
{
    *out_last = at;
    while (at < bytes) {
        size_t length;

        if (kind_at(text + at, bytes - at, &length) != kind) {
            break;
        }
        *out_last = at;
        at += length;
    }
    return at;
}

static size_t contraction_length(const unsigned char *text, size_t bytes)
{
    int first = bytes > 1 ? text[1] : 0;
    int second = bytes > 2 ? text[2] : 0;

    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
        return 2;
    }
    return (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l')
               ? 3
               : 0;
}

size_t cddpi_word_length(const char *text, size_t bytes)
{
    const unsigned char *word = (const unsigned char *)text;
    size_t length;
    size_t last;
    size_t end;
    enum words_kind kind = kind_at(word, bytes, &length);

    if (*word == '\'') {
        end = contraction_length(word, bytes);
        if (end > 0) {
            return end;
        }
    }
    if (*word == ' ' && bytes > 1) {
        enum words_kind next = kind_at(word + 1, bytes - 1, &length);

        if (next != SPACE) {
            return end_of_run(word, bytes, 1, next, &last);
        }
    }
    end = end_of_run(word, bytes, 0, kind, &last);
    /* Of several spaces before something else, the last one belongs to the next word. */
    return kind == SPACE && end < bytes && last > 0 ? last : end;
}

bool cddpi_spaced_word_next(const char *text, size_t bytes, bool last,
                            struct cddpi_spaced_word *word)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 0;
    size_t end;

    while (word->next < bytes && at[word->next] != '\n' &&
           kind_at(at + word->next, bytes - word->next, &length) == SPACE) {
        word->next += length;
    }
    if (word->next == bytes) {
        return false;
    }
    word->start = word->next;
    word->is_line_end = at[word->next] == '\n';
    end = word->next + 1;
    if (!word->is_line_end) {
        for (end = word->next; end < bytes; end += length) {
            if (kind_at(at + end, bytes - end, &length) == SPACE) {
                break;
            }
        }
        if (end == bytes && !last) {
            return false;
        }
    }
    word->bytes = end - word->start;
    word->next = end;
    return true;
}
