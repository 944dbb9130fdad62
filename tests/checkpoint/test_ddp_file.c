/* test_ddp_file.c - a handle saves and loads its whole model: with and without shards, with other
 * numbers of ranks, and with one answer for all ranks if rank 0's file cannot be written or read.
 */
#include "support/ddp_ranks.h"
#include "support/failure.h"

#include <cddp/checkpoint.h>
#include <unistd.h>

static const size_t sizes[] = {1, 70000, 3, 17, 64, 0, 12};
static const cddp_type types[] = {CDDP_F32, CDDP_F32, CDDP_F64, CDDP_F32,
                                  CDDP_F32, CDDP_F32, CDDP_BF16};
enum { SIZES = sizeof sizes / sizeof *sizes, FROZEN = 4 };

struct scene {
    char path[4200];
    char nowhere[4200]; /* in a folder that does not exist */
    bool shard;
    bool saves;
};

/* A rank's model with two buffers. */
struct whole {
    struct trainer trainer;
    float running[2][3];
    int64_t steps;
    cddp_param buffers[2];
};

static int open_whole(struct whole *out, const struct meeting *meeting, int rank, int world_size,
                      bool shard)
{
    struct trainer *trainer = &out->trainer;

    memset(out, 0, sizeof *out);
    CHECK(enter(trainer, meeting, rank, world_size, OWNED, SIZES, sizes, types) == 0);
    trainer->model.params[FROZEN].flags = CDDP_PARAM_FROZEN;
    trainer->model.options.shard = shard;
    out->buffers[0] = (cddp_param){
        .name = "running", .type = CDDP_F32, .dims = 2, .shape = {2, 3}, .data = out->running};
    out->buffers[1] = (cddp_param){.name = "steps", .type = CDDP_I64, .data = &out->steps};
    CHECK(cddp_ddp_create(trainer->group, trainer->model.params, SIZES, out->buffers, 2,
                          &trainer->model.options, &trainer->ddp) == CDDP_OK);
    return 0;
}

static double value(size_t p, size_t i)
{
    return noise(9, 0, (unsigned)p, (unsigned)i);
}

/* With shards, each rank writes its spans only; what is frozen and the buffers are rank 0's. */
static int put_values(struct whole *whole, int rank, bool shard)
{
    cddp_ddp *ddp = whole->trainer.ddp;
    size_t count = SIZES;
    const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);

    for (size_t s = 0; s < (shard ? count : SIZES); s++) {
        cddp_span span = shard ? spans[s] : (cddp_span){s, 0, sizes[s]};

        for (size_t i = span.first; i < span.first + span.count; i++) {
            put(cddp_ddp_param(ddp, span.param), types[span.param], i, value(span.param, i));
        }
    }
    for (size_t i = 0; i < sizes[FROZEN]; i++) {
        put(cddp_ddp_param(ddp, FROZEN), types[FROZEN], i, value(FROZEN, i));
    }
    whole->running[1][2] = 1.5f + (float)rank;
    whole->steps = 500 + rank;
    CHECK(!shard || cddp_ddp_params_start(ddp) == CDDP_OK);
    return 0;
}

static int has_values(struct whole *whole)
{
    for (size_t p = 0; p < SIZES; p++) {
        for (size_t i = 0; i < sizes[p]; i++) {
            double cell = 0;

            put(&cell, types[p], 0, value(p, i));
            CHECK(get(cddp_ddp_param(whole->trainer.ddp, p), types[p], i) ==
                  get(&cell, types[p], 0));
        }
    }
    CHECK(whole->running[1][2] == 1.5f && whole->steps == 500);
    return 0;
}

static int round_trip_rank(int rank, int world_size, void *argument)
{
    static const char *const metadata[] = {"by", "test", NULL};
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    const char *path = rank == 0 ? scene->path : NULL; /* the others need not know it */
    cddp_safetensors *file = NULL;
    struct whole whole;

    CHECK(open_whole(&whole, meeting, rank, world_size, scene->shard) == 0);
    if (scene->saves) {
        CHECK(put_values(&whole, rank, scene->shard) == 0);
        CHECK(cddp_ddp_save(whole.trainer.ddp, path, metadata) == CDDP_OK);
        CHECK(cddp_safetensors_open(scene->path, &file) == CDDP_OK);
        CHECK(cddp_safetensors_count(file) == SIZES + 2);
        CHECK(cddp_safetensors_find(file, "running")->shape[1] == 3);
        CHECK(strcmp(cddp_safetensors_metadata(file, "by"), "test") == 0);
        cddp_safetensors_close(file);
    } else {
        CHECK(cddp_ddp_load(whole.trainer.ddp, path) == CDDP_OK);
        CHECK(has_values(&whole) == 0);
    }
    return leave(&whole.trainer);
}

