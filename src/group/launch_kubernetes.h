/* launch_kubernetes.h - pods as ranks: of an indexed Job, or of the training operator's PyTorchJob.
 */
#ifndef CDDPI_GROUP_LAUNCH_KUBERNETES_H
#define CDDPI_GROUP_LAUNCH_KUBERNETES_H

#include "group/launch_env.h"

#include <stdbool.h>

/** Whether this is a pod of an indexed Job that has been told its number of pods. */
bool cddpi_launch_is_indexed_job(void);

/** Whether this is a pod of a PyTorchJob with an elastic policy, which sets no RANK. */
bool cddpi_launch_is_elastic_job(void);

/** Read who this pod is, for the two above: rank, sizes and store. */
cddp_status cddpi_launch_indexed_job(struct cddpi_launch_env *env);
cddp_status cddpi_launch_elastic_job(struct cddpi_launch_env *env);

/** @p env was read from torchrun's variables. Where it is the operator that set them, for pods and
 *  not for processes, this rank is the only one on its host. */
cddp_status cddpi_launch_pod(struct cddpi_launch_env *env);

#endif
