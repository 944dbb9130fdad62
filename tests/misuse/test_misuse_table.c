/* test_misuse_table.c - every public function with one wrong argument after another
 * (misuse_table.py makes the table): an error with a message, NULL or no effect, no crash, and a
 * group that still works, since nothing was begun. */
#include "support/misuse.h"

#include <cddp/parallel.h>
#include <cddp/spawn.h>

#include <limits.h>
#include <math.h>

/* One of each kind of handle. */
struct handles {
    cddp_group *group;
    cddp_ddp *ddp;
    cddp_store *store;
    cddp_sampler *sampler;
    cddp_safetensors *safetensors;
    cddp_loader *loader;
    cddp_devices *devices;
    cddp_saving *saving;
    cddp_recovery *recovery;
    cddp_work *work;
};

/* What arguments are made of: right ones, and destroyed handles. */
struct scene {
    int rank;
    cddp_group *group;
    cddp_ddp *ddp; /* a sharded one between wait and updated */
    cddp_store *store;
    cddp_sampler *sampler;
    cddp_safetensors *safetensors;
    cddp_loader *loader;
    cddp_devices *devices;
    cddp_saving *saving;
    cddp_recovery *recovery;
    cddp_work *work;
    struct handles dead, made;
    cddp_bucket *bucket; /* NULL: outside a hook there is none */
    unsigned char *data;
    float *floats[1];
    size_t counts[2], too_many[2];
    cddp_message messages[1], odd_messages[1];
    cddp_param params[1];
    cddp_span span;
    cddp_tensor tensors[2];
    cddp_chunk chunks[CDDP_MAX_PARALLEL_DEVICES];
    cddp_group_options join;
    cddp_store_options open;
    cddp_loader_options loads;
    cddp_data_parallel_options parallel;
    cddp_bootstrap bootstrap;
    cddp_snapshot snapshot;
    cddp_step step;
    cddp_batch batch;
    cddp_failure failure;
    cddp_ddp_stats stats;
    cddp_bucket_stats times;
    cddp_group_info info;
    cddp_recovery_array array;
    cddp_recovery_callbacks callbacks;
    cddp_recovery_action action;
    cddp_recovery_info recovered;
    cddp_allocator allocator;
    const char *names[1];
    char path[4200], folder[4200];
    void *memory;
    char *text;
    char **list;
    float **replicas;
    size_t bytes;
    uint64_t number, numbers[8];
    int64_t amount;
    int small;
    bool flag;
    _Alignas(max_align_t) unsigned char zeros[512]; /* a struct of any type */
};

static int wrongly_accepted;

static void expect(bool holds, const char *what, const char *instead)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, instead);
        wrongly_accepted++;
    }
}

static void check_status(const char *what, cddp_status status)
{
    expect(status < 0, what, "is accepted");
    expect(status >= 0 || cddp_last_error()[0] != '\0', what, "has no sentence");
    expect(status != CDDP_ERR_TIMEOUT && status != CDDP_ERR_PEER && status != CDDP_ERR_BROKEN, what,
           status < 0 ? cddp_last_error() : "");
}

#define CHECK_STATUS(what, call) check_status(what, call)
#define CHECK_NULL(what, call) expect((call) == NULL, what, "gives a pointer")
#define CHECK_NOTHING(what, call) expect((int64_t)(call) <= 0, what, "gives a number")
#define CALL(what, call) (void)(call)

static cddp_status no_rank(void *arg, int rank)
{
    (void)arg;
    return rank == 0 ? CDDP_OK : CDDP_ERR_PEER;
}

static cddp_status no_apply(void *arg, int device)
{
    (void)arg;
    (void)device;
    return CDDP_OK;
}

static cddp_status no_replica(void *arg, const cddp_replica *replica)
{
    (void)replica;
    (void)arg;
    return 0;
}

static cddp_status no_sample(void *state, uint64_t index, void *out)
{
    (void)state;
    (void)index;
    memset(out, 0, 4);
    return CDDP_OK;
}

static cddp_status no_broadcast(void *state, void *data, size_t bytes)
{
    (void)state;
    (void)data;
    (void)bytes;
    return CDDP_ERR_FORMAT;
}

