/* test_net_schedule.c - schedules between hosts, all simulated in this process: sends match
 * receives, and every host gets the bits of one reduction over all ranks. */
#include "base/alloc.h"
#include "group/net/net_schedule.h"
#include "kernels/cpu/reduce.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { HOSTS = 9, RANKS = 45, COUNT = 1500, BYTES = COUNT * 8, MESSAGES = HOSTS * RANKS };

static uint64_t state = 88172645463325252u;

static int draw(int below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)((state >> 11) % (uint64_t)below);
}

_Alignas(64) static unsigned char inputs[RANKS][BYTES];
_Alignas(64) static unsigned char expected[BYTES];

/* What one host has. Slots of single ranks and of sums lie apart, since their types differ. */
static struct host {
    _Alignas(64) unsigned char leaves[RANKS][BYTES];
    _Alignas(64) unsigned char sums[RANKS][BYTES];
    struct cddpi_tree_node nodes[RANKS]; /* count 0: nothing in this slot */
    _Alignas(64) unsigned char result[BYTES];
    struct cddpi_net_schedule schedule;
    int next; /* step */
    size_t bytes_sent;
} hosts[HOSTS];

static struct message {
    int from, to, slot, begin, end;
    bool is_result, is_taken;
    struct cddpi_tree_node node;
    size_t bytes;
    unsigned char data[BYTES];
} messages[MESSAGES];
static int message_count;

/* One all-reduce or reduce. */
struct job {
    struct cddpi_tree tree;
    struct cddpi_reduce how; /* over all ranks */
    size_t count;
    enum cddpi_algorithm algorithm;
    int root;
};

static bool adds_something(const struct job *job, struct cddpi_tree_node node)
{
    for (int r = node.first; job->how.factors != NULL && r < node.first + node.count; r++) {
        if (job->how.factors[r] != 0) {
            return true;
        }
    }
    return job->how.factors == NULL;
}

/* Where a step's shares of a slot, or of the result, are, and how many bytes. */
static unsigned char *place_of(const struct job *job, int h, const struct cddpi_net_step *step,
                               bool is_result, bool is_leaf, size_t *out_bytes)
{
    struct host *host = &hosts[h];
    cddp_type type = is_result || is_leaf ? job->how.type
                                          : cddpi_reduce_sum_type(job->how.type, job->how.op);
    size_t begin = cddpi_share_begin(job->count, host->schedule.ranges, step->begin);
    size_t end = cddpi_share_begin(job->count, host->schedule.ranges, step->end);
    unsigned char *at = is_result ? host->result
                        : is_leaf ? host->leaves[step->slot]
                                  : host->sums[step->slot];

    *out_bytes = (end - begin) * cddp_type_bytes(type);
    return at + begin * cddp_type_bytes(type);
}

static void do_send(const struct job *job, int h, const struct cddpi_net_step *step)
{
    struct message *message = &messages[message_count++];
    bool is_result = step->kind == CDDPI_STEP_SEND_DONE;
    const unsigned char *data;

    assert_true(message_count <= MESSAGES);
    for (struct message *old = messages; old < message; old++) {
        assert_false(old->from == h && old->to == step->host && old->slot == step->slot);
    }
    *message = (struct message){h,         step->host, step->slot, step->begin, step->end,
                                is_result, false,      {0},        0,           {0}};
    message->node = hosts[h].nodes[step->slot];
    assert_true(is_result || message->node.count > 0);
    data = place_of(job, h, step, is_result, message->node.count == 1, &message->bytes);
    memcpy(message->data, data, message->bytes);
    hosts[h].bytes_sent += message->bytes;
}

static void do_recv(const struct job *job, int h, const struct cddpi_net_step *step)
{
    bool is_result = step->kind == CDDPI_STEP_RECV_DONE;

    for (int m = 0; m < message_count; m++) {
        struct message *message = &messages[m];

        if (message->to == h && message->from == step->host && message->slot == step->slot) {
            size_t bytes;
            unsigned char *data = place_of(job, h, step, is_result, message->node.count == 1,
                                           &bytes);

            assert_false(message->is_taken);
            assert_true(message->is_result == is_result && message->bytes == bytes);
            assert_true(message->begin == step->begin && message->end == step->end);
            memcpy(data, message->data, bytes);
            message->is_taken = true;
            if (!is_result) {
                assert_int_equal(hosts[h].nodes[step->slot].count, 0);
                hosts[h].nodes[step->slot] = message->node;
            }
            return;
        }
    }
    fail_msg("host %d receives slot %d of host %d, which does not send it in round %d", h,
             step->slot, step->host, step->round);
}

