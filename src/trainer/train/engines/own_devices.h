/* own_devices.h - owns the common part of engines whose ranks open several devices: all parameters
 * are in host memory, where the group reduces their gradients. */
#ifndef CDDPI_TRAIN_ENGINES_OWN_DEVICES_H
#define CDDPI_TRAIN_ENGINES_OWN_DEVICES_H

#include "device/parallel.h"
#include "train/engines/single/single.h"

/* The state of such an engine begins with this struct. */
struct cddpi_own_devices {
    cddp_devices *devices;
};

static inline cddp_devices *cddpi_own_devices_of(const struct cddpi_trainer *trainer)
{
    return ((struct cddpi_own_devices *)trainer->engine_state)->devices;
}

/** CDDP_ERR_CONFIG: a key is set that does not work with several devices per rank. */
CDDP_CHECKED cddp_status cddpi_own_devices_check(const struct cddpi_config *config);
CDDP_CHECKED cddp_status cddpi_own_devices_check_generate(const struct cddpi_config *config);

enum { CDDPI_PLACE_NAME_BYTES = 200 };

/* One entry of parallel.placement: "layer1=cpu:0". */
struct cddpi_device_place {
    char layer[CDDPI_PLACE_NAME_BYTES], device[CDDPI_PLACE_NAME_BYTES];
};

/** Read the entry at *@p text, and move *@p text past it. Returns false if there are no more
 *  entries. */
bool cddpi_device_place_next(const char **text, struct cddpi_device_place *out);
/** CDDP_ERR_CONFIG: @p place lacks a layer or a device. */
CDDP_CHECKED cddp_status cddpi_device_place_check(const struct cddpi_config *config,
                                                  const struct cddpi_device_place *place);
/** Open the devices that the configuration names.
 *  @param group  The process's group; NULL: no group, as in a dry run.
 *  @param out    Release with cddp_devices_destroy().
 *  @return CDDP_OK; CDDP_ERR_CONFIG; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_own_devices_open(const struct cddpi_config *config,
                                                const cddp_group *group, cddp_devices **out);

/** Add the part of the loss that only backward returns, when the loss is on a GPU, to @p out. */
CDDP_CHECKED cddp_status cddpi_own_devices_add_late(const struct cddpi_trainer *trainer,
                                                    struct cddpi_loss_result late,
                                                    struct cddpi_loss_result *out);

/** What a copy of the model calls before it reads parameter @p index: @p ddp may still gather it.
 */
cddp_status cddpi_own_devices_param_wait(void *ddp, size_t index);

/* Functions of struct cddpi_engine. There is one entry per device, and if a device is a GPU, one
 * more for host memory. */
int cddpi_own_devices_count(const struct cddpi_trainer *trainer);
void cddpi_own_devices_name(const struct cddpi_trainer *trainer, int device, char *out,
                            size_t bytes);
/** Add the memory held for parameter @p index, whose layer is on device @p device. */
void cddpi_own_devices_add_param(const struct cddpi_trainer *trainer, size_t index, int device,
                                 struct cddpi_held_memory *all);

/** The members of struct cddpi_engine that are the same for every engine whose ranks open several
 *  devices. */
#define CDDPI_OWN_DEVICES_ROW                                                                      \
    .check_batch = cddpi_single_check_batch, .owns_devices = true, .replays = true,                \
    .load_weights = cddpi_single_load_weights, .update = cddpi_single_update,                      \
    .square_sum = cddpi_single_square_sum, .update_finds_squares = true,                           \
    .take_result = cddpi_single_take_result, .evaluate = cddpi_single_evaluate,                    \
    .show_evaluation = cddpi_single_show_evaluation, .print_result = cddpi_single_print_result,    \
    .reader = cddpi_single_reader, .device_count = cddpi_own_devices_count,                        \
    .name_device = cddpi_own_devices_name, .list_tensors = cddpi_single_list_tensors,              \
    .load = cddpi_single_load

#endif
