/* test_parallel.c - several devices in one process: division as by torch.chunk, copies, threads on
 * their processors, and a step over all devices that equals a step on one. */
#include "base/error.h"
#include "device/parallel.h"
#include "support/failure.h"
#include "support/test.h"

#include <cddp/cddp.h>
#include <cddp/parallel.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { INPUTS = 5, OUTPUTS = 3, MOST = 9 };

/* A machine of 2,048 processors, of which this process may use the first and number 1,500. */
static bool is_large;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *out)
{
    CPU_ZERO_S(bytes, out);
    if (!is_large) {
        return syscall(SYS_sched_getaffinity, pid, bytes, out) < 0 ? -1 : 0;
    }
    if (bytes < 2048 / 8) {
        errno = EINVAL;
        return -1;
    }
    CPU_SET_S(0, bytes, out);
    CPU_SET_S(1500, bytes, out);
    return 0;
}

static void processors_count_on_a_machine_with_more_than_1024(void **state)
{
    cddp_devices *devices;

    (void)state;
    is_large = true;
    assert_int_equal(cddp_devices_create((const char *const[]){"cpu:1"}, 1, &devices), CDDP_OK);
    assert_int_equal(devices->cores[0].cpu, 1500);
    cddp_devices_destroy(devices);
    assert_true(failure_is(cddp_devices_create((const char *const[]){"cpu:2"}, 1, &devices),
                           CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("may use 2 processors"));
    is_large = false;
}

/* @p count devices; on a machine with one processor they share it. */
static cddp_devices *make(int count)
{
    const char *names[MOST];
    cpu_set_t allowed;
    cddp_devices *devices;

    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int d = 0; d < count; d++) {
        names[d] = d % 2 == 1 && CPU_COUNT(&allowed) > 1 ? "cpu:1" : "cpu:0";
    }
    assert_int_equal(cddp_devices_create(names, count, &devices), CDDP_OK);
    assert_int_equal(cddp_devices_count(devices), count);
    assert_string_equal(cddp_devices_name(devices, 0), "cpu:0");
    assert_null(cddp_devices_name(devices, count));
    return devices;
}

static void scatter_divides_as_torch_chunk_does(void **state)
{
    static const struct {
        size_t rows;
        int devices;
        size_t chunks[5];
    } cases[] = {{7, 3, {3, 3, 1}}, {4, 3, {2, 2}}, {6, 3, {2, 2, 2}}, {1, 4, {1}},
                 {5, 4, {2, 2, 1}}, {7, 1, {7}},    {3, 5, {1, 1, 1}}, {8, 3, {3, 3, 2}}};
    static char rows[8][6];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cddp_devices *devices = make(cases[i].devices);
        cddp_chunk chunks[MOST] = {{0}};
        char *at = rows[0];
        int expected = 0;
        int count;

        assert_int_equal(
            cddp_parallel_scatter(devices, rows, cases[i].rows, sizeof *rows, chunks, &count),
            CDDP_OK);
        while (expected < cases[i].devices && cases[i].chunks[expected] > 0) {
            assert_int_equal(chunks[expected].rows, cases[i].chunks[expected]);
            assert_ptr_equal(chunks[expected].data, at);
            at += cases[i].chunks[expected++] * sizeof *rows;
        }
        assert_int_equal(count, expected);
        cddp_devices_destroy(devices);
    }
}

