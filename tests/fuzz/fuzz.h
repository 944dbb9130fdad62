/* fuzz.h - shared by the harnesses. Each is one function, LLVMFuzzerTestOneInput(): libFuzzer calls
 * it with generated inputs, replay.c with those in corpus/. */
#ifndef CDDP_TESTS_FUZZ_H
#define CDDP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

struct cddpi_message_form;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** A file of exactly these bytes, in a folder of this process's own. Returns its path, which lives
 *  until as many more files have been asked for as a harness needs (8). */
const char *fuzz_file(const char *name, const uint8_t *data, size_t size);

/** The part of an input up to the next form feed: inputs that stand for several files are cut
 * there. What is left of the input is moved behind it. */
struct fuzz_part {
    const uint8_t *data;
    size_t size;
};
struct fuzz_part fuzz_next_part(struct fuzz_part *rest);

/** Read each byte, as who uses the data would: a sanitizer sees what is out of bounds. */
void fuzz_touch(const void *data, size_t size);

/** Check that @p object, read from these bytes, is written as it was read. */
void fuzz_write_again(const struct cddpi_message_form *form, const void *object,
                      const uint8_t *data, size_t size);

/** End the process with @p text unless @p holds: what the code under test promises. */
void fuzz_check(int holds, const char *text);

#endif
