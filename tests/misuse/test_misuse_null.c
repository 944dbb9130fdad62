/* test_misuse_null.c - NULL in place of a handle or of an output argument: an error with a message,
 * or -1, NULL or 0, in every public function. */
#include "support/misuse.h"

#include <cddp/parallel.h>
#include <cddp/spawn.h>

#define NULL_GIVES(call) assert_true(misuse_gives((call), CDDP_ERR_ARGUMENT, " is NULL"))

static void collectives_without_a_group_are_errors(void **state)
{
    float data[2] = {0};
    cddp_message message = {.in = data, .count = 1};
    size_t count = 1;
    cddp_store *store;
    void *memory;
    bool stop;

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
    NULL_GIVES(cddp_all_gatherv(NULL, data, data, &count, CDDP_F32, NULL));
    NULL_GIVES(cddp_all_gather_bytes(NULL, data, 4, &memory, &count));
    NULL_GIVES(cddp_broadcast_bytes(NULL, data, 4, 0, &memory, &count));
    NULL_GIVES(cddp_messages_start(NULL, &message, 1, NULL));
    NULL_GIVES(cddp_group_store_create(NULL, &store));
    NULL_GIVES(cddp_group_should_stop(NULL, &stop));
    assert_null(cddp_group_store(NULL));
}

static void null_groups_and_works_are_errors(void **state)
{
    cddp_group *group;
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    void *memory;
    bool done;

    (void)state;
    NULL_GIVES(cddp_group_create(NULL, NULL));
    NULL_GIVES(cddp_group_create_by(NULL, NULL, &group));
    NULL_GIVES(cddp_group_split(NULL, 0, 0, &group));
    NULL_GIVES(cddp_group_alloc(NULL, 1, 0, &memory));
    NULL_GIVES(cddp_group_alloc(NULL, 1, CDDP_ALLOC_HOST, &memory));
    NULL_GIVES(cddp_group_set_stream(NULL, &memory));
    NULL_GIVES(cddp_work_test(NULL, &done));
    NULL_GIVES(cddp_work_wait(NULL));
    NULL_GIVES(cddp_work_wait_host(NULL, 1, &done));
    assert_int_equal(cddp_group_rank(NULL), -1);
    assert_int_equal(cddp_group_world_size(NULL), 0);
    NULL_GIVES(cddp_group_get_info(NULL, &info));
    NULL_GIVES(cddp_group_set_timeout(NULL, 1));
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
    bool all;

    (void)state;
    NULL_GIVES(cddp_ddp_create(NULL, &param, 1, NULL, 0, NULL, &ddp));
    NULL_GIVES(cddp_ddp_begin(NULL, NULL));
    NULL_GIVES(cddp_ddp_grad_ready(NULL, 0));
    NULL_GIVES(cddp_ddp_wait(NULL));
    NULL_GIVES(cddp_ddp_grads_ready(NULL, 0, 1));
    NULL_GIVES(cddp_ddp_progress(NULL));
    NULL_GIVES(cddp_ddp_broadcast(NULL, 0, CDDP_BROADCAST_PARAMS));
    NULL_GIVES(cddp_ddp_follow(NULL, &all));
    NULL_GIVES(cddp_ddp_unshard(NULL));
    NULL_GIVES(cddp_ddp_gather_state(NULL, 0, &param, CDDP_F32, &param));
    NULL_GIVES(cddp_ddp_params_start(NULL));
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
    NULL_GIVES(cddp_ddp_save(NULL, "a", NULL));
    NULL_GIVES(cddp_ddp_load(NULL, "a"));
    assert_null(cddp_ddp_param_name(NULL, 0));
    assert_int_equal(cddp_ddp_param_count(NULL), 0);
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
    assert_int_equal(cddp_sampler_at(NULL, 3), UINT64_MAX);
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
    NULL_GIVES(cddp_snapshot_write(NULL, &snapshot, NULL, NULL));
    NULL_GIVES(cddp_snapshot_write("folder", NULL, NULL, NULL));
    NULL_GIVES(cddp_snapshot_find(NULL, &path, NULL));
    NULL_GIVES(cddp_snapshot_find("folder", NULL, NULL));
    NULL_GIVES(cddp_snapshot_recover(NULL, &path, NULL));
    NULL_GIVES(cddp_snapshot_read_state(NULL, &path, &step));
    NULL_GIVES(cddp_snapshot_load(NULL, NULL, 0, NULL, 0));
    NULL_GIVES(cddp_snapshot_load("folder", NULL, 1, NULL, 0));
    NULL_GIVES(cddp_snapshot_load("folder", NULL, 0, NULL, 1));
}

static void null_loaders_and_devices_are_errors(void **state)
{
    cddp_loader_options options = CDDP_LOADER_OPTIONS_INIT;
    cddp_data_parallel_options parallel_options = CDDP_DATA_PARALLEL_OPTIONS_INIT;
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_loader *loader;

    (void)state;
    NULL_GIVES(cddp_loader_create(NULL, &loader));
    NULL_GIVES(cddp_loader_create(&options, NULL));
    NULL_GIVES(cddp_loader_begin(NULL, 0, 0));
    NULL_GIVES(cddp_loader_next(NULL, &batch));
    assert_int_equal(cddp_loader_batch_count(NULL), 0);
    cddp_loader_destroy(NULL);
    NULL_GIVES(cddp_spawn(1, NULL, NULL, NULL));
    NULL_GIVES(cddp_data_parallel(NULL, &parallel_options, NULL, NULL));
    NULL_GIVES(cddp_allocator_set(NULL));
    assert_int_equal(cddp_devices_count(NULL), 0);
    assert_null(cddp_devices_name(NULL, 0));
    cddp_devices_destroy(NULL);
}

static void null_recoveries_are_errors(void **state)
{
    cddp_recovery_array array = CDDP_RECOVERY_ARRAY_INIT;
    cddp_recovery_callbacks callbacks = CDDP_RECOVERY_CALLBACKS_INIT;
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery_action action;
    cddp_recovery *recovery;
    uint64_t step = 0;

    (void)state;
    NULL_GIVES(cddp_recovery_create(NULL, NULL, &recovery));
    NULL_GIVES(cddp_recovery_add(NULL, &array));
    NULL_GIVES(cddp_recovery_add_ddp(NULL, NULL));
    NULL_GIVES(cddp_recovery_add_callbacks(NULL, &callbacks));
    NULL_GIVES(cddp_recovery_step(NULL, &step, &action));
    NULL_GIVES(cddp_recovery_refuse(NULL));
    NULL_GIVES(cddp_recovery_get_info(NULL, &info));
    cddp_recovery_destroy(NULL);
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
        cmocka_unit_test(null_loaders_and_devices_are_errors),
        cmocka_unit_test(null_recoveries_are_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
