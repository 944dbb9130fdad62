/* test_misuse_calls.c - wrong calls: too often, never, with wrong numbers, or different from the
 * other ranks' calls. Each returns a status with a message, and correct calls still work. */
#include "support/failure.h"
#include "support/misuse.h"

/* The step ends with this failure, here or in a call before: every later call knows of it. */
static int step_ends(struct misuse_model *model, cddp_status status, cddp_status expected,
                     const char *text)
{
    if (status == CDDP_OK) {
        status = cddp_ddp_wait(model->ddp);
    }
    CHECK(misuse_gives(status, expected, text));
    CHECK(cddp_ddp_wait(model->ddp) == CDDP_ERR_BROKEN);
    CHECK(cddp_ddp_begin(model->ddp, NULL) == CDDP_ERR_BROKEN);
    CHECK(cddp_ddp_grad_ready(model->ddp, 0) == CDDP_ERR_BROKEN);
    return 0;
}

/* Gradients become ready, until one cannot. @p but is left out; -1: none. */
static cddp_status make_ready(struct misuse_model *model, int but)
{
    cddp_status status = CDDP_OK;

    for (int p = MISUSE_PARAMS; p-- > 0 && status == CDDP_OK;) {
        status = p != but ? cddp_ddp_grad_ready(model->ddp, (size_t)p) : CDDP_OK;
    }
    return status;
}

static int enter(struct misuse_model *model, const struct misuse *misuse, int rank, int size,
                 const cddp_ddp_options *options)
{
    cddp_group *group;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(model, group, options) == CDDP_OK);
    CHECK(misuse_step(model) == 0);
    return 0;
}

static int leave(struct misuse_model *model)
{
    cddp_ddp_destroy(model->ddp);
    cddp_group_destroy(model->group);
    return 0;
}

enum step { TWICE, NEVER, NO_SAMPLES, KIND_ON_ONE, SUM_ON_ONE, NUMBER_ON_ONE, MORE_ON_ONE, STEPS };

static int step_rank(int rank, int size, void *argument)
{
    static const struct {
        cddp_status status;
        const char *text;
    } expected[STEPS] = {{CDDP_ERR_STATE, "weight"},
                         {CDDP_ERR_INCOMPLETE, "weight"},
                         {CDDP_ERR_STATE, "has 0 samples on every rank"},
                         {CDDP_ERR_MISMATCH, "rank"},
                         {CDDP_ERR_MISMATCH, "rank"},
                         {CDDP_ERR_MISMATCH, "step 4, rank"},
                         {CDDP_ERR_MISMATCH, "step 4"}};
    const struct misuse *misuse = argument;
    bool odd = rank == size - 1;
    cddp_step step = CDDP_STEP_INIT;
    struct misuse_model model;
    cddp_status status;

    CHECK(enter(&model, misuse, rank, size, NULL) == 0);
    step.number = misuse->which == NUMBER_ON_ONE && odd ? 5 : 4;
    step.kind = CDDP_STEP_BY_RANKS;
    if (misuse->which == NO_SAMPLES || (misuse->which == KIND_ON_ONE && odd)) {
        step.kind = CDDP_STEP_BY_SAMPLES;
    } else if (misuse->which == SUM_ON_ONE && odd) {
        step.kind = CDDP_STEP_SUM;
    }
    if (misuse->which == MORE_ON_ONE && odd) { /* its only one is the last of more */
        step.micro_batch = (uint64_t)size;
        step.micro_batches = (uint64_t)size + 1;
    }
    CHECK(cddp_ddp_begin(model.ddp, &step) == CDDP_OK);
    status = make_ready(&model, misuse->which == NEVER && odd ? 0 : -1);
    if (misuse->which == TWICE && odd && status == CDDP_OK) {
        CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_STATE, "weight"));
    }
    CHECK(step_ends(&model, status, expected[misuse->which].status, expected[misuse->which].text) ==
          0);
    return leave(&model);
}

static void a_wrong_step_is_said_on_every_rank(void **state)
{
    for (int which = 0; which < STEPS; which++) {
        for (int size = 2; size <= 3; size++) {
            assert_int_equal(misuse_run(*state, size, step_rank, which, NULL), 0);
        }
    }
}

