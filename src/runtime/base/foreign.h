/* foreign.h - recognises foreign files by their first bytes. The reader of another format can then
 * say which file it was given and what to do about it. */
#ifndef CDDPI_FOREIGN_H
#define CDDPI_FOREIGN_H

#include "base/shared.h"

#include <stddef.h>

enum {
    CDDPI_FOREIGN_LOOKED_AT = 512, /* this many bytes from the start of the file are enough */
    CDDPI_FOREIGN_WORDS_BYTES = 256
};

/** Describe the file that begins with the @p bytes bytes at @p data. The text goes after "FILE: not
 *  an X", for example ": it is a git-lfs pointer, ..." or ': it is text that begins with "once
 *  upon"'. What it quotes from the file is safe to print. "": unknown. Returns @p buffer. */
CDDPI_SHARED const char *cddpi_foreign_words(const void *data, size_t bytes,
                                             char buffer[CDDPI_FOREIGN_WORDS_BYTES]);

/** What the file is, in words that follow "it is ", if it certainly is not text: a git-lfs pointer,
 *  a known binary format or text in UTF-16. NULL: it may be text. */
CDDPI_SHARED const char *cddpi_foreign_to_text(const void *data, size_t bytes);

#endif