static cddp_status no_all_gather(void *state, const void *own, size_t bytes, void *out)
{
    (void)own;
    return no_broadcast(state, out, bytes);
}

static cddp_status no_save(void *state, void *to)
{
    return no_broadcast(state, to, 0);
}

static cddp_status no_load(void *state, const void *from, int part, int parts)
{
    (void)from, (void)part, (void)parts;
    return no_broadcast(state, NULL, 0);
}

#include "misuse_table.inc"

static cddp_status make(struct scene *s, struct handles *out, const cddp_ddp_options *options)
{
    cddp_status status = cddp_group_store_create(s->group, &out->store);

    status = status == CDDP_OK
                 ? cddp_ddp_create(s->group, s->params, 1, NULL, 0, options, &out->ddp)
                 : status;
    status = status == CDDP_OK ? cddp_sampler_create(CDDP_ORDER_SEQUENTIAL, 4, 1, &out->sampler)
                               : status;
    status = status == CDDP_OK ? cddp_safetensors_open(s->path, &out->safetensors) : status;
    status = status == CDDP_OK ? cddp_loader_create(&s->loads, &out->loader) : status;
    status = status == CDDP_OK ? cddp_devices_create(s->names, 1, &out->devices) : status;
    status = status == CDDP_OK ? cddp_snapshot_write(s->folder, &s->snapshot, NULL, &out->saving)
                               : status;
    status = status == CDDP_OK ? cddp_recovery_create(s->group, NULL, &out->recovery) : status;
    status = status == CDDP_OK ? cddp_barrier(s->group, &out->work) : status;
    return status == CDDP_OK ? cddp_work_wait(out->work) : status;
}

static void destroy(struct handles *handles)
{
    cddp_work_destroy(handles->work);
    cddp_ddp_destroy(handles->ddp);
    cddp_store_close(handles->store);
    cddp_sampler_destroy(handles->sampler);
    cddp_safetensors_close(handles->safetensors);
    cddp_loader_destroy(handles->loader);
    cddp_devices_destroy(handles->devices);
    cddp_saving_destroy(handles->saving);
    cddp_recovery_destroy(handles->recovery);
    cddp_group_destroy(handles->group);
}

static void fill(struct scene *s, const struct misuse *misuse, int rank)
{
    s->rank = rank;
    s->data = misuse_memory(s->group, 4096);
    s->floats[0] = (float *)(void *)(s->data + 2048);
    s->counts[0] = s->counts[1] = 4;
    s->too_many[0] = s->too_many[1] = SIZE_MAX / 2;
    s->messages[0] = (cddp_message){.peer = 1 - rank, .in = s->data, .count = 8};
    s->odd_messages[0] = (cddp_message){.peer = 1 - rank, .in = s->data + 2, .count = 8};
    s->params[0] = (cddp_param){.name = "a", .dims = 1, .shape = {64}, .data = s->data + 3072};
    s->tensors[0] = (cddp_tensor){.name = "a", .type = CDDP_F32, .dims = 1, .shape = {8}};
    s->tensors[0].data = s->data;
    s->join = (cddp_group_options)CDDP_GROUP_OPTIONS_INIT;
    s->open = (cddp_store_options)CDDP_STORE_OPTIONS_INIT;
    s->loads = (cddp_loader_options)CDDP_LOADER_OPTIONS_INIT;
    s->loads.samples = s->loads.batch_size = 4;
    s->loads.sample_bytes = 4;
    s->loads.load = no_sample;
    s->parallel = (cddp_data_parallel_options)CDDP_DATA_PARALLEL_OPTIONS_INIT;
    s->parallel.in = s->data;
    s->parallel.rows = s->parallel.in_row_bytes = 8;
    s->bootstrap = (cddp_bootstrap)CDDP_BOOTSTRAP_INIT;
    s->bootstrap.world_size = 2;
    s->bootstrap.rank = rank;
    s->bootstrap.broadcast = no_broadcast;
    s->bootstrap.all_gather = no_all_gather;
    s->snapshot = (cddp_snapshot)CDDP_SNAPSHOT_INIT;
    s->step = (cddp_step)CDDP_STEP_INIT;
    s->step.samples = 1;
    s->batch = (cddp_batch)CDDP_BATCH_INIT;
    s->stats = (cddp_ddp_stats)CDDP_DDP_STATS_INIT;
    s->times = (cddp_bucket_stats)CDDP_BUCKET_STATS_INIT;
    s->info = (cddp_group_info)CDDP_GROUP_INFO_INIT;
    s->array = (cddp_recovery_array)CDDP_RECOVERY_ARRAY_INIT;
    s->array.name = "a";
    s->array.data = s->data;
    s->array.bytes = 8;
    s->callbacks = (cddp_recovery_callbacks)CDDP_RECOVERY_CALLBACKS_INIT;
    s->callbacks.name = "a";
    s->callbacks.bytes = 8;
    s->callbacks.save = no_save;
    s->callbacks.load = no_load;
    s->recovered = (cddp_recovery_info)CDDP_RECOVERY_INFO_INIT;
    s->names[0] = "cpu";
    s->chunks[0] = (cddp_chunk){s->data, 8};
    snprintf(s->path, sizeof s->path, "%s/tensors-%d", misuse->folder, rank);
    snprintf(s->folder, sizeof s->folder, "%s/snapshots-%d", misuse->folder, rank);
}