/* What only this rank can know is refused at once, and disturbs nothing. */
static int local_rank(int rank, int size, void *argument)
{
    cddp_step step = CDDP_STEP_INIT;
    struct misuse_model model;
    cddp_bucket_stats times = CDDP_BUCKET_STATS_INIT;
    void *memory;
    float *data;
    size_t bytes;

    CHECK(enter(&model, argument, rank, size, NULL) == 0);
    data = misuse_memory(model.group, 64);
    CHECK(misuse_gives(cddp_ddp_begin(model.ddp, NULL), CDDP_ERR_ARGUMENT, ".samples = "));
    step.kind = (cddp_step_kind)4;
    CHECK(misuse_gives(cddp_ddp_begin(model.ddp, &step), CDDP_ERR_ARGUMENT, "no kind 4"));
    step = (cddp_step){.struct_size = sizeof step, .reserved = 1};
    CHECK(misuse_gives(cddp_ddp_begin(model.ddp, &step), CDDP_ERR_UNAVAILABLE, "reserved"));
    CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_STATE, ".samples = "));
    CHECK(misuse_gives(cddp_ddp_wait(model.ddp), CDDP_ERR_STATE, ".samples = "));
    CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 2), CDDP_ERR_ARGUMENT, "only 2"));
    CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, SIZE_MAX), CDDP_ERR_ARGUMENT, "only 2"));
    CHECK(cddp_ddp_grad(model.ddp, 2) == NULL);
    CHECK(cddp_ddp_param(model.ddp, 2) == NULL);
    CHECK(cddp_ddp_param_name(model.ddp, 2) == NULL);
    CHECK(cddp_ddp_params_start(model.ddp) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_param_wait(model.ddp, 0) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_get_bucket_stats(model.ddp, 1000, &times) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_ddp_create(model.group, model.params, 2, NULL, 0, NULL, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_group_alloc(model.group, SIZE_MAX, 0, &memory) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_group_alloc(model.group, 8, 0, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_group_alloc(model.group, 8, 6, &memory) == CDDP_ERR_UNAVAILABLE);
    CHECK(cddp_all_reduce(model.group, data, data, 1, (cddp_type)99, CDDP_OP_SUM, NULL) ==
          CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_reduce(model.group, data, data, 1, CDDP_F32, (cddp_op)99, NULL) ==
          CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_reduce_weighted(model.group, data, data, 1, CDDP_F32, -1, NULL) ==
          CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_reduce_weighted(model.group, data, data, 1, CDDP_I32, 1, NULL) ==
          CDDP_ERR_ARGUMENT);
    CHECK(cddp_broadcast(model.group, data, 1, CDDP_F32, size, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_broadcast(model.group, data, 1, CDDP_F32, -1, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_send(model.group, data, 1, CDDP_F32, rank, NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_reduce(model.group, NULL, data, 1, CDDP_F32, CDDP_OP_SUM, NULL) ==
          CDDP_ERR_ARGUMENT);
    CHECK(cddp_all_reduce(model.group, data, NULL, 1, CDDP_F32, CDDP_OP_SUM, NULL) ==
          CDDP_ERR_ARGUMENT);
    for (bytes = SIZE_MAX; bytes > SIZE_MAX / 8; bytes /= 2) { /* in bytes more than there are */
        CHECK(misuse_gives(
            cddp_all_reduce(model.group, data, data, bytes, CDDP_F64, CDDP_OP_SUM, NULL),
            CDDP_ERR_ARGUMENT, "too many"));
    }
    CHECK(misuse_step(&model) == 0);
    CHECK(misuse_reduce(model.group) == 0);
    return leave(&model);
}

static void what_one_rank_knows_is_refused_at_once(void **state)
{
    for (int size = 1; size <= 3; size++) {
        assert_int_equal(misuse_run(*state, size, local_rank, 0, NULL), 0);
    }
}

#define OVERLAPS(call) CHECK(misuse_gives((call), CDDP_ERR_ARGUMENT, "overlap"))

static int overlap_rank(int rank, int size, void *argument)
{
    cddp_group *group;
    float *data;
    float *own;
    float numbers[8] = {0};

    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    data = misuse_memory(group, 64 * sizeof *data);
    OVERLAPS(cddp_all_reduce(group, data, data + 1, 4, CDDP_F32, CDDP_OP_SUM, NULL));
    OVERLAPS(cddp_all_reduce(group, data + 3, data, 4, CDDP_F32, CDDP_OP_SUM, NULL));
    OVERLAPS(cddp_all_reduce_weighted(group, data, data + 1, 4, CDDP_F32, 1, NULL));
    OVERLAPS(cddp_all_to_all(group, data, data + 1, 4, CDDP_F32, NULL));
    if (size > 1) { /* not this rank's block */
        own = data + (rank == 0 ? 4 : 0);
        OVERLAPS(cddp_all_gather(group, own, data, 4, CDDP_F32, NULL));
        OVERLAPS(cddp_reduce_scatter(group, data, own, 4, CDDP_F32, CDDP_OP_SUM, NULL));
    }
    for (int i = 0; i < 8; i++) {
        numbers[i] = (float)(rank + i);
    }
    misuse_put(group, data + 4 * rank, numbers, 4 * sizeof *numbers);
    CHECK(cddp_all_gather(group, data + 4 * rank, data, 4, CDDP_F32, NULL) == CDDP_OK);
    misuse_get(group, numbers, data + 4 * (size - 1), 4 * sizeof *numbers);
    CHECK(numbers[3] == (float)(size - 1 + 3));
    CHECK(cddp_all_reduce(group, data, data + 32, 4, CDDP_F32, CDDP_OP_MAX, NULL) == CDDP_OK);
    misuse_get(group, numbers, data + 32, 4 * sizeof *numbers);
    CHECK(numbers[3] == 3);
    CHECK(misuse_reduce(group) == 0);
    cddp_group_destroy(group);
    return 0;
}

static void buffers_that_overlap_are_refused(void **state)
{
    for (int size = 1; size <= 3; size++) {
        assert_int_equal(misuse_run(*state, size, overlap_rank, 0, NULL), 0);
    }
}

/* Buffers that begin at odd addresses, and none at all. */
static int odd_rank(int rank, int size, void *argument)
{
    const size_t none[3] = {0};
    cddp_group *group;
    unsigned char numbers[100];
    unsigned char *data;

    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    data = misuse_memory(group, 1024);
    CHECK(cddp_all_reduce(group, NULL, NULL, 0, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(cddp_all_gather(group, NULL, NULL, 0, CDDP_F32, NULL) == CDDP_OK);
    CHECK(cddp_all_gatherv(group, NULL, NULL, none, CDDP_F32, NULL) == CDDP_OK);
    CHECK(cddp_all_reduce_weighted(group, NULL, NULL, 0, CDDP_F32, 1, NULL) == CDDP_OK);
    for (int at = 0; at < 8; at++) { /* bytes lie anywhere */
        memset(numbers, rank + 1, sizeof numbers);
        misuse_put(group, data + at, numbers, sizeof numbers);
        CHECK(cddp_all_reduce(group, data + at, data + at, sizeof numbers, CDDP_U8, CDDP_OP_MAX,
                              NULL) == CDDP_OK);
        misuse_get(group, numbers, data + at, sizeof numbers);
        for (size_t i = 0; i < sizeof numbers; i++) {
            CHECK(numbers[i] == size);
        }
        CHECK(cddp_broadcast(group, data + at, 13, CDDP_U8, size - 1, NULL) == CDDP_OK);
    }
    CHECK(misuse_reduce(group) == 0);
    cddp_group_destroy(group);
    return 0;
}

static void no_elements_and_odd_addresses_are_right(void **state)
{
    for (int size = 1; size <= 3; size++) {
        assert_int_equal(misuse_run(*state, size, odd_rank, 0, NULL), 0);
    }
}

/* A number at an address that is no multiple of its size. */
static int misaligned_rank(int rank, int size, void *argument)
{
    const cddp_type type[] = {CDDP_F16, CDDP_F32, CDDP_I64};
    cddp_param param = {.name = "w", .type = CDDP_F32, .dims = 1, .shape = {8}};
    cddp_group *group;
    cddp_ddp *ddp;
    unsigned char *data;

    CHECK(misuse_join(argument, rank, size, &group) == CDDP_OK);
    data = misuse_memory(group, 1024);
    for (size_t t = 0; t < sizeof type / sizeof type[0]; t++) {
        CHECK(misuse_gives(cddp_all_reduce(group, data, data + 513, 20, type[t], CDDP_OP_SUM, NULL),
                           CDDP_ERR_ARGUMENT, "out lies at"));
        CHECK(misuse_gives(
            cddp_all_reduce(group, data + 1, data + 512, 20, type[t], CDDP_OP_SUM, NULL),
            CDDP_ERR_ARGUMENT, "not a multiple"));
        CHECK(misuse_gives(cddp_broadcast(group, data + 1, 20, type[t], 0, NULL), CDDP_ERR_ARGUMENT,
                           "not a multiple"));
    }
    CHECK(cddp_broadcast(group, data + 1, 20, CDDP_U8, 0, NULL) == CDDP_OK);
    param.data = data;
    param.grad = data + 513;
    CHECK(misuse_gives(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp), CDDP_ERR_ARGUMENT,
                       "the gradient of parameter 0 (w) lies at"));
    param.data = data + 1;
    CHECK(misuse_gives(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp), CDDP_ERR_ARGUMENT,
                       "the data of parameter 0 (w) lies at"));
    CHECK(misuse_reduce(group) == 0);
    cddp_group_destroy(group);
    return 0;
}

static void misaligned_numbers_are_refused(void **state)
{
    for (int size = 1; size <= 3; size++) {
        assert_int_equal(misuse_run(*state, size, misaligned_rank, 0, NULL), 0);
    }
}

enum call { OTHER_CALL, OTHER_COUNT, OTHER_TYPE, OTHER_OP, OTHER_ROOT, CALLS };

static cddp_status wrong_call(cddp_group *group, enum call which, float *data)
{
    switch (which) {
    case OTHER_CALL:
        return cddp_barrier(group, NULL);
    case OTHER_COUNT:
        return cddp_broadcast(group, data, 3, CDDP_F32, 0, NULL);
    case OTHER_TYPE:
        return cddp_broadcast(group, data, 4, CDDP_I32, 0, NULL);
    case OTHER_OP:
        return cddp_all_reduce(group, data, data, 4, CDDP_F32, CDDP_OP_MAX, NULL);
    default:
        return cddp_broadcast(group, data, 4, CDDP_F32, 1, NULL);
    }
}

/* On a device the ranks compare beside the calls: the failure comes with one of the next. */
static cddp_status await_failure(cddp_group *group, cddp_status status)
{
    while (status == CDDP_OK) {
        status = cddp_barrier(group, NULL);
    }
    return status;
}

static int disagree_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    cddp_group *group;
    cddp_status status;
    float *data;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    data = misuse_memory(group, 64);
    CHECK(misuse_reduce(group) == 0);
    status = rank == size - 1 ? wrong_call(group, (enum call)misuse->which, data)
                              : cddp_broadcast(group, data, 4, CDDP_F32, 0, NULL);
    status = await_failure(group, status);
    CHECK(misuse_gives(status, CDDP_ERR_MISMATCH, "rank"));
    CHECK(last_error_has("broadcast f32 x 4 from 0"));
    CHECK(cddp_all_reduce(group, data, data, 1, CDDP_F32, CDDP_OP_SUM, NULL) == CDDP_ERR_BROKEN);
    CHECK(cddp_barrier(group, NULL) == CDDP_ERR_BROKEN);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_that_disagree_are_told_who_called_what(void **state)
{
    for (int which = 0; which < CALLS; which++) {
        if (which != OTHER_CALL || getenv("CDDP_DEVICE") == NULL) {
            assert_int_equal(misuse_run(*state, 3, disagree_rank, which, NULL), 0);
        }
    }
}

/* One collective fewer, then the next step: the ranks' calls no longer fit. */
static int fewer_rank(int rank, int size, void *argument)
{
    struct misuse_model model;
    cddp_status status = CDDP_OK;
    float *data;

    CHECK(enter(&model, argument, rank, size, NULL) == 0);
    data = misuse_memory(model.group, 64);
    if (rank != 0) {
        status = cddp_all_reduce(model.group, data, data, 4, CDDP_F32, CDDP_OP_SUM, NULL);
    }
    if (status == CDDP_OK) {
        CHECK(misuse_begin(&model) == CDDP_OK);
        status = make_ready(&model, -1);
    }
    if (status == CDDP_OK) {
        status = cddp_ddp_wait(model.ddp);
    }
    status = await_failure(model.group, status);
    CHECK(misuse_gives(status, CDDP_ERR_MISMATCH, "all_reduce sum f32 x 4"));
    return leave(&model);
}

static void a_collective_fewer_is_told(void **state)
{
    assert_int_equal(misuse_run(*state, 2, fewer_rank, 0, NULL), 0);
    assert_int_equal(misuse_run(*state, 3, fewer_rank, 0, NULL), 0);
}

enum model { OTHER_SHAPE, OTHER_NAME, FEWER, OTHER_OPTIONS, BAD_TENSOR, HUGE_TENSOR, MODELS };

static int model_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    cddp_param params[MISUSE_PARAMS];
    bool odd = rank == size - 1;
    size_t count = MISUSE_PARAMS;
    struct misuse_model model;
    cddp_ddp *ddp = NULL;
    cddp_status status;

    CHECK(enter(&model, misuse, rank, size, NULL) == 0);
    memcpy(params, model.params, sizeof params);
    if (odd) {
        params[1].shape[0] = misuse->which == OTHER_SHAPE ? 25 : MISUSE_COUNT;
        params[1].name = misuse->which == OTHER_NAME ? "scale" : "bias";
        count -= misuse->which == FEWER;
        options.bucket_bytes = misuse->which == OTHER_OPTIONS ? 1000 : 0;
        params[1].dims = misuse->which == BAD_TENSOR ? -1 : 1;
        params[1].shape[0] = misuse->which == HUGE_TENSOR ? INT64_MAX : params[1].shape[0];
    }
    status = cddp_ddp_create(model.group, params, count, NULL, 0, &options, &ddp);
    CHECK(misuse_gives(status, misuse->which >= BAD_TENSOR ? CDDP_ERR_ARGUMENT : CDDP_ERR_MISMATCH,
                       "rank"));
    CHECK(ddp == NULL);
    CHECK(misuse_step(&model) == 0); /* the group and the other handle are unharmed */
    return leave(&model);
}

static void other_models_are_told_apart_and_harm_nothing(void **state)
{
    for (int which = 0; which < MODELS; which++) {
        assert_int_equal(misuse_run(*state, 3, model_rank, which, NULL), 0);
    }
}

/* Waits that are left out: destroyed in the middle of a step, or begun again. */
static int unfinished_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    struct misuse_model model;

    CHECK(enter(&model, misuse, rank, size, NULL) == 0);
    CHECK(misuse_begin(&model) == CDDP_OK);
    if (make_ready(&model, -1) == CDDP_OK) { /* else the other rank has gone already */
        CHECK(misuse_gives(cddp_ddp_begin(model.ddp, NULL), CDDP_ERR_INCOMPLETE,
                           "wait was not called"));
        CHECK(misuse_gives(cddp_ddp_grad_ready(model.ddp, 0), CDDP_ERR_STATE, "weight"));
    }
    return leave(&model); /* ends */
}

static void a_step_without_its_wait_ends(void **state)
{
    assert_int_equal(misuse_run(*state, 2, unfinished_rank, 0, NULL), 0);
}

static void count_dropped(void *state, const cddp_log_record *record)
{
    *(int *)state += strstr(record->line, "nobody gets its error") != NULL;
}

/* Rank 0 destroys its handle while the other rank has not come to the step. */
static int destroying_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    struct misuse_model model;
    int dropped = 0;
    char end = 0;

    CHECK(enter(&model, misuse, rank, size, NULL) == 0);
    CHECK(cddp_barrier(model.group, NULL) == CDDP_OK);
    if (rank != 0) {
        CHECK(read(misuse->signal[0], &end, 1) == 1);
        return leave(&model);
    }
    CHECK(misuse_begin(&model) == CDDP_OK && make_ready(&model, -1) == CDDP_OK);
    cddp_log_set_sink(count_dropped, &dropped);
    cddp_ddp_destroy(model.ddp);
    model.ddp = NULL;
    cddp_log_set_sink(NULL, NULL);
    CHECK(write(misuse->signal[1], &end, 1) == 1);
    CHECK(dropped == 0);
    return leave(&model);
}

static void a_handle_that_is_destroyed_in_a_step_drops_no_error(void **state)
{
    assert_int_equal(misuse_run(*state, 2, destroying_rank, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(a_wrong_step_is_said_on_every_rank),
        MISUSE_TEST(what_one_rank_knows_is_refused_at_once),
        MISUSE_TEST(buffers_that_overlap_are_refused),
        MISUSE_TEST(no_elements_and_odd_addresses_are_right),
        MISUSE_TEST(misaligned_numbers_are_refused),
        MISUSE_TEST(ranks_that_disagree_are_told_who_called_what),
        MISUSE_TEST(a_collective_fewer_is_told),
        MISUSE_TEST(other_models_are_told_apart_and_harm_nothing),
        MISUSE_TEST(a_step_without_its_wait_ends),
        MISUSE_TEST(a_handle_that_is_destroyed_in_a_step_drops_no_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
