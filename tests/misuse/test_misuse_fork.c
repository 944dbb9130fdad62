/* test_misuse_fork.c - a rank that forks: the child's calls are refused, and whatever the child
 * does or omits, its parent's job continues with right numbers. */
#include "support/misuse.h"

#include "base/clock.h"

#include <cddp/parallel.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* What the child of a rank has, for its function at exit. */
static struct {
    cddp_group *group;
    cddp_ddp *ddp;
    cddp_work *work;
    cddp_loader *loader;
    cddp_recovery *recovery;
} mine;

static cddp_status make_sample(void *state, uint64_t index, void *out)
{
    (void)state;
    *(uint64_t *)out = index;
    return CDDP_OK;
}

static cddp_status open_loader(void)
{
    cddp_loader_options options = CDDP_LOADER_OPTIONS_INIT;

    options.samples = options.batch_size = 6;
    options.sample_bytes = sizeof(uint64_t);
    options.load = make_sample;
    return cddp_loader_create(&options, &mine.loader);
}

/* With some of a rank's parameters. */
static cddp_status keep_state(void)
{
    cddp_status status = cddp_recovery_create(mine.group, NULL, &mine.recovery);

    return status == CDDP_OK ? cddp_recovery_add_ddp(mine.recovery, mine.ddp) : status;
}

static cddp_status begin_step(uint64_t step)
{
    cddp_recovery_action action;

    return cddp_recovery_step(mine.recovery, &step, &action);
}

static void destroy_all(void)
{
    cddp_recovery_destroy(mine.recovery);
    cddp_loader_destroy(mine.loader);
    cddp_work_destroy(mine.work);
    cddp_ddp_destroy(mine.ddp);
    cddp_group_destroy(mine.group);
}

/* LeakSanitizer asks. In a child it stops threads that only the parent has, and may wait for them
 * for ever: a child of a rank with threads that ends by exit() hung so. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

#define FORK_GIVES(call) CHECK(misuse_gives((call), CDDP_ERR_STATE, "a fork"))

static int call_recovery(void)
{
    cddp_recovery_array array = CDDP_RECOVERY_ARRAY_INIT;
    cddp_recovery_callbacks callbacks = CDDP_RECOVERY_CALLBACKS_INIT;
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery *recovery;

    FORK_GIVES(cddp_recovery_create(mine.group, NULL, &recovery));
    FORK_GIVES(cddp_recovery_add(mine.recovery, &array));
    FORK_GIVES(cddp_recovery_add_ddp(mine.recovery, mine.ddp));
    FORK_GIVES(cddp_recovery_add_callbacks(mine.recovery, &callbacks));
    FORK_GIVES(begin_step(1));
    FORK_GIVES(cddp_recovery_refuse(mine.recovery));
    FORK_GIVES(cddp_recovery_get_info(mine.recovery, &info));
    return 0;
}

/* Every call that a child may make. */
static int call_all(struct misuse_model *model)
{
    float data[2] = {1000, 1000};
    cddp_message message = {.receives = true, .out = data, .count = 2};
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    cddp_bucket_stats times = CDDP_BUCKET_STATS_INIT;
    cddp_batch batch = CDDP_BATCH_INIT;
    size_t counts[3] = {2, 2, 2};
    cddp_store *store;
    cddp_group *part;
    cddp_ddp *ddp;
    void *memory;
    bool done;

    FORK_GIVES(cddp_all_reduce(mine.group, data, data, 2, CDDP_F32, CDDP_OP_SUM, NULL));
    FORK_GIVES(cddp_broadcast(mine.group, data, 2, CDDP_F32, 0, NULL));
    FORK_GIVES(cddp_barrier(mine.group, NULL));
    FORK_GIVES(cddp_send(mine.group, data, 2, CDDP_F32, 0, NULL));
    FORK_GIVES(cddp_recv(mine.group, data, 2, CDDP_F32, 0, NULL));
    FORK_GIVES(cddp_messages_start(mine.group, &message, 1, NULL));
    FORK_GIVES(cddp_all_gatherv(mine.group, data, data, counts, CDDP_F32, NULL));
    FORK_GIVES(cddp_all_gather_bytes(mine.group, data, 4, &memory, counts));
    FORK_GIVES(cddp_broadcast_bytes(mine.group, data, 4, 0, &memory, counts));
    FORK_GIVES(cddp_group_store_create(mine.group, &store));
    FORK_GIVES(cddp_group_should_stop(mine.group, &done));
    FORK_GIVES(cddp_loader_begin(mine.loader, 0, 0));
    FORK_GIVES(cddp_loader_next(mine.loader, &batch));
    FORK_GIVES(cddp_group_split(mine.group, 0, 0, &part));
    FORK_GIVES(cddp_group_alloc(mine.group, 8, 0, &memory));
    FORK_GIVES(cddp_group_alloc(mine.group, 8, CDDP_ALLOC_HOST, &memory));
    FORK_GIVES(cddp_group_set_stream(mine.group, &memory));
    FORK_GIVES(cddp_group_set_timeout(mine.group, 1));
    FORK_GIVES(cddp_work_test(mine.work, &done));
    FORK_GIVES(cddp_work_wait(mine.work));
    FORK_GIVES(cddp_work_wait_host(mine.work, 1, &done));
    FORK_GIVES(cddp_ddp_create(mine.group, model->params, MISUSE_PARAMS, NULL, 0, NULL, &ddp));
    FORK_GIVES(cddp_ddp_begin(mine.ddp, NULL));
    FORK_GIVES(cddp_ddp_grad_ready(mine.ddp, 0));
    FORK_GIVES(cddp_ddp_wait(mine.ddp));
    FORK_GIVES(cddp_ddp_params_start(mine.ddp));
    FORK_GIVES(cddp_ddp_grads_ready(mine.ddp, 0, 1));
    FORK_GIVES(cddp_ddp_progress(mine.ddp));
    FORK_GIVES(cddp_ddp_follow(mine.ddp, &done));
    FORK_GIVES(cddp_ddp_save(mine.ddp, "a", NULL));
    FORK_GIVES(cddp_ddp_load(mine.ddp, "a"));
    FORK_GIVES(cddp_ddp_broadcast(mine.ddp, 0, CDDP_BROADCAST_BUFFERS));
    FORK_GIVES(cddp_ddp_param_wait(mine.ddp, 0));
    FORK_GIVES(cddp_ddp_params_wait(mine.ddp));
    FORK_GIVES(cddp_ddp_unshard(mine.ddp));
    FORK_GIVES(cddp_ddp_gather_state(mine.ddp, 0, data, CDDP_F32, data));
    FORK_GIVES(cddp_ddp_get_stats(mine.ddp, &stats));
    FORK_GIVES(cddp_ddp_get_bucket_stats(mine.ddp, 0, &times));
    CHECK(call_recovery() == 0);
    cddp_group_abort(mine.group, "the child of a rank says so");
    CHECK(cddp_ddp_grad(mine.ddp, 0) == NULL);
    CHECK(cddp_group_rank(mine.group) >= 0); /* what it is may be asked */
    return 0;
}

