/* manifest.h - owns what all ranks must have in common, as text, and the difference of two such
 * texts. */
#ifndef CDDPI_DDP_MANIFEST_H
#define CDDPI_DDP_MANIFEST_H

#include "device/device.h"

#include <cddp/ddp.h>

/* A model as one rank registers it. */
struct cddpi_manifest {
    const cddp_param *params;
    size_t param_count;
    const cddp_param *buffers;
    size_t buffer_count;
    const cddp_ddp_options *options; /* defaults filled in */
    const char *hook_name;
    const struct cddpi_device *device; /* its memory is distinguished from the CPU's */
};

/** The canonical text: equal on two ranks exactly if their models and options fit together. Release
 *  it with cddpi_free(). NULL: out of memory. */
char *cddpi_manifest_text(const struct cddpi_manifest *manifest);

/** Write the differences of the texts @p a of rank @p a_rank and @p b of rank @p b_rank into @p
 *  out, each on a line of its own after a newline ("\n  parameter 2: rank 0 has w f32 [10, 512],
 *  rank 1 has w f32 [10, 256]"), at most @p max_lines of them, then how many more there are. The
 *  texts may be anything. */
void cddpi_manifest_diff(const char *a, int a_rank, const char *b, int b_rank, size_t max_lines,
                         char *out, size_t out_bytes);

#endif