static void replicas_are_copies_and_the_first_is_the_original(void **state)
{
    float a[3] = {1, 2, 3};
    float b[1] = {4};
    float *const params[] = {a, b};
    const size_t counts[] = {3, 1};
    cddp_devices *devices = make(3);
    float **copies;

    (void)state;
    assert_int_equal(cddp_parallel_replicate(devices, 3, params, counts, 2, &copies), CDDP_OK);
    assert_ptr_equal(copies[0], a);
    assert_ptr_equal(copies[1], b);
    a[0] = b[0] = -1;
    for (int d = 1; d < 3; d++) {
        assert_memory_equal(copies[2 * d], ((float[]){1, 2, 3}), sizeof a);
        assert_true(copies[2 * d + 1][0] == 4);
        assert_int_equal((uintptr_t)copies[2 * d] % 64, 0);
        copies[2 * d][2] = (float)d;
    }
    assert_true(copies[2][2] == 1 && copies[4][2] == 2 && a[2] == 3);
    cddp_free(copies);
    assert_true(failure_is(cddp_parallel_replicate(devices, 3, params, NULL, 2, &copies),
                           CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("replicate: counts is NULL"));
    assert_int_equal(cddp_parallel_replicate(devices, 4, params, counts, 2, &copies),
                     CDDP_ERR_ARGUMENT);
    assert_int_equal(
        cddp_parallel_replicate(devices, 2, params, (size_t[]){SIZE_MAX / 4, 1}, 2, &copies),
        CDDP_ERR_ARGUMENT);
    cddp_devices_destroy(devices);
}

struct meeting {
    atomic_int here;
    int count;
    cpu_set_t masks[MOST];
};

/* Each waits for all others, so they run at once; with a limit that only a hang reaches. */
static cddp_status meet(void *argument, int device)
{
    struct meeting *meeting = argument;

    CHECK(sched_getaffinity(0, sizeof meeting->masks[device], &meeting->masks[device]) == 0);
    atomic_fetch_add(&meeting->here, 1);
    for (int ms = 0; atomic_load(&meeting->here) < meeting->count; ms++) {
        CHECK(ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(1);
    }
    return 0;
}

static void devices_run_at_once_each_on_its_processor(void **state)
{
    struct meeting meeting = {.count = 3};
    cddp_devices *devices = make(3);
    cpu_set_t allowed;
    cpu_set_t after;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(cddp_parallel_apply(devices, 3, meet, &meeting), CDDP_OK);
    for (int d = 0; d < 3; d++) {
        assert_int_equal(CPU_COUNT(&meeting.masks[d]), 1);
    }
    assert_true(CPU_EQUAL(&meeting.masks[0], &meeting.masks[2]));
    assert_true(CPU_COUNT(&allowed) == 1 || !CPU_EQUAL(&meeting.masks[0], &meeting.masks[1]));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&after, &allowed)); /* the caller is not bound */
    cddp_devices_destroy(devices);
}

/* Device 2 fails with an error of cddp, device 3 without. */
static cddp_status fail_behind(void *argument, int device)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store;

    if (device == *(const int *)argument) {
        options.url = "nowhere";
        return cddp_store_open(&options, &store);
    }
    return device == 3 ? (cddp_status)6 : CDDP_OK;
}

static cddp_status fail_in_words(void *words, int device)
{
    return device == 1 ? cddp_fail(CDDP_ERR_FORMAT, words) : CDDP_OK;
}

