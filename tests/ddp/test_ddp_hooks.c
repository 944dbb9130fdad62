/* test_ddp_hooks.c - communication hooks: 16-bit wire formats against a reference, a hook of two
 * collectives, a hook that fails. */
#include "support/ddp_ranks.h"
#include "support/failure.h"

static const size_t elements[] = {9, 1000, 33, 1, 4096};
static const cddp_type types[] = {CDDP_F32, CDDP_F32, CDDP_F64, CDDP_BF16, CDDP_F32};
enum { COUNT = sizeof elements / sizeof *elements };

static int run_step(const struct trainer *trainer, int rank, int step)
{
    CHECK(full_backward(trainer, rank, step) == 0);
    CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
    return 0;
}

/* f32 goes over the wire in 16 bits, is summed in f32 and rounded once; other types are exact. */
static int is_narrow_mean(cddp_ddp *ddp, const struct model *model, int world_size, int step,
                          cddp_type wire, size_t p)
{
    if (model->params[p].type != CDDP_F32) {
        return is_mean(ddp, model, world_size, step, p);
    }
    for (size_t i = 0; i < elements[p]; i++) {
        double values[RANKS_MOST];
        double expected;

        for (int rank = 0; rank < world_size; rank++) {
            float exact = (float)gradient(rank, step, p, i);

            values[rank] = wire == CDDP_BF16 ? round_bf16(exact) : round_f16(exact);
        }
        expected = tree_mean(values, world_size, wire);
        if (((float *)cddp_ddp_grad(ddp, p))[i] != (float)expected) {
            fprintf(stderr, "parameter %zu, element %zu: %.9g, not %.9g\n", p, i,
                    ((float *)cddp_ddp_grad(ddp, p))[i], expected);
            return 0;
        }
    }
    return 1;
}

static int narrow_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    cddp_type wire = *(const cddp_type *)meeting->argument;
    struct trainer t;

    CHECK(enter(&t, meeting, rank, world_size, MIXED, COUNT, elements, types) == 0);
    t.model.options.hook = wire == CDDP_BF16 ? cddp_hook_bf16 : cddp_hook_fp16;
    t.model.options.first_bucket_bytes = 256;
    t.model.options.bucket_bytes = 256;
    t.model.options.part_bytes = world_size % 2 == 0 ? 1000 : 0;
    CHECK(watch(&t) == 0);
    for (int step = 0; step < 3; step++) {
        CHECK(run_step(&t, rank, step) == 0);
        for (size_t p = 0; p < COUNT; p++) {
            CHECK(is_narrow_mean(t.ddp, &t.model, world_size, step, wire, p));
        }
    }
    return leave(&t);
}

static void bf16_and_fp16_send_16_bits_and_accumulate_in_f32(void **state)
{
    static const cddp_type wires[] = {CDDP_BF16, CDDP_F16};

    for (int i = 0; i < WORLD_SIZES; i++) {
        for (int wire = 0; wire < 2; wire++) {
            assert_int_equal(meet(*state, world_sizes[i], narrow_rank, &wires[wire], NULL), 0);
        }
    }
}

/* What the custom hook was called for. */
struct calls {
    size_t next[3]; /* bucket expected at each stage */
    int last;
    int wrong;
};

/* Sum to scratch memory, then sum once more what each rank has divided: two collectives. */
static cddp_status two_stages(void *state, const cddp_bucket *bucket, int stage,
                              cddp_work **out_work)
{
    struct calls *calls = state;
    size_t count = bucket->count;
    cddp_type type = bucket->type;
    int world_size = cddp_group_world_size(bucket->group);
    void *scratch;
    cddp_status status = cddp_bucket_scratch(bucket, count * cddp_type_bytes(type), &scratch);

    *out_work = NULL;
    calls->wrong += stage > 2 || calls->next[stage]++ != bucket->index;
    calls->last += stage == 0 && bucket->is_last;
    calls->wrong += bucket->kind != CDDP_STEP_BY_RANKS || bucket->samples != 0;
    if (status != CDDP_OK) {
        return status;
    }
    if (stage == 0) {
        return cddp_all_reduce(bucket->group, bucket->data, scratch, count, type, CDDP_OP_SUM,
                               out_work);
    }
    if (stage == 1) {
        for (size_t i = 0; i < count; i++) {
            put(scratch, type, i, get(scratch, type, i) / world_size / world_size);
        }
        return cddp_all_reduce(bucket->group, scratch, bucket->data, count, type, CDDP_OP_SUM,
                               out_work);
    }
    return CDDP_OK;
}

