/* cuda.c - arrays of each type on the device "cuda", for tests of kernels. */
#include "support/cuda.h"

struct cddpi_device *cuda;

int cuda_open(void **state)
{
    (void)state;
    setenv("CDDP_CACHE", "off", 0); /* not what this user's programs have measured */
    if (cddpi_device_open("cuda", -1, 1, 0, 1, true, &cuda) != CDDP_OK) {
        print_message("skipped: %s\n", cddp_last_error());
        cuda = NULL;
    }
    return 0;
}

int cuda_close(void **state)
{
    (void)state;
    cddpi_device_close(cuda);
    return 0;
}

void cuda_ok(cddp_status status)
{
    if (status != CDDP_OK) {
        fail_msg("%s", cddp_last_error());
    }
}

/* --- numbers of a type --- */

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint16_t bf16_of_float(float x)
{
    uint32_t bits = bits_of_float(x);

    return isnan(x) ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float float_of_f16(uint16_t half)
{
    int exponent = half >> 10 & 31;
    float fraction = (float)(half & 1023) / 1024;
    float size = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                 : exponent == 0 ? ldexpf(fraction, -14)
                                 : ldexpf(1 + fraction, exponent - 15);

    return half >> 15 != 0 ? -size : size;
}

/* Round to nearest even, in units of the last bit. */
static uint16_t f16_of_float(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    int exponent;
    float units;

    if (isnan(x)) {
        return 0x7fff;
    }
    if (size >= 65520) {
        return sign | 0x7c00;
    }
    if (size == 0) {
        return sign;
    }
    frexpf(size, &exponent);
    exponent = exponent - 1 < -14 ? -14 : exponent - 1;
    units = nearbyintf(ldexpf(size, 10 - exponent)); /* may be 2048, which carries into the
                                                        exponent */
    return sign | (uint16_t)((uint32_t)units + (uint32_t)(exponent + 14) * 1024);
}

void store_as(cddp_type type, void *to, size_t at, float x)
{
    if (type == CDDP_F32) {
        ((float *)to)[at] = x;
    } else {
        ((uint16_t *)to)[at] = type == CDDP_BF16 ? bf16_of_float(x) : f16_of_float(x);
    }
}

float load_as(cddp_type type, const void *from, size_t at)
{
    uint16_t half;

    if (type == CDDP_F32) {
        return ((const float *)from)[at];
    }
    half = ((const uint16_t *)from)[at];
    return type == CDDP_BF16 ? float_of_bits((uint32_t)half << 16) : float_of_f16(half);
}

double rounding_of(cddp_type type, double x)
{
    return type == CDDP_F32 ? 0 : type == CDDP_BF16 ? fabs(x) / 256 : fmax(fabs(x) / 2048, 3e-8);
}

/* --- memory --- */

void *cuda_alloc(size_t bytes)
{
    void *memory;

    cuda_ok(cuda->ops->alloc(cuda, bytes, "a test's array", &memory));
    return memory;
}

void cuda_copy(void *to, const void *from, size_t bytes)
{
    cuda_ok(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, to, from, bytes));
    cuda_ok(cuda->ops->finish(cuda, 60000));
}

void *cuda_upload(const void *from, size_t bytes)
{
    void *memory = cuda_alloc(bytes);

    cuda_copy(memory, from, bytes);
    return memory;
}

void *cuda_download(const void *from, size_t bytes)
{
    void *host = malloc(bytes);

    cuda_copy(host, from, bytes);
    return host;
}

void cuda_release(void *memory)
{
    cuda->ops->release(cuda, memory);
}

size_t bytes_of(const struct numbers *x)
{
    return x->count * cddp_type_bytes(x->type);
}

struct numbers numbers_from(cddp_type type, const float *host, size_t count)
{
    struct numbers x = {type, count, NULL, malloc((count + 1) * sizeof(float))};
    void *raw = malloc(bytes_of(&x) + 1);

    for (size_t i = 0; i < count; i++) {
        store_as(type, raw, i, host[i]);
        x.host[i] = load_as(type, raw, i);
    }
    x.device = cuda_upload(raw, bytes_of(&x));
    free(raw);
    return x;
}

struct numbers random_numbers(cddp_type type, uint32_t stream, size_t count, float scale,
                              float offset)
{
    float *host = calloc(count + 1, sizeof *host);
    struct numbers x;

    for (size_t i = 0; i < count; i++) {
        host[i] = offset + scale * test_number(stream, i);
    }
    x = numbers_from(type, host, count);
    free(host);
    return x;
}

struct numbers no_numbers(cddp_type type, size_t count)
{
    float *host = calloc(count + 1, sizeof *host);
    struct numbers x;

    for (size_t i = 0; i < count; i++) {
        host[i] = NAN;
    }
    x = numbers_from(type, host, count);
    free(host);
    return x;
}

void numbers_fetch(struct numbers *x)
{
    void *raw = cuda_download(x->device, bytes_of(x));

    for (size_t i = 0; i < x->count; i++) {
        x->host[i] = load_as(x->type, raw, i);
    }
    free(raw);
}

void numbers_free(struct numbers *x)
{
    cuda_release(x->device);
    free(x->host);
}

void numbers_near(struct numbers *x, const double *expected, double relative, double absolute,
                  const char *what)
{
    numbers_fetch(x);
    for (size_t i = 0; i < x->count; i++) {
        double bound = relative * fabs(expected[i]) + absolute + rounding_of(x->type, expected[i]);

        if (!(fabs((double)x->host[i] - expected[i]) <= bound)) {
            fail_msg("%s of %s: element %zu of %zu is %.9g and should be %.9g +- %.3g", what,
                     cddp_type_name(x->type), i, x->count, (double)x->host[i], expected[i], bound);
        }
    }
}

void numbers_same(const struct numbers *x, const struct numbers *other)
{
    void *a = cuda_download(x->device, bytes_of(x));
    void *b = cuda_download(other->device, bytes_of(other));

    assert_int_equal(x->count, other->count);
    assert_memory_equal(a, b, bytes_of(x));
    free(a);
    free(b);
}
