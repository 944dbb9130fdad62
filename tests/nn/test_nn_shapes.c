/* test_nn_shapes.c - no shape of a convolution, a pool or a batch norm uses one of oneDNN's
 * reference implementations, and the implementation used instead computes the right numbers. Which
 * one that is depends on the CPU, and is not tested.
 *
 * `test_nn_shapes full` plans all shapes, which takes long; the suite plans a sample. Numbers are
 * computed in separate processes, since oneDNN checks only once which instructions it may use.
 * oneDNN's own log shows which implementations ran. */
#include "nn/nn_reference.h"

#include <sys/wait.h>
#include <unistd.h>

enum { PLANNED = 200, COMPUTED = 12, CLASSES = 3, MAX_LAYERS = 8 };

static uint64_t random_state = 88172645463325252u;

static int draw(int low, int high)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (int)(random_state % (uint64_t)(high - low + 1));
}

/* A convolution between others: 1 x 1 before it, with a norm and a relu, and a pool behind. Or the
 * first one: of the data. */
struct shape {
    bool first;
    int data, inputs, outputs; /* channels */
    int kernel, stride, padding, side, count;
    bool norm, bias;
    enum cddpi_layer_type pool; /* not a pool: there is none */
    int pool_kernel, pool_padding;
};

struct network {
    struct cddpi_layer layers[MAX_LAYERS];
    int count;
    struct cddpi_model_spec spec;
};

static void describe(const struct shape *s, struct network *net)
{
    int side = (s->side + 2 * s->padding - s->kernel) / s->stride + 1;
    struct cddpi_layer *l = net->layers;

    if (!s->first) {
        *l++ = (struct cddpi_layer){.type = CDDPI_LAYER_CONV2D,
                                    .units = s->inputs,
                                    .kernel = 1,
                                    .stride = 1,
                                    .no_bias = s->norm};
        if (s->norm) {
            *l++ = (struct cddpi_layer){.type = CDDPI_LAYER_BATCH_NORM};
        }
        *l++ = (struct cddpi_layer){.type = CDDPI_LAYER_RELU};
    }
    *l++ = (struct cddpi_layer){.type = CDDPI_LAYER_CONV2D,
                                .units = s->outputs,
                                .kernel = s->kernel,
                                .stride = s->stride,
                                .padding = s->padding,
                                .no_bias = !s->bias};
    if ((s->pool == CDDPI_LAYER_MAX_POOL || s->pool == CDDPI_LAYER_AVG_POOL) &&
        side + 2 * s->pool_padding >= s->pool_kernel) {
        *l++ = (struct cddpi_layer){
            .type = s->pool, .kernel = s->pool_kernel, .stride = 2, .padding = s->pool_padding};
    }
    *l++ = (struct cddpi_layer){.type = CDDPI_LAYER_FLATTEN};
    *l++ = (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = CLASSES};
    net->count = (int)(l - net->layers);
    net->spec = (struct cddpi_model_spec){.layers = net->layers,
                                          .layer_count = (size_t)net->count,
                                          .channels = s->first ? s->inputs : s->data,
                                          .height = s->side,
                                          .width = s->side,
                                          .classes = CLASSES};
}

static const char *text_of(const struct shape *s)
{
    static char text[200];

    snprintf(text, sizeof text,
             "%d samples of %d x %d x %d, %d to %d channels, kernel %d stride %d padding %d%s%s, "
             "pool %d kernel %d padding %d",
             s->count, s->data, s->side, s->side, s->inputs, s->outputs, s->kernel, s->stride,
             s->padding, s->norm ? ", norm" : "", s->bias ? ", bias" : "", (int)s->pool,
             s->pool_kernel, s->pool_padding);
    return text;
}

/* How many implementations a layer needs, by oneDNN or in its place. */
static int parts_of(const struct cddpi_layer *layer, bool first)
{
    switch (layer->type) {
    case CDDPI_LAYER_CONV2D:
        return first ? 2 : 3; /* nobody wants the gradient of the data */
    case CDDPI_LAYER_BATCH_NORM:
    case CDDPI_LAYER_MAX_POOL:
    case CDDPI_LAYER_AVG_POOL:
        return 2;
    default:
        return 0;
    }
}

