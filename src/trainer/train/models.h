/* models.h - what is done to each of a rank's models. */
#ifndef CDDPI_TRAIN_MODELS_H
#define CDDPI_TRAIN_MODELS_H

#include "train/trainer.h"

/** Forward and backward of a batch, as cddpi_model_forward() and cddpi_model_backward(), of a model
 *  that this rank has alone, on one device or several. @p ready: the index is the rank's. */
CDDP_CHECKED cddp_status cddpi_trainer_forward(struct cddpi_trainer *trainer,
                                               const struct cddpi_batch *batch, bool training,
                                               struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_trainer_backward(struct cddpi_trainer *trainer, double scale,
                                                bool accumulate, cddpi_grad_ready_fn ready,
                                                void *context);
/** Multiplications of one sample's forward through all of a rank's models. */
double cddpi_trainer_work(const struct cddpi_trainer *trainer);

/** Let backward write gradients to trainer->grads. */
void cddpi_trainer_bind_grads(struct cddpi_trainer *trainer);
/** Let the models read their parameters and copies of them where the reducer has put them, so that
 *  ranks can update parts of them. */
CDDP_CHECKED cddp_status cddpi_trainer_bind_params(struct cddpi_trainer *trainer);
/** Whether parameter @p index of the rank's takes weight decay. */
bool cddpi_trainer_param_decays(const struct cddpi_trainer *trainer, size_t index);
/** In which order backward completes the rank's parameters; new memory (cddpi_free()), NULL: there
 *  is none. */
uint32_t *cddpi_trainer_ready_order(const struct cddpi_trainer *trainer);
/** Load model.weights: cddp's own file, or for a gpt2 also those of others. On rank 0; and with
 *  stages on the first replica, which gets its parts from there. */
CDDP_CHECKED cddp_status cddpi_trainer_load_weights(struct cddpi_trainer *trainer);

#endif
