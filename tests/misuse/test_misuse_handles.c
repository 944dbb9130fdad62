/* test_misuse_handles.c - handles that are NULL, were destroyed, go in any order or are used by two
 * threads at once, and structs without their initialiser: an error with a sentence, and no crash.
 */
#include "support/misuse.h"

#include <pthread.h>

#define NULL_GIVES(call) assert_true(misuse_gives((call), CDDP_ERR_ARGUMENT, " is NULL"))

static void collectives_without_a_group_are_errors(void **state)
{
    float data[2] = {0};

    (void)state;
    NULL_GIVES(cddp_all_reduce(NULL, data, data, 1, CDDP_F32, CDDP_OP_SUM, NULL));
    NULL_GIVES(cddp_all_reduce_weighted(NULL, data, data, 1, CDDP_F32, 1, NULL));
    NULL_GIVES(cddp_reduce(NULL, data, data, 1, CDDP_F32, CDDP_OP_SUM, 0, NULL));
    NULL_GIVES(cddp_broadcast(NULL, data, 1, CDDP_F32, 0, NULL));
    NULL_GIVES(cddp_all_gather(NULL, data, data, 1, CDDP_F32, NULL));
    NULL_GIVES(cddp_reduce_scatter(NULL, data, data, 1, CDDP_F32, CDDP_OP_SUM, NULL));
    NULL_GIVES(cddp_reduce_scatter_weighted(NULL, data, data, 1, CDDP_F32, 1, NULL));
    NULL_GIVES(cddp_gather(NULL, data, data, 1, CDDP_F32, 0, NULL));
    NULL_GIVES(cddp_scatter(NULL, data, data, 1, CDDP_F32, 0, NULL));
    NULL_GIVES(cddp_all_to_all(NULL, data, data, 1, CDDP_F32, NULL));
    NULL_GIVES(cddp_send(NULL, data, 1, CDDP_F32, 0, NULL));
    NULL_GIVES(cddp_recv(NULL, data, 1, CDDP_F32, 0, NULL));
    NULL_GIVES(cddp_barrier(NULL, NULL));
}

static void null_groups_and_works_are_errors(void **state)
{
    cddp_group *group;
    void *memory;
    bool done;

    (void)state;
    NULL_GIVES(cddp_group_create(NULL, NULL));
    NULL_GIVES(cddp_group_create_by(NULL, NULL, &group));
    NULL_GIVES(cddp_group_split(NULL, 0, 0, &group));
    NULL_GIVES(cddp_group_alloc(NULL, 1, &memory));
    NULL_GIVES(cddp_group_alloc_host(NULL, 1, &memory));
    NULL_GIVES(cddp_group_set_stream(NULL, &memory));
    NULL_GIVES(cddp_work_test(NULL, &done));
    NULL_GIVES(cddp_work_wait(NULL, 0));
    assert_int_equal(cddp_group_rank(NULL), -1);
    assert_int_equal(cddp_group_world_size(NULL), 0);
    assert_int_equal(cddp_group_local_rank(NULL), -1);
    assert_int_equal(cddp_group_local_world_size(NULL), 0);
    assert_int_equal(cddp_group_generation(NULL), 0);
    assert_int_equal(cddp_group_timeout_ms(NULL), 0);
    assert_int_equal(cddp_group_device(NULL), -1);
    assert_null(cddp_group_backend(NULL));
    assert_null(cddp_group_stream(NULL));
    cddp_group_abort(NULL, "no group");
    cddp_group_free(NULL, &memory);
    cddp_group_free(NULL, NULL);
    cddp_group_destroy(NULL);
    cddp_work_destroy(NULL);
}

static void null_ddps_and_buckets_are_errors(void **state)
{
    cddp_param param = {.name = "a"};
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    cddp_bucket_stats times = {.struct_size = sizeof times};
    cddp_work *work;
    cddp_ddp *ddp;
    void *memory;
    size_t count = 1;

    (void)state;
    NULL_GIVES(cddp_ddp_create(NULL, &param, 1, NULL, 0, NULL, &ddp));
    NULL_GIVES(cddp_ddp_begin(NULL, NULL));
    NULL_GIVES(cddp_ddp_grad_ready(NULL, 0));
    NULL_GIVES(cddp_ddp_wait(NULL));
    NULL_GIVES(cddp_ddp_updated(NULL));
    NULL_GIVES(cddp_ddp_param_wait(NULL, 0));
    NULL_GIVES(cddp_ddp_params_wait(NULL));
    NULL_GIVES(cddp_ddp_get_stats(NULL, &stats));
    NULL_GIVES(cddp_ddp_get_bucket_stats(NULL, 0, &times));
    NULL_GIVES(cddp_bucket_scratch(NULL, 1, &memory));
    NULL_GIVES(cddp_hook_identity(NULL, NULL, 0, &work));
    NULL_GIVES(cddp_hook_bf16(NULL, NULL, 0, &work));
    NULL_GIVES(cddp_hook_fp16(NULL, NULL, 0, &work));
    assert_null(cddp_ddp_grad(NULL, 0));
    assert_null(cddp_ddp_param(NULL, 0));
    assert_null(cddp_ddp_spans(NULL, 0, &count));
    assert_int_equal(count, 0);
    assert_null(cddp_ddp_spans(NULL, 0, NULL));
    assert_null(cddp_ddp_mean(NULL, 0, 0, 1, &param));
    assert_null(cddp_bucket_group(NULL));
    assert_null(cddp_bucket_data(NULL));
    assert_int_equal(cddp_bucket_index(NULL), 0);
    assert_int_equal(cddp_bucket_count(NULL), 0);
    assert_int_equal((int)cddp_bucket_type(NULL), -1);
    assert_false(cddp_bucket_is_last(NULL));
    assert_false(cddp_bucket_is_sum(NULL));
    assert_true(cddp_bucket_weight(NULL) == -1);
    cddp_ddp_destroy(NULL);
}

