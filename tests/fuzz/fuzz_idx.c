/* fuzz_idx.c - images and labels in IDX format. The first byte says which file is compressed here
 * with gzip (bit 0 images, bit 1 labels: a fuzzer cannot produce checksums) and whether the number
 * of classes is given (bit 2). The next two bytes are the length of the file of labels. */
#include "data/dataset.h"
#include "fuzz/fuzz.h"

#include <libdeflate.h>
#include <stdlib.h>

enum { HEAD_BYTES = 3, CLASSES = 10 };

static const char *put(const char *name, const uint8_t *data, size_t size, int zip)
{
    struct libdeflate_compressor *compressor;
    const char *path;
    size_t room;
    uint8_t *out;

    if (!zip) {
        return fuzz_file(name, data, size);
    }
    compressor = libdeflate_alloc_compressor(1);
    fuzz_check(compressor != NULL, "no memory");
    room = libdeflate_gzip_compress_bound(compressor, size);
    out = malloc(room);
    fuzz_check(out != NULL, "no memory");
    path = fuzz_file(name, out, libdeflate_gzip_compress(compressor, data, size, out, room));
    free(out);
    libdeflate_free_compressor(compressor);
    return path;
}

static void use(const struct cddpi_dataset *data, int classes)
{
    fuzz_check(data->classes > 0 && (classes == 0 || data->classes == classes), "classes");
    fuzz_touch(data->images, (size_t)data->count * (size_t)data->channels * (size_t)data->height *
                                 (size_t)data->width);
    for (uint64_t i = 0; i < data->count; i++) {
        int label = data->labels != NULL ? data->labels[i] : data->wide_labels[i];

        fuzz_check(label < data->classes, "a label is no class");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cddpi_dataset dataset = {0};
    const char *images;
    const char *labels;
    size_t label_bytes;
    int classes;

    if (size < HEAD_BYTES) {
        return 0;
    }
    classes = (data[0] & 4) != 0 ? CLASSES : 0;
    label_bytes = (size_t)(data[1] | data[2] << 8);
    if (label_bytes > size - HEAD_BYTES) {
        label_bytes = size - HEAD_BYTES;
    }
    labels = put("labels", data + HEAD_BYTES, label_bytes, (data[0] & 2) != 0);
    images = put("images", data + HEAD_BYTES + label_bytes, size - HEAD_BYTES - label_bytes,
                 (data[0] & 1) != 0);
    if (cddpi_dataset_open_idx(images, labels, classes, NULL, &dataset) == CDDP_OK) {
        use(&dataset, classes);
        cddpi_dataset_close(&dataset);
    }
    return 0;
}
