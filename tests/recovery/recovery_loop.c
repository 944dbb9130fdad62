/* recovery_loop.c - the loops of recovery_rank: their state, and what becomes of it. */
#include "recovery/recovery_loop.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const size_t param_counts[PARAMS] = {7, 3, 1, 101};

enum { FROZEN = 1 };

void loop_die_if(uint64_t event, uint64_t now)
{
    if (event != 0 && event == now) {
        fflush(NULL);
        kill(getpid(), SIGKILL);
        pause();
    }
}

void loop_wait_if(uint64_t event, uint64_t now)
{
    if (event != 0 && event == now) {
        printf("waits %" PRIu64 "\n", now);
        fflush(stdout);
        while (!cddp_stop_requested()) {
            usleep(2000);
        }
    }
}

/* The number of a parameter's or buffer's values. */
static uint64_t number_of(const struct loop *loop, const struct model *model, size_t param)
{
    return 100 + 10 * (uint64_t)(model - loop->models) + param;
}

static uint64_t buffer_of(const struct loop *loop, const struct model *model)
{
    return number_of(loop, model, PARAMS);
}

/* Buffers differ between ranks. */
static void set_buffer(const struct loop *loop, struct model *model)
{
    bytes_set(loop, model->buffer, buffer_of(loop, model) + 1000 * (uint64_t)loop->rank, 0,
              sizeof model->buffer, loop->step);
}

void loop_set(struct loop *loop)
{
    for (int i = 0; i < loop->count; i++) {
        const struct array *array = &loop->arrays[i];

        bytes_set(loop, array->data, (uint64_t)i, array->first, array->bytes, loop->step);
    }
    for (struct model *model = loop->models; model < loop->models + loop->ddps; model++) {
        for (size_t p = 0; p < PARAMS; p++) {
            bytes_set(loop, cddp_ddp_param(model->handle, p), number_of(loop, model, p), 0,
                      param_counts[p] * sizeof(float), p == FROZEN ? loop->generation : loop->step);
        }
        set_buffer(loop, model);
    }
    loop->share = loop->rank == 0 ? 7 * loop->step : 0;
}

static void hang_if(uint64_t event, uint64_t now)
{
    while (event != 0 && event == now) {
        pause();
    }
}

static cddp_status save(void *state, void *to)
{
    const struct loop *loop = state;

    loop_die_if(loop->events.save, loop->step);
    loop_wait_if(loop->events.save_waits, loop->step);
    hang_if(loop->events.hang_save, loop->step);
    bytes_set(loop, to, 99, 0, loop->calls, loop->step);
    if (loop->calls > sizeof loop->share) {
        memcpy(to, &loop->share, sizeof loop->share);
    }
    if (loop->slow_us > 0) {
        usleep((useconds_t)loop->slow_us);
    }
    return loop->events.fail_save == loop->step ? CDDP_ERR_IO : CDDP_OK;
}

static cddp_status load(void *state, const void *from, int part, int parts)
{
    struct loop *loop = state;
    uint64_t share = 0;

    loop_die_if(loop->events.load, (uint64_t)part + 1);
    hang_if(loop->events.hang_load, (uint64_t)part + 1);
    if (part != loop->loaded || part >= parts) {
        printf("WRONG: part %d of %d comes after %d\n", part, parts, loop->loaded);
        return CDDP_ERR_ARGUMENT;
    }
    loop->loaded = part + 1 < parts ? part + 1 : -parts;
    if (loop->calls > sizeof share) {
        memcpy(&share, from, sizeof share);
    }
    memcpy(loop->last, from, loop->calls < LAST_BYTES ? loop->calls : LAST_BYTES);
    loop->share = (part == 0 ? 0 : loop->share) + (loop->rank == 0 ? share : 0);
    if (loop->events.fail_load == (uint64_t)part + 1) {
        return cddp_fail(CDDP_ERR_TIMEOUT, "no time");
    }
    return CDDP_OK;
}

static int make_ddp(struct loop *loop, struct model *model)
{
    static const char *const names[] = {"first", "frozen", "single", "last"};
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    cddp_param params[PARAMS];
    const cddp_param buffer = {.name = "mean",
                               .type = CDDP_U8,
                               .dims = 1,
                               .shape = {sizeof model->buffer},
                               .data = model->buffer};

    for (size_t p = 0; p < PARAMS; p++) {
        model->params[p] = bytes_alloc(loop, param_counts[p] * sizeof(float));
        params[p] = (cddp_param){.name = names[p],
                                 .type = CDDP_F32,
                                 .dims = 1,
                                 .shape = {(int64_t)param_counts[p]},
                                 .data = model->params[p],
                                 .flags = p == FROZEN ? CDDP_PARAM_FROZEN : 0};
    }
    options.shard = loop->ddp == 's';
    return cddp_ddp_create(loop->group, params, PARAMS, &buffer, 1, &options, &model->handle) !=
               CDDP_OK ||
           cddp_recovery_add_ddp(loop->recovery, model->handle) != CDDP_OK;
}

static int add(struct loop *loop, int i)
{
    struct array *array = &loop->arrays[i];
    cddp_recovery_array registered = CDDP_RECOVERY_ARRAY_INIT;
    char name[24];

    snprintf(name, sizeof name, "array %d", i);
    array->data = bytes_alloc(loop, array->bytes);
    registered.name = name;
    registered.data = array->bytes > 0 ? array->data : NULL;
    registered.bytes = array->bytes;
    registered.total_bytes = array->total;
    registered.first_byte = array->first;
    return array->data == NULL || cddp_recovery_add(loop->recovery, &registered) != CDDP_OK;
}

