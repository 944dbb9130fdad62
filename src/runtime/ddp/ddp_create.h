/* ddp_create.h - the steps by which ranks create a handle: each registers its model, all compare
 * what they have registered, and one rank's values reach the others. */
#ifndef CDDPI_DDP_CREATE_H
#define CDDPI_DDP_CREATE_H

#include "ddp/ddp.h"

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

/* register.c */
/** Check and keep the parameters and buffers of @p model. Local. */
cddp_status cddpi_ddp_register(cddp_ddp *ddp, const struct cddpi_manifest *model);
/** Store the failure that there is no memory for @p count parameters. */
cddp_status cddpi_ddp_no_memory(size_t count);

/* ddp_agree.c */
/** Compare the manifest @p text with those of all other ranks. If @p own is not CDDP_OK, this rank
 *  has failed before, and cddp_last_error() says why. Every rank returns the same status and text.
 */
cddp_status cddpi_ddp_agree(cddp_group *group, cddp_status own, const char *text);

/** Send @p root's @p tensors to all ranks; @p what names them in errors. Collective. */
cddp_status cddpi_ddp_broadcast(cddp_group *group, const char *what,
                                const struct cddpi_param *tensors, size_t count, int root);

/* manifest.c: what all ranks must have in common, as text, and the difference of two such texts */
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
