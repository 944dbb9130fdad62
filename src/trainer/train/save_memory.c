/* save_memory.c - owns whether memory allows the copy of a checkpoint that is written in the
 * background. */
#include "base/memory_left.h"
#include "train/save_behind.h"
#include "train/trainer.h"

/* A copy leaves as much as it takes for what is not known of: other programs, and the pages that
 * wait to be written to the disk. */
bool cddpi_save_behind_fits(uint64_t bytes, uint64_t left)
{
    return bytes <= left / 2;
}

bool cddpi_save_behind_may_copy(struct cddpi_trainer *trainer, uint64_t bytes, uint64_t there)
{
    struct cddpi_save_behind *behind = &trainer->behind;
    int mode = trainer->config->train.checkpoint_async;
    char needed[CDDPI_SIZE_TEXT], found[CDDPI_SIZE_TEXT];
    struct cddpi_memory_left left;

    if (mode == CDDPI_ASYNC_FALSE) {
        return false;
    }
    if (bytes <= there) {
        return true;
    }
    cddpi_memory_left(&left);
    if (mode == CDDPI_ASYNC_AUTO) {
        return cddpi_save_behind_fits(bytes, left.bytes);
    }
    if (bytes > left.bytes && !behind->told_memory) {
        behind->told_memory = true;
        cddpi_trainer_warn(
            trainer,
            "train.checkpoint_async = true: a copy of a checkpoint takes %s, and only %s "
            "are left (%s), so training waits until each checkpoint is written",
            cddpi_print_size(bytes, needed), cddpi_print_size(left.bytes, found), left.limit);
    }
    return bytes <= left.bytes;
}
