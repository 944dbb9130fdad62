/* tokenizer.c - owns a vocabulary in memory: the bytes of its tokens, and the characters by which
 * GPT-2's files write bytes. */
#include "data/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/error.h"

/* In GPT-2's files, printable bytes are written as themselves, the others as the characters from
 * 256 on. */
static bool is_itself(int byte)
{
    return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

size_t cddpi_byte_write(unsigned char byte, char out[4])
{
    int character = byte;

    if (!is_itself(byte)) {
        character = 256;
        for (int i = 0; i < byte; i++) {
            character += !is_itself(i);
        }
    }
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3f));
    return 2;
}

int cddpi_byte_read(int32_t character)
{
    int others = 256;

    if (character >= 0 && character < 256) {
        return is_itself(character) ? (int)character : -1;
    }
    for (int i = 0; i < 256; i++) {
        if (!is_itself(i) && others++ == character) {
            return i;
        }
    }
    return -1;
}

cddp_status cddpi_tokenizer_reserve(struct cddpi_tokenizer *tokenizer, const char *path,
                                    size_t count, size_t bytes)
{
    tokenizer->texts = cddpi_zalloc(bytes);
    tokenizer->text_starts = cddpi_zalloc_array(count + 1, sizeof *tokenizer->text_starts);
    return tokenizer->texts != NULL && tokenizer->text_starts != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu tokens", path, count);
}

void cddpi_tokenizer_close(struct cddpi_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    cddpi_free(tokenizer->texts);
    cddpi_free(tokenizer->text_starts);
    cddpi_free(tokenizer->others);
    cddpi_free(tokenizer->merges);
    cddpi_free(tokenizer->word_slots);
    cddpi_free(tokenizer);
}

int cddpi_tokenizer_vocabulary(const struct cddpi_tokenizer *tokenizer)
{
    return tokenizer->count;
}

int32_t cddpi_tokenizer_end(const struct cddpi_tokenizer *tokenizer)
{
    return tokenizer->end;
}

bool cddpi_tokenizer_keeps_text(const struct cddpi_tokenizer *tokenizer)
{
    return tokenizer->word_slot_count == 0;
}

const char *cddpi_tokenizer_token(const struct cddpi_tokenizer *tokenizer, int32_t token,
                                  size_t *out_bytes)
{
    if (token < 0 || token >= tokenizer->count) {
        return NULL;
    }
    *out_bytes = tokenizer->text_starts[token + 1] - tokenizer->text_starts[token];
    return tokenizer->texts + tokenizer->text_starts[token];
}
