/* test_ddp_random.c - gradients of models drawn at random: sizes, types, memory, hook, kind of
 * step, samples, order of arrival, missing gradients, sizes of buckets; and, between hosts, a link
 * and a number of leaders as if they had been measured. Whatever buckets come of that, each
 * gradient has the bits of the reference. */
#include "group/net/net.h"
#include "support/ddp_ranks.h"
#include "support/group_reference.h"

enum { STEPS = 3, MOST_PARAMS = 12 };

#ifdef __SANITIZE_THREAD__ /* as in support/ddp_ranks.h */
enum { HANDLES = 2 };
#else
enum { HANDLES = 10 };
#endif

struct scene {
    const char *hosts; /* by rank: a digit; NULL: one host */
    const char *thread;
    uint64_t draws;
};

/* Ranks draw the same numbers. */
static uint64_t draw_state;

static size_t draw(size_t below)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (size_t)(draw_state >> 11) % below;
}

/* A model, and what holds for all steps of its handle. */
struct drawn {
    enum memory memory;
    size_t count;
    size_t elements[MOST_PARAMS];
    cddp_type types[MOST_PARAMS];
    size_t order[MOST_PARAMS];
    cddp_hook_fn hook;
    bool allow_unused;
};

/* One step of all ranks. */
struct step {
    int number;
    cddp_step_kind kind;
    double samples[RANKS_MOST];
    bool is_missing[RANKS_MOST][MOST_PARAMS];
};

static void shuffle(size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (size_t i = count; i > 1; i--) {
        size_t other = draw(i);
        size_t moved = order[i - 1];

        order[i - 1] = order[other];
        order[other] = moved;
    }
}

static void draw_model(struct drawn *out)
{
    static const size_t sizes[] = {1, 3, 16, 63, 64, 257, 1025, 4099, 20011, 70001};
    static const cddp_type types[] = {CDDP_F32, CDDP_F32, CDDP_F64, CDDP_BF16};
    static const cddp_hook_fn hooks[] = {NULL, NULL, cddp_hook_bf16, cddp_hook_fp16};
    cddp_type one = types[draw(4)];

    out->memory = (enum memory)draw(MEMORIES);
    out->count = 1 + draw(MOST_PARAMS);
    for (size_t p = 0; p < out->count; p++) {
        out->elements[p] = sizes[draw(sizeof sizes / sizeof *sizes)] + draw(2);
        out->types[p] = out->memory == FLAT ? one : types[draw(4)];
    }
    shuffle(out->order, out->count);
    out->hook = hooks[draw(4)];
    out->allow_unused = draw(3) == 0;
}

static void draw_options(const struct drawn *drawn, cddp_ddp_options *options)
{
    static const size_t bytes[] = {0, 1, 64, 1000, 4096, 100000, 1 << 20};

    options->hook = drawn->hook;
    options->allow_unused = drawn->allow_unused;
    options->may_move_grads = draw(2) == 0;
    options->ready_order = draw(2) == 0 ? drawn->order : NULL;
    if (draw(3) > 0) { /* else they are chosen */
        options->first_bucket_bytes = bytes[draw(7)];
        options->bucket_bytes = bytes[draw(7)];
        options->part_bytes = draw(2) == 0 ? bytes[2 + draw(4)] : 0;
    }
    options->share_flat_grads = options->flat_grads != NULL && draw(3) > 0;
}

static void draw_step(const struct drawn *drawn, int number, int n, struct step *out)
{
    *out = (struct step){.number = number, .kind = (cddp_step_kind)draw(3)};
    for (int r = 0; r < n; r++) {
        out->samples[r] = (double)draw(4);
        for (size_t p = 0; p < drawn->count; p++) {
            out->is_missing[r][p] = drawn->allow_unused && draw(4) == 0;
        }
    }
    out->samples[draw((size_t)n)] = 5; /* at least one has samples */
}

/* As if another link and another number of leaders had been measured. */
static void draw_link(struct net_backend *net)
{
    static const double latencies[] = {1e-9, 3e-5, 1e-2};
    static const double rates[] = {1e5, 1e8, 1e9, 1e12};
    int most = NET_MAX_LEADERS;

    net->link.latency_s = latencies[draw(3)];
    net->link.bytes_per_s = rates[draw(4)];
    net->link.reduce_bytes_per_s = 1e10;
    for (int host = 0; host < net->host_count; host++) {
        most = net_host_size(net, host) < most ? net_host_size(net, host) : most;
    }
    net->leader_count = 1 + (int)draw((size_t)most);
}

static int run_step(const struct trainer *t, const struct drawn *drawn, const struct step *step,
                    int rank)
{
    cddp_step given = CDDP_STEP_INIT;
    size_t order[MOST_PARAMS];

    given.number = (uint64_t)step->number;
    given.kind = step->kind;
    given.samples = (uint64_t)step->samples[rank];
    shuffle(order, drawn->count);
    CHECK(cddp_ddp_begin(t->ddp, &given) == CDDP_OK);
    for (size_t i = 0; i < drawn->count; i++) {
        size_t p = order[i];

        if (!step->is_missing[rank][p]) {
            write_gradient(t->ddp, &t->model, rank, step->number, p);
            CHECK(cddp_ddp_grad_ready(t->ddp, p) == CDDP_OK);
        }
    }
    CHECK(cddp_ddp_wait(t->ddp) == CDDP_OK);
    return 0;
}

