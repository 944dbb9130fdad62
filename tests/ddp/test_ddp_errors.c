/* test_ddp_errors.c - errors are reported on every rank, in the same step, by name, and nothing
 * hangs: models that differ, missing gradients, calls in the wrong order, ranks that die. */
#include "group/group.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

static const size_t elements[] = {10, 20, 30, 40};
enum { COUNT = 4 };

/* One way in which the last rank's model differs. */
struct difference {
    const char *name;
    void (*apply)(struct model *model);
    const char *expected; /* part of the text on every rank */
    cddp_status status;
};

static void swap_names(struct model *model)
{
    model->params[1].name = "p2";
    model->params[2].name = "p1";
}

static void change_shape(struct model *model)
{
    model->params[2].dims = 2;
    model->params[2].shape[0] = 5;
    model->params[2].shape[1] = 6;
}

static void change_type(struct model *model)
{
    model->params[3].type = CDDP_BF16;
}

static void freeze(struct model *model)
{
    model->params[0].flags = CDDP_PARAM_FROZEN;
}

static void ask_for_more(struct model *model)
{
    model->params[1].flags = CDDP_PARAM_FROZEN | 4;
}

static void use_reserved_word(struct model *model)
{
    model->params[2].reserved2[1] = 9;
}

static void forget(struct model *model)
{
    model->count = 3;
}

static void change_config(struct model *model)
{
    model->options.config = "seed = 2";
}

static void change_caps(struct model *model)
{
    model->options.bucket_bytes = 12345;
}

static void change_hook(struct model *model)
{
    model->options.hook = cddp_hook_bf16;
}

static void lose_data(struct model *model)
{
    model->params[3].dims = 9;
}

static void double_name(struct model *model)
{
    model->params[3].name = "p1";
}

static void lend_wrong_block(struct model *model)
{
    model->options.flat_grads = model->params[0].data;
}

static void order_frozen(struct model *model)
{
    static const size_t order[] = {3, 2, 7, 0};

    model->options.ready_order = order;
}

static const struct difference differences[] = {
    {"names", swap_names, "parameter 1: rank 0 has p1 f32 [20], rank %d has p2 f32 [20]",
     CDDP_ERR_MISMATCH},
    {"shape", change_shape, "parameter 2: rank 0 has p2 f32 [30], rank %d has p2 f32 [5, 6]",
     CDDP_ERR_MISMATCH},
    {"type", change_type, "parameter 3: rank 0 has p3 f32 [40], rank %d has p3 bf16 [40]",
     CDDP_ERR_MISMATCH},
    {"frozen", freeze, "parameter 0: rank 0 has p0 f32 [10], rank %d has p0 f32 [10] frozen",
     CDDP_ERR_MISMATCH},
    {"flag", ask_for_more, "rank %d: ddp: parameter 1 (p1): flags 0x4 ", CDDP_ERR_UNAVAILABLE},
    {"word", use_reserved_word, "rank %d: ddp: parameter 2 (p2): a reserved word is 0x9, which ",
     CDDP_ERR_UNAVAILABLE},
    {"count", forget, "parameters: rank 0 has 4, rank %d has 3", CDDP_ERR_MISMATCH},
    {"config", change_config, "config line 1: rank 0 has seed = 1, rank %d has seed = 2",
     CDDP_ERR_MISMATCH},
    {"caps", change_caps, "bucket_bytes: rank 0 has 0, rank %d has 12345", CDDP_ERR_MISMATCH},
    {"hook", change_hook, "hook: rank 0 has identity, rank %d has bf16", CDDP_ERR_MISMATCH},
    {"dimensions", lose_data, "rank %d: ddp: parameter 3 (p3) has 9 dimensions", CDDP_ERR_ARGUMENT},
    {"double", double_name, "rank %d: ddp: two parameters have the name p1", CDDP_ERR_ARGUMENT},
    {"block", lend_wrong_block, "rank %d: ddp: flat_grads: the gradient of parameter 0 (p0)",
     CDDP_ERR_ARGUMENT},
    {"order", order_frozen, "rank %d: ddp: ready_order: entry 2 is 7, which is no parameter",
     CDDP_ERR_ARGUMENT}};

