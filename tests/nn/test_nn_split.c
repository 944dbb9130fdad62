/* test_nn_split.c - parameter gradients computed separately from backward: the same bits as those
 * computed with it, also with other batches between the two passes; each reported once, when it is
 * complete; and less memory while a batch waits for its gradients. */
#include "base/error.h"
#include "support/failure.h"
#include "support/nn_model.h"
#include "support/sequence.h"

#include <string.h>

enum { BATCHES = 4, PARAMS = 256 };

struct job {
    struct cddpi_model_spec spec;
    enum cddpi_fallbacks fallbacks;
    int counts[BATCHES];
};

struct arrived {
    int times[PARAMS];
};

static cddp_status note_ready(void *context, size_t index)
{
    ((struct arrived *)context)->times[index]++;
    return CDDP_OK;
}

/* A rank of a pipeline that is two batches behind with gradients of parameters: the memory of
 * forward and backward is the next batch's before they come. */
struct pass {
    char kind; /* 'F', 'B' or 'W' */
    int batch;
    struct cddpi_model_slots slots;
};

static const struct pass passes[] = {
    {'F', 0, {0, 0, 0}}, {'B', 0, {0, 0, 0}}, {'F', 1, {0, 1, 0}}, {'B', 1, {0, 1, 1}},
    {'F', 2, {0, 2, 0}}, {'B', 2, {0, 2, 2}}, {'W', 0, {0, 0, 0}}, {'F', 3, {0, 0, 0}},
    {'W', 1, {1, 1, 1}}, {'B', 3, {0, 0, 0}}, {'W', 2, {0, 2, 2}}, {'W', 3, {1, 0, 0}},
};

static void run_apart(struct fixture *f, const struct cddpi_batch *batches, double *loss,
                      struct arrived *arrived)
{
    for (size_t i = 0; i < COUNT_OF(passes); i++) {
        const struct pass *pass = &passes[i];
        bool last = pass->batch == BATCHES - 1;
        struct cddpi_loss_result result;

        must(cddpi_model_use_slots(f->model, &pass->slots));
        if (pass->kind == 'F') {
            must(cddpi_model_forward(f->model, &batches[pass->batch], true, &result));
            *loss += result.loss_sum;
        } else if (pass->kind == 'B') {
            must(cddpi_model_backward(f->model, 0.25, pass->batch > 0, last ? note_ready : NULL,
                                      arrived));
        } else {
            must(cddpi_model_weights(f->model, pass->batch > 0, last ? note_ready : NULL, arrived));
        }
        if (f->model->last.pending != NULL) {
            assert_true(nn_arena_is_valid(&f->model->last.pending->arena));
        }
    }
}

static void expect_same(const struct job *job)
{
    struct cddpi_model_spec apart = job->spec;
    struct fixture whole, split;
    struct fixture samples[BATCHES];
    struct cddpi_batch batches[BATCHES];
    struct arrived arrived = {{0}};
    double losses[2] = {0, 0};

    apart.split = true;
    assert_true(fixture_init(&whole, &job->spec, 45, NULL, 0, 1));
    assert_true(fixture_init(&split, &apart, 45, NULL, 0, 1));
    whole.model->fallbacks = split.model->fallbacks = job->fallbacks;
    for (int m = 0; m < BATCHES; m++) {
        struct cddpi_loss_result result;

        assert_true(fixture_init(&samples[m], &job->spec, 45, NULL, 10 * m, job->counts[m]));
        batches[m] = samples[m].batch;
        must(cddpi_model_forward(whole.model, &batches[m], true, &result));
        must(cddpi_model_backward(whole.model, 0.25, m > 0, NULL, NULL));
        losses[0] += result.loss_sum;
    }
    run_apart(&split, batches, &losses[1], &arrived);
    assert_true(losses[0] == losses[1]);
    assert_true(whole.param_count <= PARAMS);
    for (size_t i = 0; i < whole.param_count; i++) {
        size_t bytes = cddpi_tensor_elements(&whole.params[i]) * sizeof(float);

        if (memcmp(whole.grads[i], split.grads[i], bytes) != 0 || arrived.times[i] != 1) {
            fail_msg("%s: %s has other bits, or was reported %d times", job->spec.preset,
                     whole.params[i].name, arrived.times[i]);
        }
    }
    for (int m = 0; m < BATCHES; m++) {
        fixture_fini(&samples[m]);
    }
    fixture_fini(&whole);
    fixture_fini(&split);
}

static void gradients_of_images_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        for (int fallbacks = 0; fallbacks <= CDDPI_FALLBACKS_PADDED; fallbacks++) {
            struct job job = {.spec = *presets[i],
                              .fallbacks = (enum cddpi_fallbacks)fallbacks,
                              .counts = {3, 2, 3, 1}};

            if (i > 0 || fallbacks == 0) { /* an mlp has none */
                expect_same(&job);
            }
        }
    }
}