static double expected(const struct drawn *drawn, const struct step *step, int n, size_t p,
                       size_t i)
{
    cddp_type wide = drawn->types[p];
    cddp_type type = wide != CDDP_F32 || drawn->hook == NULL ? wide
                     : drawn->hook == cddp_hook_bf16         ? CDDP_BF16
                                                             : CDDP_F16;
    uint64_t cells[RANKS_MOST] = {0};
    const void *values[RANKS_MOST];
    uint64_t out = 0;

    for (int r = 0; r < n; r++) {
        double value = step->is_missing[r][p] ? 0 : gradient(r, step->number, p, i);

        put(&cells[r], wide, 0, value);
        if (type != wide) {
            reference_store(&cells[r], get(&cells[r], wide, 0), type);
        }
        values[r] = &cells[r];
    }
    reference_reduce(&out, values, n, type,
                     step->kind == CDDP_STEP_BY_RANKS ? CDDP_OP_MEAN : CDDP_OP_SUM,
                     step->kind == CDDP_STEP_BY_SAMPLES ? step->samples : NULL);
    return reference_load(&out, type);
}

static bool is_missing_everywhere(const struct step *step, int n, size_t p)
{
    for (int r = 0; r < n; r++) {
        if (!step->is_missing[r][p]) {
            return false;
        }
    }
    return true;
}

static int check_step(const struct trainer *t, const struct drawn *drawn, const struct step *step,
                      const struct scene *scene, int n)
{
    for (size_t p = 0; p < drawn->count; p++) {
        size_t stride = drawn->elements[p] > 300 ? 97 : 1;

        for (size_t i = 0; i < drawn->elements[p] && !is_missing_everywhere(step, n, p);
             i += stride) {
            double is = get(cddp_ddp_grad(t->ddp, p), drawn->types[p], i);
            double right = expected(drawn, step, n, p, i);

            if (is != right) {
                fprintf(stderr,
                        "%d ranks on hosts %s, draws %llu, step %d of kind %d: element %zu of %zu "
                        "of p%zu (%s) is %.17g, not %.17g\n",
                        n, scene->hosts != NULL ? scene->hosts : "-",
                        (unsigned long long)scene->draws, step->number, (int)step->kind, i,
                        drawn->elements[p], p, cddp_type_name(drawn->types[p]), is, right);
                return 1;
            }
        }
    }
    return 0;
}

static int drawing_rank(int rank, int n, void *argument)
{
    const struct meeting *meeting = argument;
    const struct scene *scene = meeting->argument;
    cddp_group *group;

    if (scene->thread != NULL) {
        setenv("CDDP_COMM_THREAD", scene->thread, 1);
    }
    if (scene->hosts != NULL) {
        setenv("CDDP_CARRIER", "tcp", 1);
    }
    group = join_group(meeting, rank, n);
    CHECK(group != NULL);
    draw_state = scene->draws;
    for (int handle = 0; handle < HANDLES; handle++) {
        struct trainer t = {.group = group};
        struct drawn drawn;

        if (scene->hosts != NULL) {
            draw_link(net_of(group->backend));
        }
        draw_model(&drawn);
        make_model(&t.model, rank, drawn.memory, drawn.count, drawn.elements, drawn.types);
        draw_options(&drawn, &t.model.options);
        CHECK(watch(&t) == 0);
        for (int number = 0; number < STEPS; number++) {
            struct step step;

            draw_step(&drawn, number, n, &step);
            CHECK(run_step(&t, &drawn, &step, rank) == 0);
            CHECK(check_step(&t, &drawn, &step, scene, n) == 0);
        }
        cddp_ddp_destroy(t.ddp);
        free_model(&t.model);
    }
    cddp_group_destroy(group);
    return 0;
}

/* By hand, $TEST_DRAWS makes other draws. */
static void run(struct meeting *meeting, int n, const char *hosts, const char *thread)
{
    const char *text = getenv("TEST_DRAWS");
    static uint64_t number;
    struct scene scene = {hosts, thread,
                          (88172645463325252u + (text != NULL ? strtoull(text, NULL, 10) : 1)) *
                              (2 * ++number + 1)};

    if (hosts != NULL) {
        char list[2 * RANKS_MOST] = "";

        for (int r = 0; r < n; r++) {
            list[2 * r] = hosts[r];
            list[2 * r + 1] = r + 1 < n ? ',' : '\0';
        }
        setenv("TEST_HOSTS", list, 1);
    }
    assert_int_equal(meet(meeting, n, drawing_rank, &scene, NULL), 0);
    unsetenv("TEST_HOSTS");
}

static void gradients_of_one_host_have_the_bits_of_the_reference(void **state)
{
    run(*state, 1, NULL, "0");
    run(*state, 2, NULL, "0");
    run(*state, 3, NULL, "1");
    run(*state, 4, NULL, NULL);
}

static void those_of_several_hosts_do_for_every_link_and_choice_of_buckets(void **state)
{
    run(*state, 2, "01", "0");
    run(*state, 3, "001", "1");
    run(*state, 4, "0011", NULL);
    run(*state, 5, "01201", "1");
    run(*state, 4, "0123", "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(gradients_of_one_host_have_the_bits_of_the_reference),
        RANKS_TEST(those_of_several_hosts_do_for_every_link_and_choice_of_buckets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