static void a_device_that_fails_is_named(void **state)
{
    const char *const names[] = {"cpu", "cpu", "cpu:0", "cpu"};
    cddp_devices *devices;
    int which = 2;

    (void)state;
    assert_int_equal(cddp_devices_create(names, 4, &devices), CDDP_OK);
    assert_true(failure_is(cddp_parallel_apply(devices, 4, fail_behind, &which), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_int_equal(strncmp(cddp_last_error(), "cpu:0: store nowhere", 20), 0);
    which = -1;
    assert_true(failure_is(cddp_parallel_apply(devices, 4, fail_behind, &which), CDDP_ERR_DEVICE,
                           -1, -1, ""));
    assert_true(last_error_has("cpu: its function returned 6"));
    assert_int_equal(cddp_parallel_apply(devices, 3, fail_behind, &which), CDDP_OK);
    assert_true(failure_is(cddp_parallel_apply(devices, 3, fail_in_words, "no image"),
                           CDDP_ERR_FORMAT, -1, -1, ""));
    assert_string_equal(cddp_last_error(), "cpu: no image");
    cddp_devices_destroy(devices);
}

static void gather_puts_chunks_behind_each_other(void **state)
{
    char a[] = "aabb";
    char b[] = "cc";
    cddp_chunk chunks[] = {{a, 2}, {b, 1}};
    char out[7] = "xxxxxx";

    (void)state;
    assert_int_equal(cddp_parallel_gather(chunks, 2, 2, out, 3), CDDP_OK);
    assert_string_equal(out, "aabbcc");
    assert_int_equal(cddp_parallel_gather(chunks, 2, 2, out, 4), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_parallel_gather(chunks, 2, 2, out, 2), CDDP_ERR_ARGUMENT);
    assert_int_equal(cddp_parallel_gather(chunks, 0, 2, out, 0), CDDP_ERR_ARGUMENT);
}

/* A linear layer, and half the sum of its squared outputs as the loss. */
static cddp_status linear(void *argument, const cddp_replica *replica)
{
    const float *w = replica->params[0];
    const float *bias = replica->params[1];

    (void)argument;
    for (size_t row = 0; row < replica->rows; row++) {
        const float *in = (const float *)replica->in + row * INPUTS;
        float *out = (float *)replica->out + row * OUTPUTS;

        for (int o = 0; o < OUTPUTS; o++) {
            out[o] = bias[o];
            for (int i = 0; i < INPUTS; i++) {
                out[o] += w[o * INPUTS + i] * in[i];
            }
            replica->grads[1][o] += out[o];
            for (int i = 0; i < INPUTS; i++) {
                replica->grads[0][o * INPUTS + i] += out[o] * in[i];
            }
        }
    }
    return 0;
}

struct step {
    float out[11 * OUTPUTS];
    float grad_w[OUTPUTS * INPUTS];
    float grad_bias[OUTPUTS];
};

/* What @p options say of a step of @p rows, whose results are in @p step; of one step at a time. */
static void describe(cddp_data_parallel_options *options, size_t rows, struct step *step)
{
    static const size_t counts[] = {OUTPUTS * INPUTS, OUTPUTS};
    static float in[11 * INPUTS];
    static float w[OUTPUTS * INPUTS];
    static float bias[OUTPUTS] = {0.25F, -0.5F, 0.125F};
    static float *const params[] = {w, bias};
    static float *grads[2];

    for (int i = 0; i < 11 * INPUTS; i++) {
        in[i] = sinf((float)i);
        w[i % (OUTPUTS * INPUTS)] = cosf((float)(i % (OUTPUTS * INPUTS)));
    }
    memset(step, 0, sizeof *step);
    grads[0] = step->grad_w;
    grads[1] = step->grad_bias;
    options->in = in;
    options->rows = rows;
    options->in_row_bytes = INPUTS * sizeof *in;
    options->out = step->out;
    options->out_row_bytes = OUTPUTS * sizeof *step->out;
    options->params = params;
    options->counts = counts;
    options->param_count = 2;
    options->grads = grads;
}

static void take_step(int device_count, size_t rows, struct step *step)
{
    cddp_data_parallel_options options = CDDP_DATA_PARALLEL_OPTIONS_INIT;
    cddp_devices *devices = make(device_count);

    describe(&options, rows, step);
    step->grad_bias[0] = 1; /* of an earlier micro-batch */
    assert_int_equal(cddp_data_parallel(devices, &options, linear, NULL), CDDP_OK);
    cddp_devices_destroy(devices);
}

static void a_step_over_devices_is_that_of_one(void **state)
{
    static const int counts[] = {2, 3, 7, 9};
    static const size_t rows[] = {1, 7, 8, 11};

    (void)state;
    for (int i = 0; i < 16; i++) {
        struct step one;
        struct step several;
        struct step again;

        take_step(1, rows[i / 4], &one);
        take_step(counts[i % 4], rows[i / 4], &several);
        take_step(counts[i % 4], rows[i / 4], &again);
        assert_memory_equal(&several, &again, sizeof again);
        assert_memory_equal(several.out, one.out, sizeof one.out); /* a row is one device's alone */
        for (int k = 0; k < OUTPUTS * INPUTS; k++) {
            assert_true(fabsf(several.grad_w[k] - one.grad_w[k]) <= 1e-5F);
        }
        for (int k = 0; k < OUTPUTS; k++) {
            assert_true(fabsf(several.grad_bias[k] - one.grad_bias[k]) <= 1e-5F);
        }
    }
}

/* The outputs of a linear layer; and what is lost of all of them together: half the square of the
 * sum of each column, whose gradient no device knows from its own rows. */
static cddp_status forward_only(void *argument, const cddp_replica *replica)
{
    (void)argument;
    if (replica->out_grads != NULL) { /* only the parent may assert */
        return 1;
    }
    for (size_t row = 0; row < replica->rows; row++) {
        const float *in = (const float *)replica->in + row * INPUTS;
        float *out = (float *)replica->out + row * OUTPUTS;

        for (int o = 0; o < OUTPUTS; o++) {
            out[o] = replica->params[1][o];
            for (int i = 0; i < INPUTS; i++) {
                out[o] += replica->params[0][o * INPUTS + i] * in[i];
            }
        }
    }
    return 0;
}

static cddp_status loss_of_columns(void *argument, int device, const void *out, size_t rows,
                                   void *out_grads)
{
    const float *values = out;

    *(int *)argument = device;
    for (int o = 0; o < OUTPUTS; o++) {
        float sum = 0;

        for (size_t row = 0; row < rows; row++) {
            sum += values[row * OUTPUTS + (size_t)o];
        }
        for (size_t row = 0; row < rows && out_grads != NULL; row++) {
            ((float *)out_grads)[row * OUTPUTS + (size_t)o] = sum;
        }
    }
    return 0;
}

static cddp_status backward_only(void *argument, const cddp_replica *replica)
{
    const float *out_grads = replica->out_grads;

    (void)argument;
    for (size_t row = 0; row < replica->rows; row++) {
        const float *in = (const float *)replica->in + row * INPUTS;

        for (int o = 0; o < OUTPUTS; o++) {
            float grad = out_grads[row * OUTPUTS + (size_t)o];

            replica->grads[1][o] += grad;
            for (int i = 0; i < INPUTS; i++) {
                replica->grads[0][o * INPUTS + i] += grad * in[i];
            }
        }
    }
    return 0;
}

static void a_loss_of_gathered_outputs_is_that_of_one_device(void **state)
{
    struct step steps[2];
    float out_grads[7 * OUTPUTS];

    (void)state;
    for (int several = 0; several < 2; several++) {
        struct step *step = &steps[several];
        cddp_devices *devices = make(several ? 4 : 1); /* of which 7 rows take all */
        cddp_data_parallel_options options = CDDP_DATA_PARALLEL_OPTIONS_INIT;
        int computed_on = -1;

        describe(&options, 7, step);
        options.loss = loss_of_columns;
        options.out_grads = out_grads;
        options.backward = backward_only;
        options.output_device = several ? 2 : 0;
        assert_int_equal(cddp_data_parallel(devices, &options, forward_only, &computed_on),
                         CDDP_OK);
        assert_int_equal(computed_on, options.output_device);
        options.output_device = 4;
        assert_int_equal(cddp_data_parallel(devices, &options, forward_only, &computed_on),
                         CDDP_ERR_ARGUMENT);
        options.output_device = 0;
        options.backward = NULL;
        assert_int_equal(cddp_data_parallel(devices, &options, forward_only, &computed_on),
                         CDDP_ERR_ARGUMENT);
        options.out_grads = NULL; /* the loss alone */
        assert_int_equal(cddp_data_parallel(devices, &options, forward_only, &computed_on),
                         CDDP_OK);
        options.out = NULL;
        assert_int_equal(cddp_data_parallel(devices, &options, forward_only, &computed_on),
                         CDDP_ERR_ARGUMENT);
        cddp_devices_destroy(devices);
    }
    assert_memory_equal(steps[0].out, steps[1].out, sizeof steps[0].out);
    for (int k = 0; k < OUTPUTS * INPUTS; k++) {
        assert_true(fabsf(steps[0].grad_w[k] - steps[1].grad_w[k]) <= 1e-4F);
        assert_true(steps[0].grad_w[k] != 0);
    }
    for (int k = 0; k < OUTPUTS; k++) {
        assert_true(fabsf(steps[0].grad_bias[k] - steps[1].grad_bias[k]) <= 1e-4F);
    }
}

static cddp_status fail_on_last(void *argument, const cddp_replica *replica)
{
    (void)argument;
    return replica->device == replica->device_count - 1 && replica->first_row == 6 ? CDDP_ERR_IO
                                                                                   : CDDP_OK;
}

static void what_cannot_be_done_is_refused(void **state)
{
    static const char *const wrong[] = {"cpu:", "cpu:x", "cpu:-1", "cpu:123456",
                                        "gpu",  "",      "cpu:0 "};
    static const char *const gpus[][2] = {{"cpu:0", "cuda:0"}, {"cpu:0", "cuda"}};
    cddp_data_parallel_options options = CDDP_DATA_PARALLEL_OPTIONS_INIT;
    cddp_devices *devices = NULL;
    const char *name;
    float in[7] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(cddp_devices_create(&wrong[i], 1, &devices), CDDP_ERR_ARGUMENT);
    }
    name = "cpu:60000";
    assert_int_equal(cddp_devices_create(&name, 1, &devices), CDDP_ERR_UNAVAILABLE);
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        char text[200];

        snprintf(text, sizeof text,
                 "devices: %s: the devices of a program's own DataParallel are processors: start a "
                 "rank for each GPU",
                 gpus[i][1]);
        assert_true(failure_is(cddp_devices_create(gpus[i], 2, &devices), CDDP_ERR_UNAVAILABLE, -1,
                               -1, ""));
        assert_string_equal(cddp_last_error(), text);
    }
    assert_int_equal(cddp_devices_create(&name, 0, &devices), CDDP_ERR_ARGUMENT);
    assert_null(devices);
    devices = make(3);
    options.in = in;
    options.in_row_bytes = sizeof *in;
    assert_int_equal(cddp_data_parallel(devices, &options, fail_on_last, NULL), CDDP_ERR_ARGUMENT);
    options.rows = 7;
    assert_true(failure_is(cddp_data_parallel(devices, &options, fail_on_last, NULL), CDDP_ERR_IO,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "cpu:0: its function returned CDDP_ERR_IO: a file or a connection failed");
    options.struct_size = 0;
    assert_int_equal(cddp_data_parallel(devices, &options, fail_on_last, NULL), CDDP_ERR_ARGUMENT);
    cddp_devices_destroy(devices);
    cddp_devices_destroy(NULL);
}

/* What a device's thread finds, round by round. */
struct rounds {
    pthread_t threads[MOST][2];
    cpu_set_t cores[MOST];
    int round, failing;
};

static cddp_status note_thread(int device, void *argument)
{
    struct rounds *rounds = argument;

    rounds->threads[device][rounds->round] = pthread_self();
    (void)sched_getaffinity(0, sizeof rounds->cores[device], &rounds->cores[device]);
    return device == rounds->failing ? cddpi_fail(CDDP_ERR_STATE, "it is not well") : CDDP_OK;
}

static void workers_live_from_round_to_round_each_on_its_processor(void **state)
{
    struct rounds rounds = {.failing = -1};
    cddp_devices *devices = make(3);
    struct cddpi_workers *workers;

    (void)state;
    assert_int_equal(cddpi_workers_create(devices, &workers), CDDP_OK);
    for (; rounds.round < 2; rounds.round++) {
        assert_int_equal(cddpi_workers_run(workers, note_thread, &rounds), CDDP_OK);
    }
    for (int d = 0; d < 3; d++) {
        assert_true(pthread_equal(rounds.threads[d][0], rounds.threads[d][1]));
        assert_false(pthread_equal(rounds.threads[d][0], pthread_self()));
        assert_int_equal(CPU_COUNT(&rounds.cores[d]), 1);
        assert_true(CPU_ISSET(devices->cores[d].cpu, &rounds.cores[d]));
    }
    rounds.round = 0;
    rounds.failing = 2;
    assert_true(
        failure_is(cddpi_workers_run(workers, note_thread, &rounds), CDDP_ERR_STATE, -1, -1, ""));
    assert_string_equal(cddp_last_error(), "cpu:0: it is not well");
    rounds.failing = -1;
    assert_int_equal(cddpi_workers_run(workers, note_thread, &rounds), CDDP_OK);
    cddpi_workers_destroy(workers);
    cddpi_workers_destroy(NULL);
    cddp_devices_destroy(devices);
}

static cddp_status do_nothing(void *argument, int device)
{
    (void)device;
    (void)argument;
    return 0;
}

/* As a set of processors that has shrunk since. */
static void a_thread_that_cannot_be_bound_is_an_error(void **state)
{
    cddp_devices *devices = make(2);
    struct cddpi_workers *workers;

    (void)state;
    devices->cores[1].cpu = CPU_SETSIZE - 1;
    assert_true(failure_is(cddp_parallel_apply(devices, 2, do_nothing, NULL), CDDP_ERR_UNAVAILABLE,
                           -1, -1, ""));
    assert_true(last_error_has(": its thread cannot be bound to processor 1023: "));
    assert_true(
        failure_is(cddpi_workers_create(devices, &workers), CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has(": its thread cannot be bound to processor 1023: "));
    cddp_devices_destroy(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors_count_on_a_machine_with_more_than_1024),
        cmocka_unit_test(scatter_divides_as_torch_chunk_does),
        cmocka_unit_test(replicas_are_copies_and_the_first_is_the_original),
        cmocka_unit_test(devices_run_at_once_each_on_its_processor),
        cmocka_unit_test(a_device_that_fails_is_named),
        cmocka_unit_test(gather_puts_chunks_behind_each_other),
        cmocka_unit_test(a_step_over_devices_is_that_of_one),
        cmocka_unit_test(a_loss_of_gathered_outputs_is_that_of_one_device),
        cmocka_unit_test(what_cannot_be_done_is_refused),
        cmocka_unit_test(workers_live_from_round_to_round_each_on_its_processor),
        cmocka_unit_test(a_thread_that_cannot_be_bound_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
