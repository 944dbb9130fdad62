/* fuzz_npy.c - NumPy's files. The first byte says whether targets are real (bit 0) and whether the
 * input is one archive (bit 1); else it is a .npy file of samples and one of targets, whose length
 * is in the next two bytes. */
#include "data/dataset.h"
#include "data/numbers.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>

enum { HEAD_BYTES = 3, MOST_NUMBERS = 1 << 20 };

static void use(const struct cddpi_dataset *data)
{
    size_t elements = (size_t)data->channels * (size_t)data->height * (size_t)data->width;
    size_t labels = cddpi_dataset_labels(data);
    float *input;
    int32_t *label;
    char text[512];

    fuzz_check(data->count > 0 && elements > 0 && data->classes > 0, "a dataset of nothing");
    fuzz_check(elements < MOST_NUMBERS && labels < MOST_NUMBERS, "more numbers than bytes");
    input = malloc(elements * sizeof *input);
    label = malloc(labels * sizeof *label);
    fuzz_check(input != NULL && label != NULL, "no memory");
    for (uint64_t i = 0; i < data->count; i++) {
        if (!cddpi_dataset_numbers(data, i, input, label, text, sizeof text)) {
            fuzz_check(text[0] == '/', "a fault without its file");
            continue;
        }
        for (size_t j = 0; j < elements; j++) {
            fuzz_check(isfinite(input[j]), "a number that is none");
        }
        fuzz_check(data->target_count > 0 || (label[0] >= 0 && label[0] < data->classes),
                   "a class out of range");
    }
    free(input);
    free(label);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_dataset dataset = {0};
    struct cddpi_npy_options options = {.input_count = 1, .input_name = "x", .target_name = "y"};
    char *inputs, *targets = NULL;
    size_t bytes;

    if (size < HEAD_BYTES) {
        return 0;
    }
    options.real_targets = (data[0] & 1) != 0;
    bytes = (size_t)(data[1] | data[2] << 8);
    data += HEAD_BYTES;
    size -= HEAD_BYTES;
    if ((data[-HEAD_BYTES] & 2) != 0) {
        inputs = (char *)fuzz_file("both.npz", data, size);
    } else {
        bytes = bytes < size ? bytes : size;
        inputs = (char *)fuzz_file("x.npy", data, size - bytes);
        targets = (char *)fuzz_file("y.npy", data + size - bytes, bytes);
    }
    options.inputs = &inputs;
    options.targets = &targets;
    options.target_count = targets != NULL;
    if (cddpi_dataset_open_npy(&options, NULL, &dataset) == CDDP_OK) {
        use(&dataset);
        cddpi_dataset_close(&dataset);
    }
    return 0;
}
