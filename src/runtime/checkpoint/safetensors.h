/* safetensors.h - owns what the files of src/runtime/checkpoint share about the safetensors format.
 */
#ifndef CDDPI_CHECKPOINT_SAFETENSORS_H
#define CDDPI_CHECKPOINT_SAFETENSORS_H

#include "base/replace.h"
#include "base/shape.h"
#include "base/shared.h"
#include "base/types.h"
#include "checkpoint/checkpoint_file.h"

#include <cddp/checkpoint.h>

enum {
    CDDPI_SAFETENSORS_HEADER_MAX = 100000000,
    CDDPI_SAFETENSORS_NAME_SHOWN = 96,
    CDDPI_TENSOR_KIND_BYTES = 256
};

/** What the format calls each cddp_type. */
extern const char *const cddpi_safetensors_types[CDDPI_TYPES];

/** The bytes of a tensor. False: a dimension is negative, or the product overflows. */
bool cddpi_tensor_bytes(cddp_type type, int dims, const int64_t *shape, size_t *out);
/** The bytes of a tensor for which cddpi_tensor_bytes() has passed. */
static inline size_t cddpi_tensor_size(const cddp_tensor *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * cddp_type_bytes(tensor->type);
}
/** Words a type and a shape for an error text: "f32 [512, 784]". Returns @p text. */
CDDPI_SHARED const char *cddpi_shape_describe(cddp_type type, int dims, const int64_t *shape,
                                              char text[CDDPI_TENSOR_KIND_BYTES]);
/** Order pointers to tensors or parameters by name, for qsort() and bsearch(). */
int cddpi_tensor_by_name(const void *left, const void *right);

/** Check that all of @p tensors can be written: name, type, shape, flags and memory of each. @p
 * shown begins error texts. */
cddp_status cddpi_safetensors_check(const char *shown, const cddp_tensor *tensors, size_t count);

/** Puts all data of tensor @p index to @p writer: exactly as many bytes as its shape and type say.
 */
typedef cddp_status (*cddpi_tensor_data_fn)(void *context, size_t index,
                                            struct cddpi_writer *writer);

/** Write header and tensors to the new file @p name in @p dir and flush it. On failure the caller
 *  removes the file.
 *  @param put  As of cddpi_safetensors_stream(). */
cddp_status cddpi_safetensors_put(int dir, const char *name, const char *shown,
                                  const cddp_tensor *tensors, size_t count,
                                  const char *const *metadata, cddpi_tensor_data_fn put,
                                  void *context, uint64_t *out_bytes,
                                  unsigned char out_digest[CDDPI_DIGEST_BYTES]);

/** The same, but @p put_all puts the data of all tensors, one after the other without gaps. */
cddp_status cddpi_safetensors_put_together(int dir, const char *name, const char *shown,
                                           const cddp_tensor *tensors, size_t count,
                                           const char *const *metadata, cddpi_file_put_fn put_all,
                                           void *context, uint64_t *out_bytes,
                                           unsigned char out_digest[CDDPI_DIGEST_BYTES]);

/** Like cddp_safetensors_write(), but the data comes from @p put, which is called for one tensor
 *  after another. So the tensors need not fit into memory together, and their data pointers may be
 *  NULL. */
cddp_status cddpi_safetensors_stream(const char *path, const cddp_tensor *tensors, size_t count,
                                     const char *const *metadata, cddpi_tensor_data_fn put,
                                     void *context);

/** Check that @p file, called @p shown in errors, holds exactly @p params, by name, type and
 * shape. Does not use their memory. */
cddp_status cddpi_safetensors_match(const cddp_safetensors *file, const char *shown,
                                    const cddp_param *params, size_t count);
/** Like cddpi_safetensors_match(), and check that each has memory. */
cddp_status cddpi_safetensors_fit(const cddp_safetensors *file, const char *shown,
                                  const cddp_param *params, size_t count);
/** Check that the file is as long as when it was opened. If not, data that was read from it is not
 *  valid, and faults that were found in it may be false. CDDP_ERR_IO names the file. */
CDDPI_SHARED cddp_status cddpi_safetensors_look(const cddp_safetensors *file);
/** Copy the data of a file that matches @p params into their memory. CDDP_ERR_IO: the file was
 *  truncated meanwhile. */
cddp_status cddpi_safetensors_copy(const cddp_safetensors *file, const cddp_param *params,
                                   size_t count);
/** Like cddp_safetensors_load(), but the file may have other tensors, too. */
CDDPI_SHARED cddp_status cddpi_safetensors_load_some(const char *path, const cddp_param *params,
                                                     size_t count);

#endif
