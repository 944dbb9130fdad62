/* rank_gpus.h - the NUMA nodes of this machine's GPUs, and ranks' cores near their GPUs. */
#ifndef CDDPI_LAUNCHER_RANK_GPUS_H
#define CDDPI_LAUNCHER_RANK_GPUS_H

#include "launcher/supervise/rank_cores.h"

enum { CDDPI_MACHINE_GPUS = 64 };

/** Find the NUMA nodes of the GPUs that a rank sees, in the order of their PCI addresses, which is
 *  CUDA's for equal GPUs. @p pci: "/sys/bus/pci/devices"; @p visible: $CUDA_VISIBLE_DEVICES, or
 *  NULL. A node may be -1: not known.
 *  @return their number; 0: there are none, or they are named by other than numbers. */
int cddpi_gpu_nodes(const char *pci, const char *visible, int out[CDDPI_MACHINE_GPUS]);

/** Reorder @p cores, so that cddpi_cores_share() gives each of @p ranks cores of the node of its
 * GPU (the first of its share of the @p gpus), as many as that node has for it; the rest are other
 *  nodes'. Nothing changes if there are fewer GPUs or cores than ranks.
 *  @return CDDP_ERR_NO_MEMORY; then nothing has changed. */
CDDP_CHECKED cddp_status cddpi_cores_near(struct cddpi_rank_cores *cores, const int *nodes,
                                          int gpus, int ranks);

#endif
