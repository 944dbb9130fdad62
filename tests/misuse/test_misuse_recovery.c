/* test_misuse_recovery.c - a loop's state that is registered or kept wrongly: functions that
 * destroy or use the handle that calls them, other threads, a group that is gone, other states on
 * other ranks, no memory. An error or a warning, and the loop and the group go on. */
#include "base/alloc.h"
#include "support/misuse.h"

#include <pthread.h>
#include <sys/mman.h>

enum { NUMBERS = 300, MOST_ALLOCATIONS = 60 };

/* A rank with a state of three parts, and memory as a launcher would hold it. */
struct scene {
    cddp_group *group;
    cddp_recovery *recovery;
    float numbers[NUMBERS];
    unsigned char own; /* its part of what all have */
    int does;          /* what its function does, besides */
    int calls;
    cddp_status status; /* of what it did */
};

static cddp_status hold_memory(void)
{
    int fd = memfd_create("kept", MFD_CLOEXEC);

    support_setenv_number("CDDP_KEEP_FDS", fd);
    return fd >= 0 ? CDDP_OK : CDDP_ERR_UNAVAILABLE;
}

enum does { NOTHING, DESTROYS, STEPS, ADDS, ASKS, DOES };

static void misbehave(struct scene *scene)
{
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery_array array = CDDP_RECOVERY_ARRAY_INIT;
    cddp_recovery_action action;
    uint64_t step = 3;

    switch (scene->does) {
    case DESTROYS:
        cddp_recovery_destroy(scene->recovery);
        break;
    case STEPS:
        scene->status = cddp_recovery_step(scene->recovery, &step, &action);
        break;
    case ADDS:
        array.name = "late";
        array.data = &scene->own;
        array.bytes = 1;
        scene->status = cddp_recovery_add(scene->recovery, &array);
        break;
    case ASKS:
        scene->status = cddp_recovery_get_info(scene->recovery, &info);
        break;
    default:
        break;
    }
}

static cddp_status save(void *state, void *to)
{
    struct scene *scene = state;

    scene->calls++;
    memcpy(to, &scene->calls, sizeof scene->calls);
    misbehave(scene);
    return CDDP_OK;
}

static cddp_status load(void *state, const void *from, int part, int parts)
{
    struct scene *scene = state;

    (void)part, (void)parts;
    memcpy(&scene->calls, from, sizeof scene->calls);
    misbehave(scene);
    return CDDP_OK;
}

static cddp_status add_all(struct scene *scene)
{
    cddp_recovery_array array = CDDP_RECOVERY_ARRAY_INIT;
    cddp_recovery_callbacks callbacks = CDDP_RECOVERY_CALLBACKS_INIT;
    cddp_status status;

    array.name = "numbers";
    array.data = scene->numbers;
    array.bytes = sizeof scene->numbers;
    status = cddp_recovery_add(scene->recovery, &array);
    array.name = "own";
    array.data = &scene->own;
    array.bytes = 1;
    array.first_byte = (uint64_t)cddp_group_rank(scene->group);
    array.total_bytes = (uint64_t)cddp_group_world_size(scene->group);
    status = status == CDDP_OK ? cddp_recovery_add(scene->recovery, &array) : status;
    callbacks.name = "calls";
    callbacks.bytes = sizeof scene->calls;
    callbacks.save = save;
    callbacks.load = load;
    callbacks.state = scene;
    return status == CDDP_OK ? cddp_recovery_add_callbacks(scene->recovery, &callbacks) : status;
}

static cddp_status create(struct scene *scene)
{
    cddp_recovery_options options = CDDP_RECOVERY_OPTIONS_INIT;

    options.every_steps = 1;
    return cddp_recovery_create(scene->group, &options, &scene->recovery);
}

static cddp_status step_at(struct scene *scene, uint64_t step, cddp_recovery_action *out)
{
    return cddp_recovery_step(scene->recovery, &step, out);
}

