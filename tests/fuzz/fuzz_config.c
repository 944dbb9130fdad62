/* fuzz_config.c - train.conf, two files that it may include (a.conf and b.conf), and an override:
 * the four parts of the input. A configuration that loads can be written and loaded again with the
 * same result. */
#include "fuzz/fuzz.h"
#include "train/config/config.h"

#include <stdlib.h>
#include <string.h>

static char *text_of(const char *path, char *const *overrides, int count)
{
    struct cddpi_config config = {0};
    char *text = NULL;

    if (cddpi_config_load(path, overrides, count, &config) == CDDP_OK) {
        text = cddpi_config_text(&config, false);
        fuzz_check(text != NULL, "no memory");
    }
    cddpi_config_fini(&config);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {data, size};
    struct fuzz_part main_part = fuzz_next_part(&rest);
    struct fuzz_part a = fuzz_next_part(&rest);
    struct fuzz_part b = fuzz_next_part(&rest);
    const char *path = fuzz_file("train.conf", main_part.data, main_part.size);
    char *override = strndup((const char *)rest.data, rest.size);
    char *text;

    (void)fuzz_file("a.conf", a.data, a.size);
    (void)fuzz_file("b.conf", b.data, b.size);
    fuzz_check(override != NULL, "no memory");
    text = text_of(path, &override, rest.size > 0);
    if (text != NULL) {
        const char *resolved = fuzz_file("resolved.conf", (const uint8_t *)text, strlen(text));
        char *again = text_of(resolved, NULL, 0);

        fuzz_check(again != NULL, "what was written out cannot be loaded");
        fuzz_check(strcmp(again, text) == 0, "what was written out means something else");
        free(again);
    }
    free(text);
    free(override);
    return 0;
}