/* A round's merges, and its finish if there is one, as one call of the kernel. */
static void merge_and_finish(const struct job *job, int h, const struct cddpi_net_step *steps,
                             int count)
{
    struct host *host = &hosts[h];
    struct cddpi_reduce_operand operands[RANKS];
    struct cddpi_reduce_merge merges[RANKS];
    struct cddpi_reduce_merges how = {.type = job->how.type,
                                      .op = job->how.op,
                                      .has_factors = job->how.factors != NULL,
                                      .operands = operands,
                                      .operand_count = job->tree.part_count,
                                      .merges = merges,
                                      .ranks = job->tree.ranks};
    size_t begin = cddpi_share_begin(job->count, host->schedule.ranges, steps[0].begin);
    size_t end = cddpi_share_begin(job->count, host->schedule.ranges, steps[0].end);
    size_t bytes = cddp_type_bytes(job->how.type);
    size_t sum_bytes = cddp_type_bytes(cddpi_reduce_sum_type(job->how.type, job->how.op));
    void *dst[] = {host->result + begin * bytes};

    for (int slot = 0; slot < job->tree.part_count; slot++) {
        struct cddpi_tree_node node = host->nodes[slot];
        bool is_leaf = node.count == 1;
        const unsigned char *data = is_leaf ? host->leaves[slot] + begin * bytes
                                            : host->sums[slot] + begin * sum_bytes;
        double factor = is_leaf && how.has_factors ? job->how.factors[node.first] : 1;

        operands[slot] = (struct cddpi_reduce_operand){adds_something(job, node) ? data : NULL,
                                                       is_leaf, factor};
    }
    for (int s = 0; s < count; s++) {
        const struct cddpi_net_step *step = &steps[s];

        assert_true(step->begin == steps[0].begin && step->end == steps[0].end);
        if (step->kind == CDDPI_STEP_FINISH) {
            assert_int_equal(s, count - 1);
            assert_int_equal(host->nodes[step->slot].count, job->tree.ranks);
            how.destinations = 1;
            how.dst = dst;
            how.root = step->slot;
            continue;
        }
        assert_int_equal(step->kind, CDDPI_STEP_MERGE);
        assert_true(cddpi_tree_siblings(&job->tree, host->nodes[step->slot],
                                        host->nodes[step->other], &host->nodes[step->slot]));
        host->nodes[step->other].count = 0;
        merges[how.merge_count++] = (struct cddpi_reduce_merge){
            step->slot, step->other, host->sums[step->slot] + begin * sum_bytes};
    }
    cddpi_reduce_merges(&how, end - begin);
}

static bool is_at(const struct host *host, int round, enum cddpi_step_kind a,
                  enum cddpi_step_kind b)
{
    const struct cddpi_net_step *step = &host->schedule.steps[host->next];

    return host->next < host->schedule.count && step->round == round &&
           (step->kind == a || step->kind == b);
}

static void run_round(const struct job *job, int round)
{
    message_count = 0;
    for (int h = 0; h < job->tree.hosts; h++) {
        while (is_at(&hosts[h], round, CDDPI_STEP_SEND, CDDPI_STEP_SEND_DONE)) {
            do_send(job, h, &hosts[h].schedule.steps[hosts[h].next++]);
        }
    }
    for (int h = 0; h < job->tree.hosts; h++) {
        int first;

        while (is_at(&hosts[h], round, CDDPI_STEP_RECV, CDDPI_STEP_RECV_DONE)) {
            do_recv(job, h, &hosts[h].schedule.steps[hosts[h].next++]);
        }
        first = hosts[h].next;
        while (is_at(&hosts[h], round, CDDPI_STEP_MERGE, CDDPI_STEP_FINISH)) {
            hosts[h].next++;
        }
        if (hosts[h].next > first) {
            merge_and_finish(job, h, hosts[h].schedule.steps + first, hosts[h].next - first);
        }
    }
    for (int m = 0; m < message_count; m++) {
        assert_true(messages[m].is_taken);
    }
}

