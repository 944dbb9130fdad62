/* same_kernels.c - compares what the bits of all ranks depend on: instructions, libraries, devices.
 * A micro-batch has the same bits on every rank only if these are equal. */
#include "train/same_kernels.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/join/group_agree.h"

#include <string.h>

struct rank_arithmetic {
    char text[320];
};

cddp_status cddpi_trainer_compare_kernels(struct cddpi_trainer *trainer)
{
    struct rank_arithmetic own = {""};
    struct rank_arithmetic *all = NULL;
    void *gathered = NULL;
    int other = 0;

    if (!cddpi_trainer_has_same_bits(trainer)) {
        return CDDP_OK;
    }
    cddpi_model_arithmetic(trainer->model, own.text, sizeof own.text);
    CDDPI_TRY(cddpi_all_gather_bytes(trainer->group, &own, sizeof own, &gathered));
    all = gathered;
    for (int rank = 0; rank < trainer->world_size; rank++) {
        all[rank].text[sizeof all->text - 1] = '\0';
    }
    while (other < trainer->world_size && strcmp(all[0].text, all[other].text) == 0) {
        other++;
    }
    if (trainer->rank == 0 && other < trainer->world_size) {
        cddpi_trainer_warn(trainer,
                           "train.micro_batch: rank 0 computes with %s; rank %d with %s. So bits "
                           "depend on which rank computes a micro-batch, and on the number of "
                           "ranks. CDDP_MAX_ISA limits the instructions of all ranks to those that "
                           "the oldest processor has",
                           all[0].text, other, all[other].text);
    }
    cddpi_free(gathered);
    return CDDP_OK;
}