static void null_stores_are_errors(void **state)
{
    const char *keys[1] = {"key"};
    cddp_store *store;
    size_t bytes;
    void *value;
    char **list;

    (void)state;
    NULL_GIVES(cddp_store_open(NULL, &store));
    NULL_GIVES(cddp_store_set(NULL, "key", "", 0));
    NULL_GIVES(cddp_store_get(NULL, "key", 0, &value, &bytes));
    NULL_GIVES(cddp_store_try_get(NULL, "key", &value, &bytes));
    NULL_GIVES(cddp_store_add(NULL, "key", 1, NULL));
    NULL_GIVES(cddp_store_compare_set(NULL, "key", "", 0, "", 0, NULL, NULL, NULL));
    NULL_GIVES(cddp_store_wait(NULL, keys, 1, 0));
    NULL_GIVES(cddp_store_delete(NULL, "key", NULL));
    NULL_GIVES(cddp_store_list(NULL, "", &list, &bytes));
    cddp_store_close(NULL);
    cddp_free(NULL);
}

static void null_samplers_and_files_are_errors(void **state)
{
    cddp_share share;
    cddp_sampler *sampler;
    cddp_safetensors *file;
    uint64_t index;

    (void)state;
    NULL_GIVES(cddp_sampler_create(CDDP_ORDER_RANDOM, 10, 0, NULL));
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, 0, 0, &sampler), CDDP_ERR_ARGUMENT);
    NULL_GIVES(cddp_sampler_set_epoch(NULL, 1));
    assert_int_equal(cddp_sampler_at(NULL, 3), 0);
    assert_int_equal(cddp_sampler_count(NULL), 0);
    NULL_GIVES(cddp_torch_shard(NULL, 0, 1, false, &index));
    assert_int_equal(cddp_torch_shard_count(10, 0, false), 0);
    share = cddp_share_of(7, 10, 0, 0);
    assert_int_equal(share.count, 0);
    share = cddp_share_of(7, 10, 3, 3);
    assert_int_equal(share.count, 0);
    share = cddp_share_of(7, 10, -1, 3);
    assert_int_equal(share.count, 0);
    cddp_sampler_destroy(NULL);

    NULL_GIVES(cddp_safetensors_open(NULL, &file));
    NULL_GIVES(cddp_safetensors_open("file", NULL));
    NULL_GIVES(cddp_safetensors_write(NULL, NULL, 0, NULL));
    NULL_GIVES(cddp_safetensors_load(NULL, NULL, 0));
    assert_int_equal(cddp_safetensors_count(NULL), 0);
    assert_null(cddp_safetensors_at(NULL, 0));
    assert_null(cddp_safetensors_find(NULL, "a"));
    assert_null(cddp_safetensors_metadata(NULL, "a"));
    cddp_safetensors_close(NULL);
}

static void null_snapshots_are_errors(void **state)
{
    cddp_snapshot snapshot = CDDP_SNAPSHOT_INIT;
    char *path;
    uint64_t step;

    (void)state;
    NULL_GIVES(cddp_snapshot_write(NULL, &snapshot, 0));
    NULL_GIVES(cddp_snapshot_write("folder", NULL, 0));
    NULL_GIVES(cddp_snapshot_find(NULL, &path, NULL));
    NULL_GIVES(cddp_snapshot_find("folder", NULL, NULL));
    NULL_GIVES(cddp_snapshot_recover(NULL, &path, NULL));
    NULL_GIVES(cddp_snapshot_read_state(NULL, &path, &step));
    NULL_GIVES(cddp_snapshot_load(NULL, &snapshot));
    NULL_GIVES(cddp_snapshot_load("folder", NULL));
}

