/* test_ddp_flat.c - a gradient block of the caller's, from any allocator: its pages become shared
 * in place and later private again, or the block is copied; the mean is the same to the bit. */
#include "support/ddp_ranks.h"

#include <cddp/process.h>
#include <sys/mman.h>

static const size_t sizes[] = {60000, 7, 41, 15000, 1};
enum { SIZES = sizeof sizes / sizeof *sizes, BYTES = (60000 + 7 + 41 + 15000 + 1) * 4 };

enum source { MALLOC, SHIFTED, FROM_FILE, GROUP, SWITCHED_OFF, ONE_CANNOT, NOT_ASKED };

struct scene {
    enum source source;
    size_t bucket_bytes;
    bool weighted;
    bool shares; /* what must become of it */
    cddp_hook_fn hook;
};

/* How many bytes of [memory, memory + BYTES) are shared mappings. */
static size_t shared_bytes(const void *memory)
{
    uintptr_t from = (uintptr_t)memory;
    FILE *maps = fopen("/proc/self/maps", "re");
    size_t shared = 0;
    char line[4352];

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        char mode[8];

        if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) == 3 && mode[3] == 's') {
            start = start < from ? from : start;
            end = end > from + BYTES ? from + BYTES : end;
            shared += end > start ? end - start : 0;
        }
    }
    fclose(maps);
    return shared;
}

static int warnings;
static int advice;

static void count_warnings(void *state, const cddp_log_record *record)
{
    (void)state;
    if (record->level == CDDP_LOG_WARN && strstr(record->line, "2 to 3 times") != NULL) {
        *(strstr(record->line, "options.share_flat_grads") != NULL ? &advice : &warnings) += 1;
    }
}

/* The block; @p out_whole is what is to be freed. */
static unsigned char *make_block(enum source source, int rank, cddp_group *group, void **out_whole)
{
    void *memory = NULL;

    if (source == FROM_FILE || (source == ONE_CANNOT && rank == 1)) {
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    } else if (source == GROUP) {
        return cddp_group_alloc(group, BYTES, 0, &memory) == CDDP_OK ? memory : NULL;
    } else {
        memory = malloc(BYTES + 8192);
    }
    *out_whole = memory;
    return (unsigned char *)memory + (source == SHIFTED ? 4 * (100 * (size_t)rank + 1) : 0);
}

static int flat_rank(int rank, int world_size, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_step how = CDDP_STEP_INIT;
    struct trainer trainer;
    unsigned char *block;
    void *whole = NULL;
    size_t at = 0;

    if (scene->source == SWITCHED_OFF) {
        setenv("CDDP_SHARE_GRADS", "0", 1);
    }
    setenv("CDDP_COMM_THREAD", world_size == 3 ? "1" : "0", 1);
    cddp_log_set_sink(count_warnings, NULL);
    CHECK(enter(&trainer, meeting, rank, world_size, OWNED, SIZES, sizes, NULL) == 0);
    block = make_block(scene->source, rank, trainer.group, &whole);
    CHECK(block != NULL);
    for (size_t p = 0; p < SIZES; p++) {
        trainer.model.params[p].grad = block + at;
        at += sizes[p] * 4;
    }
    memset(block, 0x5a, BYTES);
    trainer.model.options.flat_grads = block;
    trainer.model.options.share_flat_grads = scene->source != NOT_ASKED;
    trainer.model.options.bucket_bytes = scene->bucket_bytes;
    trainer.model.options.hook = scene->hook;
    for (int round = 0; round < 2; round++) { /* a second handle finds it as the first did */
        CHECK(watch(&trainer) == 0);
        for (size_t i = 0; i < BYTES && round == 0; i++) {
            CHECK(block[i] == 0x5a);
        }
        if (scene->source != GROUP && scene->source != FROM_FILE) {
            size_t shared = shared_bytes(block);

            CHECK(scene->shares ? shared > BYTES - 2 * 4096 - 4096 : shared == 0 || rank == 1);
            CHECK(warnings == (scene->shares || scene->source == NOT_ASKED ? 0 : round + 1));
            CHECK(advice == (scene->source == NOT_ASKED && rank == 0 ? round + 1 : 0));
        }
        for (int step = 0; step < 3; step++) {
            how.kind = scene->weighted ? CDDP_STEP_BY_SAMPLES : CDDP_STEP_BY_RANKS;
            how.samples = 5;
            CHECK(cddp_ddp_begin(trainer.ddp, &how) == CDDP_OK);
            CHECK(all_ready(&trainer, rank, step) == 0);
            CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
            for (size_t p = 0; p < SIZES && scene->hook == NULL; p++) {
                CHECK(cddp_ddp_grad(trainer.ddp, p) == trainer.model.params[p].grad);
                CHECK(is_mean(trainer.ddp, &trainer.model, world_size, step, p));
            }
        }
        CHECK(cddp_barrier(trainer.group, NULL) == CDDP_OK);
        block[5000] = 99;
        cddp_ddp_destroy(trainer.ddp);
        trainer.ddp = NULL;
        CHECK(block[5000] == 99);
        CHECK(scene->source == GROUP || scene->source == FROM_FILE || shared_bytes(block) == 0 ||
              (scene->source == ONE_CANNOT && rank == 1));
    }
    if (scene->source == MALLOC) { /* nothing is left of the group when it is freed */
        free(whole);
    }
    for (size_t p = 0; p < SIZES; p++) {
        trainer.model.params[p].grad = NULL;
    }
    return leave(&trainer);
}

