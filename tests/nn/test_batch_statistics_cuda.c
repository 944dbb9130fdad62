/* test_batch_statistics_cuda.c - the same on a device: what a forward writes to bound memory, and
 * the update of running statistics. */
#include "support/nn_cuda.h"
#include "support/nn_statistics.h"

enum { BYTES = NORMED_VALUES * sizeof(float) };

struct bound_device {
    struct device_fixture f;
    float *memory; /* on the device */
    float *bound[NORMED_BUFFERS];
};

static void setup(struct bound_device *b, bool recompute)
{
    struct normed_layers layers;
    struct cddpi_model_spec spec = normed_spec(&layers, 0);

    spec.recompute = recompute;
    for (int i = 0; i < 5; i++) {
        layers.layers[i].segment = 1;
    }
    device_setup(&b->f, &spec, CDDPI_PRECISION_F32, 4);
    b->memory = device_alloc(device, BYTES);
    for (int i = 0; i < NORMED_BUFFERS; i++) {
        b->bound[i] = b->memory + i * NORMED_CHANNELS;
    }
    cddpi_model_bind_statistics(b->f.model, b->bound);
    b->f.batch.weight = 0.5;
}

static void fini(struct bound_device *b)
{
    device->ops->release(device, b->memory);
    device_fixture_fini(&b->f);
}

static float *running_of(const struct bound_device *b, size_t i)
{
    size_t count;
    const cddp_param *buffer = cddpi_model_buffers(b->f.model, &count);

    return device_get(device, buffer[i].data, NORMED_CHANNELS * sizeof(float));
}

static void statistics_are_written_by_the_weight_once(void **state)
{
    float expected[NORMED_VALUES];

    (void)state;
    normed_expected(0, 4, expected);
    for (int recompute = 0; recompute < 2; recompute++) {
        struct bound_device b;
        float spoilt[NORMED_VALUES];
        float *seen;

        setup(&b, recompute == 1);
        device_check(cddpi_model_forward(b.f.model, &b.f.batch, true, NULL));
        seen = device_get(device, b.memory, BYTES);
        for (int i = 0; i < NORMED_VALUES; i++) {
            float right = 0.5f * expected[i];

            assert_true(fabsf(seen[i] - right) <= 1e-5f * (fabsf(right) + 0.1f));
            spoilt[i] = (float)i;
        }
        free(seen);
        device_put(device, b.memory, spoilt, BYTES);
        device_check(cddpi_model_backward(b.f.model, 1, false, NULL, NULL));
        seen = device_get(device, b.memory, BYTES);
        assert_memory_equal(seen, spoilt, BYTES);
        free(seen);
        for (size_t i = 0; i < NORMED_BUFFERS; i++) {
            seen = running_of(&b, i);
            assert_true(seen[0] == (i % 2 == 0 ? 0 : 1));
            free(seen);
        }
        fini(&b);
    }
}

static void the_update_has_the_bits_of_the_cpu_but_skips_what_overflowed(void **state)
{
    float sums[NORMED_VALUES];
    struct bound_device b;

    (void)state;
    setup(&b, false);
    for (int i = 0; i < NORMED_VALUES; i++) {
        sums[i] = 0.3f + 0.7f * (float)i;
    }
    sums[1] = INFINITY;              /* of the first mean */
    sums[NORMED_CHANNELS + 2] = NAN; /* of its variance */
    device_put(device, b.memory, sums, BYTES);
    device_check(cddpi_model_blend_statistics(b.f.model, b.bound));
    for (size_t i = 0; i < NORMED_BUFFERS; i++) {
        float *seen = running_of(&b, i);

        for (int c = 0; c < NORMED_CHANNELS; c++) {
            double old = i % 2 == 0 ? 0 : 1;
            double momentum = i < 2 && (c == 1 || c == 2) ? 0 : normed_momenta[i];
            double sum = momentum == 0 ? 0 : (double)sums[i * NORMED_CHANNELS + (size_t)c];

            assert_true(seen[c] == (float)((1 - momentum) * old + momentum * sum));
        }
        free(seen);
    }
    fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_written_by_the_weight_once),
        cmocka_unit_test(the_update_has_the_bits_of_the_cpu_but_skips_what_overflowed),
    };

    return run_on_device(tests);
}
