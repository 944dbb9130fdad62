/* test_nn_micro_bits.c - a micro-batch has the same bits whatever else its process does: batches
 * before it, other models, addresses, contents of memory, and how many threads there are. */
#include "support/micro_bits.h"

#include <malloc.h>

enum { ANOTHER = 1000 /* the first of other samples */, MOST_KINDS = 32 };

static struct bits_answer reference[MOST_KINDS];

struct circumstance {
    const char *name;
    const char *threads;
    int perturb; /* byte that fresh memory has */
    void (*spec)(struct cddpi_model_spec *spec);
    void (*before)(struct bits_subject *subject);
};

static void of_a_split_model(struct cddpi_model_spec *spec)
{
    spec->split = true;
}

static void of_another_recomputation(struct cddpi_model_spec *spec)
{
    spec->recompute = !spec->recompute;
}

static void small_batches(struct bits_subject *subject)
{
    for (int count = 1; count < 4; count++) {
        bits_step(subject, ANOTHER, count, false);
        bits_evaluate(subject, ANOTHER, count);
    }
}

static void a_larger_batch(struct bits_subject *subject)
{
    bits_step(subject, ANOTHER, 2 * subject->kind->samples + 1, false);
}

static void memory_for_more(struct bits_subject *subject)
{
    assert_int_equal(cddpi_model_prepare(subject->f.model, 3 * subject->kind->samples, true),
                     CDDP_OK);
}

static void more_plans_than_are_kept(struct bits_subject *subject)
{
    int samples = subject->kind->samples;

    assert_int_equal(cddpi_model_prepare(subject->f.model, samples, true), CDDP_OK);
    for (int count = 1; count <= CDDPI_MODEL_PLANS + 1; count++) {
        assert_int_equal(cddpi_model_prepare(subject->f.model, count, false), CDDP_OK);
    }
}

static void evaluation(struct bits_subject *subject)
{
    bits_evaluate(subject, ANOTHER, subject->kind->samples);
    bits_evaluate(subject, 100, subject->kind->samples);
}

/* Let gradients lie one after the other, from @p offset bytes after a page's start on. */
static void bind_grads(struct bits_subject *subject, size_t offset)
{
    struct fixture *f = &subject->f;
    size_t bytes = 4096 + offset;
    char *at;

    for (size_t i = 0; i < f->param_count; i++) {
        bytes += cddpi_tensor_elements(&f->params[i]) * sizeof(float);
    }
    assert_int_equal(posix_memalign(&subject->blocks[0], 4096, bytes), 0);
    memset(subject->blocks[0], 0x7f, bytes);
    at = (char *)subject->blocks[0] + offset;
    subject->grads = calloc(f->param_count, sizeof *subject->grads);
    for (size_t i = 0; i < f->param_count; i++) {
        subject->grads[i] = at;
        at += cddpi_tensor_elements(&f->params[i]) * sizeof(float);
    }
    cddpi_model_bind_grads(f->model, subject->grads);
}

static void gradients_at_a_page(struct bits_subject *subject)
{
    bind_grads(subject, 0);
}

static void gradients_at_4_bytes(struct bits_subject *subject)
{
    bind_grads(subject, 4);
}

static void gradients_at_36_bytes(struct bits_subject *subject)
{
    bind_grads(subject, 36);
}

/* As the shards of an optimizer: each at the next multiple of 64 bytes. */
static void parameters_elsewhere(struct bits_subject *subject)
{
    struct fixture *f = &subject->f;
    void **data = calloc(f->param_count, sizeof *data);
    size_t bytes = 4096;
    char *at;

    for (size_t i = 0; i < f->param_count; i++) {
        bytes += cddpi_tensor_elements(&f->params[i]) * sizeof(float) + 64;
    }
    assert_int_equal(posix_memalign(&subject->blocks[1], 4096, bytes), 0);
    at = (char *)subject->blocks[1] + 64;
    for (size_t i = 0; i < f->param_count; i++) {
        data[i] = at;
        at += (cddpi_tensor_elements(&f->params[i]) * sizeof(float) + 63) / 64 * 64;
    }
    cddpi_model_bind_params(f->model, data);
    free(data);
}

static void accumulation(struct bits_subject *subject)
{
    bits_step(subject, ANOTHER, 2, false);
    bits_step(subject, ANOTHER, 2, true);
}

static void many_updates(struct bits_subject *subject)
{
    for (int step = 0; step < 5; step++) {
        bits_step(subject, ANOTHER + 100 * step, subject->kind->samples, step % 2 == 1);
    }
}

static void forward_alone(struct bits_subject *subject)
{
    (void)fixture_loss(&subject->f);
}

static void the_same_step(struct bits_subject *subject)
{
    struct bits_answer answer;

    bits_measure(subject, &answer);
}

static void the_batch_at_other_addresses(struct bits_subject *subject)
{
    struct fixture *f = &subject->f;
    size_t bytes = (size_t)f->batch.count * f->sample_elements * sizeof(float);

    if (f->batch.input == NULL) {
        return;
    }
    assert_int_equal(posix_memalign(&subject->blocks[0], 4096, bytes + 64), 0);
    memcpy((char *)subject->blocks[0] + 4, f->input, bytes);
    f->batch.input = (const float *)(const void *)((const char *)subject->blocks[0] + 4);
}