/* A step of the sharded handle up to where the rank may read means of its span. */
static cddp_status step_to_update(struct scene *s)
{
    cddp_status status = cddp_ddp_begin(s->ddp, &s->step);
    const cddp_span *spans;
    size_t count = 0;

    status = status == CDDP_OK ? cddp_ddp_grad_ready(s->ddp, 0) : status;
    status = status == CDDP_OK ? cddp_ddp_wait(s->ddp) : status;
    spans = cddp_ddp_spans(s->ddp, s->rank, &count);
    if (count > 0) {
        s->span = spans[0];
    }
    return status;
}

static int build(struct scene *s, const struct misuse *misuse, int rank, int size)
{
    cddp_ddp_options sharded = CDDP_DDP_OPTIONS_INIT;
    struct handles living = {0};

    CHECK(misuse_join(misuse, rank, size, &s->group) == CDDP_OK);
    fill(s, misuse, rank);
    CHECK(cddp_safetensors_write(s->path, s->tensors, 1, NULL) == CDDP_OK);
    CHECK(cddp_group_split(s->group, 0, 0, &s->dead.group) == CDDP_OK);
    CHECK(make(s, &s->dead, NULL) == CDDP_OK);
    destroy(&s->dead);
    sharded.shard = true;
    CHECK(make(s, &living, &sharded) == CDDP_OK);
    s->ddp = living.ddp;
    s->store = living.store;
    s->sampler = living.sampler;
    s->safetensors = living.safetensors;
    s->loader = living.loader;
    s->saving = living.saving;
    s->devices = living.devices;
    s->recovery = living.recovery;
    s->work = living.work;
    CHECK(step_to_update(s) == CDDP_OK);
    return 0;
}

static int table_rank(int rank, int size, void *argument)
{
    static struct scene scene;
    struct handles living;

    CHECK(build(&scene, argument, rank, size) == 0);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        int before = wrongly_accepted;

        CHECK(rows[row].misuse(&scene) == 0);
        if (misuse_reduce(scene.group) != 0 || wrongly_accepted != before) {
            fprintf(stderr, "rank %d: above: misuse of %s\n", rank, rows[row].name);
        }
        CHECK(misuse_reduce(scene.group) == 0);
    }
    CHECK(cddp_ddp_params_start(scene.ddp) == CDDP_OK &&
          cddp_ddp_params_wait(scene.ddp) == CDDP_OK);
    living = (struct handles){scene.group,       scene.ddp,    scene.store,   scene.sampler,
                              scene.safetensors, scene.loader, scene.devices, scene.saving,
                              scene.recovery,    scene.work};
    destroy(&living);
    return wrongly_accepted;
}

static void a_wrong_argument_of_any_function_is_an_error_and_begins_nothing(void **state)
{
    assert_int_equal(misuse_run(*state, 2, table_rank, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(a_wrong_argument_of_any_function_is_an_error_and_begins_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