static int differing_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct difference *difference = meeting->argument;
    struct trainer t;
    char expected[256];
    char text[4096];
    struct model other;

    CHECK(enter(&t, meeting, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.config = "seed = 1";
    other = t.model;
    if (rank == world_size - 1) {
        difference->apply(&other);
    }
    CHECK(cddp_ddp_create(t.group, other.params, other.count, NULL, 0, &other.options, &t.ddp) ==
          difference->status);
    CHECK(t.ddp == NULL);
    snprintf(text, sizeof text, "%s", cddp_last_error());
    CHECK(same_text_everywhere(t.group, text));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(expected, sizeof expected, difference->expected, world_size - 1);
#pragma GCC diagnostic pop
    if (strstr(text, expected) == NULL) {
        fprintf(stderr, "%s: %s\n", difference->name, text);
        return 1;
    }
    return train_again(&t, rank, world_size);
}

static void models_that_differ_give_the_same_difference_on_all_ranks(void **state)
{
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        assert_int_equal(meet(*state, i % 2 == 0 ? 2 : 3, differing_rank, &differences[i], NULL),
                         0);
    }
}

/* Ranks 0, 2 and 5 agree, 1 and 6 do, 3 and 4 have each their own. */
static int camps_rank(int rank, int world_size, void *argument)
{
    static const int64_t widths[] = {20, 21, 20, 22, 23, 20, 21};
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    free(t.model.params[1].data);
    t.model.params[1].data = calloc(32, 4);
    t.model.params[1].shape[0] = widths[rank];
    CHECK(failure_is(
        cddp_ddp_create(t.group, t.model.params, t.model.count, NULL, 0, &t.model.options, &t.ddp),
        CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has(
        "(ranks 0, 2, 5 against ranks 1, 6):\n  parameter 1: rank 0 has p1 f32 [20], rank 1 "
        "has p1 f32 [21]"));
    CHECK(last_error_has("against rank 3):\n  parameter 1: rank 0 has p1 f32 [20], rank 3 "
                         "has p1 f32 [22]"));
    CHECK(same_text_everywhere(t.group, cddp_last_error()));
    cddp_group_destroy(t.group);
    free_model(&t.model);
    return 0;
}

static void ranks_that_agree_with_each_other_are_named_together(void **state)
{
    assert_int_equal(meet(*state, 7, camps_rank, NULL, NULL), 0);
}

/* The last rank leaves out parameters 1 and 3 in its second step. */
static int missing_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    struct trainer t;
    char expected[256];
    char text[4096];

    CHECK(enter(&t, meeting, rank, world_size, *(const enum memory *)meeting->argument, COUNT,
                elements, NULL) == 0);
    t.model.options.first_bucket_bytes = 64;
    t.model.options.bucket_bytes = 64;
    CHECK(watch(&t) == 0);
    CHECK(full_backward(&t, rank, 0) == 0);
    CHECK(cddp_ddp_wait(t.ddp) == CDDP_OK);
    CHECK(begin_mean(t.ddp, 1) == 0);
    for (size_t p = COUNT; p-- > 0;) {
        if (rank < world_size - 1 || p % 2 == 0) {
            CHECK(cddp_ddp_grad_ready(t.ddp, p) == CDDP_OK);
        }
    }
    CHECK(cddp_ddp_wait(t.ddp) == CDDP_ERR_INCOMPLETE);
    snprintf(text, sizeof text, "%s", cddp_last_error());
    snprintf(expected, sizeof expected,
             "rank %d: 2 of 4 parameters got no gradient in step 1: parameter 1 (p1), "
             "parameter 3 (p3)",
             world_size - 1);
    CHECK(strstr(text, expected) != NULL);
    CHECK(same_text_everywhere(t.group, text));
    CHECK(failure_is(cddp_ddp_grad_ready(t.ddp, 0), CDDP_ERR_BROKEN, -1, world_size - 1, ""));
    CHECK(cddp_ddp_begin(t.ddp, NULL) == CDDP_ERR_BROKEN);
    CHECK(cddp_ddp_wait(t.ddp) == CDDP_ERR_BROKEN);
    return train_again(&t, rank, world_size);
}

static void a_parameter_without_gradient_is_named_in_the_same_step_on_all_ranks(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        for (enum memory memory = OWNED; memory < MEMORIES; memory++) {
            assert_int_equal(meet(*state, world_sizes[i], missing_rank, &memory, NULL), 0);
        }
    }
}