enum child { CALLS_AND_LEAVES, DESTROYS, DESTROYS_AT_EXIT, EXITS, DIES, CHILDREN };

static void be_child(struct misuse_model *model, enum child how)
{
    switch (how) {
    case CALLS_AND_LEAVES:
        _exit(call_all(model));
    case DESTROYS:
        destroy_all();
        destroy_all();
        _exit(cddp_barrier(mine.group, NULL) != CDDP_ERR_CLOSED);
    case DESTROYS_AT_EXIT:
        (void)atexit(destroy_all);
        exit(call_all(model));
    case EXITS:
        exit(0);
    default:
        raise(SIGKILL);
    }
}

static int fork_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    enum child how = (enum child)misuse->which;
    cddp_batch batch = CDDP_BATCH_INIT;
    struct misuse_model model;
    int status = 0;
    pid_t child;

    CHECK(misuse_join(misuse, rank, size, &mine.group) == CDDP_OK);
    CHECK(misuse_watch(&model, mine.group, NULL) == CDDP_OK);
    CHECK(open_loader() == CDDP_OK);
    mine.ddp = model.ddp;
    CHECK(keep_state() == CDDP_OK && begin_step(0) == CDDP_OK);
    CHECK(misuse_step(&model) == 0);
    CHECK(cddp_barrier(mine.group, &mine.work) == CDDP_OK);
    if (rank == 0) {
        fflush(NULL);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            be_child(&model, how);
            _exit(9);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(how == DIES ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(cddp_work_wait(mine.work) == CDDP_OK);
    CHECK(misuse_reduce(mine.group) == 0);
    CHECK(misuse_step(&model) == 0);
    CHECK(misuse_reduce(mine.group) == 0);
    CHECK(cddp_loader_begin(mine.loader, 0, 0) == CDDP_OK);
    CHECK(cddp_loader_next(mine.loader, &batch) == CDDP_OK && batch.count == 6);
    CHECK(begin_step(1) == CDDP_OK);
    destroy_all();
    return 0;
}

static void a_child_of_a_rank_disturbs_nothing(void **state)
{
    for (int size = 1; size <= 3; size++) {
        for (int how = 0; how < CHILDREN; how++) {
            assert_int_equal(misuse_run(*state, size, fork_rank, how, NULL), 0);
        }
    }
}

/* When a rank was killed, in memory that all share. */
static _Atomic int64_t *killed_ns;

enum { SOON_MS = SUPPORT_TIMEOUT_MS / 2 }; /* far below any deadline */

/* A child that lives on does not keep its parent's death from the other ranks. */
static int orphan_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    cddp_group *group;
    cddp_status status;
    int64_t ms;
    char go;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_reduce(group) == 0);
    if (rank == misuse->which) {
        fflush(NULL);
        if (fork() == 0) {
            close(misuse->signal[1]);
            _exit(read(misuse->signal[0], &go, 1) != 0); /* until the test ends */
        }
        *killed_ns = cddpi_now_ns();
        raise(SIGKILL);
    }
    status = cddp_barrier(group, NULL);
    ms = (cddpi_now_ns() - *killed_ns) / 1000000;
    CHECK(misuse_gives(status, CDDP_ERR_PEER, misuse->which == 0 ? "rank 0" : "rank 2"));
    if (ms >= SOON_MS) {
        fprintf(stderr, "rank %d heard of it after %d ms\n", rank, (int)ms);
        return 1;
    }
    cddp_group_destroy(group);
    return 0;
}

