/* tokens.h - files of tokens for tests, in llm.c's format. */
#ifndef CDDP_TESTS_SUPPORT_TOKENS_H
#define CDDP_TESTS_SUPPORT_TOKENS_H

#include "support/test.h"

enum { SHARD_HEADER_BYTES = 1024, GPT2_MAGIC = 20240520, LLAMA3_MAGIC = 20240801 };

/* Token @p i of the file that @p seed generates; below 50000. */
uint32_t support_token(uint32_t seed, uint64_t i);

/* The contents of a file of @p count tokens of 2 (GPT-2's) or 4 (Llama 3's) bytes each. */
unsigned char *support_shard(uint32_t seed, uint32_t count, int token_bytes, size_t *out_bytes);
void support_write_shard(const char *path, uint32_t seed, uint32_t count, int token_bytes);

#endif
