/* tokenize.h - runs the real cddp-tokenize in its own folder and reads the files that it writes. */
#ifndef CDDP_TESTS_SUPPORT_TOKENIZE_H
#define CDDP_TESTS_SUPPORT_TOKENIZE_H

#include "support/launcher.h"

#include <stdbool.h>

const char *program(void);
const char *small_vocabulary(void);
void forget_output(struct launched *job);

/* Run cddp-tokenize in the job's folder and read its output. */
#define RUN(job, ...)                                                                              \
    do {                                                                                           \
        forget_output(job);                                                                        \
        launcher_start_program((job), program(), (const char *const[]){__VA_ARGS__, NULL});        \
        launcher_wait((job));                                                                      \
    } while (0)

#define RUN_WELL(job, ...)                                                                         \
    do {                                                                                           \
        RUN(job, __VA_ARGS__);                                                                     \
        if ((job)->exit_status != 0) {                                                             \
            fail_msg("exit status %d: %s", (job)->exit_status, (job)->err);                        \
        }                                                                                          \
    } while (0)

char *tokenize_path(const struct launched *job, const char *name);
void tokenize_folder(struct launched *job);
void tokenize_put(const struct launched *job, const char *name, const void *data, size_t bytes);
void tokenize_put_text(const struct launched *job, const char *name, const char *text);
void file_is(const struct launched *job, const char *name, const void *wanted, size_t bytes);
bool tokenize_has(const struct launched *job, const char *name);

/* Read the tokens of a shard, of @p width bytes each, and check its header. Returns their
 * number. */
size_t get_tokens(const struct launched *job, const char *name, int width, int32_t *tokens,
                  size_t room);

/* Assert that the folder contains no partial file. */
void nothing_is_half(const struct launched *job);

/* A text of 3 MB with all kinds of lines and bytes, and with "<end>" lines between documents. */
char *long_text(size_t *out_bytes);

#endif
