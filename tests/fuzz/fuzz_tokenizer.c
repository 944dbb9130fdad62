/* fuzz_tokenizer.c - a vocabulary: tokenizer.json if the input has one part, encoder.json and
 * vocab.bpe if it has two. A vocabulary that opens must decode every text from its tokens, unless
 * it is one of words. */
#include "base/alloc.h"
#include "data/tokenizer/tokenizer.h"
#include "fuzz/fuzz.h"

#include <string.h>

static const char text[] =
    "It's  42 \xc3\xa9t\xc3\xa9s\n\xff\xfe<|endoftext|> abab\0end "
    "abababababababababababababababababababababababababababababababababababababa";

static void use(const struct cddpi_tokenizer *tokenizer)
{
    int vocabulary = cddpi_tokenizer_vocabulary(tokenizer);
    int32_t *tokens = NULL;
    size_t count = 0;
    size_t at = 0;

    fuzz_check(cddpi_tokenizer_end(tokenizer) >= 0 && cddpi_tokenizer_end(tokenizer) < vocabulary,
               "the end token is none");
    if (cddpi_tokenizer_encode(tokenizer, text, sizeof text, &tokens, &count) != CDDP_OK) {
        return;
    }
    for (size_t i = 0; i < count && !cddpi_tokenizer_keeps_text(tokenizer); i++) {
        fuzz_check(tokens[i] >= 0 && tokens[i] < vocabulary &&
                       tokens[i] != cddpi_tokenizer_end(tokenizer),
                   "a token that no word is");
    }
    for (size_t i = 0; i < count && cddpi_tokenizer_keeps_text(tokenizer); i++) {
        size_t bytes = 0;
        const char *token = cddpi_tokenizer_token(tokenizer, tokens[i], &bytes);

        fuzz_check(token != NULL, "a token that does not exist");
        fuzz_check(bytes <= sizeof text - at && memcmp(token, text + at, bytes) == 0,
                   "tokens of another text");
        at += bytes;
    }
    fuzz_check(at == sizeof text || !cddpi_tokenizer_keeps_text(tokenizer),
               "tokens of a part of the text");
    cddpi_free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {data, size};
    struct fuzz_part first = fuzz_next_part(&rest);
    struct cddpi_tokenizer *tokenizer = NULL;
    const char *path;

    if (rest.size > 0) {
        path = fuzz_file("encoder.json", first.data, first.size);
        (void)fuzz_file("vocab.bpe", rest.data, rest.size);
    } else {
        path = fuzz_file("tokenizer.json", first.data, first.size);
    }
    if (cddpi_tokenizer_open(path, &tokenizer) == CDDP_OK) {
        use(tokenizer);
    }
    cddpi_tokenizer_close(tokenizer);
    return 0;
}