/* What each host sums alone; the rest of its memory is garbage. */
static void begin_host(const struct job *job, int h)
{
    struct host *host = &hosts[h];

    memset(host->nodes, 0, sizeof host->nodes);
    for (int slot = 0; slot < job->tree.part_count; slot++) {
        memset(host->leaves[slot], 0xff, job->count * 8);
        memset(host->sums[slot], 0xff, job->count * 8);
    }
    memset(host->result, 0xaa, sizeof host->result);
    host->next = 0;
    host->bytes_sent = 0;
    for (int slot = job->tree.first_part[h]; slot < job->tree.first_part[h + 1]; slot++) {
        struct cddpi_tree_node node = job->tree.parts[slot];
        struct cddpi_reduce how = job->how;
        const void *src[RANKS];

        host->nodes[slot] = node;
        if (node.count == 1) {
            memcpy(host->leaves[slot], inputs[node.first],
                   job->count * cddp_type_bytes(job->how.type));
            continue;
        }
        for (int s = 0; s < node.count; s++) {
            src[s] = inputs[node.first + s];
        }
        how.sources = node.count;
        how.factors = how.factors != NULL ? how.factors + node.first : NULL;
        (void)cddpi_reduce_part(&how, host->sums[slot], src, job->count);
    }
}

static int log2_up(int n)
{
    int rounds = 0;

    while (1 << rounds < n) {
        rounds++;
    }
    return rounds;
}

static int documented_rounds(const struct job *job)
{
    int n = job->tree.hosts;
    bool is_power = (n & (n - 1)) == 0;
    int doubling = is_power ? log2_up(n) : log2_up(n) - 1;

    if (job->root != -1) {
        return 1;
    }
    switch (job->algorithm) {
    case CDDPI_ALGORITHM_DOUBLING:
        return n == 1 ? 1 : doubling + (is_power ? 0 : 2);
    case CDDPI_ALGORITHM_DIRECT:
        return 2;
    case CDDPI_ALGORITHM_HALVING:
        return n == 1 ? 1 : 2 * doubling + (is_power ? 0 : 2);
    default:
        return 1;
    }
}

static void run_job(const struct job *job)
{
    size_t bytes = job->count * cddp_type_bytes(job->how.type);
    int n = job->tree.hosts;

    for (int h = 0; h < n; h++) {
        begin_host(job, h);
        assert_true(
            cddpi_schedule_init(&job->tree, job->algorithm, h, job->root, &hosts[h].schedule));
        assert_int_equal(hosts[h].schedule.rounds, documented_rounds(job));
    }
    for (int round = 0; round < hosts[0].schedule.rounds; round++) {
        run_round(job, round);
    }
    for (int h = 0; h < n; h++) {
        assert_int_equal(hosts[h].next, hosts[h].schedule.count);
        cddpi_schedule_fini(&hosts[h].schedule);
        if ((job->root == -1 || job->root == h) && memcmp(hosts[h].result, expected, bytes) != 0) {
            fail_msg("%s over %d hosts, %d ranks, %d parts, %zu of %s, op %d, root %d: host %d has "
                     "other bits",
                     cddpi_algorithm_names[job->algorithm], n, job->tree.ranks,
                     job->tree.part_count, job->count, cddp_type_name(job->how.type), job->how.op,
                     job->root, h);
        }
    }
}

static void fill_inputs(int ranks, size_t count, cddp_type type)
{
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < count; i++) {
            double real = (draw(1 << 20) - (1 << 19)) * 0x1p-12;
            float single = (float)real;
            uint64_t bits = (uint64_t)draw(1 << 30) << 34 ^ (uint64_t)draw(1 << 30);

            if (type == CDDP_F32) {
                memcpy(&bits, &single, 4);
            } else if (type == CDDP_F64) {
                memcpy(&bits, &real, 8);
            }
            memcpy(inputs[r] + i * cddp_type_bytes(type), &bits, cddp_type_bytes(type));
        }
    }
}