static void gradients_of_sequences_have_the_same_bits(void **state)
{
    struct cddpi_model_spec lstm = {.preset = "lstm_lm",
                                    .hidden = (const int[]){12},
                                    .hidden_count = 1,
                                    .embed = 12,
                                    .tied = true,
                                    .context = 8,
                                    .vocab = 37,
                                    .classes = 37};
    struct cddpi_model_spec dropping = tiny;
    struct cddpi_model_spec recomputed = tiny;

    (void)state;
    dropping.dropout = 0.2;
    recomputed.recompute = true;
    expect_same(&(struct job){.spec = dropping, .counts = {3, 2, 3, 1}});
    expect_same(&(struct job){.spec = recomputed, .counts = {3, 2, 3, 1}});
    expect_same(&(struct job){.spec = lstm, .counts = {3, 2, 3, 1}});
}

static void gradients_of_bf16_products_have_the_same_bits(void **state)
{
    const struct cddpi_model_spec *const specs[] = {&mlp, &cnn, &tiny};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct job job = {.spec = *specs[i], .counts = {3, 2, 3, 1}};

        job.spec.precision = CDDPI_PRECISION_BF16;
        expect_same(&job);
    }
}

static void batches_without_samples_are_zero_or_add_nothing(void **state)
{
    (void)state;
    expect_same(&(struct job){.spec = cnn, .counts = {3, 0, 0, 0}});
    expect_same(&(struct job){.spec = mlp, .counts = {0, 2, 0, 3}});
    expect_same(&(struct job){.spec = tiny, .counts = {0, 0, 0, 0}});
}

/* Between backward and the gradients of its parameters a batch has less than between forward and
 * backward, and the two do not overlap. */
static void a_batch_that_waits_for_its_gradients_has_less_memory(void **state)
{
    const struct cddpi_model_spec *const specs[] = {&mlp, &resnet20, &tiny};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct cddpi_model_spec apart = *specs[i];
        struct fixture whole, split;
        const size_t *bytes;

        apart.split = true;
        model_setup(&whole, specs[i], 4);
        model_setup(&split, &apart, 4);
        must(cddpi_model_prepare(whole.model, 4, true));
        must(cddpi_model_prepare(split.model, 4, true));
        bytes = split.model->plans[0]->arena.bytes;
        assert_true(bytes[CDDPI_REGION_BATCH] > 0 && bytes[CDDPI_REGION_KEPT] > 0);
        assert_true(bytes[CDDPI_REGION_GRADS] > 0);
        assert_true(bytes[CDDPI_REGION_BATCH] < cddpi_model_arena_bytes(whole.model));
        assert_int_equal(cddpi_arena_total(&whole.model->plans[0]->arena),
                         cddpi_model_arena_bytes(whole.model));
        fixture_fini(&whole);
        fixture_fini(&split);
    }
}

static void passes_in_another_order_are_refused(void **state)
{
    struct cddpi_model_spec apart = mlp;
    struct fixture f;
    struct cddpi_loss_result result;

    (void)state;
    apart.split = true;
    model_setup(&f, &apart, 2);
    must(cddpi_model_forward(f.model, &f.batch, true, &result));
    assert_true(
        failure_is(cddpi_model_weights(f.model, false, NULL, NULL), CDDP_ERR_STATE, -1, -1, ""));
    assert_true(last_error_has("without a backward before them"));
    must(cddpi_model_backward(f.model, 1, false, NULL, NULL));
    must(cddpi_model_weights(f.model, false, NULL, NULL));
    assert_int_equal(cddpi_model_weights(f.model, false, NULL, NULL), CDDP_ERR_STATE);
    must(cddpi_model_forward(f.model, &f.batch, true, &result));
    must(cddpi_model_backward(f.model, 1, false, NULL, NULL));
    must(cddpi_model_forward(f.model, &f.batch, false, &result)); /* takes its place */
    assert_int_equal(cddpi_model_weights(f.model, false, NULL, NULL), CDDP_ERR_STATE);
    assert_int_equal(
        cddpi_model_use_slots(f.model, &(struct cddpi_model_slots){0, 0, CDDPI_MODEL_SLOTS}),
        CDDP_ERR_ARGUMENT);
    fixture_fini(&f);
    model_setup(&f, &mlp, 2);
    must(cddpi_model_forward(f.model, &f.batch, true, &result));
    must(cddpi_model_backward(f.model, 1, false, NULL, NULL)); /* has left nothing */
    assert_int_equal(cddpi_model_weights(f.model, false, NULL, NULL), CDDP_ERR_STATE);
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_images_have_the_same_bits),
        cmocka_unit_test(gradients_of_sequences_have_the_same_bits),
        cmocka_unit_test(gradients_of_bf16_products_have_the_same_bits),
        cmocka_unit_test(batches_without_samples_are_zero_or_add_nothing),
        cmocka_unit_test(a_batch_that_waits_for_its_gradients_has_less_memory),
        cmocka_unit_test(passes_in_another_order_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
