/* bench_cuda_images.h - the operations of ResNet-50 that bench_cuda measures. */
#ifndef CDDP_TESTS_BENCH_BENCH_CUDA_IMAGES_H
#define CDDP_TESTS_BENCH_BENCH_CUDA_IMAGES_H

#include "bench/bench_cuda.h"

static size_t elements(int count, int channels, int height, int width)
{
    return (size_t)count * (size_t)channels * (size_t)height * (size_t)width;
}

static int after(int side, int kernel, int stride, int padding)
{
    return (side + 2 * padding - kernel) / stride + 1;
}

/* Elements of a convolution's input, output and weight. */
static size_t conv_x(const struct cddpi_cuda_conv *c)
{
    return elements(c->count, c->channels, c->height, c->width);
}

static size_t conv_y(const struct cddpi_cuda_conv *c)
{
    return elements(c->count, c->outputs, after(c->height, c->kernel, c->stride, c->padding),
                    after(c->width, c->kernel, c->stride, c->padding));
}

static size_t conv_w(const struct cddpi_cuda_conv *c)
{
    return elements(c->outputs, c->channels, c->kernel, c->kernel);
}

static cddp_status conv(const struct job *job)
{
    const struct cddpi_cuda_conv *c = &job->as.conv;

    return k->conv(cuda, c, in(conv_x(c)), in(conv_w(c)), out(conv_y(c)));
}

static cddp_status conv_input(const struct job *job)
{
    const struct cddpi_cuda_conv *c = &job->as.conv;

    return k->conv_input(cuda, c, in(conv_y(c)), in(conv_w(c)), out(conv_x(c)));
}

static cddp_status conv_weight(const struct job *job)
{
    const struct cddpi_cuda_conv *c = &job->as.conv;

    return k->conv_weight(cuda, c, in(conv_y(c)), in(conv_x(c)), false, out(2 * conv_w(c)));
}

/* What bounds it, by the card's ceilings: operations, or bytes. */
static void convs(int channels, int outputs, int side, int kernel, int stride)
{
    static const char *const names[] = {"conv", "conv_weight", "conv_input"};
    cddp_status (*const works[])(const struct job *) = {conv, conv_weight, conv_input};

    for (int i = 0; i < (channels > 3 ? 3 : 2); i++) { /* images need no gradient */
        struct job job = {.op = names[i], .work = works[i]};
        struct cddpi_cuda_conv *c = &job.as.conv;
        double flops;

        *c = (struct cddpi_cuda_conv){CDDP_BF16, size.images, channels, side,       side,
                                      outputs,   kernel,      stride,   kernel / 2, true};
        flops = 2.0 * (double)conv_y(c) * channels * kernel * kernel;
        job.bytes = 2.0 * (double)(conv_x(c) + conv_y(c) + conv_w(c));
        job.flops = flops / product_rate >= job.bytes / copy_rate ? flops : 0;
        snprintf(job.shape, sizeof job.shape, "%d x %d to %d, %d x %d, kernel %d / %d", size.images,
                 channels, outputs, side, side, kernel, stride);
        run(&job);
    }
}

static cddp_status batch_norm(const struct job *job)
{
    size_t count = job->rows * job->columns;
    size_t c = job->columns;

    return k->batch_norm(cuda, &job->as.norm, in(count), NULL, in(2 * c), in(2 * c), out(2 * c),
                         out(2 * c), out(2 * c), out(2 * c), out(count));
}

static cddp_status batch_norm_grad(const struct job *job)
{
    size_t count = job->rows * job->columns;
    size_t c = job->columns;

    return k->batch_norm_grad(cuda, &job->as.norm, in(count), NULL, in(count), NULL, in(2 * c),
                              in(2 * c), in(2 * c), in(2 * c), false, out(count), NULL, out(2 * c),
                              out(2 * c));
}

static void norms(int channels, int side)
{
    struct job job = {.op = "batch_norm + relu", .work = batch_norm, .columns = (size_t)channels};

    job.rows = elements(size.images, 1, side, side);
    job.as.norm = (struct cddpi_cuda_norm){CDDP_BF16, job.rows, channels, 1e-5f, 0.1f, true, 0};
    job.bytes = 2.0 * 3 * (double)job.rows * channels; /* x twice, y */
    snprintf(job.shape, sizeof job.shape, "%zu x %d", job.rows, channels);
    run(&job);
    job.op = "batch_norm_grad + relu";
    job.work = batch_norm_grad;
    job.bytes = 2.0 * 5 * (double)job.rows * channels; /* dy and x twice, dx */
    run(&job);
}

static cddp_status pool(const struct job *job)
{
    return k->pool(cuda, &job->as.pool, in(job->rows), out(job->columns),
                   out((job->columns + 1) / 2));
}

static cddp_status pool_grad(const struct job *job)
{
    return k->pool_grad(cuda, &job->as.pool, in(job->columns), in((job->columns + 1) / 2),
                        out(job->rows));
}

static void pools(int channels, int side)
{
    struct job job = {.op = "max pool", .work = pool};

    job.as.pool = (struct cddpi_cuda_pool){CDDP_BF16, size.images, channels, side, side,
                                           3,         2,           1,        false};
    job.rows = elements(size.images, channels, side, side);
    job.columns = elements(size.images, channels, after(side, 3, 2, 1), after(side, 3, 2, 1));
    job.bytes = 2.0 * (double)(job.rows + job.columns) + (double)job.columns; /* and places */
    snprintf(job.shape, sizeof job.shape, "%d x %d, %d x %d, 3 / 2", size.images, channels, side,
             side);
    run(&job);
    job.op = "max pool_grad";
    job.work = pool_grad;
    run(&job);
}

/* One of each kind of layer. */
static void resnet50(void)
{
    int side = size.side / 4;

    convs(3, 64, size.side, 7, 2);
    convs(8, 64, size.side, 7, 2); /* its filters' gradient is that of this */
    norms(64, size.side / 2);
    pools(64, size.side / 2);
    convs(64, 64, side, 3, 1);
    convs(64, 256, side, 1, 1);
    convs(256, 64, side, 1, 1);
    norms(256, side);
    convs(128, 128, side, 3, 2);
    convs(128, 512, side / 2, 1, 1);
    convs(256, 256, side / 4, 3, 1);
    convs(1024, 256, side / 4, 1, 1);
    convs(512, 512, side / 8, 3, 1);
    norms(2048, side / 8);
    /* likewise; cuDNN has engines that pad by themselves */
    convs(65, 33, side, 3, 1);
    convs(72, 40, side, 3, 1);
}

#endif