static int add_calls(struct loop *loop)
{
    cddp_recovery_callbacks calls = CDDP_RECOVERY_CALLBACKS_INIT;

    calls.name = "calls";
    calls.bytes = loop->calls;
    calls.save = save;
    calls.load = load;
    calls.state = loop;
    return cddp_recovery_add_callbacks(loop->recovery, &calls) != CDDP_OK;
}

int loop_make(struct loop *loop)
{
    cddp_recovery_options options = CDDP_RECOVERY_OPTIONS_INIT;

    options.name = loop->name;
    options.every_steps = loop->every;
    if (cddp_recovery_create(loop->group, &options, &loop->recovery) != CDDP_OK ||
        (loop->calls > 0 && add_calls(loop) != 0)) {
        return 1;
    }
    for (int i = 0; i < loop->count; i++) {
        if (add(loop, loop->order == 'r' ? loop->count - 1 - i : i) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < loop->ddps; i++) {
        if (make_ddp(loop, &loop->models[i]) != 0) {
            return 1;
        }
    }
    loop_set(loop);
    return 0;
}

void loop_release(struct loop *loop)
{
    cddp_recovery_destroy(loop->recovery);
    for (int i = 0; i < loop->ddps; i++) {
        cddp_ddp_destroy(loop->models[i].handle);
        for (size_t p = 0; p < PARAMS; p++) {
            bytes_free(loop, loop->models[i].params[p]);
        }
    }
    for (int i = 0; i < loop->count; i++) {
        bytes_free(loop, loop->arrays[i].data);
    }
}

static int update_ddp(struct loop *loop, struct model *model)
{
    size_t count = 0;
    const cddp_span *spans = cddp_ddp_spans(model->handle, loop->rank, &count);

    for (size_t i = 0; i < count; i++) {
        unsigned char *data = cddp_ddp_param(model->handle, spans[i].param);

        bytes_update(loop, data + spans[i].first * sizeof(float),
                     number_of(loop, model, spans[i].param), spans[i].first * sizeof(float),
                     spans[i].count * sizeof(float));
    }
    if (spans != NULL) {
        return cddp_ddp_params_start(model->handle) != CDDP_OK;
    }
    for (size_t p = 0; p < PARAMS; p++) {
        if (p != FROZEN) {
            bytes_update(loop, cddp_ddp_param(model->handle, p), number_of(loop, model, p), 0,
                         param_counts[p] * sizeof(float));
        }
    }
    return 0;
}

void loop_own_buffers(struct loop *loop)
{
    for (int i = 0; i < loop->ddps; i++) {
        set_buffer(loop, &loop->models[i]);
    }
}

int loop_update(struct loop *loop)
{
    for (int i = 0; i < loop->count; i++) {
        const struct array *array = &loop->arrays[i];

        bytes_update(loop, array->data, (uint64_t)i, array->first, array->bytes);
    }
    for (int i = 0; i < loop->ddps; i++) {
        if (update_ddp(loop, &loop->models[i]) != 0) {
            return 1;
        }
    }
    loop->share += loop->rank == 0 ? 8 - (uint64_t)loop->world_size : 1;
    loop->step++;
    loop_own_buffers(loop);
    return 0;
}

static int check_ddp(struct loop *loop, struct model *model, bool replaced)
{
    uint64_t buffer = buffer_of(loop, model) + (replaced ? 0 : 1000 * (uint64_t)loop->rank);
    int wrong = loop->ddp == 's' && cddp_ddp_params_wait(model->handle) != CDDP_OK;

    for (size_t p = 0; p < PARAMS; p++) {
        wrong |= bytes_check(loop, cddp_ddp_param(model->handle, p), number_of(loop, model, p), 0,
                             param_counts[p] * sizeof(float),
                             p == FROZEN ? loop->generation : loop->step);
    }
    return wrong | bytes_check(loop, model->buffer, buffer, 0, sizeof model->buffer, loop->step);
}

/* What the function was given last. */
static int check_loaded(const struct loop *loop)
{
    uint64_t bytes = loop->calls < LAST_BYTES ? loop->calls : LAST_BYTES;
    uint64_t skip = loop->calls > sizeof loop->share ? sizeof loop->share : 0;

    if (loop->loaded >= 0) {
        printf("WRONG: only %d parts were loaded\n", loop->loaded);
        return 1;
    }
    for (uint64_t i = skip; i < bytes; i++) {
        if (loop->last[i] != bytes_value(99, i, loop->step)) {
            printf("WRONG: byte %" PRIu64 " that was saved\n", i);
            return 1;
        }
    }
    return 0;
}

int loop_check(struct loop *loop, bool replaced)
{
    uint64_t sum = loop->share;
    int wrong = 0;

    for (int i = 0; i < loop->count; i++) {
        const struct array *array = &loop->arrays[i];

        wrong |= bytes_check(loop, array->data, (uint64_t)i, array->first, array->bytes,
                             loop->step);
    }
    for (int i = 0; i < loop->ddps; i++) {
        wrong |= check_ddp(loop, &loop->models[i], replaced);
    }
    if (cddp_all_reduce(loop->group, &sum, &sum, 1, CDDP_I64, CDDP_OP_SUM, NULL) != CDDP_OK) {
        return 1;
    }
    if (loop->calls > sizeof sum && sum != 7 * loop->step) {
        printf("WRONG: the sum is %" PRIu64 " at step %" PRIu64 "\n", sum, loop->step);
        wrong = 1;
    }
    return wrong | (replaced && loop->calls > 0 ? check_loaded(loop) : 0);
}
