/* optim_device.c - parameters with gradients and an optimizer, on the CPU or on a device. */
#include "support/optim_device.h"

size_t bytes_of_param(size_t i)
{
    return (size_t)counts[i] * sizeof(float);
}

int put_side(const struct side *side, void *to, const void *from, size_t bytes)
{
    if (side->device == NULL) {
        memcpy(to, from, bytes);
        return 0;
    }
    CHECK(bytes == 0 ||
          side->device->ops->copy(side->device, CDDPI_STREAM_COMPUTE, to, from, bytes) == CDDP_OK);
    return 0;
}

int get_side(const struct side *side, void *to, const void *from, size_t bytes)
{
    CHECK(put_side(side, to, from, bytes) == 0);
    CHECK(side->device == NULL ||
          side->device->ops->finish(side->device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    return 0;
}

void *memory_for(const struct side *side, size_t bytes)
{
    void *memory = NULL;

    if (side->device == NULL) {
        return calloc(1, bytes + 64);
    }
    return side->device->ops->alloc(side->device, bytes + 64, "a test", &memory) == CDDP_OK ? memory
                                                                                            : NULL;
}

int put_noise(const struct side *side, void *to, unsigned kind, unsigned step, size_t i)
{
    float *numbers = malloc(bytes_of_param(i) + 1);

    for (unsigned e = 0; e < counts[i]; e++) {
        numbers[e] = noise(kind, step, (unsigned)i, e);
    }
    CHECK(put_side(side, to, numbers, bytes_of_param(i)) == 0);
    free(numbers);
    return 0;
}

int open_side(struct side *side, struct cddpi_device *device, const struct cddpi_optim_spec *spec)
{
    static const char *const names[PARAMS] = {"fc.weight", "fc.bias", "still", "empty"};
    static const bool decays[PARAMS] = {true, false, true, true};

    memset(side, 0, sizeof *side);
    side->device = device;
    for (size_t i = 0; i < PARAMS; i++) {
        side->params[i] = (cddp_param){.name = names[i],
                                       .type = CDDP_F32,
                                       .dims = 1,
                                       .shape = {counts[i]},
                                       .data = memory_for(side, bytes_of_param(i)),
                                       .flags = i == 2 ? CDDP_PARAM_FROZEN : 0};
        side->grads[i] = memory_for(side, bytes_of_param(i));
        CHECK(side->params[i].data != NULL && side->grads[i] != NULL);
        CHECK(put_noise(side, side->params[i].data, 1, 0, i) == 0);
    }
    CHECK(cddpi_optim_create(spec, side->params, decays, PARAMS, NULL, NULL, &side->optim) ==
          CDDP_OK);
    CHECK(device == NULL ||
          cddpi_optim_to_device(side->optim, device, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    return 0;
}

double rate_of(unsigned step)
{
    return 0.01 / (1 + step);
}
