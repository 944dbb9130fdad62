/* same_config.h - checks that all ranks were given the same configuration. */
#ifndef CDDPI_TRAIN_SAME_CONFIG_H
#define CDDPI_TRAIN_SAME_CONFIG_H

#include "train/config/config.h"

#include <cddp/group.h>

/** Compare @p config, without the keys that may differ between ranks, with rank 0's. Collective.
 *  @return CDDP_OK; on every rank, CDDP_ERR_CONFIG with the keys that differ and both values, of
 *          the lowest rank that has another configuration than rank 0; or an error of the group. */
CDDP_CHECKED cddp_status cddpi_config_agree(const struct cddpi_config *config, cddp_group *group);

#endif