static void assert_mean(void **state, struct scene scene)
{
    assert_int_equal(meet(*state, 2, flat_rank, &scene, NULL), 0);
    assert_int_equal(meet(*state, 3, flat_rank, &scene, NULL), 0);
}

static void pages_of_malloc_are_shared_where_they_are(void **state)
{
    static const struct scene many = {.source = MALLOC, .shares = true};

    assert_int_equal(meet(*state, 7, flat_rank, &many, NULL), 0);
    assert_mean(state, (struct scene){.source = MALLOC, .shares = true});
    assert_mean(state, (struct scene){.source = MALLOC, .shares = true, .bucket_bytes = 1000});
    assert_mean(state, (struct scene){.source = MALLOC, .shares = true, .weighted = true});
    assert_mean(state, (struct scene){.source = MALLOC, .shares = true, .hook = cddp_hook_bf16});
}

static void blocks_may_begin_anywhere_on_each_rank(void **state)
{
    assert_mean(state, (struct scene){.source = SHIFTED, .shares = true});
    assert_mean(state, (struct scene){.source = SHIFTED, .shares = true, .bucket_bytes = 100000});
}

static void other_memory_stays_as_it_is_and_the_log_says_so(void **state)
{
    assert_mean(state, (struct scene){.source = FROM_FILE});
    assert_mean(state, (struct scene){.source = GROUP});
    assert_mean(state, (struct scene){.source = SWITCHED_OFF});
    assert_mean(state, (struct scene){.source = ONE_CANNOT});
    assert_mean(state, (struct scene){.source = NOT_ASKED});
}

enum { BLOCK = 8, BLOCK_ELEMENTS = 65536 }; /* of 256 KiB each */

static const size_t in_turns[BLOCK] = {6, 4, 2, 0, 7, 5, 3, 1};
static const size_t backward[BLOCK] = {7, 6, 5, 4, 3, 2, 1, 0};
static const size_t forward[BLOCK] = {0, 1, 2, 3, 4, 5, 6, 7};

struct order_scene {
    const size_t *arrival;
    const size_t *told; /* ready_order */
    size_t buckets;     /* in the last step */
    int warnings;       /* on rank 0 */
};

static int late_warnings;

static void count_late_warnings(void *state, const cddp_log_record *record)
{
    (void)state;
    late_warnings += record->level == CDDP_LOG_WARN &&
                     strstr(record->line, "the first bucket of flat_grads could "
                                          "start only when 100 %") != NULL;
}

static int order_rank(int rank, int world_size, void *argument)
{
    static const size_t elements[BLOCK] = {BLOCK_ELEMENTS, BLOCK_ELEMENTS, BLOCK_ELEMENTS,
                                           BLOCK_ELEMENTS, BLOCK_ELEMENTS, BLOCK_ELEMENTS,
                                           BLOCK_ELEMENTS, BLOCK_ELEMENTS};
    const struct meeting *meeting = argument;
    const struct order_scene *scene = meeting->argument;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct trainer trainer;

    cddp_log_set_sink(count_late_warnings, NULL);
    CHECK(enter(&trainer, meeting, rank, world_size, FLAT, BLOCK, elements, NULL) == 0);
    trainer.model.options.ready_order = scene->told;
    CHECK(watch(&trainer) == 0);
    for (int step = 0; step < 3; step++) {
        CHECK(begin_mean(trainer.ddp, step) == 0);
        for (size_t i = 0; i < BLOCK; i++) {
            write_gradient(trainer.ddp, &trainer.model, rank, step, scene->arrival[i]);
            CHECK(cddp_ddp_grad_ready(trainer.ddp, scene->arrival[i]) == CDDP_OK);
        }
        CHECK(cddp_ddp_wait(trainer.ddp) == CDDP_OK);
        for (size_t p = 0; p < BLOCK; p++) {
            CHECK(is_mean(trainer.ddp, &trainer.model, world_size, step, p));
        }
    }
    CHECK(cddp_ddp_get_stats(trainer.ddp, &stats) == CDDP_OK);
    CHECK(stats.buckets == scene->buckets);
    CHECK(late_warnings == (rank == 0 ? scene->warnings : 0));
    return leave(&trainer);
}

static void a_block_in_another_order_is_cut_by_arrival_or_the_log_says_so(void **state)
{
    const struct order_scene scenes[] = {
        {in_turns, in_turns, BLOCK, 0}, {in_turns, NULL, BLOCK, 0}, {in_turns, backward, 2, 0},
        {forward, forward, 2, 0},       {forward, NULL, 2, 0},      {forward, backward, 2, 1},
    };

    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        assert_int_equal(
            meet(*state, 2 + (int)i % 2, order_rank, (void *)(uintptr_t)&scenes[i], NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(pages_of_malloc_are_shared_where_they_are),
        RANKS_TEST(blocks_may_begin_anywhere_on_each_rank),
        RANKS_TEST(a_block_in_another_order_is_cut_by_arrival_or_the_log_says_so),
        RANKS_TEST(other_memory_stays_as_it_is_and_the_log_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
