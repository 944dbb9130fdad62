/* test_same_bits_random.c - with train.micro_batch, runs of random models, batches, micro-batches
 * and options, which change their ranks, hosts and sharding at random steps, leave the same bytes
 * behind as one rank that was never interrupted. */
#include "support/same_bits.h"

#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 2 };
#else
enum { ROUNDS = 7 };
#endif

static uint64_t draw_state = 88172645463325252U;

static int draw(int below)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (int)((draw_state >> 11) % (uint64_t)below);
}

/* What a round has drawn, the same for all its runs. */
struct drawn {
    const char *model, *batch, *micro_batch, *clip, *evaluated;
    int micro_batches, steps;
};

static struct drawn draw_round(void)
{
    static const char *const norms[] = {"0.0", "0.02", "1.0"};
    int batch = 5 + draw(45);
    int micro = 1 + draw(draw(3) == 0 ? batch : 5);
    struct drawn drawn = {
        .model = same_bits_models[draw(same_bits_model_count)].name,
        .micro_batches = (batch + micro - 1) / micro,
        .steps = 3 + draw(6),
        .batch = argument("train.batch_size=%d", batch),
        .micro_batch = argument("train.micro_batch=%d", micro),
        .clip = argument("train.clip_norm=%s", norms[draw(3)]),
        .evaluated = argument("train.eval_batch_size=%d", 1 + draw(30)),
    };

    return drawn;
}

/* Which host each of @p ranks ranks is on: one host, unequal ones, or hosts in turn. */
static const char *draw_hosts(int ranks)
{
    char hosts[MOST_RANKS + 1] = {'\0'};
    int most = 1 + draw(3);
    bool in_turn = draw(2) == 0;
    int host = 0;

    if (most == 1) {
        return NULL;
    }
    for (int rank = 0; rank < ranks; rank++) {
        hosts[rank] = (char)('0' + (in_turn ? rank % most : host));
        host += host + 1 < most && draw(2) == 0;
    }
    return argument("%s", hosts);
}

/* How layers are shared out. */
enum layout { WHOLE, RANKS, DEVICES };
static const char *const layouts[] = {"", ", pipelines of two", ", each of two devices"};

static enum layout draw_layout(const struct drawn *drawn, int ranks)
{
    int kind = draw(4);

    if (strcmp(drawn->model, "dcgan") == 0) {
        return WHOLE;
    }
    return kind == 1 && ranks % 2 == 0 ? RANKS : kind == 2 ? DEVICES : WHOLE;
}

/* Train as far as @p step, on from where the run is. */
static void go_on(const struct drawn *drawn, const char *run_dir, int ranks, const char *hosts,
                  int step)
{
    enum layout layout = draw_layout(drawn, ranks);
    bool shards = ranks > 1 && draw(2) == 0;
    const char *bytes = draw(2) == 0 ? "1024" : "26214400";
    struct run_options options = {
        .ranks = ranks,
        .conf = argument("%s.conf", drawn->model),
        .hosts = hosts,
        .arguments = {run_dir_argument(run_dir), drawn->batch, drawn->micro_batch, drawn->clip,
                      drawn->evaluated, "train.epochs=100", argument("train.max_steps=%d", step),
                      "train.resume=auto",
                      argument("ddp.shard_optimizer=%s", shards ? "true" : "false"),
                      argument("ddp.bucket_bytes=%s", bytes),
                      layout == RANKS     ? "parallel.pipeline=2"
                      : layout == DEVICES ? "parallel.type=model_parallel"
                                          : NULL,
                      layout == DEVICES ? "train.devices=[\"cpu\", \"cpu\"]" : NULL}};

    print_message("  to step %d: %d ranks on hosts %s%s, buckets of %s bytes%s\n", step, ranks,
                  hosts != NULL ? hosts : "0", shards ? ", sharded" : "", bytes, layouts[layout]);
    run_well(&options);
}

static void run_round(int number)
{
    struct drawn drawn = draw_round();
    const char *whole = argument("whole-%d", number);
    const char *parts = argument("parts-%d", number);
    int most = drawn.micro_batches < MOST_RANKS ? drawn.micro_batches : MOST_RANKS;

    print_message("%s: %s %s %s %s, %d micro-batches\n", drawn.model, drawn.batch,
                  drawn.micro_batch, drawn.clip, drawn.evaluated, drawn.micro_batches);
    go_on(&drawn, whole, 1, NULL, drawn.steps);
    for (int step = 0; step < drawn.steps;) {
        int ranks = draw(3) == 0 ? most : 1 + draw(most);

        step += 1 + draw(drawn.steps - step);
        go_on(&drawn, parts, ranks, draw_hosts(ranks), step);
    }
    assert_int_equal(last_step(whole), drawn.steps);
    assert_same_end_files(whole, parts);
}

/* By hand, $TEST_DRAWS makes other draws, and $TEST_STEPS more rounds. */
static void a_run_that_changes_its_ranks_ends_as_one_that_does_not(void **state)
{
    const char *draws = getenv("TEST_DRAWS");
    const char *rounds = getenv("TEST_STEPS");

    (void)state;
    draw_state *= 2 * (draws != NULL ? strtoull(draws, NULL, 10) : 1) + 1;
    for (int i = 0; i < 20; i++) { /* from similar numbers to different ones */
        (void)draw(2);
    }
    for (int i = 0; i < (rounds != NULL ? atoi(rounds) : ROUNDS); i++) {
        run_round(i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_changes_its_ranks_ends_as_one_that_does_not),
    };

    return cmocka_run_group_tests(tests, make_same_bits_work, remove_work);
}
