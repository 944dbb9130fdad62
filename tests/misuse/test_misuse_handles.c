/* test_misuse_handles.c - handles that were destroyed, are destroyed in any order or are used by
 * two threads at once, and structs without their initialiser: an error with a message, and no
 * crash. */
#include "support/misuse.h"

#include <cddp/parallel.h>
#include <cddp/spawn.h>
#include <pthread.h>

#define ZEROS_GIVE(call, name) CHECK(misuse_gives((call), CDDP_ERR_ARGUMENT, name))

static cddp_status no_sample(void *state, uint64_t index, void *out)
{
    (void)state;
    (void)index;
    memset(out, 0, 4);
    return CDDP_OK;
}

static cddp_status no_rank(void *argument, int rank)
{
    (void)rank;
    (void)argument;
    return 0;
}

static cddp_status no_replica(void *argument, const cddp_replica *replica)
{
    (void)replica;
    (void)argument;
    return 0;
}

static int zeros_without_a_group(void)
{
    cddp_allocator allocator = {0};
    cddp_loader_options zeros = {0};
    cddp_loader_options options = CDDP_LOADER_OPTIONS_INIT;
    cddp_spawn_options spawn_options = {0};
    cddp_data_parallel_options parallel_options = {0};
    cddp_batch batch = {0};
    cddp_loader *loader;
    cddp_devices *devices;
    const char *name = "cpu";

    ZEROS_GIVE(cddp_allocator_set(&allocator), "CDDP_ALLOCATOR_INIT");
    ZEROS_GIVE(cddp_spawn(1, no_rank, NULL, &spawn_options), "CDDP_SPAWN_OPTIONS_INIT");
    ZEROS_GIVE(cddp_loader_create(&zeros, &loader), "CDDP_LOADER_OPTIONS_INIT");
    options.samples = options.batch_size = 1;
    options.sample_bytes = 4;
    options.load = no_sample;
    CHECK(cddp_loader_create(&options, &loader) == CDDP_OK);
    CHECK(cddp_loader_begin(loader, 0, 0) == CDDP_OK);
    ZEROS_GIVE(cddp_loader_next(loader, &batch), "CDDP_BATCH_INIT");
    batch = (cddp_batch)CDDP_BATCH_INIT; /* nothing was taken by what was refused */
    CHECK(cddp_loader_next(loader, &batch) == CDDP_OK && batch.number == 0 && !batch.end);
    cddp_loader_destroy(loader);
    CHECK(cddp_devices_create(&name, 1, &devices) == CDDP_OK);
    ZEROS_GIVE(cddp_data_parallel(devices, &parallel_options, no_replica, NULL),
               "CDDP_DATA_PARALLEL_OPTIONS_INIT");
    cddp_devices_destroy(devices);
    return 0;
}

static int zeros_of_recovery(cddp_group *group)
{
    cddp_recovery_options options = {0};
    cddp_recovery_array array = {0};
    cddp_recovery_callbacks callbacks = {0};
    cddp_recovery_info info = {0};
    cddp_recovery *recovery;

    ZEROS_GIVE(cddp_recovery_create(group, &options, &recovery), "CDDP_RECOVERY_OPTIONS_INIT");
    CHECK(cddp_recovery_create(group, NULL, &recovery) == CDDP_OK);
    ZEROS_GIVE(cddp_recovery_add(recovery, &array), "CDDP_RECOVERY_ARRAY_INIT");
    ZEROS_GIVE(cddp_recovery_add_callbacks(recovery, &callbacks), "CDDP_RECOVERY_CALLBACKS_INIT");
    ZEROS_GIVE(cddp_recovery_get_info(recovery, &info), "CDDP_RECOVERY_INFO_INIT");
    cddp_recovery_destroy(recovery);
    return 0;
}

static int zeros_rank(int rank, int size, void *argument)
{
    cddp_group_options group_options = {0};
    cddp_store_options store_options = {0};
    cddp_ddp_options ddp_options = {0};
    cddp_bootstrap bootstrap = {0};
    cddp_snapshot snapshot = {0};
    cddp_step step = {0};
    cddp_ddp_stats stats = {0};
    cddp_bucket_stats times = {0};
    struct misuse_model model;
    cddp_store *store;
    cddp_group *group;

    CHECK(zeros_without_a_group() == 0);
    ZEROS_GIVE(cddp_group_create(&group_options, &group), "CDDP_GROUP_OPTIONS_INIT");
    ZEROS_GIVE(cddp_group_create_by(&bootstrap, NULL, &group), "CDDP_BOOTSTRAP_INIT");
    ZEROS_GIVE(cddp_store_open(&store_options, &store), "CDDP_STORE_OPTIONS_INIT");
    ZEROS_GIVE(cddp_snapshot_write("folder", &snapshot, NULL, NULL), "CDDP_SNAPSHOT_INIT");
    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    CHECK(zeros_of_recovery(group) == 0);
    ZEROS_GIVE(misuse_watch(&model, group, &ddp_options), "CDDP_DDP_OPTIONS_INIT");
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK);
    ZEROS_GIVE(cddp_ddp_begin(model.ddp, &step), "CDDP_STEP_INIT");
    ZEROS_GIVE(cddp_ddp_get_stats(model.ddp, &stats), "CDDP_DDP_STATS_INIT");
    CHECK(misuse_step(&model) == 0); /* none of it was a failure of the handle */
    CHECK(misuse_step(&model) == 0); /* on a device the times of the first are known by now */
    ZEROS_GIVE(cddp_ddp_get_bucket_stats(model.ddp, 0, &times), "CDDP_BUCKET_STATS_INIT");
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    return 0;
}

