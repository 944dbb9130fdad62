/* recovery_words.c - the words of recovery_rank's loops: see recovery_loop.h. */
#include "recovery/recovery_loop.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    EVENT("dies", dies),
    EVENT("met", met),
    EVENT("save", save),
    EVENT("load", load),
    EVENT("fail-save", fail_save),
    EVENT("fail-load", fail_load),
    EVENT("hang-save", hang_save),
    EVENT("hang-load", hang_load),
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
    EVENT("closes", closes),
    EVENT("lingers", lingers),
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
