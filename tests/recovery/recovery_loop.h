/* recovery_loop.h - the loops of recovery_rank: what a loop's words ask for, and its state, of
 * which each byte is known in advance, so that a rank finds by itself whether its state is right.
 */
#ifndef CDDP_TESTS_RECOVERY_LOOP_H
#define CDDP_TESTS_RECOVERY_LOOP_H

#include <cddp/cddp.h>

#include <stdbool.h>
#include <stdint.h>

enum { ARRAYS = 16, PARAMS = 4, WORD_BYTES = 128, LAST_BYTES = 64 };

/* What a rank does to itself, at the step that its number says. 0: never. */
struct events {
    uint64_t kill;                 /* before the step is begun */
    uint64_t dies;                 /* at the loop's end */
    uint64_t begun;                /* after that, before the ranks meet */
    uint64_t met;                  /* after that */
    uint64_t save, load;           /* in the function; load: 1 is the first part */
    uint64_t fail_save, fail_load; /* the function fails */
    uint64_t hang_save, hang_load; /* it does not return */
    uint64_t term;                 /* SIGTERM, before the step is begun */
    uint64_t refuse, ends;         /* say that the state may be bad, or do not; and fail */
    uint64_t damage;               /* of what is kept; then it is killed */
    uint64_t back, gone_back;      /* go back by two steps, once; then it is killed at a step */
    uint64_t chaos;                /* killed within so many microseconds */
    uint64_t jump;                 /* this rank says a step too much */
    uint64_t waits, save_waits; /* says so before the step is begun, or in the function; and waits
                                 * to be told to end */
    uint64_t no_memory;         /* this allocation of the first call fails */
    uint64_t closes;            /* its standard output, before the step is begun */
    uint64_t lingers;           /* says so before the step is begun, and waits for a file "go" */
};

struct array {
    uint64_t total, first, bytes; /* total 0: whole */
    void *data;                   /* on the group's device, if that has memory of its own */
};

struct loop {
    char name[WORD_BYTES], folder[WORD_BYTES];
    uint64_t steps, every, checkpoint;
    uint64_t slow_us; /* its function takes so long */
    uint64_t strict;  /* no step that ranks have begun together may be lost */
    struct events events;
    cddp_group *group;
    cddp_recovery *recovery;
    int rank, world_size;
    uint64_t generation;
    struct array arrays[ARRAYS];
    int count;
    char order; /* 'r': the last array is registered first */
    char ddp;   /* 'p': without shards; 's': with; 0: there is none */
    int ddps;
    struct model {
        cddp_ddp *handle;
        void *params[PARAMS];
        unsigned char buffer[5];
    } models[2];
    uint64_t calls; /* bytes that its function writes; 0: there is none */
    uint64_t share; /* this rank's part of a sum over ranks */
    uint64_t step;
    int loaded; /* parts, so far; less than 0: all */
    unsigned char last[LAST_BYTES];
};

/* Memory of the group's device, or of the CPU. */
void *bytes_alloc(const struct loop *loop, uint64_t bytes);
void bytes_free(const struct loop *loop, void *memory);
/* Byte @p i of array @p array after @p step steps. */
unsigned char bytes_value(uint64_t array, uint64_t i, uint64_t step);
/* Bytes [first, first + bytes) of an array, which are at @p at: make them those after @p step
 * steps; update them to those of the step after loop->step; compare them. */
void bytes_set(const struct loop *loop, void *at, uint64_t array, uint64_t first, uint64_t bytes,
               uint64_t step);
void bytes_update(const struct loop *loop, void *at, uint64_t array, uint64_t first,
                  uint64_t bytes);
int bytes_check(const struct loop *loop, void *at, uint64_t array, uint64_t first, uint64_t bytes,
                uint64_t step);

/** Read the words of a loop, as far as they are for this rank: "KEY=NUMBER", "GENERATION.RANK:..."
 */
int loop_read(struct loop *loop, const char *words);
/** Make the state of step loop->step, and register it. */
int loop_make(struct loop *loop);
void loop_release(struct loop *loop);
/** The state becomes that of loop->step; cddp has not seen it. */
void loop_set(struct loop *loop);
/** The state was replaced, and compared: make the buffers this rank's own again. */
void loop_own_buffers(struct loop *loop);
/** Do a step's update. */
int loop_update(struct loop *loop);
/** Whether the state is that of loop->step. @p replaced: it was replaced just now. */
int loop_check(struct loop *loop, bool replaced);
/** If @p event is now, say so, and wait to be told to end. */
void loop_wait_if(uint64_t event, uint64_t now);
/** An event that is due @p now: this process is killed. */
void loop_die_if(uint64_t event, uint64_t now);

#endif