#define ZEROS_GIVE(call, name)                                                                     \
    CHECK(misuse_gives((call), CDDP_ERR_ARGUMENT, "struct_size is 0: begin with " name))

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

    ZEROS_GIVE(cddp_group_create(&group_options, &group), "CDDP_GROUP_OPTIONS_INIT");
    ZEROS_GIVE(cddp_group_create_by(&bootstrap, NULL, &group), "CDDP_BOOTSTRAP_INIT");
    ZEROS_GIVE(cddp_store_open(&store_options, &store), "CDDP_STORE_OPTIONS_INIT");
    ZEROS_GIVE(cddp_snapshot_write("folder", &snapshot, 0), "CDDP_SNAPSHOT_INIT");
    ZEROS_GIVE(cddp_snapshot_load("folder", &snapshot), "CDDP_SNAPSHOT_INIT");
    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
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
    CHECK(cddp_work_wait(work, 0) == CDDP_OK);
    cddp_work_destroy(work);
    cddp_work_destroy(work);
    CHECK(misuse_gives(cddp_work_wait(work, 0), CDDP_ERR_STATE, "destroyed"));
    CHECK(misuse_gives(cddp_work_test(work, &done), CDDP_ERR_STATE, "destroyed"));

    cddp_group_destroy(group); /* lives on for the ddp */
    cddp_group_destroy(group);
    CHECK(misuse_gives(cddp_barrier(group, NULL), CDDP_ERR_STATE, "destroyed"));
    CHECK(misuse_step(&model) == 0);
    cddp_ddp_destroy(model.ddp);
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_STATE, "destroyed"));
    CHECK(misuse_gives(cddp_ddp_wait(model.ddp), CDDP_ERR_STATE, "destroyed"));
    CHECK(cddp_ddp_grad(model.ddp, 0) == NULL);
    CHECK(misuse_gives(cddp_barrier(group, NULL), CDDP_ERR_STATE, "destroyed"));
    CHECK(misuse_gives(cddp_all_reduce(group, data, data, 2, CDDP_F32, CDDP_OP_SUM, NULL),
                       CDDP_ERR_STATE, "destroyed"));
    CHECK(misuse_gives(cddp_group_alloc(group, 8, &memory), CDDP_ERR_STATE, "destroyed"));
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
    assert_true(misuse_gives(cddp_store_set(store, "key", "", 0), CDDP_ERR_STATE, "destroyed"));

    assert_int_equal(cddp_sampler_create(CDDP_ORDER_TORCH, 10, 0, &sampler), CDDP_OK);
    cddp_sampler_destroy(sampler);
    cddp_sampler_destroy(sampler);
    assert_true(misuse_gives(cddp_sampler_set_epoch(sampler, 1), CDDP_ERR_STATE, "destroyed"));
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
    } while (sitter->status == CDDP_ERR_STATE);
    return NULL;
}

static int threads_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    struct misuse_model model;
    struct sitter sitter;
    cddp_group *group;
    cddp_work *work;
    pthread_t thread;
    char go = 0;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK);
    CHECK(cddp_barrier(group, &work) == CDDP_OK);
    CHECK(cddp_work_wait(work, 0) == CDDP_OK);
    if (rank != 0) {
        CHECK(read(misuse->signal[0], &go, 1) == 1);
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    } else {
        sitter.group = group;
        CHECK(pthread_create(&thread, NULL, sit, &sitter) == 0);
        while (cddp_ddp_begin(model.ddp, NULL) == CDDP_OK) {
            support_sleep_ms(1);
        }
        CHECK(misuse_gives(cddp_ddp_begin(model.ddp, NULL), CDDP_ERR_STATE, "another thread"));
        CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_STATE, "another thread"));
        CHECK(misuse_gives(cddp_barrier(group, NULL), CDDP_ERR_STATE, "another thread"));
        CHECK(misuse_gives(cddp_work_wait(work, 0), CDDP_ERR_STATE, "another thread"));
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
    CHECK(misuse_step(&model) == 0); /* nothing was done by what was refused */
    CHECK(cddp_work_wait(work, 0) == CDDP_OK);
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
        cmocka_unit_test(collectives_without_a_group_are_errors),
        cmocka_unit_test(null_groups_and_works_are_errors),
        cmocka_unit_test(null_ddps_and_buckets_are_errors),
        cmocka_unit_test(null_stores_are_errors),
        cmocka_unit_test(null_samplers_and_files_are_errors),
        cmocka_unit_test(null_snapshots_are_errors),
        MISUSE_TEST(structs_of_zeros_name_their_initialiser),
        MISUSE_TEST(handles_may_be_destroyed_in_any_order),
        MISUSE_TEST(a_destroyed_handle_is_refused),
        MISUSE_TEST(destroyed_stores_samplers_and_files_are_refused),
        MISUSE_TEST(a_second_thread_in_a_handle_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