static void structs_of_zeros_name_their_initialiser(void **state)
{
    assert_int_equal(misuse_run(*state, 2, zeros_rank, 0, NULL), 0);
}

/* The handles of a rank, as things to destroy. */
enum thing { GROUP, PART, DDP, PART_DDP, THINGS };

struct things {
    cddp_group *group, *part;
    struct misuse_model model, part_model;
};

static void destroy(struct things *things, enum thing which)
{
    switch (which) {
    case GROUP:
        cddp_group_destroy(things->group);
        break;
    case PART:
        cddp_group_destroy(things->part);
        break;
    case DDP:
        cddp_ddp_destroy(things->model.ddp);
        break;
    default:
        cddp_ddp_destroy(things->part_model.ddp);
    }
}

/* What is left of four after @p number was divided, in turn. */
static void order_of(int number, enum thing out[THINGS])
{
    bool taken[THINGS] = {false};

    for (int i = 0; i < THINGS; i++) {
        int skip = number % (THINGS - i);
        int at = 0;

        number /= THINGS - i;
        while (taken[at] || skip-- > 0) {
            at++;
        }
        taken[at] = true;
        out[i] = (enum thing)at;
    }
}

static int order_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    enum thing order[THINGS];
    bool gone[THINGS] = {false};
    struct things things;

    order_of(misuse->which, order);
    CHECK(misuse_join(misuse, rank, size, &things.group) == CDDP_OK);
    CHECK(cddp_group_split(things.group, 0, -rank, &things.part) == CDDP_OK);
    CHECK(misuse_watch(&things.model, things.group, NULL) == CDDP_OK);
    CHECK(misuse_watch(&things.part_model, things.part, NULL) == CDDP_OK);
    for (int i = 0; i < THINGS; i++) {
        destroy(&things, order[i]);
        gone[order[i]] = true;
        if (!gone[DDP]) {
            CHECK(misuse_step(&things.model) == 0); /* with or without the group's handle */
        }
        if (!gone[PART_DDP]) {
            CHECK(misuse_step(&things.part_model) == 0);
        }
        CHECK(gone[PART] || misuse_reduce(things.part) == 0);
    }
    return 0;
}

static void handles_may_be_destroyed_in_any_order(void **state)
{
    for (int number = 0; number < 24; number++) {
        assert_int_equal(misuse_run(*state, 2, order_rank, number, NULL), 0);
    }
}

static int destroyed_group_rank(int rank, int size, void *argument)
{
    cddp_group *group;
    struct misuse_model model;
    float data[2] = {0};
    cddp_work *work;
    void *memory;
    bool done;

    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK);
    CHECK(cddp_barrier(group, &work) == CDDP_OK);
    CHECK(cddp_work_wait(work) == CDDP_OK);
    cddp_work_destroy(work);
    cddp_work_destroy(work);
    CHECK(misuse_gives(cddp_work_wait(work), CDDP_ERR_CLOSED, "destroyed"));
    CHECK(misuse_gives(cddp_work_test(work, &done), CDDP_ERR_CLOSED, "destroyed"));

    cddp_group_destroy(group); /* lives on for the ddp */
    cddp_group_destroy(group);
    CHECK(misuse_gives(cddp_barrier(group, NULL), CDDP_ERR_CLOSED, "destroyed"));
    CHECK(misuse_step(&model) == 0);
    cddp_ddp_destroy(model.ddp);
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_CLOSED, "destroyed"));
    CHECK(misuse_gives(cddp_ddp_wait(model.ddp), CDDP_ERR_CLOSED, "destroyed"));
    CHECK(cddp_ddp_grad(model.ddp, 0) == NULL);
    CHECK(misuse_gives(cddp_barrier(group, NULL), CDDP_ERR_CLOSED, "destroyed"));
    CHECK(misuse_gives(cddp_all_reduce(group, data, data, 2, CDDP_F32, CDDP_OP_SUM, NULL),
                       CDDP_ERR_CLOSED, "destroyed"));
    CHECK(misuse_gives(cddp_group_alloc(group, 8, 0, &memory), CDDP_ERR_CLOSED, "destroyed"));
    CHECK(cddp_group_rank(group) == -1);
    cddp_group_abort(group, "it is gone");
    return 0;
}

