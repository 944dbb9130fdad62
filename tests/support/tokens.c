/* tokens.c - files of tokens for tests, in llm.c's format. */
#include "support/tokens.h"

uint32_t support_token(uint32_t seed, uint64_t i)
{
    uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xbf58476d1ce4e5b9u;

    return (uint32_t)((mixed ^ mixed >> 29) % 50000);
}

unsigned char *support_shard(uint32_t seed, uint32_t count, int token_bytes, size_t *out_bytes)
{
    unsigned char *bytes = calloc(1, SHARD_HEADER_BYTES + (size_t)count * (size_t)token_bytes);
    const uint32_t header[] = {token_bytes == 2 ? GPT2_MAGIC : LLAMA3_MAGIC,
                               token_bytes == 2 ? 1 : 7, count};

    memcpy(bytes, header, sizeof header);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = support_token(seed, i);

        memcpy(bytes + SHARD_HEADER_BYTES + (size_t)i * (size_t)token_bytes, &token,
               (size_t)token_bytes);
    }
    *out_bytes = SHARD_HEADER_BYTES + (size_t)count * (size_t)token_bytes;
    return bytes;
}

void support_write_shard(const char *path, uint32_t seed, uint32_t count, int token_bytes)
{
    size_t bytes = 0;
    unsigned char *data = support_shard(seed, count, token_bytes, &bytes);

    support_write_file(path, data, bytes);
    free(data);
}