/* The step begins, and nothing else is to be done. */
static int goes_on(struct scene *scene, uint64_t step)
{
    cddp_recovery_action action = CDDP_RECOVERY_STOP;

    CHECK(step_at(scene, step, &action) == CDDP_OK && action == CDDP_RECOVERY_GO_ON);
    return 0;
}

static int end(struct scene *scene)
{
    CHECK(misuse_reduce(scene->group) == 0);
    cddp_recovery_destroy(scene->recovery);
    cddp_group_destroy(scene->group);
    return 0;
}

/* The next processes of the job: they find what was kept. */
static cddp_status rejoin(struct scene *scene, const struct misuse *misuse, int rank, int size)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char url[4200];

    snprintf(url, sizeof url, "file://%s/%s-again", misuse->folder, misuse->job);
    options.rendezvous = url;
    options.token = SUPPORT_TOKEN;
    options.job = misuse->job;
    options.rank = rank;
    options.world_size = size;
    options.generation = 1;
    return cddp_group_create(&options, &scene->group);
}

static int function_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    cddp_status expected = misuse->which == STEPS || misuse->which == ADDS ? CDDP_ERR_STATE
                                                                           : CDDP_OK;
    struct scene scene = {.does = misuse->which};
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery_action action = CDDP_RECOVERY_GO_ON;

    CHECK(hold_memory() == CDDP_OK);
    CHECK(misuse_join(misuse, rank, size, &scene.group) == CDDP_OK);
    CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
    for (uint64_t step = 0; step < 4; step++) {
        CHECK(goes_on(&scene, step) == 0);
    }
    CHECK(scene.calls == 3 && scene.status == expected);
    CHECK(cddp_recovery_get_info(scene.recovery, &info) == CDDP_OK && info.copies == 3);
    CHECK(end(&scene) == 0);

    scene.status = CDDP_OK;
    scene.calls = 0;
    CHECK(rejoin(&scene, misuse, rank, size) == CDDP_OK);
    CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
    CHECK(step_at(&scene, 0, &action) == CDDP_OK && action == CDDP_RECOVERY_REPLACED);
    CHECK(scene.calls == 3 && scene.status == expected);
    return end(&scene);
}

static void a_function_cannot_destroy_or_change_its_handle(void **state)
{
    for (int which = NOTHING; which < DOES; which++) {
        for (int size = 1; size <= 2; size++) {
            assert_int_equal(misuse_run(*state, size, function_rank, which, NULL), 0);
        }
    }
}

/* A thread that stays in a call until the other rank comes, too. */
static void *sit(void *argument)
{
    struct scene *scene = argument;

    do { /* until it is not the other thread that is in a call */
        scene->status = cddp_barrier(scene->group, NULL);
    } while (scene->status == CDDP_ERR_BUSY);
    return NULL;
}

#define BUSY_GIVES(call) CHECK(misuse_gives((call), CDDP_ERR_BUSY, "another thread"))

static int call_all_meanwhile(struct scene *scene)
{
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery *other = NULL;
    cddp_recovery_action action;

    while (cddp_recovery_get_info(scene->recovery, &info) != CDDP_ERR_BUSY) {
        support_sleep_ms(1);
    }
    BUSY_GIVES(cddp_recovery_create(scene->group, NULL, &other));
    BUSY_GIVES(add_all(scene));
    BUSY_GIVES(step_at(scene, 1, &action));
    BUSY_GIVES(cddp_recovery_refuse(scene->recovery));
    BUSY_GIVES(cddp_recovery_get_info(scene->recovery, &info));
    cddp_recovery_destroy(scene->recovery);
    return 0;
}

