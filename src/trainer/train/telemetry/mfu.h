/* mfu.h - how fast a device multiplies at best, so that a run can say what part of that it used.
 *
 * Model FLOP utilisation (MFU; Chowdhery et al., "PaLM", 2022, appendix B) is the arithmetic that a
 * step needs over what the devices could have done meanwhile:
 *
 *     6 x multiplications of a sample's forward x samples a second / (ranks x peak)
 *
 * 6: a multiplication comes with an addition, and backward makes two products for each of forward.
 * Counted are products, convolutions and attention, of which the causal half (as in llm.c's 6 N + 6
 * L C T, half of PaLM's 12 L C T); what is computed again (recompute) does not count. */
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