static int out_of_turn_rank(int rank, int world_size, void *argument)
{
    struct trainer t;
    cddp_step how = CDDP_STEP_INIT;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.params[1].flags = CDDP_PARAM_FROZEN;
    CHECK(watch(&t) == 0);
    for (int i = 0; i < 2; i++) { /* nothing has begun; then not again */
        CHECK(failure_is(cddp_ddp_grad_ready(t.ddp, 3), CDDP_ERR_STATE, -1, -1, ""));
        CHECK(last_error_has("grad_ready: the backward was not begun"));
        CHECK(cddp_ddp_grads_ready(t.ddp, 2, 2) == CDDP_ERR_STATE);
        CHECK(failure_is(cddp_ddp_wait(t.ddp), CDDP_ERR_STATE, -1, -1, ""));
        CHECK(failure_is(cddp_ddp_begin(t.ddp, NULL), CDDP_ERR_ARGUMENT, -1, -1, ""));
        CHECK(last_error_has("write cddp_ddp_begin(ddp, &(cddp_step){"));
        if (i == 0) {
            CHECK(begin_mean(t.ddp, 6) == 0);
            CHECK(cddp_ddp_grads_ready(t.ddp, 2, 2) == CDDP_OK);
            CHECK(cddp_ddp_grad_ready(t.ddp, 0) == CDDP_OK && cddp_ddp_wait(t.ddp) == CDDP_OK);
        }
    }
    how.samples = 1;
    how.number = 7;
    CHECK(cddp_ddp_begin(t.ddp, &how) == CDDP_OK);
    CHECK(begin_mean(t.ddp, 8) == 0); /* replaces it */
    CHECK(failure_is(cddp_ddp_grad_ready(t.ddp, COUNT), CDDP_ERR_ARGUMENT, -1, -1, ""));
    CHECK(last_error_has("gradient 4 is ready, but there are only 4"));
    CHECK(failure_is(cddp_ddp_grad_ready(t.ddp, 1), CDDP_ERR_ARGUMENT, -1, -1, ""));
    CHECK(last_error_has("parameter 1 (p1) is frozen"));
    CHECK(cddp_ddp_grad_ready(t.ddp, 3) == CDDP_OK);
    CHECK(failure_is(cddp_ddp_begin(t.ddp, NULL), CDDP_ERR_INCOMPLETE, -1, -1, ""));
    CHECK(last_error_has("ddp: begin "));
    /* all of which has done no harm */
    CHECK(cddp_ddp_grad_ready(t.ddp, 2) == CDDP_OK);
    CHECK(cddp_ddp_grad_ready(t.ddp, 0) == CDDP_OK);
    CHECK(cddp_ddp_wait(t.ddp) == CDDP_OK);
    return leave(&t);
}

static void calls_out_of_turn_are_refused_and_harmless(void **state)
{
    assert_int_equal(meet(*state, 1, out_of_turn_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 3, out_of_turn_rank, NULL, NULL), 0);
}

/* Rank 0 reports a gradient again, when its bucket may be on its way: all ranks hear of it. */
static int twice_rank(int rank, int world_size, void *argument)
{
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    CHECK(watch(&t) == 0);
    CHECK(full_backward(&t, rank, 0) == 0);
    if (rank == 0) {
        CHECK(failure_is(cddp_ddp_grad_ready(t.ddp, 2), CDDP_ERR_STATE, -1, -1, ""));
        CHECK(cddp_ddp_grad_ready(t.ddp, 2) == CDDP_ERR_BROKEN);
    }
    CHECK(failure_is(cddp_ddp_wait(t.ddp), CDDP_ERR_STATE, 0, 0, ""));
    CHECK(last_error_has("rank 0: the gradient of parameter 2 (p2) was ready twice in step 0"));
    CHECK(same_text_everywhere(t.group, cddp_last_error()));
    return train_again(&t, rank, world_size);
}

static void a_gradient_that_is_ready_twice_fails_on_all_ranks(void **state)
{
    assert_int_equal(meet(*state, 1, twice_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 4, twice_rank, NULL, NULL), 0);
}

/* What the last rank begins differently from the others. */
enum other { OTHER_NUMBER, OTHER_COUNT, OTHER_KIND, SUM_KIND, OTHERS };

