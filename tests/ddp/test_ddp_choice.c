/* test_ddp_choice.c - between hosts, the sizes of buckets are chosen, and are the same on all
 * ranks; given sizes take precedence; gradients become the same mean whatever was chosen. */
#include "group/join/link.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

#include <sys/mman.h>

static const size_t elements[] = {2000000, 7, 300000, 300, 300000, 300, 9};
enum { COUNT = sizeof elements / sizeof *elements };

struct scene {
    enum memory memory;
    cddp_hook_fn hook;
    size_t bucket_bytes;
    bool declared, shard;
    bool stays; /* gradients may not move */
};

/* "count: bytes bytes ..." */
static int write_buckets(cddp_ddp *ddp, char *out, size_t room)
{
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    size_t used;

    CHECK(cddp_ddp_get_stats(ddp, &stats) == CDDP_OK);
    used = (size_t)snprintf(out, room, "%zu:", stats.buckets);
    for (size_t b = 0; b < stats.buckets && used < room; b++) {
        cddp_bucket_stats bucket = {sizeof bucket, 0, 0, 0, 0};

        CHECK(cddp_ddp_get_bucket_stats(ddp, b, &bucket) == CDDP_OK);
        used += (size_t)snprintf(out + used, room - used, " %zu", bucket.bytes);
    }
    return 0;
}

static int is_right(cddp_ddp *ddp, const struct model *model, const struct scene *scene, int rank,
                    int world_size, int step)
{
    if (scene->hook != NULL) {
        for (size_t i = 0; i < 100; i++) { /* some of each large one */
            double values[RANKS_MOST];

            for (int r = 0; r < world_size; r++) {
                values[r] = round_bf16((float)gradient(r, step, 0, i * 19999));
            }
            CHECK(((float *)cddp_ddp_grad(ddp, 0))[i * 19999] ==
                  (float)tree_mean(values, world_size, CDDP_BF16));
        }
        return 0;
    }
    if (scene->shard) {
        return 0; /* test_ddp_shard */
    }
    for (size_t p = rank == 0 ? 0 : 1; p < COUNT; p++) {
        CHECK(is_mean(ddp, model, world_size, step, p));
    }
    return 0;
}

/* Run two steps, and put what the log says of them into @p out. */
static int train(struct trainer *t, const struct scene *scene, int rank, int world_size, char *out,
                 size_t room)
{
    ssize_t got;
    int old = dup(2);
    int file = memfd_create("log", 0);

    CHECK(file >= 0 && old >= 0);
    dup2(file, 2);
    CHECK(watch(t) == 0);
    for (int step = 0; step < 2; step++) {
        CHECK(full_backward(t, rank, step) == 0);
        CHECK(cddp_ddp_wait(t->ddp) == CDDP_OK);
        CHECK(is_right(t->ddp, &t->model, scene, rank, world_size, step) == 0);
        CHECK(!scene->shard || cddp_ddp_params_start(t->ddp) == CDDP_OK);
    }
    dup2(old, 2);
    close(old);
    got = pread(file, out, room - 1, 0);
    out[got > 0 ? got : 0] = '\0';
    close(file);
    return 0;
}

