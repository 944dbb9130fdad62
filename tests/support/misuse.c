/* misuse.c - shared by the tests of wrong use. */
#include "support/misuse.h"
#include "support/failure.h"

#include "device/device.h"
#include "group/on_device.h"
#include "support/misuse_mpirun.h"

int misuse_set_up(void **state)
{
    struct misuse *misuse = calloc(1, sizeof *misuse);
    char *folder = support_mkdtemp();

    if (misuse == NULL || folder == NULL || pipe(misuse->signal) != 0) {
        return 1;
    }
    snprintf(misuse->folder, sizeof misuse->folder, "%s", folder);
    misuse->timeout_ms = SUPPORT_TIMEOUT_MS;
    free(folder);
    *state = misuse;
    return 0;
}

int misuse_tear_down(void **state)
{
    struct misuse *misuse = *state;

    close(misuse->signal[0]);
    close(misuse->signal[1]);
    support_rmdir(strdup(misuse->folder));
    free(misuse);
    return 0;
}

/* Whether to run this case under mpirun: a job for each variant and size takes long, so "some"
 * selects the first size of the first variants. */
static bool mpirun_has(rank_fn body, int which)
{
    enum { FIRST_VARIANTS = 4 };
    static rank_fn last_body;
    static int last_which;
    bool is_new = body != last_body || which != last_which;

    last_body = body;
    last_which = which;
    return strcmp(getenv("TEST_MPIRUN"), "some") != 0 || (is_new && which < FIRST_VARIANTS);
}

int misuse_run(struct misuse *misuse, int size, rank_fn body, int which, int *statuses)
{
    static int runs;

    snprintf(misuse->job, sizeof misuse->job, "misuse-%d-%d", (int)getpid(), runs++);
    misuse->which = which;
    if (size > 1 && getenv("TEST_MPIRUN") != NULL) {
        return mpirun_has(body, which) ? misuse_mpirun(misuse, size, body, statuses) : 0;
    }
    return run_ranks_status(size, body, misuse, statuses);
}

/* Choose the rank's host from TEST_HOSTS, a list such as "0,0,1". */
static void choose_host(int rank)
{
    const char *hosts = getenv("TEST_HOSTS");
    size_t count;
    char id[32];

    if (hosts == NULL) {
        return;
    }
    count = (strlen(hosts) + 1) / 2;
    snprintf(id, sizeof id, "test host %c", hosts[2 * ((size_t)rank % count)]);
    setenv("CDDP_HOST_ID", id, 1);
}

cddp_status misuse_join(const struct misuse *misuse, int rank, int size, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char url[4200];

    snprintf(url, sizeof url, "file://%s/%s", misuse->folder, misuse->job);
    choose_host(rank);
    options.rendezvous = url;
    options.token = SUPPORT_TOKEN;
    options.job = misuse->job;
    options.rank = rank;
    options.world_size = size;
    options.timeout_ms = misuse->timeout_ms;
    return cddp_group_create(&options, out);
}

void *misuse_memory(cddp_group *group, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);
    void *memory = NULL;

    if (device->ops->alloc(device, bytes, "a test", &memory) != CDDP_OK) {
        fprintf(stderr, "no memory for a test: %s\n", cddp_last_error());
        abort();
    }
    return memory;
}

static void copy(cddp_group *group, void *to, const void *from, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    if (device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes) != CDDP_OK ||
        device->ops->finish(device, SUPPORT_TIMEOUT_MS) != CDDP_OK) {
        fprintf(stderr, "copy for a test: %s\n", cddp_last_error());
        abort();
    }
}

void misuse_put(cddp_group *group, void *to, const void *from, size_t bytes)
{
    copy(group, to, from, bytes);
}

void misuse_get(cddp_group *group, void *to, const void *from, size_t bytes)
{
    copy(group, to, from, bytes);
}

bool misuse_gives(cddp_status status, cddp_status expected, const char *text)
{
    if (failure_is(status, expected, ANY_RANK, ANY_RANK, NULL) && last_error_has(text)) {
        return true;
    }
    fprintf(stderr, "status %d where it should be %d, or \"%s\" is not in: %s\n", (int)status,
            (int)expected, text, cddp_last_error());
    return false;
}

cddp_status misuse_watch(struct misuse_model *out, cddp_group *group,
                         const cddp_ddp_options *options)
{
    static const char *const names[MISUSE_PARAMS] = {"weight", "bias"};
    size_t bytes = MISUSE_COUNT * sizeof(float);

    memset(out, 0, sizeof *out);
    out->group = group;
    for (int p = 0; p < MISUSE_PARAMS; p++) {
        out->params[p].name = names[p];
        out->params[p].dims = 1;
        out->params[p].shape[0] = MISUSE_COUNT;
        out->params[p].data = misuse_memory(group, bytes);
        out->params[p].grad = misuse_memory(group, bytes);
    }
    return cddp_ddp_create(group, out->params, MISUSE_PARAMS, NULL, 0, options, &out->ddp);
}

int misuse_begin(struct misuse_model *model)
{
    cddp_step step = CDDP_STEP_INIT;

    step.kind = CDDP_STEP_BY_RANKS;
    return (int)cddp_ddp_begin(model->ddp, &step);
}

int misuse_step(struct misuse_model *model)
{
    int rank = cddp_group_rank(model->group);
    int size = cddp_group_world_size(model->group);
    float numbers[MISUSE_COUNT];

    CHECK(misuse_begin(model) == CDDP_OK);
    for (size_t p = MISUSE_PARAMS; p-- > 0;) {
        for (int i = 0; i < MISUSE_COUNT; i++) {
            numbers[i] = (float)(rank + (int)p + i);
        }
        misuse_put(model->group, model->params[p].grad, numbers, sizeof numbers);
        CHECK(cddp_ddp_grad_ready(model->ddp, p) == CDDP_OK);
    }
    CHECK(cddp_ddp_wait(model->ddp) == CDDP_OK);
    for (size_t p = 0; p < MISUSE_PARAMS; p++) {
        misuse_get(model->group, numbers, model->params[p].grad, sizeof numbers);
        for (int i = 0; i < MISUSE_COUNT; i++) {
            CHECK(numbers[i] == (float)((int)p + i) + (float)(size - 1) / 2);
        }
    }
    return 0;
}

int misuse_reduce(cddp_group *group)
{
    int size = cddp_group_world_size(group);
    float number = (float)(cddp_group_rank(group) + 1);
    float *memory = misuse_memory(group, sizeof number);

    misuse_put(group, memory, &number, sizeof number);
    CHECK(cddp_all_reduce(group, memory, memory, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    misuse_get(group, &number, memory, sizeof number);
    CHECK(number == (float)(size * (size + 1)) / 2);
    return 0;
}