static void another_slot(struct bits_subject *subject)
{
    bits_step(subject, ANOTHER, 2, false);
    assert_int_equal(cddpi_model_use_slot(subject->f.model, 3), CDDP_OK);
}

/* A model of the same kind takes a step. */
static void step_of_another(struct bits_subject *subject)
{
    struct bits_subject other;

    bits_open(&other, subject->kind, &subject->kind->spec, NULL);
    bits_step(&other, ANOTHER, subject->kind->samples, false);
    bits_close(&other);
}

static void another_model_between(struct bits_subject *subject)
{
    subject->between = step_of_another;
}

static void batch_of_another_slot(struct bits_subject *subject)
{
    struct cddpi_loss_result result;

    assert_int_equal(cddpi_model_use_slot(subject->f.model, 5), CDDP_OK);
    assert_int_equal(cddpi_model_forward(subject->f.model, &subject->f.batch, true, &result),
                     CDDP_OK);
    assert_int_equal(cddpi_model_use_slot(subject->f.model, 0), CDDP_OK);
}

static void another_slot_between(struct bits_subject *subject)
{
    size_t count;

    (void)cddpi_model_buffers(subject->f.model, &count);
    if (count == 0) { /* else that forward moves the running statistics, too */
        subject->between = batch_of_another_slot;
    }
}

static const struct circumstance circumstances[] = {
    {.name = "nothing"},
    {.name = "small batches before", .before = small_batches},
    {.name = "a larger batch before", .before = a_larger_batch},
    {.name = "memory for more", .before = memory_for_more},
    {.name = "more plans than are kept", .before = more_plans_than_are_kept},
    {.name = "evaluation before", .before = evaluation},
    {.name = "gradients at a page", .before = gradients_at_a_page},
    {.name = "gradients at 4 bytes", .before = gradients_at_4_bytes},
    {.name = "gradients at 36 bytes", .before = gradients_at_36_bytes},
    {.name = "parameters elsewhere", .before = parameters_elsewhere},
    {.name = "accumulation before", .before = accumulation},
    {.name = "many updates before", .before = many_updates},
    {.name = "forward alone before", .before = forward_alone},
    {.name = "the same step before", .before = the_same_step},
    {.name = "a batch at other addresses", .before = the_batch_at_other_addresses},
    {.name = "another slot", .before = another_slot},
    {.name = "another model before", .before = step_of_another},
    {.name = "another model between", .before = another_model_between},
    {.name = "another slot between", .before = another_slot_between},
    {.name = "memory full of ones", .perturb = 0xff},
    {.name = "memory full of large numbers", .perturb = 0x7e, .before = small_batches},
    {.name = "gradients of parameters apart", .spec = of_a_split_model},
    {.name = "recomputed, or not", .spec = of_another_recomputation},
    {.name = "2 threads", .threads = "2"},
    {.name = "3 threads", .threads = "3"},
    {.name = "4 threads", .threads = "4"},
    {.name = "7 threads after small batches", .threads = "7", .before = small_batches},
};

static void measure_in(const struct circumstance *circumstance, const struct bits_kind *kind,
                       struct bits_answer *out)
{
    struct cddpi_model_spec spec = kind->spec;
    struct bits_subject subject;

    setenv("CDDP_THREADS", circumstance->threads != NULL ? circumstance->threads : "1", 1);
    mallopt(M_PERTURB, circumstance->perturb ^ 0xff); /* it writes the complement */
    if (circumstance->spec != NULL) {
        circumstance->spec(&spec);
    }
    bits_open(&subject, kind, &spec, NULL);
    if (circumstance->before != NULL) {
        circumstance->before(&subject);
    }
    bits_measure(&subject, out);
    bits_close(&subject);
    mallopt(M_PERTURB, 0);
    unsetenv("CDDP_THREADS");
}

static bool is_chosen(const char *name)
{
    const char *wanted = getenv("TEST_KIND");

    return wanted == NULL || strstr(name, wanted) != NULL;
}

static void a_process_gives_a_micro_batch_the_same_bits(void **state)
{
    int bad = 0;

    (void)state;
    for (size_t c = 0; c < COUNT_OF(circumstances); c++) {
        for (size_t k = 0; k < bits_kind_count; k++) {
            struct bits_answer answer;

            if (!is_chosen(bits_kinds[k].name)) {
                continue;
            }
            measure_in(&circumstances[c], &bits_kinds[k], &answer);
            if (circumstances[c].spec == of_a_split_model) { /* which keeps no outputs */
                memcpy(answer.hashes + 1, reference[k].hashes + 1,
                       (BITS_FIRST - 1) * sizeof *answer.hashes);
            }
            bad += bits_compare(&bits_kinds[k], circumstances[c].name, &reference[k], &answer) != 0;
        }
    }
    assert_int_equal(bad, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_gives_a_micro_batch_the_same_bits),
    };

    if (bits_kind_count > MOST_KINDS || argc < 1) {
        return 1;
    }
    if (getenv("OMP_WAIT_POLICY") == NULL) { /* which OpenMP reads when it is loaded */
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    setenv("CDDP_THREADS", "1", 1);
    for (size_t k = 0; k < bits_kind_count; k++) {
        if (is_chosen(bits_kinds[k].name)) {
            bits_of_kind(&bits_kinds[k], NULL, &reference[k]);
        }
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
