/* recovery_loop.c - the loops of recovery_rank: their words and their state. */
#include "recovery/recovery_loop.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t param_counts[PARAMS] = {7, 3, 1, 101};

enum { FROZEN = 1 };

static uint64_t read_number(const char **at)
{
    char *end;
    uint64_t number = strtoull(*at, &end, 10);

    *at = *end != '\0' ? end + 1 : end;
    return number;
}

static int add_array(struct loop *loop, uint64_t total, uint64_t first, uint64_t bytes)
{
    if (loop->count == ARRAYS) {
        return 1;
    }
    loop->arrays[loop->count++] = (struct array){.total = total, .first = first, .bytes = bytes};
    return 0;
}

/* Each rank has an equal part of @p total bytes. */
static int add_part(struct loop *loop, uint64_t total)
{
    uint64_t n = (uint64_t)loop->world_size;
    uint64_t first = total * (uint64_t)loop->rank / n;

    return add_array(loop, total, first, total * ((uint64_t)loop->rank + 1) / n - first);
}

/* TOTAL:FIRST:BYTES, as told. */
static int add_range(struct loop *loop, const char *at)
{
    uint64_t total = read_number(&at);
    uint64_t first = read_number(&at);

    return add_array(loop, total, first, read_number(&at));
}

/* A number of the loop. */
struct row {
    const char *key;
    size_t at;
};
#define EVENT(key, field)                                                                          \
    {                                                                                              \
        key, offsetof(struct loop, events.field)                                                   \
    }
#define NUMBER(name)                                                                               \
    {                                                                                              \
#name, offsetof(struct loop, name)                                                         \
    }
static const struct row rows[] = {
    NUMBER(steps),
    NUMBER(every),
    NUMBER(checkpoint),
    NUMBER(slow_us),
    NUMBER(strict),
    NUMBER(calls),
    EVENT("kill", kill),
    EVENT("begun", begun),
    EVENT("met", met),
    EVENT("save", save),
    EVENT("load", load),
    EVENT("fail-save", fail_save),
    EVENT("fail-load", fail_load),
    EVENT("term", term),
    EVENT("refuse", refuse),
    EVENT("ends", ends),
    EVENT("damage", damage),
    EVENT("back", back),
    EVENT("gone-back", gone_back),
    EVENT("chaos", chaos),
    EVENT("jump", jump),
    EVENT("waits", waits),
    EVENT("save-waits", save_waits),
    EVENT("no-memory", no_memory),
};

static int read_word(struct loop *loop, const char *key, const char *value)
{
    if (strcmp(key, "whole") == 0) {
        return add_array(loop, 0, 0, read_number(&value));
    }
    if (strcmp(key, "part") == 0) {
        return add_part(loop, read_number(&value));
    }
    if (strcmp(key, "range") == 0) {
        return add_range(loop, value);
    }
    if (strcmp(key, "name") == 0 || strcmp(key, "folder") == 0) {
        snprintf(*key == 'n' ? loop->name : loop->folder, WORD_BYTES, "%s", value);
        return 0;
    }
    if (strcmp(key, "ddp") == 0) { /* pp: two of them */
        loop->ddp = value[0];
        loop->ddps = (int)strlen(value);
        return 0;
    }
    if (strcmp(key, "order") == 0) {
        loop->order = value[0];
        return 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(key, rows[i].key) == 0) {
            uint64_t number = read_number(&value);

            memcpy((char *)loop + rows[i].at, &number, sizeof number);
            return 0;
        }
    }
    return 1;
}

/* "GENERATION.RANK:", "*" for any. Moves @p at behind it. */
static bool is_for(const struct loop *loop, char **at)
{
    char *colon = strchr(*at, ':');
    char *dot = strchr(*at, '.');
    char *equals = strchr(*at, '=');
    bool is_mine;

    if (colon == NULL || dot == NULL || dot > colon || equals < colon) {
        return true;
    }
    is_mine = (**at == '*' || strtoull(*at, NULL, 10) == loop->generation) &&
              (dot[1] == '*' || atoi(dot + 1) == loop->rank);
    *at = colon + 1;
    return is_mine;
}

int loop_read(struct loop *loop, const char *words)
{
    char *copy = strdup(words);
    char *state = NULL;
    int wrong = copy == NULL;

    for (char *word = copy != NULL ? strtok_r(copy, " ", &state) : NULL; word != NULL && wrong == 0;
         word = strtok_r(NULL, " ", &state)) {
        bool is_mine = is_for(loop, &word);
        char *equals = strchr(word, '=');

        wrong = equals == NULL;
        if (is_mine && wrong == 0) {
            *equals = '\0';
            wrong = read_word(loop, word, equals + 1);
        }
        if (wrong != 0) {
            fprintf(stderr, "recovery_rank: what is %s?\n", word);
        }
    }
    free(copy);
    return wrong;
}

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