/* How many ranks are on each host, and whose is each: one host after the other, in turn, or mixed.
 * Returns how many. */
static int place_ranks(int n, int *host_of)
{
    int left[HOSTS];
    int how = draw(3);
    int ranks = 0;
    int total = 0;
    int host = 0;
    bool is_equal = draw(3) == 0;

    for (int h = 0; h < n; h++) {
        left[h] = is_equal && h > 0 ? left[h - 1] : 1 + draw(5);
        total += left[h];
    }
    while (ranks < total) {
        if (how == 1 && ranks > 0) {
            host = (host + 1) % n;
        } else if (how == 2) {
            host = draw(n);
        }
        while (left[host] == 0) {
            host = (host + 1) % n;
        }
        left[host]--;
        host_of[ranks++] = host;
    }
    return ranks;
}

static const cddp_type types[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16,
                                  CDDP_I32, CDDP_I64, CDDP_U8};

static void run_random(int n)
{
    static const size_t counts[] = {0, 1, 63, 64, 65, 640, 1027, COUNT};
    int host_of[RANKS];
    int ranks = place_ranks(n, host_of);
    double weights[RANKS];
    double factors[RANKS];
    const void *src[RANKS];
    void *dst[] = {expected};
    struct job job = {.count = counts[draw(8)], .root = -1};
    int t = draw(7);

    job.how = (struct cddpi_reduce){types[t], (cddp_op)draw(CDDP_OP_PROD + 1), ranks, 1, NULL};
    for (int r = 0; r < ranks; r++) {
        weights[r] = draw(3) == 0 ? 0 : draw(100);
        src[r] = inputs[r];
    }
    if (t < 4 && draw(3) == 0) {
        cddpi_reduce_weighted(&job.how, types[t], weights, ranks, factors);
    }
    fill_inputs(ranks, job.count, types[t]);
    cddpi_reduce(&job.how, dst, src, job.count);
    assert_true(cddpi_tree_init(ranks, host_of, n, &job.tree));
    for (int a = 0; a < CDDPI_ALGORITHMS; a++) {
        job.algorithm = (enum cddpi_algorithm)a;
        run_job(&job);
    }
    for (job.root = 0; job.root < n; job.root++) {
        run_job(&job);
    }
    cddpi_tree_fini(&job.tree);
}

static void every_host_gets_the_bits_of_one_reduction(void **unused)
{
    (void)unused;
    for (int n = 1; n <= HOSTS; n++) {
        for (int again = 0; again < 60; again++) {
            run_random(n);
        }
    }
}

/* By recursion, as the tree is said to be. Returns how many parts were found below the node. */
static int cut_node(const int *host_of, int ranks, int level, int index,
                    struct cddpi_tree_node *out)
{
    int first = index << level;
    int end = (index + 1) << level;
    int found;

    end = end > ranks ? ranks : end;
    if (first >= end) {
        return 0;
    }
    for (int r = first; r < end; r++) {
        if (host_of[r] != host_of[first]) {
            found = cut_node(host_of, ranks, level - 1, 2 * index, out);
            return found + cut_node(host_of, ranks, level - 1, 2 * index + 1, out + found);
        }
    }
    while (level > 0 && end - first <= 1 << (level - 1)) {
        level--;
    }
    *out = (struct cddpi_tree_node){first, end - first, level};
    return 1;
}

static void a_hosts_parts_are_the_largest_nodes_that_it_has(void **unused)
{
    (void)unused;
    for (int again = 0; again < 3000; again++) {
        int n = 1 + draw(HOSTS);
        int host_of[RANKS];
        int ranks = place_ranks(n, host_of);
        struct cddpi_tree_node wanted[RANKS];
        int count = cut_node(host_of, ranks, 6, 0, wanted);
        struct cddpi_tree tree;
        int next[HOSTS];

        assert_true(cddpi_tree_init(ranks, host_of, n, &tree));
        assert_int_equal(tree.part_count, count);
        memcpy(next, tree.first_part, sizeof *next * (size_t)n);
        for (int i = 0; i < count; i++) {
            struct cddpi_tree_node *part = &tree.parts[next[host_of[wanted[i].first]]++];

            assert_int_equal(part->first, wanted[i].first);
            assert_int_equal(part->count, wanted[i].count);
            assert_int_equal(part->level, wanted[i].level);
        }
        for (int h = 0; h < n; h++) {
            assert_int_equal(next[h], tree.first_part[h + 1]);
        }
        cddpi_tree_fini(&tree);
    }
}

