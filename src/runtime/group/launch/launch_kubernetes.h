/* launch_kubernetes.h - pods as ranks, or as nodes of cddp-run: of an indexed Job, or of Kubeflow's
 * Trainer, old and new. */
#ifndef CDDPI_GROUP_LAUNCH_KUBERNETES_H
#define CDDPI_GROUP_LAUNCH_KUBERNETES_H

#include "group/launch/launch_claim.h"
#include "group/launch/launch_env.h"

#include <stdbool.h>

/** Whether variables of Kubeflow's Trainer say that this is a pod of its. */
bool cddpi_launch_is_kubeflow(void);

/** How many processes each pod is to have; 0: that is left open. */
int cddpi_launch_pod_nproc(void);

/** What an indexed Job's variables say, without a size if none is set, and what Kubeflow's do. */
void cddpi_launch_read_indexed_job(struct cddpi_claim *claim);
void cddpi_launch_read_kubeflow(struct cddpi_claim *claim);

/** Where pods meet, into @p env, which has rank and sizes. */
cddp_status cddpi_launch_meet_indexed_job(struct cddpi_launch_env *env);
cddp_status cddpi_launch_meet_kubeflow(struct cddpi_launch_env *env);

/** This process wants to be the only rank of its pod: CDDP_ERR_ARGUMENT if the job wants more. */
cddp_status cddpi_launch_one_process(const struct cddpi_claim *claim);

#endif