static int choice_rank(int rank, int world_size, void *argument)
{
    static const size_t order[COUNT] = {6, 5, 4, 3, 2, 1, 0};
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    bool by_hand = scene->bucket_bytes > 0;
    struct cddpi_group_link link;
    char text[4096], log[4096];
    struct trainer t;

    setenv("CDDP_LOG", "info", 1);
    CHECK(enter(&t, meeting, rank, world_size, scene->memory, COUNT, elements, NULL) == 0);
    CHECK(cddpi_group_link(t.group, CDDP_F32, &link) && link.is_measured && link.hosts == 2);
    CHECK(link.latency_s > 0 && link.bytes_per_s > 0 && link.reduce_bytes_per_s > 0);
    CHECK(cddpi_link_all_reduce_s(&link, 1e6) > 0 &&
          cddpi_link_all_reduce_s(&link, 1e9) > cddpi_link_all_reduce_s(&link, 1e6));
    t.model.options.hook = scene->hook;
    t.model.options.bucket_bytes = scene->bucket_bytes;
    t.model.options.ready_order = scene->declared ? order : NULL;
    t.model.options.shard = scene->shard;
    t.model.options.may_move_grads = !scene->stays;
    CHECK(train(&t, scene, rank, world_size, log, sizeof log) == 0);
    CHECK(write_buckets(t.ddp, text, sizeof text) == 0);
    CHECK(same_text_everywhere(t.group, text));
    if (by_hand) {
        CHECK(atoi(text) == 3); /* 300 kB close the first, the next one the second */
    }
    CHECK(rank != 0 || strstr(log, "bytes of gradients in ") != NULL);
    CHECK(rank != 0 || (strstr(log, "(given, or defaults)") != NULL) == by_hand);
    CHECK(rank != 0 || (strstr(log, "computed from assumed arrivals, ") != NULL) == !by_hand);
    CHECK(rank != 0 || (strstr(log, "computed from the arrivals in the first backward, ") !=
                        NULL) == (!by_hand && !scene->shard && !scene->stays));
    CHECK(scene->stays || strstr(log, "options.may_move_grads allows it") == NULL);
    CHECK(rank == 0 || strstr(log, "bytes of gradients in ") == NULL);
    return leave(&t);
}

static void sizes_are_chosen_alike_and_bits_stay(void **state)
{
    static const struct scene scenes[] = {
        {.memory = OWNED},
        {.memory = FLAT},
        {.memory = SCATTERED, .declared = true},
        {.memory = MIXED, .hook = cddp_hook_bf16},
        {.memory = OWNED, .shard = true},
        {.memory = OWNED, .stays = true},
        {.memory = OWNED, .bucket_bytes = 1000000},
    };

    setenv("TEST_HOSTS", "0,0,1", 1);
    for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
        assert_int_equal(meet(*state, 3, choice_rank, &scenes[s], NULL), 0);
    }
    unsetenv("TEST_HOSTS");
}

/* Sizes that one rank alone has by hand are a difference like any other. */
static int one_by_hand_rank(int rank, int world_size, void *argument)
{
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.bucket_bytes = rank == 1 ? (size_t)25 << 20 : 0;
    CHECK(failure_is(
        cddp_ddp_create(t.group, t.model.params, COUNT, NULL, 0, &t.model.options, &t.ddp),
        CDDP_ERR_MISMATCH, -1, -1, ""));
    CHECK(last_error_has("bucket_bytes"));
    return leave(&t);
}

static void sizes_that_only_one_rank_has_by_hand_are_refused(void **state)
{
    assert_int_equal(meet(*state, 3, one_by_hand_rank, NULL, NULL), 0);
}

/* Memory of one host is not measured, so the usual sizes stay. */
static int one_host_rank(int rank, int world_size, void *argument)
{
    struct cddpi_group_link link;
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    if (world_size == 1) {
        CHECK(!cddpi_group_link(t.group, CDDP_F32, &link));
    } else {
        CHECK(cddpi_group_link(t.group, CDDP_F32, &link) && !link.is_measured);
        CHECK(link.hosts == 1 && link.bytes_per_s > 0 && link.all_reduce_s[3] > 0);
    }
    CHECK(watch(&t) == 0 && full_backward(&t, rank, 0) == 0 && cddp_ddp_wait(t.ddp) == CDDP_OK);
    CHECK(cddp_ddp_get_stats(t.ddp, &stats) == CDDP_OK && stats.buckets == 2);
    return leave(&t);
}

static void on_one_host_the_usual_sizes_stay(void **state)
{
    assert_int_equal(meet(*state, 1, one_host_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 2, one_host_rank, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(sizes_are_chosen_alike_and_bits_stay),
        RANKS_TEST(sizes_that_only_one_rank_has_by_hand_are_refused),
        RANKS_TEST(on_one_host_the_usual_sizes_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
