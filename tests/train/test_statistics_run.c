/* test_statistics_run.c - statistics of models that are at different micro-batches at the same
 * time, as the chunks of a pipeline's stage, on several ranks: the bits of one rank that takes the
 * micro-batches one by one. */
#include "support/ddp_ranks.h"
#include "support/nn_statistics.h"
#include "train/statistics.h"

#include <cddp/sampler.h>

enum { CHUNKS = 2, MOST = 7, STEPS = 2 };
static const int samples[MOST] = {3, 3, 3, 3, 3, 3, 1}; /* of each micro-batch */

/* Two models with their statistics, as a trainer has them. */
struct chunks {
    struct cddpi_config config;
    struct cddpi_trainer trainer;
    struct normed_layers layers[CHUNKS];
    struct fixture models[CHUNKS];
    cddp_param buffers[CHUNKS * NORMED_BUFFERS];
    struct cddpi_statistics *statistics;
};

static int make_chunks(struct chunks *chunks, cddp_group *group)
{
    struct cddpi_trainer *trainer = &chunks->trainer;

    *chunks = (struct chunks){.config.train.micro_batch = 3};
    trainer->config = &chunks->config;
    trainer->device = cddpi_device_or_cpu(NULL);
    trainer->replicas = (struct cddpi_trainer_replicas){group, cddp_group_rank(group),
                                                        cddp_group_world_size(group)};
    for (int c = 0; c < CHUNKS; c++) {
        struct cddpi_model_spec spec = normed_spec(&chunks->layers[c], 0);
        const cddp_param *own;
        size_t count;

        chunks->layers[c].layers[1].name = c == 0 ? "first" : "third";
        chunks->layers[c].layers[4].name = c == 0 ? "second" : "fourth";
        CHECK(fixture_init(&chunks->models[c], &spec, NORMED_SEED + (unsigned)c, NULL, 0, 3));
        own = cddpi_model_buffers(chunks->models[c].model, &count);
        CHECK(count == NORMED_BUFFERS);
        memcpy(chunks->buffers + c * NORMED_BUFFERS, own, count * sizeof *own);
        trainer->models.list[trainer->models.count++].model = chunks->models[c].model;
    }
    trainer->buffers = (struct cddpi_trainer_tensors){chunks->buffers, CHUNKS * NORMED_BUFFERS};
    CHECK(cddpi_statistics_create(trainer, &chunks->statistics) == CDDP_OK);
    CHECK(chunks->statistics != NULL);
    return 0;
}

static void end_chunks(struct chunks *chunks)
{
    cddpi_statistics_destroy(chunks->statistics);
    for (int c = 0; c < CHUNKS; c++) {
        fixture_fini(&chunks->models[c]);
    }
}

static int forward(struct chunks *chunks, int c, int m, int all)
{
    struct fixture *f = &chunks->models[c];
    double total = 0;

    for (int i = 0; i < all; i++) {
        total += samples[i];
    }
    fixture_batch(f, 3 * m + 50 * c, samples[m]);
    f->batch.weight = samples[m] / total;
    CHECK(cddpi_model_forward(f->model, &f->batch, true, NULL) == CDDP_OK);
    return 0;
}

static cddp_step step_of(int number, int all)
{
    cddp_step step = CDDP_STEP_INIT;

    step.number = (uint64_t)number;
    step.kind = CDDP_STEP_BY_MICRO_BATCHES;
    step.micro_batches = (uint64_t)all;
    return step;
}

static int take_one_by_one(struct chunks *chunks, int number, int all)
{
    cddp_step step = step_of(number, all);

    for (int m = 0; m < all; m++) {
        step.micro_batch = (uint64_t)m;
        for (int c = 0; c < CHUNKS; c++) {
            CHECK(forward(chunks, c, m, all) == 0);
        }
        CHECK(cddpi_statistics_add(chunks->statistics, &step) == CDDP_OK);
    }
    return 0;
}

/* The second chunk is two micro-batches later than the first. */
static int take_run(struct chunks *chunks, int number, int all)
{
    cddp_step step = step_of(number, all);
    cddp_share own = cddp_share_of(0, (uint64_t)all, chunks->trainer.replicas.rank,
                                   chunks->trainer.replicas.count);

    CHECK(cddpi_statistics_begin_run(chunks->statistics, &step) == CDDP_OK);
    for (int i = 0; i < (int)own.count + 2; i++) {
        for (int c = 0; c < CHUNKS; c++) {
            int m = c == 0 ? i : i - 2;

            if (m >= 0 && m < (int)own.count) {
                CHECK(forward(chunks, c, (int)own.first + m, all) == 0);
                CHECK(cddpi_statistics_forwarded(chunks->statistics, c) == CDDP_OK);
            }
        }
    }
    CHECK(cddpi_statistics_end_run(chunks->statistics) == CDDP_OK);
    return 0;
}

static int run_rank(int rank, int world_size, void *argument)
{
    cddp_group *group = join_group(argument, rank, world_size);
    cddp_group *alone = NULL;
    struct chunks together;
    struct chunks reference;

    CHECK(group != NULL);
    CHECK(cddp_group_split(group, rank, 0, &alone) == CDDP_OK);
    CHECK(make_chunks(&together, group) == 0);
    CHECK(make_chunks(&reference, alone) == 0);
    for (int step = 0; step < STEPS; step++) {
        int all = step == 0 ? MOST : 2; /* of 3 ranks or more, one has none of two */

        CHECK(take_run(&together, step + 1, all) == 0);
        CHECK(take_one_by_one(&reference, step + 1, all) == 0);
        for (int i = 0; i < CHUNKS * NORMED_BUFFERS; i++) {
            const float *values = together.buffers[i].data;

            CHECK(memcmp(values, reference.buffers[i].data, NORMED_CHANNELS * sizeof(float)) == 0);
            CHECK(values[0] != (i % 2 == 0 ? 0 : 1));
        }
    }
    end_chunks(&together);
    end_chunks(&reference);
    cddp_group_destroy(alone);
    cddp_group_destroy(group);
    return 0;
}

static void chunks_have_the_bits_of_micro_batches_one_by_one(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], run_rank, NULL, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(chunks_have_the_bits_of_micro_batches_one_by_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