static int two_stage_rank(int rank, int world_size, void *argument)
{
    struct trainer t;
    struct calls calls;

    CHECK(enter(&t, argument, rank, world_size, MIXED, COUNT, elements, NULL) == 0);
    t.model.options.hook = two_stages;
    t.model.options.hook_state = &calls;
    t.model.options.first_bucket_bytes = 256;
    t.model.options.bucket_bytes = 256;
    CHECK(watch(&t) == 0);
    for (int step = 0; step < 3; step++) {
        memset(&calls, 0, sizeof calls);
        CHECK(run_step(&t, rank, step) == 0);
        CHECK(calls.wrong == 0 && calls.last == 1);
        CHECK(calls.next[0] > 1 && calls.next[1] == calls.next[0] &&
              calls.next[2] == calls.next[0]);
        for (size_t p = 0; p < COUNT; p++) {
            for (size_t i = 0; i < elements[p]; i++) {
                double sum = 0;

                for (int r = 0; r < world_size; r++) {
                    sum += gradient(r, step, p, i);
                }
                CHECK(fabs(((float *)cddp_ddp_grad(t.ddp, p))[i] - sum / world_size) < 1e-6);
            }
        }
    }
    return leave(&t);
}

static void a_hook_may_take_several_collectives(void **state)
{
    for (int i = 0; i < WORLD_SIZES; i++) {
        assert_int_equal(meet(*state, world_sizes[i], two_stage_rank, NULL, NULL), 0);
    }
}

/* What a hook saw last; the buckets are reduced as ever. */
static cddp_status look(void *state, const cddp_bucket *bucket, int stage, cddp_work **out_work)
{
    *(cddp_bucket *)state = *bucket;
    return cddp_hook_identity(NULL, bucket, stage, out_work);
}

static int asked_rank(int rank, int world_size, void *argument)
{
    static const cddp_step_kind kinds[] = {CDDP_STEP_BY_SAMPLES, CDDP_STEP_BY_RANKS, CDDP_STEP_SUM};
    cddp_bucket seen = {0};
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, MIXED, COUNT, elements, NULL) == 0);
    t.model.options.hook = look;
    t.model.options.hook_state = &seen;
    CHECK(watch(&t) == 0);
    for (int step = 0; step < 3; step++) {
        cddp_step how = CDDP_STEP_INIT;

        how.number = 7 + (uint64_t)step;
        how.kind = kinds[step];
        how.samples = 5 + (uint64_t)rank;
        CHECK(cddp_ddp_begin(t.ddp, &how) == CDDP_OK);
        CHECK(all_ready(&t, rank, step) == 0 && cddp_ddp_wait(t.ddp) == CDDP_OK);
        CHECK(seen.struct_size == sizeof seen && seen.group == t.group && seen.is_last);
        CHECK(seen.kind == kinds[step] && seen.step == how.number);
        CHECK(seen.samples == (kinds[step] == CDDP_STEP_BY_SAMPLES ? 5U + (unsigned)rank : 0));
    }
    return leave(&t);
}

static void a_hook_sees_what_the_step_asks_for(void **state)
{
    assert_int_equal(meet(*state, 2, asked_rank, NULL, NULL), 0);
}

/* Keeps the gradients as they are, and says so at once. */
static cddp_status no_communication(void *state, const cddp_bucket *bucket, int stage,
                                    cddp_work **out)
{
    (void)state;
    (void)bucket;
    *out = NULL;
    return stage == 0 ? CDDP_OK : CDDP_ERR_STATE;
}

static int local_rank(int rank, int world_size, void *argument)
{
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, MIXED, COUNT, elements, NULL) == 0);
    t.model.options.hook = no_communication;
    CHECK(watch(&t) == 0);
    for (int step = 0; step < 2; step++) {
        CHECK(run_step(&t, rank, step) == 0);
        for (size_t p = 0; p < COUNT; p++) {
            for (size_t i = 0; i < elements[p]; i++) {
                CHECK(((float *)cddp_ddp_grad(t.ddp, p))[i] == (float)gradient(rank, step, p, i));
            }
        }
    }
    return leave(&t);
}

