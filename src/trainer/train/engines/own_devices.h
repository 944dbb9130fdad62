/* own_devices.h - what engines have in common whose ranks open devices of their own: all parameters
 * are in the processor's memory, where the group reduces their gradients. */
#ifndef CDDPI_TRAIN_ENGINES_OWN_DEVICES_H
#define CDDPI_TRAIN_ENGINES_OWN_DEVICES_H

#include "device/parallel.h"
#include "train/engines/engine.h"

/* With this the state of such an engine begins. */
struct cddpi_own_devices {
    cddp_devices *devices;
};

static inline cddp_devices *cddpi_own_devices_of(const struct cddpi_trainer *trainer)
{
    return ((struct cddpi_own_devices *)trainer->engine_state)->devices;
}

/** Whether statistics of a layer are taken over ranks. */
bool cddpi_trainer_has_sync(const struct cddpi_config *config);
/** CDDP_ERR_CONFIG: keys that are not for several devices of a rank. */
CDDP_CHECKED cddp_status cddpi_own_devices_check(const struct cddpi_config *config);
CDDP_CHECKED cddp_status cddpi_own_devices_check_generate(const struct cddpi_config *config);

/** What backward alone finds of the loss, where that is on a GPU, added to @p out. */
CDDP_CHECKED cddp_status cddpi_own_devices_add_late(const struct cddpi_trainer *trainer,
                                                    struct cddpi_loss_result late,
                                                    struct cddpi_loss_result *out);

/* Functions of struct cddpi_engine: a row for each device, and with GPUs among them one more for
 * what is in the processor's memory. */
int cddpi_own_devices_count(const struct cddpi_trainer *trainer);
void cddpi_own_devices_name(const struct cddpi_trainer *trainer, int device, char *out,
                            size_t bytes);
/** Add what is held for parameter @p index, which device @p device computes with. */
void cddpi_own_devices_add_param(const struct cddpi_trainer *trainer, size_t index, int device,
                                 struct cddpi_held_memory *all);

#endif
