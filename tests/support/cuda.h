/* cuda.h - arrays of each type on the device "cuda", for tests of kernels. The device is that of
 * the available module, real or emulated. Without a module, tests skip themselves and print why. */
#ifndef CDDP_TESTS_SUPPORT_CUDA_H
#define CDDP_TESTS_SUPPORT_CUDA_H

#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support/nn.h"

#include <math.h>

static const cddp_type cuda_types[] = {CDDP_F32, CDDP_BF16, CDDP_F16};

extern struct cddpi_device *cuda; /* one for the whole program; NULL: there is no module */

int cuda_open(void **state);
int cuda_close(void **state);

/* Exit status 77 tells Meson that the program was skipped. */
#define RUN_ON_CUDA(tests)                                                                         \
    (cmocka_run_group_tests(tests, cuda_open, cuda_close) != 0 ? 1 : cuda == NULL ? 77 : 0)

#define NEEDS_CUDA()                                                                               \
    do {                                                                                           \
        if (cuda == NULL) {                                                                        \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

void cuda_ok(cddp_status status);

/* --- numbers of a type --- */

void store_as(cddp_type type, void *to, size_t at, float x);
float load_as(cddp_type type, const void *from, size_t at);

/* The rounding error of @p x: half the distance between neighbours. Relative, but absolute for the
 * smallest numbers. */
double rounding_of(cddp_type type, double x);

/* --- memory --- */

void *cuda_alloc(size_t bytes);
void cuda_copy(void *to, const void *from, size_t bytes);
void *cuda_upload(const void *from, size_t bytes);
void *cuda_download(const void *from, size_t bytes);
void cuda_release(void *memory);

/* An array on the device and its values on the host. */
struct numbers {
    cddp_type type;
    size_t count;
    void *device;
    float *host;
};

size_t bytes_of(const struct numbers *x);

/* An array with the values of @p host, rounded to @p type. */
struct numbers numbers_from(cddp_type type, const float *host, size_t count);

/* An array of random values in offset +- scale, which depend on @p stream. */
struct numbers random_numbers(cddp_type type, uint32_t stream, size_t count, float scale,
                              float offset);

/* An array for a kernel to fill; all NaN until then. */
struct numbers no_numbers(cddp_type type, size_t count);

/* Copy the device's current values to x->host. */
void numbers_fetch(struct numbers *x);
void numbers_free(struct numbers *x);

/* Assert |device - expected| <= relative |expected| + absolute, in addition to the type's own
 * rounding. */
void numbers_near(struct numbers *x, const double *expected, double relative, double absolute,
                  const char *what);

/* Assert that the bits equal those of @p other, from another run. */
void numbers_same(const struct numbers *x, const struct numbers *other);

#endif