static void what_is_saved_is_loaded_by_any_number_of_ranks_with_or_without_shards(void **state)
{
    char *folder = support_mkdtemp();

    for (int shard = 0; shard < 2; shard++) {
        struct scene scene = {.shard = shard != 0, .saves = true};

        snprintf(scene.path, sizeof scene.path, "%s/whole", folder);
        assert_int_equal(meet(*state, 2, round_trip_rank, &scene, NULL), 0);
        scene.saves = false;
        assert_int_equal(meet(*state, 3, round_trip_rank, &scene, NULL), 0);
        scene.shard = !scene.shard;
        assert_int_equal(meet(*state, 1, round_trip_rank, &scene, NULL), 0);
        assert_int_equal(unlink(scene.path), 0);
    }
    support_rmdir(folder);
}

static int run_micro_batch(cddp_ddp *ddp, uint64_t micro_batch, uint64_t micro_batches)
{
    cddp_step step = {CDDP_SIZED(cddp_step), .number = 1, .samples = 2};

    step.micro_batch = micro_batch;
    step.micro_batches = micro_batches;
    CHECK(cddp_ddp_begin(ddp, &step) == CDDP_OK);
    CHECK(cddp_ddp_grads_ready(ddp, 0, SIZES) == CDDP_OK);
    CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
    return 0;
}

/* Every rank gets rank 0's failure, nothing has changed, and training goes on. */
static int failing_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_tensor other = {.name = "other", .type = CDDP_F32};
    struct whole whole;
    float number = 1;
    cddp_ddp *ddp;

    CHECK(open_whole(&whole, meeting, rank, world_size, false) == 0);
    ddp = whole.trainer.ddp;
    whole.steps = 7;
    CHECK(failure_is(cddp_ddp_load(ddp, scene->path), CDDP_ERR_NOT_FOUND, 0, 0, ""));
    CHECK(failure_errno_is(ENOENT));
    CHECK(last_error_has("ddp: load: "));
    CHECK(last_error_has(scene->path));
    CHECK(failure_is(cddp_ddp_save(ddp, scene->nowhere, NULL), CDDP_ERR_IO, 0, 0, ""));
    CHECK(failure_errno_is(ENOENT));
    CHECK(last_error_has("ddp: save: "));
    CHECK(cddp_ddp_save(ddp, rank == 0 ? NULL : scene->path, NULL) == CDDP_ERR_ARGUMENT);
    other.data = &number;
    CHECK(rank != 0 || cddp_safetensors_write(scene->path, &other, 1, NULL) == CDDP_OK);
    CHECK(cddp_ddp_load(ddp, scene->path) == CDDP_ERR_FORMAT);
    CHECK(whole.steps == 7);
    CHECK(begin_mean(ddp, 0) == 0 && cddp_ddp_grad_ready(ddp, 0) == CDDP_OK);
    CHECK(cddp_ddp_save(ddp, scene->path, NULL) == CDDP_ERR_INCOMPLETE);
    CHECK(cddp_ddp_load(ddp, scene->path) == CDDP_ERR_INCOMPLETE);
    for (size_t p = 1; p < SIZES; p++) {
        CHECK(p == FROZEN || cddp_ddp_grad_ready(ddp, p) == CDDP_OK);
    }
    CHECK(cddp_ddp_wait(ddp) == CDDP_OK);
    CHECK(cddp_ddp_save(ddp, scene->path, NULL) == CDDP_OK);
    CHECK(run_micro_batch(ddp, 2 * (uint64_t)rank, 2 * (uint64_t)world_size) == 0);
    CHECK(cddp_ddp_save(ddp, scene->path, NULL) == CDDP_ERR_INCOMPLETE);
    CHECK(cddp_ddp_load(ddp, scene->path) == CDDP_ERR_INCOMPLETE);
    CHECK(run_micro_batch(ddp, 2 * (uint64_t)rank + 1, 2 * (uint64_t)world_size) == 0);
    CHECK(cddp_ddp_load(ddp, scene->path) == CDDP_OK);
    return leave(&whole.trainer);
}

static void a_file_that_rank_0_cannot_use_is_every_ranks_error(void **state)
{
    char *folder = support_mkdtemp();
    struct scene scene = {.shard = false};

    snprintf(scene.path, sizeof scene.path, "%s/whole", folder);
    snprintf(scene.nowhere, sizeof scene.nowhere, "%s/none/whole", folder);
    assert_int_equal(meet(*state, 3, failing_rank, &scene, NULL), 0);
    assert_int_equal(unlink(scene.path), 0);
    assert_int_equal(meet(*state, 1, failing_rank, &scene, NULL), 0);
    support_rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(what_is_saved_is_loaded_by_any_number_of_ranks_with_or_without_shards),
        RANKS_TEST(a_file_that_rank_0_cannot_use_is_every_ranks_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
