/* fuzz_tokens.c - files of tokens in llm.c's format: the input is one file or, if its first byte is
 * not 0, two, split after that many bytes. */
#include "data/dataset.h"
#include "fuzz/fuzz.h"

enum { CONTEXT = 4 };

static void use(const struct cddpi_dataset *data)
{
    for (uint64_t i = 0; i < data->count; i++) {
        int32_t input[CONTEXT] = {0};
        int32_t label[CONTEXT] = {0};
        struct cddpi_token_fault fault = {0};

        if (!cddpi_dataset_token_sequence(data, i, input, label, &fault)) {
            fuzz_check(fault.path != NULL, "a fault without its file");
            continue;
        }
        for (int j = 0; j < CONTEXT; j++) {
            fuzz_check(input[j] >= 0 && input[j] < data->classes && label[j] >= 0 &&
                           label[j] < data->classes,
                       "a token outside the vocabulary");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_dataset dataset = {0};
    char *patterns[2] = {NULL};
    size_t first;

    if (size < 1) {
        return 0;
    }
    first = data[0] > 0 && data[0] * (size_t)16 < size ? data[0] * (size_t)16 : size - 1;
    patterns[0] = (char *)fuzz_file("a.bin", data + 1, first);
    patterns[1] = (char *)fuzz_file("b.bin", data + 1 + first, size - 1 - first);
    if (cddpi_dataset_open_tokens(patterns, first < size - 1 ? 2 : 1, CONTEXT, 0, NULL, &dataset) ==
        CDDP_OK) {
        use(&dataset);
        cddpi_dataset_close(&dataset);
    }
    return 0;
}
