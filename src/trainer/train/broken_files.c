/* broken_files.c - owns the count of broken image files over all ranks. */
#include "train/broken_files.h"

enum { TEXT_BYTES = 1024 };

/* Broadcast the text of the lowest rank that has one. */
static cddp_status share_text(struct cddpi_trainer *trainer, char text[TEXT_BYTES])
{
    int64_t from = text[0] != '\0' ? trainer->rank : trainer->world_size;
    cddp_status status = cddp_all_reduce(trainer->group, &from, &from, 1, CDDP_I64, CDDP_OP_MIN,
                                         NULL);

    if (status != CDDP_OK || from >= trainer->world_size) {
        return status;
    }
    return cddp_broadcast(trainer->group, text, TEXT_BYTES, CDDP_U8, (int)from, NULL);
}

cddp_status cddpi_trainer_tell_broken(struct cddpi_trainer *trainer)
{
    int64_t counts[2] = {0, 0};
    char text[TEXT_BYTES] = "";
    char other[TEXT_BYTES] = "";
    cddp_status status;

    if (trainer->config->data.on_error != CDDPI_DATA_SKIP) {
        return CDDP_OK;
    }
    if (trainer->reads_samples) { /* the other ranks of a replica load the same samples */
        counts[0] = (int64_t)cddpi_data_loader_broken(trainer->train.loader, text, sizeof text);
        counts[1] = (int64_t)cddpi_data_loader_broken(trainer->test.loader, other, sizeof other);
    }
    status = cddp_all_reduce(trainer->group, counts, counts, 2, CDDP_I64, CDDP_OP_SUM, NULL);
    if (status == CDDP_OK) {
        status = share_text(trainer, text[0] != '\0' ? text : other);
    }
    if (status == CDDP_OK && trainer->rank == 0 &&
        counts[0] + counts[1] > trainer->records.told_broken) {
        cddpi_trainer_warn(
            trainer,
            "data.on_error = \"skip\": until step %llu, %lld samples to train on and "
            "%lld to evaluate on were replaced by others, since their files are "
            "broken, as this one: %s",
            (unsigned long long)trainer->cursor.step, (long long)counts[0], (long long)counts[1],
            text[0] != '\0' ? text : other);
        trainer->records.told_broken = counts[0] + counts[1];
    }
    return status;
}
