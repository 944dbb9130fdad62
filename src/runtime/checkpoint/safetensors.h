/* safetensors.h - what the files of src/runtime/checkpoint share about the safetensors format. */
#ifndef CDDPI_CHECKPOINT_SAFETENSORS_H
#define CDDPI_CHECKPOINT_SAFETENSORS_H

#include "checkpoint/checkpoint_file.h"

#include <cddp/checkpoint.h>

enum { CDDPI_SAFETENSORS_HEADER_MAX = 100000000, CDDPI_SAFETENSORS_NAME_SHOWN = 96 };

/** Bytes of a tensor; false when a dimension is negative or the product overflows. */
bool cddpi_tensor_bytes(cddp_type type, int dims, const int64_t *shape, size_t *out);

/** The file's length and header, padded so that the data begins at a multiple of 64: @p out, @p
 * out_bytes long, to be released with cddpi_free(). Checks all of @p tensors. @p shown names the
 * file in errors. */
cddp_status cddpi_safetensors_header(const char *shown, const cddp_tensor *tensors, size_t count,
                                     const char *const *metadata, char **out, size_t *out_bytes);

/** Puts all data of tensor @p index: exactly the bytes of its shape and type. */
typedef cddp_status (*cddpi_tensor_data_fn)(void *context, size_t index,
                                            struct cddpi_writer *writer);

/** Write header and tensors as the new file @p name in @p dir and flush it. On failure the file is
 * the caller's to remove.
 *  @param put  NULL: the data lies in the tensors' memory; else as for cddpi_safetensors_stream().
 */
cddp_status cddpi_safetensors_put(int dir, const char *name, const char *shown,
                                  const cddp_tensor *tensors, size_t count,
                                  const char *const *metadata, cddpi_tensor_data_fn put,
                                  void *context, uint64_t *out_bytes,
                                  unsigned char out_digest[CDDPI_DIGEST_BYTES]);

/** As cddp_safetensors_write(), but the tensors' data, which may be NULL, comes from @p put, called
 * for one after the other: they need never be in memory together. */
cddp_status cddpi_safetensors_stream(const char *path, const cddp_tensor *tensors, size_t count,
                                     const char *const *metadata, cddpi_tensor_data_fn put,
                                     void *context);

/** Whether @p file, called @p shown in errors, holds exactly @p tensors: names, types, shapes;
 *  their memory is not looked at. */
cddp_status cddpi_safetensors_match(const cddp_safetensors *file, const char *shown,
                                    const cddp_tensor *tensors, size_t count);
/** The same, and that each tensor has memory. */
cddp_status cddpi_safetensors_fit(const cddp_safetensors *file, const char *shown,
                                  const cddp_tensor *tensors, size_t count);
/** Whether the file is as long as when it was opened: only then does count what was read, and any
 *  fault that was found. CDDP_ERR_IO names it. */
cddp_status cddpi_safetensors_look(const cddp_safetensors *file);
/** Copy the data of a file that matches. CDDP_ERR_IO: it was cut off meanwhile. */
cddp_status cddpi_safetensors_copy(const cddp_safetensors *file, const cddp_tensor *tensors,
                                   size_t count);

#endif