/* Byte @p i of array @p array after @p step steps. */
static unsigned char value(uint64_t array, uint64_t i, uint64_t step)
{
    uint64_t mixed = (array * 1000003 + i) * UINT64_C(0x9e3779b97f4a7c15) +
                     step * UINT64_C(0xbf58476d1ce4e5b9);

    mixed = (mixed ^ mixed >> 29) * UINT64_C(0x94d049bb133111eb);
    return (unsigned char)(mixed >> 56);
}

/* An update: wrong bytes stay wrong. */
static void update(unsigned char *data, uint64_t array, uint64_t first, uint64_t bytes,
                   uint64_t step)
{
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] ^= value(array, first + i, step) ^ value(array, first + i, step + 1);
    }
}

static int check(const unsigned char *data, uint64_t array, uint64_t first, uint64_t bytes,
                 uint64_t step)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (data[i] != value(array, first + i, step)) {
            printf("WRONG: byte %" PRIu64 " of array %" PRIu64 " at step %" PRIu64 "\n", first + i,
                   array, step);
            return 1;
        }
    }
    return 0;
}

static void set(unsigned char *data, uint64_t array, uint64_t first, uint64_t bytes, uint64_t step)
{
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] = value(array, first + i, step);
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
    set(model->buffer, buffer_of(loop, model) + 1000 * (uint64_t)loop->rank, 0,
        sizeof model->buffer, loop->step);
}

void loop_set(struct loop *loop)
{
    for (int i = 0; i < loop->count; i++) {
        const struct array *array = &loop->arrays[i];

        set(array->data, (uint64_t)i, array->first, array->bytes, loop->step);
    }
    for (struct model *model = loop->models; model < loop->models + loop->ddps; model++) {
        for (size_t p = 0; p < PARAMS; p++) {
            set(cddp_ddp_param(model->handle, p), number_of(loop, model, p), 0,
                param_counts[p] * sizeof(float), p == FROZEN ? loop->generation : loop->step);
        }
        set_buffer(loop, model);
    }
    loop->share = loop->rank == 0 ? 7 * loop->step : 0;
}

static cddp_status save(void *state, void *to)
{
    const struct loop *loop = state;

    loop_die_if(loop->events.save, loop->step);
    loop_wait_if(loop->events.save_waits, loop->step);
    set(to, 99, 0, loop->calls, loop->step);
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
    array->data = malloc(array->bytes + 1);
    registered.name = name;
    registered.data = array->bytes > 0 ? array->data : NULL;
    registered.bytes = array->bytes;
    registered.total = array->total;
    registered.first = array->first;
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
    options.every = loop->every;
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
    }
    for (int i = 0; i < loop->count; i++) {
        free(loop->arrays[i].data);
    }
}

static int update_ddp(struct loop *loop, struct model *model)
{
    size_t count = 0;
    const cddp_span *spans = cddp_ddp_spans(model->handle, loop->rank, &count);

    for (size_t i = 0; i < count; i++) {
        unsigned char *data = cddp_ddp_param(model->handle, spans[i].param);

        update(data + spans[i].first * sizeof(float), number_of(loop, model, spans[i].param),
               spans[i].first * sizeof(float), spans[i].count * sizeof(float), loop->step);
    }
    if (spans != NULL) {
        return cddp_ddp_params_start(model->handle) != CDDP_OK;
    }
    for (size_t p = 0; p < PARAMS; p++) {
        if (p != FROZEN) {
            update(cddp_ddp_param(model->handle, p), number_of(loop, model, p), 0,
                   param_counts[p] * sizeof(float), loop->step);
        }
    }
    return 0;
}

int loop_update(struct loop *loop)
{
    for (int i = 0; i < loop->count; i++) {
        const struct array *array = &loop->arrays[i];

        update(array->data, (uint64_t)i, array->first, array->bytes, loop->step);
    }
    for (int i = 0; i < loop->ddps; i++) {
        if (update_ddp(loop, &loop->models[i]) != 0) {
            return 1;
        }
    }
    loop->share += loop->rank == 0 ? 8 - (uint64_t)loop->world_size : 1;
    loop->step++;
    for (int i = 0; i < loop->ddps; i++) {
        set_buffer(loop, &loop->models[i]);
    }
    return 0;
}

static int check_ddp(struct loop *loop, struct model *model, bool replaced)
{
    uint64_t buffer = buffer_of(loop, model) + (replaced ? 0 : 1000 * (uint64_t)loop->rank);
    int wrong = loop->ddp == 's' && cddp_ddp_params_wait(model->handle) != CDDP_OK;

    for (size_t p = 0; p < PARAMS; p++) {
        wrong |= check(cddp_ddp_param(model->handle, p), number_of(loop, model, p), 0,
                       param_counts[p] * sizeof(float),
                       p == FROZEN ? loop->generation : loop->step);
    }
    return wrong | check(model->buffer, buffer, 0, sizeof model->buffer, loop->step);
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
        if (loop->last[i] != value(99, i, loop->step)) {
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

        wrong |= check(array->data, (uint64_t)i, array->first, array->bytes, loop->step);
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
