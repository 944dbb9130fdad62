/* single.h - owns the engine for a whole model on one device per rank. Other engines use these
 * functions in their rows or call them first. All are functions of struct cddpi_engine; engine.h
 * documents them. */
#ifndef CDDPI_TRAIN_SINGLE_SINGLE_H
#define CDDPI_TRAIN_SINGLE_SINGLE_H

#include "train/engines/engine.h"

CDDP_CHECKED cddp_status cddpi_single_check(const struct cddpi_config *config, int world_size);
/** CDDP_ERR_CONFIG: parallel.stages has pairs of layers, which only devices of one rank can
 *  have. */
CDDP_CHECKED cddp_status cddpi_single_check_stage_names(const struct cddpi_config *config);
CDDP_CHECKED cddp_status cddpi_single_check_batch(const struct cddpi_config *config, int replicas);
/** Make the model (or model part) that @p spec describes; it is the only one of @p trainer. */
CDDP_CHECKED cddp_status cddpi_single_create_model(struct cddpi_trainer *trainer,
                                                   const struct cddpi_model_spec *spec);

void cddpi_single_bind_grads(struct cddpi_trainer *trainer);
void cddpi_single_bind_params(struct cddpi_trainer *trainer, void *const *data,
                              void *const *copies);
bool cddpi_single_param_decays(const struct cddpi_trainer *trainer, size_t index);
void cddpi_single_ready_order(const struct cddpi_trainer *trainer, size_t *out);

CDDP_CHECKED cddp_status cddpi_single_compute(struct cddpi_trainer *trainer,
                                              struct cddpi_train_step *step);
CDDP_CHECKED cddp_status cddpi_single_update(struct cddpi_trainer *trainer,
                                             const struct cddpi_train_step *step, double *out_norm);
CDDP_CHECKED cddp_status cddpi_single_square_sum(struct cddpi_trainer *trainer,
                                                 const struct cddpi_exact_sum *known, double *out);
/** Add up the parts of the gradient's squares that the ranks of @p group have. Collective. */
CDDP_CHECKED cddp_status cddpi_single_add_parts(struct cddpi_trainer *trainer, cddp_group *group,
                                                struct cddpi_exact_sum *sum);
CDDP_CHECKED cddp_status cddpi_single_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                                  struct cddpi_loss_result *out);
CDDP_CHECKED cddp_status cddpi_single_evaluate(struct cddpi_trainer *trainer,
                                               const struct cddpi_batch *batch,
                                               struct cddpi_loss_result *out);

CDDP_CHECKED cddp_status cddpi_single_show_evaluation(struct cddpi_trainer *trainer,
                                                      uint64_t epoch);
void cddpi_single_print_result(const struct cddpi_trainer *trainer, FILE *file);
struct cddpi_model *cddpi_single_reader(const struct cddpi_trainer *trainer);
int cddpi_single_device_count(const struct cddpi_trainer *trainer);
void cddpi_single_name_device(const struct cddpi_trainer *trainer, int device, char *out,
                              size_t bytes);
void cddpi_single_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all);

CDDP_CHECKED cddp_status cddpi_single_load_weights(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_single_list_tensors(struct cddpi_trainer *trainer,
                                                   struct cddpi_snapshot_params *out);
CDDP_CHECKED cddp_status cddpi_single_load(struct cddpi_trainer *trainer, const char *path);

#endif