/* 0: every part of the plan has an implementation, and none is a reference. */
static int plan_shape(const struct shape *s)
{
    struct network net;
    struct cddpi_model *model = NULL;
    struct cddpi_plan *plan = NULL;
    int parts = 0;
    int bad = 0;

    describe(s, &net);
    for (int i = 0; i < net.count; i++) {
        parts += parts_of(&net.layers[i], i == 0);
    }
    if (cddpi_model_create(&net.spec, 1, NULL, &model) != CDDP_OK ||
        cddpi_plan_create(model, s->count, true, &plan) != CDDP_OK) {
        fprintf(stderr, "%s: %s\n", text_of(s), cddp_last_error());
        cddpi_model_destroy(model);
        return 1;
    }
    for (int i = 0; i < plan->part_count; i++) {
        if (plan->parts[i].reference) {
            fprintf(stderr, "%s: the %s runs on %s\n", text_of(s), plan->parts[i].what,
                    plan->parts[i].name);
            bad = 1;
        }
        parts -= parts_of(&cddpi_plan_op_of(plan, plan->parts[i].op)->layer, false) > 0;
    }
    if (parts != 0) {
        fprintf(stderr, "%s: %d parts are missing\n", text_of(s), parts);
        bad = 1;
    }
    cddpi_plan_destroy(plan);
    cddpi_model_destroy(model);
    return bad;
}

static const int batches[] = {1, 7, 64};

static int channels_of(int index)
{
    static const int more[] = {48, 63, 65, 100};

    return index < 40 ? index + 1 : more[index - 40];
}

static void a_sample_of_shapes_has_no_reference(void **state)
{
    int bad = 0;

    (void)state;
    for (int i = 0; i < PLANNED; i++) {
        struct shape s = {.first = draw(0, 7) == 0,
                          .data = 3,
                          .inputs = channels_of(draw(0, 43)),
                          .outputs = channels_of(draw(0, 43)),
                          .kernel = draw(1, 7),
                          .stride = draw(1, 3),
                          .side = 14,
                          .count = batches[draw(0, 2)],
                          .norm = draw(0, 1) == 1,
                          .bias = draw(0, 1) == 1,
                          .pool = draw(0, 1) == 1 ? CDDPI_LAYER_MAX_POOL : CDDPI_LAYER_AVG_POOL,
                          .pool_kernel = draw(2, 3)};

        s.padding = draw(0, s.kernel - 1);
        bad += plan_shape(&s);
    }
    assert_int_equal(bad, 0);
}

static int plan_all_shapes(void)
{
    long planned = 0;
    int bad = 0;

    for (int inputs = 0; inputs < 44; inputs++) {
        for (int outputs = 0; outputs < 44; outputs++) {
            for (int window = 0; window < 7 * 3 * 3; window++) {
                struct shape s = {.data = 3,
                                  .inputs = channels_of(inputs),
                                  .outputs = channels_of(outputs),
                                  .kernel = window / 9 + 1,
                                  .stride = window / 3 % 3 + 1,
                                  .side = 14,
                                  .count = batches[window % 3],
                                  .norm = true,
                                  .bias = true,
                                  .pool = CDDPI_LAYER_MAX_POOL,
                                  .pool_kernel = 2};

                for (s.padding = 0; s.padding < s.kernel; s.padding++) {
                    bad += plan_shape(&s);
                    planned++;
                }
            }
        }
        printf("%ld shapes planned, %d bad\n", planned, bad);
        fflush(stdout);
    }
    return bad;
}

static int expect_grads(const struct fixture *f, const struct reference *r, const struct shape *s)
{
    int bad = 0;

    for (size_t i = 0; i < f->param_count; i++) {
        size_t count = cddpi_tensor_elements(&f->params[i]);
        const float *grad = f->grads[i];
        double largest = 1e-2;
        double off = 0;

        for (size_t e = 0; e < count; e++) {
            largest = fmax(largest, fabs(r->grads[i][e]));
            off = fmax(off, isfinite(grad[e]) ? fabs((double)grad[e] - r->grads[i][e]) : INFINITY);
        }
        if (!(off <= 2e-4 * largest)) {
            fprintf(stderr, "%s: %s is off by %g of %g\n", text_of(s), f->params[i].name, off,
                    largest);
            bad = 1;
        }
    }
    return bad;
}