static int thread_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    struct scene scene = {.does = NOTHING};
    pthread_t thread;
    char go = 0;

    CHECK(misuse_join(misuse, rank, size, &scene.group) == CDDP_OK);
    CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
    CHECK(goes_on(&scene, 0) == 0);
    if (rank != 0) {
        CHECK(read(misuse->signal[0], &go, 1) == 1);
        CHECK(cddp_barrier(scene.group, NULL) == CDDP_OK);
    } else {
        CHECK(pthread_create(&thread, NULL, sit, &scene) == 0);
        CHECK(call_all_meanwhile(&scene) == 0);
        CHECK(write(misuse->signal[1], &go, 1) == 1);
        CHECK(pthread_join(thread, NULL) == 0 && scene.status == CDDP_OK);
    }
    CHECK(goes_on(&scene, 1) == 0); /* nothing was done by what was refused */
    return end(&scene);
}

static void a_second_thread_in_the_group_is_refused(void **state)
{
    assert_int_equal(misuse_run(*state, 2, thread_rank, 0, NULL), 0);
}

#define CLOSED_GIVES(call) CHECK(misuse_gives((call), CDDP_ERR_CLOSED, "destroyed"))

static int destroyed_rank(int rank, int size, void *argument)
{
    struct scene scene = {.does = NOTHING};
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery_action action;
    struct misuse_model model;

    CHECK(misuse_join(argument, rank, size, &scene.group) == CDDP_OK);
    CHECK(misuse_watch(&model, scene.group, NULL) == CDDP_OK);
    CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
    CHECK(cddp_recovery_add_ddp(scene.recovery, model.ddp) == CDDP_OK);
    CHECK(goes_on(&scene, 0) == 0);
    cddp_ddp_destroy(model.ddp);
    cddp_group_destroy(scene.group); /* lives on for the state */
    CHECK(goes_on(&scene, 1) == 0);
    cddp_recovery_destroy(scene.recovery);
    cddp_recovery_destroy(scene.recovery);
    CLOSED_GIVES(step_at(&scene, 2, &action));
    CLOSED_GIVES(add_all(&scene));
    CLOSED_GIVES(cddp_recovery_add_ddp(scene.recovery, model.ddp));
    CLOSED_GIVES(cddp_recovery_refuse(scene.recovery));
    CLOSED_GIVES(cddp_recovery_get_info(scene.recovery, &info));
    return 0;
}

static void handles_that_were_destroyed_are_refused(void **state)
{
    assert_int_equal(misuse_run(*state, 2, destroyed_rank, 0, NULL), 0);
}

static int step_rank(int rank, int size, void *argument)
{
    struct scene scene = {.does = NOTHING};
    cddp_recovery_action action;

    CHECK(misuse_join(argument, rank, size, &scene.group) == CDDP_OK);
    CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
    CHECK(misuse_gives(step_at(&scene, UINT64_MAX, &action), CDDP_ERR_ARGUMENT, "too large"));
    CHECK(goes_on(&scene, 7) == 0);
    CHECK(misuse_gives(add_all(&scene), CDDP_ERR_STATE, "the first step has begun"));
    CHECK(misuse_gives(step_at(&scene, (uint64_t)INT64_MAX + 1, &action), CDDP_ERR_ARGUMENT,
                       "too large"));
    CHECK(misuse_gives(step_at(&scene, 8 + (uint64_t)rank, &action), CDDP_ERR_MISMATCH,
                       "ranks are at steps 8 to 9"));
    CHECK(goes_on(&scene, 9) == 0);
    return end(&scene);
}

static void wrong_steps_are_said(void **state)
{
    assert_int_equal(misuse_run(*state, 2, step_rank, 0, NULL), 0);
}

static void count_warnings(void *count, const cddp_log_record *record)
{
    *(int *)count += strstr(record->line, "its state differs from that of rank 0") != NULL;
}

