/* foreign.h - what a file of somebody else's is by its first bytes, so that the reader of another
 * format can say what it was given and what to do about it. */
#ifndef CDDPI_FOREIGN_H
#define CDDPI_FOREIGN_H

#include <stddef.h>

enum {
    CDDPI_FOREIGN_LOOKED_AT = 512, /* so many of the first bytes are enough */
    CDDPI_FOREIGN_WORDS_BYTES = 256
};

/** What the file is that begins with the @p bytes bytes at @p data, to be put behind "FILE: not an
 *  X": ": it is a git-lfs pointer, ..." or ': it is text that begins with "once upon"'. It comes
 * from a stranger and is fit to print. "": nothing that is known. Returns @p buffer. */
const char *cddpi_foreign_words(const void *data, size_t bytes,
                                char buffer[CDDPI_FOREIGN_WORDS_BYTES]);

/** What the file is if it is certainly no text, whatever text is about: a git-lfs pointer, a known
 *  binary format, text in UTF-16; words that follow "it is ". NULL: it may be text. */
const char *cddpi_foreign_to_text(const void *data, size_t bytes);

#endif