static void a_hook_may_finish_at_once(void **state)
{
    assert_int_equal(meet(*state, 3, local_rank, NULL, NULL), 0);
}

/* A step with several buckets, up to the first call that fails. */
static int step_in_small_buckets(struct trainer *t, cddp_status *out)
{
    t->model.options.first_bucket_bytes = 256;
    t->model.options.bucket_bytes = 256;
    CHECK(watch(t) == 0);
    CHECK(begin_mean(t->ddp, 0) == 0);
    *out = CDDP_OK;
    for (size_t p = COUNT; p-- > 0 && *out == CDDP_OK;) {
        *out = cddp_ddp_grad_ready(t->ddp, p);
    }
    *out = *out == CDDP_OK ? cddp_ddp_wait(t->ddp) : *out;
    return 0;
}

static cddp_status fail_on_rank_1(void *state, const cddp_bucket *bucket, int stage,
                                  cddp_work **out_work)
{
    if (cddp_group_rank(bucket->group) == 1 && bucket->index == 1) {
        /* a status which the group's own failures may have, too */
        return state == NULL ? CDDP_ERR_TIMEOUT : cddp_fail(CDDP_ERR_TIMEOUT, state);
    }
    return cddp_hook_identity(NULL, bucket, stage, out_work);
}

static int failing_rank(int rank, int world_size, void *argument)
{
    static char words[] = "the cable is cut";
    const struct meeting *meeting = argument;
    cddp_failure failure = CDDP_FAILURE_INIT;
    struct trainer t;
    cddp_status status;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.hook = fail_on_rank_1;
    t.model.options.hook_state = meeting->argument != NULL ? words : NULL;
    CHECK(step_in_small_buckets(&t, &status) == 0);
    CHECK(failure_is(status, rank == 1 ? CDDP_ERR_TIMEOUT : CDDP_ERR_PEER, ANY_RANK, 1, NULL));
    CHECK(last_error_has("bucket 1 of"));
    CHECK(meeting->argument == NULL || last_error_has(words));
    CHECK(cddp_last_failure(&failure) == CDDP_OK && failure.is_fatal);
    CHECK(failure_is(cddp_ddp_wait(t.ddp), CDDP_ERR_BROKEN, ANY_RANK, 1, NULL));
    CHECK(last_error_has("an earlier call failed"));
    return leave(&t);
}

static void a_hook_that_fails_on_one_rank_ends_the_step_on_all(void **state)
{
    assert_int_equal(meet(*state, 3, failing_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 3, failing_rank, "in its own words", NULL), 0);
}

static cddp_status return_a_number(void *state, const cddp_bucket *bucket, int stage,
                                   cddp_work **out_work)
{
    return bucket->index == 1 ? (cddp_status) * (const int *)state
                              : cddp_hook_identity(NULL, bucket, stage, out_work);
}

static int number_rank(int rank, int world_size, void *argument)
{
    int number = *(const int *)((const struct meeting *)argument)->argument;
    cddp_failure failure = CDDP_FAILURE_INIT;
    struct trainer t;
    cddp_status status;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.hook = return_a_number;
    t.model.options.hook_state = &number;
    CHECK(step_in_small_buckets(&t, &status) == 0);
    CHECK(status < 0 && cddp_status_name(status) != NULL);
    CHECK(cddp_last_failure(&failure) == CDDP_OK && failure.status == status && failure.is_fatal);
    return leave(&t);
}

static void a_hook_that_returns_no_status_fails(void **state)
{
    int numbers[] = {1, 7, -1000};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(meet(*state, 2, number_rank, &numbers[i], NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(bf16_and_fp16_send_16_bits_and_accumulate_in_f32),
        RANKS_TEST(a_hook_may_take_several_collectives),
        RANKS_TEST(a_hook_sees_what_the_step_asks_for),
        RANKS_TEST(a_hook_may_finish_at_once),
        RANKS_TEST(a_hook_that_fails_on_one_rank_ends_the_step_on_all),
        RANKS_TEST(a_hook_that_returns_no_status_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