/* Equal hosts of 2^k ranks have a part each, and send 2 (H - 1) / H of the data. */
static void equal_hosts_send_as_little_as_can_be(void **unused)
{
    (void)unused;
    for (int n = 2; n <= HOSTS; n++) {
        for (int a = CDDPI_ALGORITHM_DIRECT; a <= CDDPI_ALGORITHM_HALVING; a++) {
            struct job job = {.how = {CDDP_F32, CDDP_OP_SUM, 4 * n, 1, NULL},
                              .count = (size_t)(64 * n),
                              .algorithm = (enum cddpi_algorithm)a,
                              .root = -1};
            const void *src[RANKS];
            void *dst[] = {expected};
            int host_of[RANKS];

            if (a == CDDPI_ALGORITHM_HALVING && (n & (n - 1)) != 0) {
                continue;
            }
            for (int r = 0; r < 4 * n; r++) {
                host_of[r] = r / 4;
                src[r] = inputs[r];
            }
            fill_inputs(4 * n, job.count, CDDP_F32);
            cddpi_reduce(&job.how, dst, src, job.count);
            assert_true(cddpi_tree_init(4 * n, host_of, n, &job.tree));
            assert_int_equal(job.tree.part_count, n);
            run_job(&job);
            for (int h = 0; h < n; h++) {
                assert_int_equal(hosts[h].bytes_sent,
                                 job.count * 4 * 2 * (size_t)(n - 1) / (size_t)n);
            }
            cddpi_tree_fini(&job.tree);
        }
    }
}

static void shares_follow_each_other_and_are_about_equal(void **unused)
{
    static const size_t counts[] = {0, 1, 63, 64, 1000, 123456789, (size_t)1 << 50};

    (void)unused;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int ranges = 1; ranges <= 70; ranges++) {
            assert_int_equal(cddpi_share_begin(counts[c], ranges, 0), 0);
            assert_int_equal(cddpi_share_begin(counts[c], ranges, ranges), counts[c]);
            for (int i = 0; i < ranges; i++) {
                size_t begin = cddpi_share_begin(counts[c], ranges, i);
                size_t end = cddpi_share_begin(counts[c], ranges, i + 1);

                assert_true(begin <= end && begin % 64 == 0);
                assert_true(end - begin <= counts[c] / (size_t)ranges + 128);
            }
        }
    }
}

static void without_memory_there_is_no_schedule(void **unused)
{
    static const int host_of[] = {0, 1, 2, 0, 1, 2, 3, 3};
    struct cddpi_tree tree;
    unsigned n = 1;

    (void)unused;
    for (;; n++) {
        bool is_made;

        cddpi_alloc_fail_nth(n);
        is_made = cddpi_tree_init(8, host_of, 4, &tree);
        cddpi_alloc_fail_nth(0);
        if (is_made) {
            break;
        }
    }
    assert_true(n > 3);
    for (int a = 0; a < CDDPI_ALGORITHMS; a++) {
        struct cddpi_net_schedule schedule;
        bool is_made = false;

        for (n = 0; !is_made; n++) {
            cddpi_alloc_fail_nth(n + 1);
            is_made = cddpi_schedule_init(&tree, (enum cddpi_algorithm)a, 0, -1, &schedule);
            cddpi_alloc_fail_nth(0);
        }
        assert_true(n > 3);
        cddpi_schedule_fini(&schedule);
    }
    cddpi_tree_fini(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hosts_parts_are_the_largest_nodes_that_it_has),
        cmocka_unit_test(shares_follow_each_other_and_are_about_equal),
        cmocka_unit_test(every_host_gets_the_bits_of_one_reduction),
        cmocka_unit_test(equal_hosts_send_as_little_as_can_be),
        cmocka_unit_test(without_memory_there_is_no_schedule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
