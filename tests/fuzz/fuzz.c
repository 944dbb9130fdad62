/* fuzz.c - files for harnesses, in a folder that is removed when the process ends, and what they
 * check. */
#include "fuzz/fuzz.h"

#include "store/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[4000];

static void remove_folder(void)
{
    char command[4100];

    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    fuzz_check(system(command) == 0, "could not remove the folder of files");
}

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%s/cddp-fuzz-XXXXXX", base != NULL ? base : "/tmp");
    fuzz_check(mkdtemp(folder) != NULL, "no folder for files");
    fuzz_check(atexit(remove_folder) == 0, "atexit");
}

static const char *path_of(const char *name)
{
    static char paths[8][4100];
    static int next;
    char *path = paths[next++ % 8];

    if (folder[0] == '\0') {
        make_folder();
    }
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t size)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "we");

    fuzz_check(file != NULL, "no file could be made");
    fuzz_check(fwrite(data, 1, size, file) == size && fclose(file) == 0, "a file was not written");
    return path;
}

struct fuzz_part fuzz_next_part(struct fuzz_part *rest)
{
    const uint8_t *end = rest->size > 0 ? memchr(rest->data, '\f', rest->size) : NULL;
    struct fuzz_part part = {rest->data, end != NULL ? (size_t)(end - rest->data) : rest->size};
    size_t taken = part.size + (end != NULL);

    rest->data += taken;
    rest->size -= taken;
    return part;
}

void fuzz_touch(const void *data, size_t size)
{
    const volatile uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        (void)bytes[i];
    }
}

void fuzz_check(int holds, const char *text)
{
    if (!holds) {
        fprintf(stderr, "fuzz: %s\n", text);
        abort();
    }
}

void fuzz_write_again(const struct cddpi_message_form *form, const void *object,
                      const uint8_t *data, size_t size)
{
    struct cddpi_wire_buffer again = {NULL, 0, 0};

    fuzz_check(cddpi_message_encode(form, object, &again) == CDDP_OK, "it cannot be written again");
    fuzz_check(again.bytes == size && memcmp(again.data, data, size) == 0,
               "it is not written as it was read");
    cddpi_buffer_fini(&again);
}
