/* cuda.h - arrays of each type on the device "cuda", for tests of its kernels: whichever
 * module is there, the real one or the emulated one. Where there is none, tests skip themselves
 * with the reason. */
#ifndef CDDP_TESTS_SUPPORT_CUDA_H
#define CDDP_TESTS_SUPPORT_CUDA_H

#include "device/device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support/nn.h"

#include <math.h>

static const cddp_type cuda_types[] = {CDDP_F32, CDDP_BF16, CDDP_F16};

extern struct cddpi_device *cuda; /* of the whole program; NULL: there is none */

int cuda_open(void **state);
int cuda_close(void **state);

/* Meson takes 77 for a program that was skipped. */
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

/* Half the distance between neighbours, relative; and absolute where numbers are smallest. */
double rounding_of(cddp_type type, double x);

/* --- memory --- */

void *cuda_alloc(size_t bytes);
void cuda_copy(void *to, const void *from, size_t bytes);
void *cuda_upload(const void *from, size_t bytes);
void *cuda_download(const void *from, size_t bytes);
void cuda_release(void *memory);

/* An array there and what it holds, here. */
struct numbers {
    cddp_type type;
    size_t count;
    void *device;
    float *host;
};

size_t bytes_of(const struct numbers *x);

/* The numbers of @p host as @p type has them. */
struct numbers numbers_from(cddp_type type, const float *host, size_t count);

/* Random ones in offset +- scale; each @p stream others. */
struct numbers random_numbers(cddp_type type, uint32_t stream, size_t count, float scale,
                              float offset);

/* An array that a kernel is to fill: not a number, so far. */
struct numbers no_numbers(cddp_type type, size_t count);

/* What is there now. */
void numbers_fetch(struct numbers *x);
void numbers_free(struct numbers *x);

/* |there - expected| <= relative |expected| + absolute, on top of the type's own rounding. */
void numbers_near(struct numbers *x, const double *expected, double relative, double absolute,
                  const char *what);

/* The same bits as @p other, which another run has made. */
void numbers_same(const struct numbers *x, const struct numbers *other);

#endif
