/* ddp_create.h - the steps by which ranks create a handle: each registers its model, all compare
 * what they have registered, and one rank's values reach the others. */
#ifndef CDDPI_DDP_CREATE_H
#define CDDPI_DDP_CREATE_H

#include "ddp/ddp.h"

struct cddpi_manifest;

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

/* broadcast.c */
/** Send @p root's @p tensors to all ranks; @p what names them in errors. Collective. */
cddp_status cddpi_ddp_broadcast(cddp_group *group, const char *what,
                                const struct cddpi_param *tensors, size_t count, int root);

#endif
