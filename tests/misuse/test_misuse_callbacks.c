/* test_misuse_callbacks.c - callbacks that destroy their caller, call back into it, or end their
 * thread: each is refused or is a failure, and never a crash or an endless wait. */
#include "support/misuse.h"

#include <cddp/parallel.h>

#include <pthread.h>
#include <stdatomic.h>

struct hook_scene {
    cddp_ddp *ddp;
    int calls;
};

static cddp_status hook_that_destroys(void *state, const cddp_bucket *bucket, int stage,
                                      cddp_work **out_work)
{
    struct hook_scene *scene = state;

    scene->calls++;
    cddp_ddp_destroy(scene->ddp);
    return cddp_hook_identity(NULL, bucket, stage, out_work);
}

static int hook_rank(int rank, int size, void *argument)
{
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    struct hook_scene scene = {NULL, 0};
    struct misuse_model model;
    cddp_group *group;

    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    options.hook = hook_that_destroys;
    options.hook_state = &scene;
    CHECK(misuse_watch(&model, group, &options) == CDDP_OK);
    scene.ddp = model.ddp;
    CHECK(misuse_step(&model) == 0 && misuse_step(&model) == 0);
    CHECK(scene.calls >= 2);
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(group);
    return 0;
}

static void a_hook_cannot_destroy_its_ddp(void **state)
{
    assert_int_equal(misuse_run(*state, 2, hook_rank, 0, NULL), 0);
}

enum sample { DESTROYS, BEGINS, TAKES, EXITS, EXITS_LATER };

struct sample_scene {
    enum sample does;
    cddp_loader *_Atomic loader;
    _Atomic int calls;
    _Atomic cddp_status status;
};

static cddp_status sample(void *state, uint64_t index, void *out)
{
    struct sample_scene *scene = state;
    cddp_batch batch = CDDP_BATCH_INIT;

    memset(out, (int)index, 4);
    while (atomic_load(&scene->loader) == NULL) {
        support_sleep_ms(1);
    }
    if (atomic_fetch_add(&scene->calls, 1) > 0 && scene->does != EXITS) {
        return CDDP_OK;
    }
    switch (scene->does) {
    case DESTROYS:
        cddp_loader_destroy(scene->loader);
        break;
    case BEGINS:
        scene->status = cddp_loader_begin(scene->loader, 0, 0);
        break;
    case TAKES:
        scene->status = cddp_loader_next(scene->loader, &batch);
        break;
    default:
        pthread_exit(NULL);
    }
    return CDDP_OK;
}

static cddp_status make_loader(struct sample_scene *scene, int threads, cddp_loader **out)
{
    cddp_loader_options options = CDDP_LOADER_OPTIONS_INIT;
    cddp_status status;

    options.samples = 8;
    options.batch_size = 2;
    options.sample_bytes = 4;
    options.load = sample;
    options.state = scene;
    options.threads = threads;
    status = cddp_loader_create(&options, out);
    return status == CDDP_OK ? cddp_loader_begin(*out, 0, 0) : status;
}

static void a_sample_function_cannot_use_its_loader(void **state)
{
    (void)state;
    for (enum sample does = DESTROYS; does <= TAKES; does++) {
        struct sample_scene scene = {.does = does};
        cddp_batch batch = CDDP_BATCH_INIT;
        cddp_loader *loader;

        assert_int_equal(make_loader(&scene, 2, &loader), CDDP_OK);
        atomic_store(&scene.loader, loader);
        while (atomic_load(&scene.calls) == 0 ||
               (does != DESTROYS && atomic_load(&scene.status) == CDDP_OK)) {
            support_sleep_ms(1);
        }
        assert_true(does == DESTROYS || scene.status == CDDP_ERR_STATE);
        for (int b = 0; b < 4; b++) {
            assert_int_equal(cddp_loader_next(loader, &batch), CDDP_OK);
            assert_int_equal(batch.count, 2);
        }
        cddp_loader_destroy(loader);
    }
}

static void a_sample_function_that_ends_its_thread_fails_its_batch(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct sample_scene scene = {.does = EXITS};
        cddp_batch batch = CDDP_BATCH_INIT;
        cddp_loader *loader;
        cddp_status status;

        assert_int_equal(make_loader(&scene, threads, &loader), CDDP_OK);
        atomic_store(&scene.loader, loader);
        assert_true(misuse_gives(cddp_loader_next(loader, &batch), CDDP_ERR_STATE, "pthread_exit"));
        do { /* until the last thread is gone: an error, and never a wait */
            status = cddp_loader_begin(loader, 0, 0);
            status = status == CDDP_OK ? cddp_loader_next(loader, &batch) : status;
            assert_true(status == CDDP_ERR_STATE || status == CDDP_ERR_BROKEN);
        } while (atomic_load(&scene.calls) < threads);
        cddp_loader_destroy(loader);
    }
}

static void a_sample_function_that_ends_one_thread_leaves_the_others(void **state)
{
    struct sample_scene scene = {.does = EXITS_LATER};
    cddp_batch batch = CDDP_BATCH_INIT;
    cddp_loader *loader;

    (void)state;
    assert_int_equal(make_loader(&scene, 2, &loader), CDDP_OK);
    atomic_store(&scene.loader, loader);
    assert_true(misuse_gives(cddp_loader_next(loader, &batch), CDDP_ERR_STATE, "pthread_exit"));
    assert_int_equal(cddp_loader_begin(loader, 0, 0), CDDP_OK);
    for (int b = 0; b < 4; b++) {
        assert_int_equal(cddp_loader_next(loader, &batch), CDDP_OK);
        assert_int_equal(batch.count, 2);
    }
    cddp_loader_destroy(loader);
}

static cddp_status destroy_devices(void *arg, int device)
{
    (void)device;
    cddp_devices_destroy(arg);
    return 0;
}

static cddp_status end_thread(void *arg, int device)
{
    (void)arg;
    if (device == 1) {
        pthread_exit(NULL);
    }
    return 0;
}

static void devices_stay_while_a_function_runs_on_them(void **state)
{
    static const char *const names[] = {"cpu", "cpu"};
    cddp_devices *devices;

    (void)state;
    assert_int_equal(cddp_devices_create(names, 2, &devices), CDDP_OK);
    assert_int_equal(cddp_parallel_apply(devices, 2, destroy_devices, devices), CDDP_OK);
    assert_int_equal(cddp_devices_count(devices), 2);
    assert_true(misuse_gives(cddp_parallel_apply(devices, 2, end_thread, NULL), CDDP_ERR_DEVICE,
                             "pthread_exit"));
    cddp_devices_destroy(devices);
    assert_int_equal(cddp_devices_count(devices), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(a_hook_cannot_destroy_its_ddp),
        cmocka_unit_test(a_sample_function_cannot_use_its_loader),
        cmocka_unit_test(a_sample_function_that_ends_its_thread_fails_its_batch),
        cmocka_unit_test(a_sample_function_that_ends_one_thread_leaves_the_others),
        cmocka_unit_test(devices_stay_while_a_function_runs_on_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