static void a_destroyed_handle_is_refused(void **state)
{
    assert_int_equal(misuse_run(*state, 2, destroyed_group_rank, 0, NULL), 0);
}

static void destroyed_stores_samplers_and_files_are_refused(void **state)
{
    const struct misuse *misuse = *state;
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    const cddp_tensor tensor = {.name = "a", .type = CDDP_U8};
    char url[4200];
    char path[4200];
    cddp_store *store;
    cddp_sampler *sampler;
    cddp_safetensors *file;

    snprintf(url, sizeof url, "file://%s/store", misuse->folder);
    options.url = url;
    assert_int_equal(cddp_store_open(&options, &store), CDDP_OK);
    cddp_store_close(store);
    cddp_store_close(store);
    assert_true(misuse_gives(cddp_store_set(store, "key", "", 0), CDDP_ERR_CLOSED, "destroyed"));

    assert_int_equal(cddp_sampler_create(CDDP_ORDER_TORCH, 10, 0, &sampler), CDDP_OK);
    cddp_sampler_destroy(sampler);
    cddp_sampler_destroy(sampler);
    assert_true(misuse_gives(cddp_sampler_set_epoch(sampler, 1), CDDP_ERR_CLOSED, "destroyed"));
    assert_int_equal(cddp_sampler_count(sampler), 0);

    snprintf(path, sizeof path, "%s/file", misuse->folder);
    assert_int_equal(cddp_safetensors_write(path, &tensor, 0, NULL), CDDP_OK);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    cddp_safetensors_close(file);
    cddp_safetensors_close(file);
    assert_null(cddp_safetensors_find(file, "a"));
}

/* A thread that stays in a call until the other ranks come, too. */
struct sitter {
    cddp_group *group;
    cddp_status status;
};

static void *sit(void *argument)
{
    struct sitter *sitter = argument;

    do { /* until it is not the other thread that is in a call */
        sitter->status = cddp_barrier(sitter->group, NULL);
    } while (sitter->status == CDDP_ERR_BUSY);
    return NULL;
}

static int threads_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    struct misuse_model model;
    struct sitter sitter;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    cddp_bucket_stats times = CDDP_BUCKET_STATS_INIT;
    cddp_group *group;
    cddp_work *work;
    pthread_t thread;
    char go = 0;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK);
    CHECK(cddp_barrier(group, &work) == CDDP_OK);
    CHECK(cddp_work_wait(work) == CDDP_OK);
    if (rank != 0) {
        CHECK(read(misuse->signal[0], &go, 1) == 1);
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    } else {
        sitter.group = group;
        CHECK(pthread_create(&thread, NULL, sit, &sitter) == 0);
        while (misuse_begin(&model) == CDDP_OK) {
            support_sleep_ms(1);
        }
        CHECK(misuse_gives((cddp_status)misuse_begin(&model), CDDP_ERR_BUSY, "another thread"));
        CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_BUSY, "another thread"));
        CHECK(misuse_gives(cddp_barrier(group, NULL), CDDP_ERR_BUSY, "another thread"));
        CHECK(misuse_gives(cddp_work_wait(work), CDDP_ERR_BUSY, "another thread"));
        CHECK(misuse_gives(cddp_ddp_progress(model.ddp), CDDP_ERR_BUSY, "another thread"));
        CHECK(misuse_gives(cddp_ddp_get_stats(model.ddp, &stats), CDDP_ERR_BUSY, "another thread"));
        CHECK(misuse_gives(cddp_ddp_get_bucket_stats(model.ddp, 0, &times), CDDP_ERR_BUSY,
                           "another thread"));
        CHECK(cddp_ddp_grad(model.ddp, 0) == NULL);                  /* it may be moving */
        CHECK(cddp_ddp_param(model.ddp, 0) == model.params[0].data); /* that never moves */
        cddp_work_destroy(work);
        cddp_ddp_destroy(model.ddp);
        cddp_group_destroy(group);
        CHECK(cddp_group_rank(group) == 0);
        for (int r = 1; r < size; r++) {
            CHECK(write(misuse->signal[1], "g", 1) == 1);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(sitter.status == CDDP_OK);
    }
    CHECK(cddp_ddp_grad(model.ddp, 0) == model.params[0].grad);
    CHECK(misuse_step(&model) == 0); /* nothing was done by what was refused */
    CHECK(cddp_work_wait(work) == CDDP_OK);
    cddp_work_destroy(work);
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    return 0;
}

static void a_second_thread_in_a_handle_is_refused(void **state)
{
    assert_int_equal(misuse_run(*state, 2, threads_rank, 0, NULL), 0);
    assert_int_equal(misuse_run(*state, 3, threads_rank, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(structs_of_zeros_name_their_initialiser),
        MISUSE_TEST(handles_may_be_destroyed_in_any_order),
        MISUSE_TEST(a_destroyed_handle_is_refused),
        MISUSE_TEST(destroyed_stores_samplers_and_files_are_refused),
        MISUSE_TEST(a_second_thread_in_a_handle_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
