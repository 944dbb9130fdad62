/* tokenizer_impl.h - what the parts of the tokenizer share. */
#ifndef CDDPI_DATA_TOKENIZER_IMPL_H
#define CDDPI_DATA_TOKENIZER_IMPL_H

#include "data/tokenizer.h"

#include <stdbool.h>

#define CDDPI_END_OF_TEXT "<|endoftext|>"

struct cddpi_tokenizer {
    char *texts;         /* of all tokens, one after the other */
    size_t *text_starts; /* count + 1 of them */
    int count;
    int32_t end;
    int32_t byte_tokens[256];
};

#endif
