/* launch_kubernetes.h - reads the variables of pods that are ranks or nodes of cddp-run: pods of an
 * indexed Job, or of Kubeflow Trainer v1 and v2. */
#ifndef CDDPI_GROUP_LAUNCH_KUBERNETES_H
#define CDDPI_GROUP_LAUNCH_KUBERNETES_H

#include "group/launch/launch_claim.h"
#include "group/launch/launch_env.h"

#include <stdbool.h>

/** Whether the variables show that this is a pod of Kubeflow Trainer. */
bool cddpi_launch_is_kubeflow(void);

/** How many processes each pod shall have; 0: not given. */
int cddpi_launch_pod_nproc(void);

/** Read the variables of an indexed Job, without a size if none is set, and those of Kubeflow. */
void cddpi_launch_read_indexed_job(struct cddpi_claim *claim);
void cddpi_launch_read_kubeflow(struct cddpi_claim *claim);

/** Write into @p env where the pods meet. @p env already has rank and sizes. */
cddp_status cddpi_launch_meet_indexed_job(struct cddpi_launch_env *env);
cddp_status cddpi_launch_meet_kubeflow(struct cddpi_launch_env *env);

/** Check that this process may be the only rank of its pod. CDDP_ERR_ARGUMENT: the job wants
 *  more. */
cddp_status cddpi_launch_one_process(const struct cddpi_claim *claim);

#endif
