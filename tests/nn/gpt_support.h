/* gpt_support.h - the tiny GPT-2 of scripts/make_gpt_reference.py for tests: its tokens, and a
 * configuration that trains it with cddp-train. */
#ifndef CDDP_TESTS_NN_GPT_SUPPORT_H
#define CDDP_TESTS_NN_GPT_SUPPORT_H

#include "support/train.h"

enum { GPT_VOCAB = 128, GPT_CONTEXT = 16, GPT_BATCH = 12, GPT_STEPS = 100 };
enum { GPT_TOKENS = GPT_STEPS * GPT_BATCH * GPT_CONTEXT + 1, GPT_HEADER_BYTES = 1024 };

/* A number of 32 bits for each x. */
static inline uint32_t gpt_mix(uint32_t x)
{
    x *= 2654435761u;
    x ^= x >> 16;
    x *= 73244475u;
    return x ^ (x >> 16);
}

/* llm.c's file of the first @p count tokens. */
static inline void gpt_write_tokens(const char *path, uint32_t count)
{
    size_t bytes = GPT_HEADER_BYTES + 2 * (size_t)count;
    unsigned char *file = calloc(1, bytes);
    const uint32_t header[] = {20240520, 1, count};
    uint32_t token = 0;

    memcpy(file, header, sizeof header);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t noise = gpt_mix(i);

        if (i > 0) {
            token = noise % 4 == 0 ? (noise >> 8) % GPT_VOCAB : (5 * token + 17) % GPT_VOCAB;
        }
        file[GPT_HEADER_BYTES + 2 * i] = (unsigned char)token;
    }
    support_write_file(path, file, bytes);
    free(file);
}

/* The folder with the tokens and gpt.conf: the reference's run, from its weights. */
static inline int gpt_make_work(void **state)
{
    char text[20000];
    int used;

    (void)state;
    work = support_mkdtemp();
    if (work == NULL) {
        return 1;
    }
    gpt_write_tokens(in_work("train.bin"), GPT_TOKENS);
    gpt_write_tokens(in_work("test.bin"), 4 * GPT_CONTEXT + 1);
    used = snprintf(text, sizeof text,
                    "model = { type = \"gpt2\"; blocks = 2; heads = 2; embed = 32; context = %d;"
                    " vocab = %d; weights = \"%s/tests/vectors/gpt_init.safetensors\"; };\n"
                    "data = { type = \"tokens\"; train = \"%s\"; test = \"%s\";"
                    " order = \"sequential\"; };\n"
                    "train = { epochs = 1; batch_size = %d; eval_batch_size = 4; log_steps = 1;"
                    " checkpoint_seconds = 0.0; };\n"
                    "optimizer = { type = \"adamw\"; lr = 3e-3; beta2 = 0.95;"
                    " weight_decay = 0.1; };\n",
                    GPT_CONTEXT, GPT_VOCAB, getenv("CDDP_TEST_SOURCE"), in_work("train.bin"),
                    in_work("test.bin"), GPT_BATCH);
    support_write_file(in_work("gpt.conf"), text, (size_t)used);
    return 0;
}

#endif