static int other_step_rank(int rank, int world_size, void *argument)
{
    static const char *const expected[OTHERS] = {
        "the step: rank 0 has begun step 4, rank 2 step 5",
        "step 4: rank 0 has begun it with 3 micro-batches, rank 2 with 4",
        "(have all ranks begun the same step, of the same kind?)",
        "(have all ranks begun the same step, of the same kind?)"};
    const struct meeting *meeting = argument;
    enum other other = *(const enum other *)meeting->argument;
    bool is_other = rank == world_size - 1;
    bool collides = other == OTHER_KIND || other == SUM_KIND;
    cddp_step how = CDDP_STEP_INIT;
    cddp_status status = CDDP_OK;
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    CHECK(watch(&t) == 0);
    how.number = is_other && other == OTHER_NUMBER ? 5 : 4;
    how.samples = 5;
    if (is_other && other == OTHER_COUNT) { /* of which this rank has the last one */
        how.micro_batch = 3;
        how.micro_batches = 4;
    }
    if (is_other && collides) {
        how.kind = other == SUM_KIND ? CDDP_STEP_SUM : CDDP_STEP_BY_RANKS;
    }
    CHECK(cddp_ddp_begin(t.ddp, &how) == CDDP_OK);
    for (size_t p = COUNT; p-- > 0 && status == CDDP_OK;) {
        status = cddp_ddp_grad_ready(t.ddp, p);
    }
    status = status == CDDP_OK ? cddp_ddp_wait(t.ddp) : status;
    CHECK(failure_is(status, CDDP_ERR_MISMATCH, -1, -1, collides ? "all_reduce" : ""));
    CHECK(last_error_has(expected[other]));
    /* the group sees two collectives, and ends */
    CHECK(!collides || last_error_has("step 4, bucket 0 of 1 (p3 ... p0)"));
    if (collides) {
        return leave(&t);
    }
    CHECK(same_text_everywhere(t.group, cddp_last_error()));
    return train_again(&t, rank, world_size);
}

static void ranks_that_begin_different_steps_are_told(void **state)
{
    for (enum other other = 0; other < OTHERS; other++) {
        assert_int_equal(meet(*state, 3, other_step_rank, &other, NULL), 0);
    }
}

/* Rank 1 dies after its first gradient of the second step. */
static int dying_rank(int rank, int world_size, void *argument)
{
    struct trainer t;
    cddp_status status = CDDP_OK;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.first_bucket_bytes = 1;
    t.model.options.bucket_bytes = 1;
    CHECK(watch(&t) == 0);
    CHECK(full_backward(&t, rank, 0) == 0);
    CHECK(cddp_ddp_wait(t.ddp) == CDDP_OK);
    CHECK(begin_mean(t.ddp, 1) == 0);
    for (size_t p = COUNT; p-- > 0 && status == CDDP_OK;) {
        status = cddp_ddp_grad_ready(t.ddp, p);
        if (rank == 1) {
            raise(SIGKILL);
        }
    }
    status = status == CDDP_OK ? cddp_ddp_wait(t.ddp) : status;
    CHECK(failure_is(status, CDDP_ERR_PEER, ANY_RANK, 1, "all_reduce"));
    CHECK(last_error_has("bucket"));
    CHECK(failure_is(cddp_ddp_wait(t.ddp), CDDP_ERR_BROKEN, ANY_RANK, 1, "all_reduce"));
    return leave(&t);
}