/* One step, compared with float64; and the same again, bit for bit. */
static int compute_shape(const struct shape *s, enum cddpi_fallbacks fallbacks, bool bf16)
{
    struct network net;
    struct cddpi_layer layers[MAX_LAYERS];
    struct fixture f;
    struct reference r;
    double loss;
    int bad = 0;

    describe(s, &net);
    net.spec.precision = bf16 ? CDDPI_PRECISION_BF16 : CDDPI_PRECISION_F32;
    memcpy(layers, net.layers, sizeof layers);
    layers[net.count - 1].kernel = layers[net.count - 1].stride = 1;
    if (!fixture_init(&f, &net.spec, 5, NULL, 0, s->count)) {
        return 1;
    }
    f.model->fallbacks = fallbacks;
    for (int first = 0;; first += s->count) {
        fixture_batch(&f, first, s->count);
        reference_run(&r, &f, layers, net.count, &net.spec);
        if (r.margin > 2e-6 || first > 100 * s->count) { /* no rounding decides */
            break;
        }
        reference_fini(&r);
    }
    loss = fixture_loss(&f);
    if (cddpi_model_backward(f.model, 1, false, NULL, NULL) != CDDP_OK) {
        fprintf(stderr, "%s: %s\n", text_of(s), cddp_last_error());
        bad = 1;
    }
    if (!bf16) {
        if (!(fabs(loss - r.loss) <= 1e-4 * fmax(1, r.loss))) {
            fprintf(stderr, "%s: the loss is %.9g, not %.9g\n", text_of(s), loss, r.loss);
            bad = 1;
        }
        bad |= expect_grads(&f, &r, s);
    }
    if (fixture_loss(&f) != loss || cddpi_model_backward(f.model, 1, true, NULL, NULL) != CDDP_OK) {
        fprintf(stderr, "%s: another run gives another loss\n", text_of(s));
        bad = 1;
    }
    for (size_t i = 0; i < f.param_count; i++) { /* added to what was there */
        for (size_t e = 0; e < cddpi_tensor_elements(&f.params[i]); e++) {
            ((float *)f.grads[i])[e] *= 0.5f;
        }
    }
    bad |= bf16 ? 0 : expect_grads(&f, &r, s);
    reference_fini(&r);
    fixture_fini(&f);
    return bad;
}

/* LeNet-5's, and strided 1 x 1 filters, whose gradients oneDNN 2.6 writes past their memory on AVX2
 * where the channels do not fill its lanes. */
static const struct shape known[] = {
    {.first = true,
     .inputs = 1,
     .outputs = 6,
     .kernel = 5,
     .stride = 1,
     .padding = 2,
     .side = 12,
     .count = 3,
     .bias = true,
     .pool = CDDPI_LAYER_MAX_POOL,
     .pool_kernel = 2},
    {.data = 2,
     .inputs = 6,
     .outputs = 16,
     .kernel = 5,
     .stride = 1,
     .side = 10,
     .count = 3,
     .bias = true,
     .pool = CDDPI_LAYER_MAX_POOL,
     .pool_kernel = 2},
    {.data = 2,
     .inputs = 12,
     .outputs = 20,
     .kernel = 1,
     .stride = 2,
     .side = 9,
     .count = 4,
     .norm = true},
    {.data = 2, .inputs = 33, .outputs = 7, .kernel = 1, .stride = 3, .side = 10, .count = 4},
    {.data = 2,
     .inputs = 20,
     .outputs = 40,
     .kernel = 1,
     .stride = 2,
     .side = 14,
     .count = 2,
     .norm = true},
};

