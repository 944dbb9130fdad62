/* rank_gpus.h - the NUMA nodes of this machine's GPUs, and ranks' cores near their GPUs. */
#ifndef CDDPI_LAUNCHER_RANK_GPUS_H
#define CDDPI_LAUNCHER_RANK_GPUS_H

#include "launcher/run_options.h"
#include "launcher/supervise/rank_cores.h"

enum { CDDPI_MACHINE_GPUS = 64 };

/* Where to look: folders of the kernel, or a test's. */
struct cddpi_gpu_paths {
    const char *pci;    /* "/sys/bus/pci/devices" */
    const char *driver; /* "/proc/driver/nvidia/gpus" */
    const char *dev;    /* "/dev" */
};

/** Find the NUMA nodes of the GPUs that a rank sees, in the order of their PCI addresses, which is
 *  CUDA's for equal GPUs. @p visible: $CUDA_VISIBLE_DEVICES, or NULL. A node may be -1: not known.
 *  @return their number; 0: there are none, or it is not clear which CUDA's numbers mean. */
int cddpi_gpu_nodes(const struct cddpi_gpu_paths *paths, const char *visible,
                    int out[CDDPI_MACHINE_GPUS]);

/** Whether rank r computes on GPU r, as far as can be known without reading the train.conf.
 *  @p device: $CDDP_DEVICE; @p visible: $CUDA_VISIBLE_DEVICES; or NULL. */
bool cddpi_gpu_per_rank(const struct cddpi_launch_options *options, const char *device,
                        const char *visible);

/** Reorder @p cores, so that cddpi_cores_share() gives rank r of @p ranks cores of the node of GPU
 *  r, as many as that node has for it; the rest are other nodes'. Nothing changes if there are
 *  fewer GPUs or cores than ranks, or if a rank whose cores are of one node would lose that.
 *  @return CDDP_ERR_NO_MEMORY; then nothing has changed. */
CDDP_CHECKED cddp_status cddpi_cores_near(struct cddpi_rank_cores *cores, const int *nodes,
                                          int gpus, int ranks);

#endif