static void a_rank_that_dies_is_missed_though_its_child_lives(void **state)
{
    int statuses[3] = {0};

    killed_ns = mmap(NULL, sizeof *killed_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    assert_true(killed_ns != MAP_FAILED);
    for (int dies = 0; dies < 3; dies += 2) {
        (void)misuse_run(*state, 3, orphan_rank, dies, statuses);
        for (int rank = 0; rank < 3; rank++) {
            assert_true(rank == dies ? WIFSIGNALED(statuses[rank]) : statuses[rank] == 0);
        }
    }
    munmap((void *)killed_ns, sizeof *killed_ns);
}

/* 0 if each descriptor that was not there @p before is closed when another program runs. */
static int closes_on_exec(const bool *before, int count)
{
    char path[64];
    char target[256];

    for (int fd = 0; fd < count; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags >= 0 && !before[fd] && (flags & FD_CLOEXEC) == 0) {
            ssize_t bytes;

            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            bytes = readlink(path, target, sizeof target - 1);
            fprintf(stderr, "descriptor %d stays open: %.*s\n", fd, (int)(bytes < 0 ? 0 : bytes),
                    target);
            return 1;
        }
    }
    return 0;
}

static int exec_rank(int rank, int size, void *argument)
{
    bool before[1024];
    cddp_group *group;

    for (int fd = 0; fd < 1024; fd++) {
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    CHECK(misuse_reduce(group) == 0);
    CHECK(closes_on_exec(before, 1024) == 0);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void another_program_gets_nothing_of_a_group(void **state)
{
    assert_int_equal(misuse_run(*state, 3, exec_rank, 0, NULL), 0);
}

static cddp_status count_device(void *count, int device)
{
    atomic_fetch_add((atomic_int *)count, device + 1);
    return CDDP_OK;
}

/* Whether the child can do with them what its parent can. */
static int use_all(cddp_sampler *sampler, const cddp_safetensors *file, cddp_devices *devices)
{
    const cddp_tensor *tensor = cddp_safetensors_find(file, "a");
    atomic_int count = 0;

    CHECK(cddp_sampler_count(sampler) == 100 && cddp_sampler_set_epoch(sampler, 1) == CDDP_OK);
    CHECK(tensor != NULL && ((const float *)tensor->data)[1] == 2);
    CHECK(cddp_devices_count(devices) == 2);
    CHECK(cddp_parallel_apply(devices, 2, count_device, &count) == CDDP_OK && count == 3);
    return 0;
}

/* Handles that lie in memory only are as good in a child. */
static void samplers_files_and_devices_work_in_a_child(void **state)
{
    const struct misuse *misuse = *state;
    const float numbers[2] = {1, 2};
    const cddp_tensor tensor = {.name = "a", .dims = 1, .shape = {2}, .data = numbers};
    char path[4200];
    cddp_sampler *sampler;
    cddp_safetensors *file;
    cddp_devices *devices;
    int status = 0;
    pid_t child;

    snprintf(path, sizeof path, "%s/file", misuse->folder);
    assert_int_equal(cddp_safetensors_write(path, &tensor, 1, NULL), CDDP_OK);
    assert_int_equal(cddp_safetensors_open(path, &file), CDDP_OK);
    assert_int_equal(cddp_sampler_create(CDDP_ORDER_RANDOM, 100, 7, &sampler), CDDP_OK);
    assert_int_equal(cddp_devices_create((const char *const[]){"cpu", "cpu"}, 2, &devices),
                     CDDP_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(use_all(sampler, file, devices));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    cddp_sampler_destroy(sampler);
    cddp_safetensors_close(file);
    cddp_devices_destroy(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(a_child_of_a_rank_disturbs_nothing),
        MISUSE_TEST(a_rank_that_dies_is_missed_though_its_child_lives),
        MISUSE_TEST(another_program_gets_nothing_of_a_group),
        MISUSE_TEST(samplers_files_and_devices_work_in_a_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