static int compute_sample(void)
{
    int bad = 0;

    for (size_t i = 0; i < COUNT_OF(known); i++) {
        bad += compute_shape(&known[i], CDDPI_FALLBACKS_NEEDED, false);
        bad += compute_shape(&known[i], CDDPI_FALLBACKS_OWN, false);
        bad += compute_shape(&known[i], CDDPI_FALLBACKS_REORDERED, false);
    }
    for (int i = 0; i < COMPUTED; i++) {
        for (int fallbacks = 0; fallbacks <= CDDPI_FALLBACKS_PADDED; fallbacks++) {
            struct shape s = {.first = draw(0, 3) == 0,
                              .data = draw(2, 4),
                              .inputs = draw(1, 20),
                              .outputs = draw(1, 20),
                              .kernel = draw(1, 5),
                              .stride = draw(1, 3),
                              .side = draw(5, 10),
                              .count = draw(2, 5),
                              .norm = draw(0, 1) == 1,
                              .bias = draw(0, 1) == 1,
                              .pool = draw(0, 2) == 0   ? CDDPI_LAYER_CONV2D
                                      : draw(0, 1) == 1 ? CDDPI_LAYER_MAX_POOL
                                                        : CDDPI_LAYER_AVG_POOL,
                              .pool_kernel = draw(2, 3),
                              .pool_padding = draw(0, 1)};

            if (s.first) {
                s.inputs = draw(1, 4);
            }
            s.padding = draw(0, s.kernel - 1);
            bad += compute_shape(&s, (enum cddpi_fallbacks)fallbacks, i % 5 == 4);
        }
    }
    return bad;
}

/* Whether oneDNN says in @p line that it ran a reference: "...,exec,cpu,KIND,NAME,...". */
static bool tells_of_reference(const char *line)
{
    const char *name = strstr(line, ",exec,cpu,");

    if (name == NULL) {
        return false;
    }
    name = strchr(name + strlen(",exec,cpu,"), ',');
    return name != NULL && (strncmp(name, ",ref", 4) == 0 || strncmp(name, ",simple", 7) == 0 ||
                            strstr(name, "_ref:") != NULL);
}

/* In a process with @p variable = @p value, whose oneDNN says that it uses @p isa (NULL: anything).
 */
static void numbers_are_right_with(const char *variable, const char *value, const char *isa)
{
    char line[4096];
    int references = 0;
    bool kept = isa == NULL;
    int outcome = 0;
    int ends[2];
    FILE *said;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (variable != NULL) {
            setenv(variable, value, 1);
        }
        setenv("DNNL_VERBOSE", "1", 1);
        setenv("ONEDNN_VERBOSE", "1", 1);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test_nn_shapes", "compute", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    said = fdopen(ends[0], "r");
    assert_non_null(said);
    while (fgets(line, sizeof line, said) != NULL) {
        if (tells_of_reference(line) && references++ < 5) {
            fprintf(stderr, "%s: %.200s\n", value != NULL ? value : "all instructions", line);
        }
        if (isa != NULL && strstr(line, ",cpu,isa:") != NULL) {
            kept = strstr(line, isa) != NULL;
        }
    }
    fclose(said);
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_true(WIFEXITED(outcome));
    assert_int_equal(WEXITSTATUS(outcome), 0);
    assert_int_equal(references, 0);
    assert_true(kept);
}

static void numbers_are_right_with_all_instructions(void **state)
{
    (void)state;
    numbers_are_right_with(NULL, NULL, NULL);
}

static void numbers_are_right_without_amx(void **state)
{
    (void)state;
    numbers_are_right_with("CDDP_MAX_ISA", "avx512", NULL); /* where the processor has as much */
}

static void numbers_are_right_with_avx2(void **state)
{
    (void)state;
    numbers_are_right_with("CDDP_MAX_ISA", "avx2", NULL);
}

static void numbers_are_right_with_avx(void **state)
{
    (void)state;
    numbers_are_right_with("ONEDNN_MAX_CPU_ISA", "AVX", NULL);
}

static void numbers_are_right_with_sse41(void **state)
{
    (void)state;
#ifndef __x86_64__
    print_message("skipped: these instructions are x86's\n");
    skip();
#endif
    numbers_are_right_with("CDDP_MAX_ISA", "generic", ",cpu,isa:Intel SSE4.1");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_of_shapes_has_no_reference),
        cmocka_unit_test(numbers_are_right_with_all_instructions),
        cmocka_unit_test(numbers_are_right_without_amx),
        cmocka_unit_test(numbers_are_right_with_avx2),
        cmocka_unit_test(numbers_are_right_with_avx),
        cmocka_unit_test(numbers_are_right_with_sse41),
    };

    if (argc > 1 && strcmp(argv[1], "full") == 0) {
        return plan_all_shapes() != 0;
    }
    if (argc > 1 && strcmp(argv[1], "compute") == 0) {
        return compute_sample() != 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