/* The last rank has registered something more. */
static int mismatch_rank(int rank, int size, void *argument)
{
    struct scene scene = {.does = NOTHING};
    cddp_recovery_array array = CDDP_RECOVERY_ARRAY_INIT;
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    int warnings = 0;
    char byte = 0;

    CHECK(hold_memory() == CDDP_OK);
    CHECK(misuse_join(argument, rank, size, &scene.group) == CDDP_OK);
    CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
    array.name = "more";
    array.data = &byte;
    array.bytes = 1;
    CHECK(rank == 0 || cddp_recovery_add(scene.recovery, &array) == CDDP_OK);
    cddp_log_set_sink(count_warnings, &warnings);
    for (uint64_t step = 0; step < 4; step++) {
        CHECK(goes_on(&scene, step) == 0);
    }
    cddp_log_set_sink(NULL, NULL);
    CHECK(warnings == rank);
    CHECK(cddp_recovery_get_info(scene.recovery, &info) == CDDP_OK && info.copies == 0);
    return end(&scene);
}

static void other_states_on_other_ranks_are_not_kept(void **state)
{
    assert_int_equal(misuse_run(*state, 2, mismatch_rank, 0, NULL), 0);
}

/* The group is broken where a rank has no memory for what all ranks do. */
static int ends_without_memory(cddp_status status, bool fails)
{
    CHECK(misuse_gives(status, status, fails ? "memory" : ""));
    CHECK(!fails || status == CDDP_ERR_NO_MEMORY || status == CDDP_ERR_BROKEN);
    return 0;
}

/* In the last rank, the n-th allocation fails: while the state is registered and kept for the first
 * time, or while it is restored. */
static int memory_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    bool is_later = misuse->which > MOST_ALLOCATIONS;
    bool fails = rank == size - 1;
    unsigned nth = (unsigned)misuse->which % (MOST_ALLOCATIONS + 1);
    struct scene scene = {.numbers = {5}};
    cddp_recovery_action action = CDDP_RECOVERY_GO_ON;
    cddp_status status;

    CHECK(hold_memory() == CDDP_OK);
    CHECK(misuse_join(misuse, rank, size, &scene.group) == CDDP_OK);
    if (is_later) {
        CHECK(create(&scene) == CDDP_OK && add_all(&scene) == CDDP_OK);
        CHECK(goes_on(&scene, 0) == 0 && goes_on(&scene, 1) == 0);
        CHECK(end(&scene) == 0);
        CHECK(rejoin(&scene, misuse, rank, size) == CDDP_OK);
        scene.numbers[0] = 4;
    }
    scene.recovery = NULL;
    cddpi_alloc_fail_nth(fails ? nth : 0);
    status = create(&scene);
    status = status == CDDP_OK ? add_all(&scene) : status;
    status = status == CDDP_OK ? step_at(&scene, 0, &action) : status;
    status = status == CDDP_OK ? step_at(&scene, 1, &(cddp_recovery_action){0}) : status;
    cddpi_alloc_fail_nth(0);
    if (status == CDDP_OK) {
        CHECK(scene.numbers[0] == (is_later && action == CDDP_RECOVERY_GO_ON ? 4 : 5));
    } else {
        CHECK(ends_without_memory(status, fails) == 0);
        cddp_group_abort(scene.group, "no memory"); /* as a program that gives up does */
    }
    cddp_recovery_destroy(scene.recovery);
    cddp_group_destroy(scene.group);
    return 0;
}

static void no_memory_is_an_error_or_nothing_is_kept(void **state)
{
    for (int later = 0; later < 2; later++) {
        for (int nth = 0; nth <= MOST_ALLOCATIONS; nth++) {
            int which = later * (MOST_ALLOCATIONS + 1) + nth;

            assert_int_equal(misuse_run(*state, 2, memory_rank, which, NULL), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(a_function_cannot_destroy_or_change_its_handle),
        MISUSE_TEST(a_second_thread_in_the_group_is_refused),
        MISUSE_TEST(handles_that_were_destroyed_are_refused),
        MISUSE_TEST(wrong_steps_are_said),
        MISUSE_TEST(other_states_on_other_ranks_are_not_kept),
        MISUSE_TEST(no_memory_is_an_error_or_nothing_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
