/* first_values.c - owns the initial values of parameters and buffers.
 *
 * A parameter's values depend only on the seed and on the parameter's number. Element e comes from
 * word e % 4 of Philox counter e / 4 in the stream (seed, CDDPI_RANDOM_INIT, number). Uniform: (2 u
 * - 1) x bound, where u is 24 bits of the word. Normal: the Box-Muller transform in float64; words
 * 0 and 1 give elements 0 (cosine) and 1 (sine), words 2 and 3 the other two.
 *
 * So several threads can draw blocks of parameters in any order. On one thread, GPT-2 with 124
 * million parameters would take seconds. */
#include "base/env.h"
#include "base/machine.h"
#include "base/philox.h"
#include "group/group_info.h"
#include "nn/model_state.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 65536, MOST_THREADS = 256 }; /* elements of a block, which one thread draws */

/* What the threads share. Blocks are numbered across all parameters. */
struct drawing {
    const struct cddpi_model *model;
    atomic_size_t next; /* the next block to take */
};

static void fill_values(const cddp_param *tensor, size_t begin, size_t end, float value)
{
    float *data = tensor->data;

    for (size_t i = begin; i < end; i++) {
        data[i] = value;
    }
}

/* Draw elements [@p begin, @p end); @p begin is a multiple of 4. */
static void draw(const cddp_param *tensor, const struct cddpi_param_info *info,
                 const struct cddpi_philox *stream, size_t begin, size_t end)
{
    double mean = info->init == CDDPI_INIT_NORMAL_AROUND_ONE ? 1 : 0;
    float *data = tensor->data;

    for (size_t i = begin; i < end; i += 4) {
        size_t left = end - i < 4 ? end - i : 4;
        uint32_t words[4];
        float values[4];

        cddpi_philox4(stream, i / 4, words);
        if (info->init == CDDPI_INIT_UNIFORM) {
            for (int k = 0; k < 4; k++) {
                double unit = 2.0 * (double)cddpi_uniform01(words[k]) - 1.0;

                values[k] = (float)(unit * info->spread);
            }
        } else {
            cddpi_normal4(words, mean, info->spread, values);
        }
        memcpy(data + i, values, left * sizeof *values);
    }
}

static void make_block(const struct cddpi_model *model, size_t param, size_t block)
{
    const cddp_param *tensor = &model->params.items[param];
    const struct cddpi_param_info *info = &model->param_states[param].info;
    uint32_t number = model->part == NULL ? (uint32_t)param : model->part->param_numbers[param];
    struct cddpi_philox stream = cddpi_philox_stream(model->seed, CDDPI_RANDOM_INIT, number);
    size_t begin = block * BLOCK;
    size_t end = cddpi_tensor_elements(tensor);

    end = end - begin < BLOCK ? end : begin + BLOCK;
    switch (info->init) {
    case CDDPI_INIT_ZERO:
        fill_values(tensor, begin, end, 0);
        break;
    case CDDPI_INIT_ONE:
        fill_values(tensor, begin, end, 1);
        break;
    case CDDPI_INIT_UNIFORM:
    case CDDPI_INIT_NORMAL:
    case CDDPI_INIT_NORMAL_AROUND_ONE:
        draw(tensor, info, &stream, begin, end);
        break;
    }
}

static size_t blocks_of(const struct cddpi_model *model, size_t param)
{
    return (cddpi_tensor_elements(&model->params.items[param]) + BLOCK - 1) / BLOCK;
}

/* Draw blocks until there are none left. */
static void *make_blocks(void *argument)
{
    struct drawing *drawing = argument;
    const struct cddpi_model *model = drawing->model;
    size_t block = atomic_fetch_add(&drawing->next, 1);
    size_t before = 0; /* number of blocks in the parameters before this one */

    for (size_t p = 0; p < model->params.count; p++) {
        size_t count = blocks_of(model, p);

        for (; block < before + count; block = atomic_fetch_add(&drawing->next, 1)) {
            make_block(model, p, block - before);
        }
        before += count;
    }
    return NULL;
}

/* $CDDP_THREADS if it is set, otherwise this rank's share of the CPUs; nothing else runs on them
 * yet. If a launcher has bound the rank to some CPUs, these are its share; if not, the local ranks
 * share all CPUs equally. */
static int threads_of_rank(const struct cddpi_model *model)
{
    int64_t ranks = model->group != NULL ? cddpi_group_local_world_size(model->group) : 1;
    int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t given = cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 0);
    struct cddpi_processors own;
    int64_t share;

    if (given > 0) {
        return (int)given;
    }
    cddpi_processors(&own);
    share = cddpi_processors_within(online, own.quota) / ranks;
    share = share < own.allowed ? share : own.allowed;
    return share > 1 ? (int)share : 1;
}

static void make_params(const struct cddpi_model *model)
{
    struct drawing drawing = {.model = model};
    pthread_t threads[MOST_THREADS];
    size_t blocks = 0;
    int wanted = threads_of_rank(model);
    int count = 0;
    sigset_t all, before;

    for (size_t p = 0; p < model->params.count; p++) {
        blocks += blocks_of(model, p);
    }
    sigfillset(&all); /* signals are handled by the training thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* the caller is one of the threads, and does the work of those that could not be started */
    while (count < MOST_THREADS && count + 1 < wanted && (size_t)count + 1 < blocks &&
           pthread_create(&threads[count], NULL, make_blocks, &drawing) == 0) {
        count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)make_blocks(&drawing);
    for (int i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

void cddpi_model_make_first_values(const struct cddpi_model *model)
{
    for (size_t i = 0; i < model->buffers.count; i++) {
        const cddp_param *buffer = &model->buffers.items[i];

        fill_values(buffer, 0, cddpi_tensor_elements(buffer), model->first_values[i]);
    }
    make_params(model);
}