static void a_rank_killed_in_its_backward_ends_the_step_of_the_others(void **state)
{
    int statuses[RANKS_MOST];

    for (int world_size = 2; world_size <= 4; world_size++) {
        assert_int_equal(meet(*state, world_size, dying_rank, NULL, statuses), 1);
        assert_true(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    }
}

/* Rank 0 gives up in the middle: that must neither hang it nor leave the others waiting. */
static int leaving_rank(int rank, int world_size, void *argument)
{
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.first_bucket_bytes = 1;
    CHECK(watch(&t) == 0);
    CHECK(begin_mean(t.ddp, 0) == 0);
    if (rank == 0) {
        CHECK(cddp_ddp_grad_ready(t.ddp, COUNT - 1) == CDDP_OK);
        return leave(&t);
    }
    support_sleep_ms(300);
    for (size_t p = COUNT; p-- > 0;) {
        if (cddp_ddp_grad_ready(t.ddp, p) != CDDP_OK) {
            break;
        }
    }
    CHECK(cddp_ddp_wait(t.ddp) != CDDP_OK && cddpi_error_culprit() == 0);
    return leave(&t);
}

static void destroying_in_the_middle_of_a_backward_does_not_wait(void **state)
{
    assert_int_equal(meet(*state, 3, leaving_rank, NULL, NULL), 0);
}

static void null_and_senseless_arguments_are_refused(void **state)
{
    cddp_ddp *ddp = NULL;
    struct model model;
    cddp_group *group;

    (void)state;
    make_model(&model, 0, OWNED, COUNT, elements, NULL);
    assert_int_equal(cddp_group_create(NULL, &group), CDDP_OK);
    assert_true(failure_is(cddp_ddp_create(group, NULL, COUNT, NULL, 0, NULL, &ddp),
                           CDDP_ERR_ARGUMENT, 0, 0, ""));
    assert_true(last_error_has("ddp: params is NULL"));
    assert_true(failure_is(cddp_ddp_create(group, model.params, 0, NULL, 0, NULL, &ddp),
                           CDDP_ERR_ARGUMENT, 0, 0, ""));
    assert_true(last_error_has("ddp: there are no parameters"));
    assert_true(failure_is(cddp_ddp_create(group, model.params, COUNT, NULL, 1, NULL, &ddp),
                           CDDP_ERR_ARGUMENT, 0, 0, ""));
    assert_true(last_error_has("ddp: buffers is NULL"));
    assert_null(ddp);
    cddp_group_destroy(group);
    assert_int_equal(cddp_ddp_create(NULL, model.params, COUNT, NULL, 0, NULL, &ddp),
                     CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_ddp_begin(NULL, NULL), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_ddp_grad_ready(NULL, 0), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_ddp_wait(NULL), CDDP_ERR_ARGUMENT);
    assert_null(cddp_ddp_grad(NULL, 0));
    cddp_ddp_destroy(NULL);
    free_model(&model);
}

/* A step whose last bucket is under way when the group has ended; rank 1 did something else. */
static int ended_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    struct trainer trainer;
    char ready[sizeof meeting->folder + 8];
    float other = 0;

    snprintf(ready, sizeof ready, "%s/ready", meeting->folder);
    setenv("CDDP_COMM_THREAD", "1", 1);
    CHECK(enter(&trainer, meeting, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    if (rank == 1) {
        while (access(ready, F_OK) != 0) {
            support_sleep_ms(1);
        }
        CHECK(cddp_all_reduce(trainer.group, &other, &other, 1, CDDP_F32, CDDP_OP_SUM, NULL) ==
              CDDP_ERR_MISMATCH);
        return leave(&trainer);
    }
    CHECK(full_backward(&trainer, rank, 0) == 0);
    support_write_file(ready, "", 0);
    /* the comm thread says so first, and ends the works then */
    while (!atomic_load(&trainer.group->broken)) {
        support_sleep_ms(1);
    }
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_MISMATCH); /* nothing else has told it */
    CHECK(last_error_has("rank 1: all_reduce sum f32 x 1"));
    CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_ERR_BROKEN);
    return leave(&trainer);
}

static void a_step_ends_with_what_ended_its_group(void **state)
{
    assert_int_equal(meet(*state, 2, ended_rank, NULL, NULL), 0);
}

/* One rank ends its steps without any other, but not in a group that is no more. */
static int aborted_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    struct trainer trainer;

    CHECK(enter(&trainer, meeting, rank, world_size, SCATTERED, COUNT, elements, NULL) == 0);
    CHECK(watch(&trainer) == 0);
    CHECK(full_backward(&trainer, rank, 0) == 0 && cddp_ddp_wait(trainer.ddp) == CDDP_OK);
    cddp_group_abort(trainer.group, "the disk is full");
    CHECK(full_backward(&trainer, rank, 1) == 0);
    CHECK(cddp_ddp_wait(trainer.ddp) != CDDP_OK);
    CHECK(last_error_has("the disk is full"));
    return leave(&trainer);
}

static void a_group_of_one_that_was_aborted_ends_no_step(void **state)
{
    assert_int_equal(meet(*state, 1, aborted_rank, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(models_that_differ_give_the_same_difference_on_all_ranks),
        RANKS_TEST(ranks_that_agree_with_each_other_are_named_together),
        RANKS_TEST(a_parameter_without_gradient_is_named_in_the_same_step_on_all_ranks),
        RANKS_TEST(calls_out_of_turn_are_refused_and_harmless),
        RANKS_TEST(a_gradient_that_is_ready_twice_fails_on_all_ranks),
        RANKS_TEST(ranks_that_begin_different_steps_are_told),
        RANKS_TEST(a_step_ends_with_what_ended_its_group),
        RANKS_TEST(a_group_of_one_that_was_aborted_ends_no_step),
        RANKS_TEST(a_rank_killed_in_its_backward_ends_the_step_of_the_others),
        RANKS_TEST(destroying_in_the_middle_of_a_backward_does_not_wait),
        cmocka_unit_test(null_and_senseless_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
