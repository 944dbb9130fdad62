/* tokenizer.c - owns a vocabulary in memory: the bytes of its tokens, and the byte vocabulary,
 * which needs no file. */
#include "data/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

static cddp_status open_bytes(struct cddpi_tokenizer *tokenizer)
{
    tokenizer->count = 257;
    tokenizer->end = 256;
    tokenizer->texts = cddpi_zalloc(256 + sizeof CDDPI_END_OF_TEXT);
    tokenizer->text_starts = cddpi_zalloc_array(258, sizeof *tokenizer->text_starts);
    if (tokenizer->texts == NULL || tokenizer->text_starts == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for 257 tokens");
    }
    for (int i = 0; i < 256; i++) {
        tokenizer->byte_tokens[i] = i;
        tokenizer->texts[i] = (char)i;
        tokenizer->text_starts[i + 1] = (size_t)i + 1;
    }
    memcpy(tokenizer->texts + 256, CDDPI_END_OF_TEXT, sizeof CDDPI_END_OF_TEXT);
    tokenizer->text_starts[257] = 256 + strlen(CDDPI_END_OF_TEXT);
    return CDDP_OK;
}

cddp_status cddpi_tokenizer_open(const char *path, struct cddpi_tokenizer **out)
{
    struct cddpi_tokenizer *tokenizer = cddpi_zalloc(sizeof *tokenizer);
    cddp_status status;

    if (tokenizer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for %zu bytes",
                          sizeof *tokenizer);
    }
    status = path[0] == '\0' ? open_bytes(tokenizer) : cddpi_tokenizer_load(tokenizer, path);
    if (status != CDDP_OK) {
        cddpi_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return CDDP_OK;
}

void cddpi_tokenizer_close(struct cddpi_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    cddpi_free(tokenizer->texts);
    cddpi_free(tokenizer->text_starts);
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
