/* generate_model.h - text that a trainer's model makes up. */
#ifndef CDDPI_TRAIN_GENERATE_MODEL_H
#define CDDPI_TRAIN_GENERATE_MODEL_H

#include "train/generate/generate.h"
#include "train/trainer.h"

/** The tokenizer of the configuration, if it has one. */
CDDP_CHECKED cddp_status cddpi_trainer_open_tokenizer(struct cddpi_trainer *trainer);
/** That text can be drawn from the model as the configuration says. */
CDDP_CHECKED cddp_status cddpi_trainer_check_text(struct cddpi_trainer *trainer);

/** Go on from @p prompt as the configuration's train.generate_... say. Local.
 *  @param deadline_ns  As in struct cddpi_generator. */
CDDP_CHECKED cddp_status cddpi_trainer_continue(const struct cddpi_trainer *trainer,
                                                const char *prompt, int64_t deadline_ns,
                                                struct cddpi_generated *out);

#endif
