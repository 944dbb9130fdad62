/* optim_device.h - parameters with gradients and an optimizer, on the CPU or on a device. */
#ifndef CDDP_TESTS_SUPPORT_OPTIM_DEVICE_H
#define CDDP_TESTS_SUPPORT_OPTIM_DEVICE_H

#include "optim/optim_impl.h"
#include "support/ddp_ranks.h"
#include "support/device.h"
#include "support/device_stage.h"

enum { PARAMS = 4, ORDERS = 6 };

static const int64_t counts[PARAMS] = {20011, 5, 8, 0};

static const struct cddpi_optim_spec specs[] = {
    {.type = CDDPI_OPTIM_SGD},
    {.type = CDDPI_OPTIM_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
    {.type = CDDPI_OPTIM_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
};

enum { SPECS = sizeof specs / sizeof specs[0] };

/* Four parameters with gradients, on the CPU or on a device. The third is frozen. */
struct side {
    struct cddpi_device *device; /* NULL: the CPU */
    cddp_param params[PARAMS];
    void *grads[PARAMS];
    struct cddpi_optim *optim;
};

size_t bytes_of_param(size_t i);
int put_side(const struct side *side, void *to, const void *from, size_t bytes);
int get_side(const struct side *side, void *to, const void *from, size_t bytes);
void *memory_for(const struct side *side, size_t bytes);

/* Write pseudo-random values for parameter or gradient @p i to @p to. */
int put_noise(const struct side *side, void *to, unsigned kind, unsigned step, size_t i);
int open_side(struct side *side, struct cddpi_device *device, const struct cddpi_optim_spec *spec);
double rate_of(unsigned step);

#endif
