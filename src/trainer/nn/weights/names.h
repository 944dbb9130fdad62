/* names.h - finds the tensors of safetensors files by the names of a plain GPT-2. Programs wrap
 * models in other modules, and each wrapper adds a prefix to the names: "module." (DataParallel),
 * "_orig_mod." (torch.compile), "transformer." and "model." (heads). */
#ifndef CDDPI_NN_WEIGHTS_NAMES_H
#define CDDPI_NN_WEIGHTS_NAMES_H

#include "nn/weights/weights_file.h"

/* A tensor of the files. */
struct cddpi_named_tensor {
    const char *name; /* without the wrappers' prefixes */
    const cddp_tensor *tensor;
    size_t file; /* index in cddpi_weights_files */
};

struct cddpi_weights_names {
    struct cddpi_named_tensor *rows; /* sorted by name; names are unique */
    size_t count;
    char *text; /* storage of all names */
};

/** @param path  Names the files in errors.
 *  @param out   Release with cddpi_weights_names_fini().
 *  @return CDDP_ERR_FORMAT also if two tensors have the same name. */
cddp_status cddpi_weights_names_init(const struct cddpi_weights_files *files, const char *path,
                                     struct cddpi_weights_names *out);
void cddpi_weights_names_fini(struct cddpi_weights_names *names);

/** NULL: there is no tensor of that name. */
const struct cddpi_named_tensor *cddpi_weights_names_find(const struct cddpi_weights_names *names,
                                                          const char *name);

/** Return an error for the missing tensor @p name, which lists what the files have instead. */
cddp_status cddpi_weights_names_missing(const struct cddpi_weights_names *names, const char *path,
                                        const char *name);

#endif
