/* names.h - the tensors of safetensors files by the names that a plain GPT-2 would have for them.
 * Programs wrap models in others, and each wrapper adds a part to the names of what is in it:
 * "module." (DataParallel), "_orig_mod." (torch.compile), "transformer." and "model." (heads). */
#ifndef CDDPI_NN_WEIGHTS_NAMES_H
#define CDDPI_NN_WEIGHTS_NAMES_H

#include "nn/weights/weights_file.h"

/* A tensor of the files. */
struct cddpi_named_tensor {
    const char *name; /* without wrappers */
    const cddp_tensor *tensor;
    size_t file; /* of cddpi_weights_files */
};

struct cddpi_weights_names {
    struct cddpi_named_tensor *rows; /* in the order of their names, each of which is there once */
    size_t count;
    char *text; /* all names */
};

/** @param path  Names the files in errors: CDDP_ERR_FORMAT if two tensors have one name.
 *  @param out   Release with cddpi_weights_names_fini(). */
cddp_status cddpi_weights_names_init(const struct cddpi_weights_files *files, const char *path,
                                     struct cddpi_weights_names *out);
void cddpi_weights_names_fini(struct cddpi_weights_names *names);

/** NULL: there is none. */
const struct cddpi_named_tensor *cddpi_weights_names_find(const struct cddpi_weights_names *names,
                                                          const char *name);

/** Fail because there is no tensor @p name, with what is there instead. */
cddp_status cddpi_weights_names_missing(const struct cddpi_weights_names *names, const char *path,
                                        const char *name);

#endif
