/* mfu.h - calculates which part of the devices' peak speed a run used.
 *
 * Model FLOP utilisation (MFU; Chowdhery et al., "PaLM", 2022, appendix B) is the arithmetic that a
 * step needs, divided by what the devices could have computed in the same time:
 *
 *     6 x multiplications of a sample's forward x samples per second / (devices x peak)
 *
 * The factor 6: each multiplication comes with an addition, and backward has two products for each
 * product of forward. Matrix products, convolutions and the causal half of attention count (as in
 * llm.c's 6 N + 6 L C T, half of PaLM's 12 L C T). Recomputed activations (recompute) do not count.
 */
#ifndef CDDPI_TRAIN_REPORT_MFU_H
#define CDDPI_TRAIN_REPORT_MFU_H

#include "nn/model.h"

/** FLOP/s of the device with the name @p title ("NVIDIA H200") for dense products of that precision
 *  with float32 sums, as its maker publishes it; 0: not in the table. Ranks that share a device
 *  share this, too. Any thread. */
double cddpi_peak_flops(const char *title, enum cddpi_precision precision);

/** The formula above for @p devices devices with that @p peak; 0 if the peak is 0. */
double cddpi_mfu(double work, double samples_per_s, int devices, double peak);

#endif
