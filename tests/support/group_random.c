/* group_random.c - what group_random.h declares: draws, starts and checks collectives. */
#include "support/group_random.h"

#include "group/net/net.h"
#include "kernels/cpu/reduce.h"
#include "support/group_cases.h"

enum {
    MOST = 8,
    REGION = 6 << 20, /* bytes of each buffer of a rank */
    GUARD = 64,
    TOGETHER = 3, /* operations that are started before the first is waited for */
    PATTERN = 0x5a
};

/* Ranks draw the same numbers. */
static uint64_t draw_state;
static uint64_t first_state; /* for messages */

static size_t draw(size_t below)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (size_t)(draw_state >> 11) % below;
}

enum kind {
    ALL_REDUCE,
    WEIGHTED,
    REDUCE,
    REDUCE_SCATTER,
    SCATTERED_MEAN,
    BROADCAST,
    ALL_GATHER,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    KINDS
};

static const char *const kind_names[KINDS] = {
    "all_reduce", "all_reduce_weighted", "reduce", "reduce_scatter", "reduce_scatter_weighted",
    "broadcast",  "all_gather",          "gather", "scatter",        "all_to_all"};

/* An operation as all ranks draw it, and this rank's memory for it. */
struct drawn {
    enum kind kind;
    cddp_type type;
    cddp_op op;
    size_t count;
    int root;
    bool in_place;
    double weights[MOST];
    char *in, *out;
    size_t in_bytes, out_bytes;
    bool has_in, has_out;
    cddp_work *work;
};

/* A rank's memory: shared with its peers, or its own. */
struct memory {
    char *region[2][TOGETHER][2];
};

static bool is_weighted(enum kind kind)
{
    return kind == WEIGHTED || kind == SCATTERED_MEAN;
}

static bool is_sum(enum kind kind)
{
    return kind <= SCATTERED_MEAN;
}

static bool has_blocks_in(enum kind kind)
{
    return kind == REDUCE_SCATTER || kind == SCATTERED_MEAN || kind == SCATTER ||
           kind == ALL_TO_ALL;
}

static bool has_blocks_out(enum kind kind)
{
    return kind == ALL_GATHER || kind == GATHER || kind == ALL_TO_ALL;
}

static void draw_type(struct drawn *what)
{
    static const cddp_type all[] = {CDDP_F32, CDDP_F64, CDDP_F16, CDDP_BF16, CDDP_I32,
                                    CDDP_I64, CDDP_U8,  CDDP_I8,  CDDP_BOOL};

    what->type = all[draw(is_weighted(what->kind) ? 4 : sizeof all / sizeof *all)];
    what->op = (cddp_op)draw(CDDP_OP_XOR + 1);
    if (draw(2) == 0) {
        what->op = draw(2) == 0 ? CDDP_OP_SUM : CDDP_OP_MEAN;
    }
    if (what->type <= CDDP_BF16 && what->op >= CDDP_OP_AND) {
        what->op = CDDP_OP_MEAN;
    }
    if (what->type == CDDP_BOOL && what->op == CDDP_OP_MEAN) {
        what->op = CDDP_OP_OR;
    }
    if (is_weighted(what->kind)) {
        what->op = CDDP_OP_SUM;
    }
}

/* Small, around the sizes at which ways change, or of several pieces. */
static size_t draw_count(size_t element, size_t blocks)
{
    static const size_t edges[] = {64,       1 << 10,  2 << 10,   4 << 10,
                                   16 << 10, 64 << 10, 256 << 10, 1 << 20};
    size_t most = (REGION - 4 * GUARD) / element / blocks;
    size_t count = draw(8) == 0 ? draw(40)
                                : edges[draw(sizeof edges / sizeof *edges)] / element + draw(7) - 3;

    count = draw(6) == 0 ? count * (1 + draw(5)) : count;
    count = count > most ? most - draw(5) : count;
    return draw(20) == 0 ? 0 : count;
}

static void place(struct drawn *what, const struct memory *memory, int slot, int rank, int n)
{
    size_t element = cddp_type_bytes(what->type);
    size_t block = what->count * element;
    size_t whose = draw(3); /* 2: of some ranks this, of others that */
    size_t shared = whose == 2 ? (size_t)(rank % 2) : whose;
    size_t at[2] = {GUARD + (draw(3) == 0 ? draw(16) * element : 0),
                    GUARD + (draw(3) == 0 ? draw(16) * element : 0)};

    what->in_bytes = block * (has_blocks_in(what->kind) ? (size_t)n : 1);
    what->out_bytes = block * (has_blocks_out(what->kind) ? (size_t)n : 1);
    what->has_in = what->kind != SCATTER || rank == what->root;
    what->has_out = (what->kind != REDUCE && what->kind != GATHER) || rank == what->root;
    what->in_place = draw(2) == 0;
    what->in = memory->region[shared][slot][0] + at[0];
    what->out = memory->region[shared][slot][1] + at[1];
    if (what->kind == BROADCAST) {
        what->out = what->in;
    } else if (what->in_place && has_blocks_in(what->kind) == has_blocks_out(what->kind)) {
        what->out = what->in;
    } else if (what->in_place && has_blocks_in(what->kind)) {
        what->out = what->in + (size_t)rank * block;
    } else if (what->in_place) {
        what->in = what->out + (size_t)rank * block;
    }
}

static void draw_operation(struct drawn *what, const struct memory *memory, int slot, int rank,
                           int n)
{
    *what = (struct drawn){.kind = (enum kind)draw(KINDS)};
    draw_type(what);
    what->count = draw_count(cddp_type_bytes(what->type), (size_t)n);
    what->root = (int)draw((size_t)n);
    for (int r = 0; r < n; r++) {
        static const double weights[] = {0, 1, 3, 0.25, 7.5};

        what->weights[r] = weights[draw(5)];
    }
    if (draw(4) == 0) {
        for (int r = 1; r < n; r++) {
            what->weights[r] = what->weights[0]; /* the plain mean, or nothing */
        }
    }
    place(what, memory, slot, rank, n);
}

/* The content of block @p block of rank @p rank's input. */
static void fill_block(const struct drawn *what, void *out, int rank, int block)
{
    fill_rank(out, rank, (size_t)block * what->count, what->count, what->type);
}

static void fill(const struct drawn *what, int rank, int n)
{
    size_t block = what->count * cddp_type_bytes(what->type);
    bool reads = what->kind != BROADCAST || rank == what->root;

    memset(what->out - GUARD, PATTERN, what->out_bytes + 2 * GUARD);
    memset(what->in - GUARD, PATTERN, what->in_bytes + 2 * GUARD);
    for (int b = 0; b < (has_blocks_in(what->kind) ? n : 1) && what->has_in && reads; b++) {
        fill_block(what, what->in + (size_t)b * block, rank, b);
    }
    if (is_weighted(what->kind) && what->weights[rank] == 0) {
        memset(what->in, 0xff, what->in_bytes); /* NaN in every floating type */
    }
}

static cddp_status start(cddp_group *group, struct drawn *what, int rank)
{
    void *out = what->has_out ? what->out : NULL;
    const void *in = what->has_in ? what->in : NULL;
    double weight = what->weights[rank];

    switch (what->kind) {
    case ALL_REDUCE:
        return cddp_all_reduce(group, in, out, what->count, what->type, what->op, &what->work);
    case WEIGHTED:
        return cddp_all_reduce_weighted(group, in, out, what->count, what->type, weight,
                                        &what->work);
    case REDUCE:
        return cddp_reduce(group, in, out, what->count, what->type, what->op, what->root,
                           &what->work);
    case REDUCE_SCATTER:
        return cddp_reduce_scatter(group, in, out, what->count, what->type, what->op, &what->work);
    case SCATTERED_MEAN:
        return cddp_reduce_scatter_weighted(group, in, out, what->count, what->type, weight,
                                            &what->work);
    case BROADCAST:
        return cddp_broadcast(group, what->in, what->count, what->type, what->root, &what->work);
    case ALL_GATHER:
        return cddp_all_gather(group, in, out, what->count, what->type, &what->work);
    case GATHER:
        return cddp_gather(group, in, out, what->count, what->type, what->root, &what->work);
    case SCATTER:
        return cddp_scatter(group, in, out, what->count, what->type, what->root, &what->work);
    default:
        return cddp_all_to_all(group, in, out, what->count, what->type, &what->work);
    }
}

static bool is_pattern(const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != PATTERN) {
            return false;
        }
    }
    return true;
}

/* Whether @p data is block @p block of rank @p rank's input. */
static bool is_block(const struct drawn *what, const char *data, int rank, int block, char *memory)
{
    fill_block(what, memory, rank, block);
    return memcmp(data, memory, what->count * cddp_type_bytes(what->type)) == 0;
}

static bool is_result(const struct drawn *what, int rank, int n, char *memory)
{
    size_t block = what->count * cddp_type_bytes(what->type);
    const double *weights = is_weighted(what->kind) ? what->weights : NULL;

    if (!what->has_out) {
        return true;
    }
    if (is_sum(what->kind)) {
        size_t from = has_blocks_in(what->kind) ? (size_t)rank * what->count : 0;

        return compare_reduced(what->out, from, what->count, n, what->type, what->op, weights) == 0;
    }
    if (what->kind == BROADCAST || what->kind == SCATTER) {
        return is_block(what, what->out, what->root, what->kind == SCATTER ? rank : 0, memory);
    }
    for (int r = 0; r < n; r++) {
        if (!is_block(what, what->out + (size_t)r * block, r, what->kind == ALL_TO_ALL ? rank : 0,
                      memory)) {
            return false;
        }
    }
    return true;
}

/* The rest of the input, and what lies around the output or the larger block that it is part of. */
static bool is_untouched(const struct drawn *what, int rank, int n, char *memory)
{
    size_t block = what->count * cddp_type_bytes(what->type);
    bool zero = is_weighted(what->kind) && what->weights[rank] == 0;
    bool is_part = what->in_place && has_blocks_in(what->kind) && !has_blocks_out(what->kind);
    const char *whole = is_part ? what->in : what->out;
    size_t bytes = is_part ? what->in_bytes : what->out_bytes;

    if (!is_pattern(whole - GUARD, GUARD) || !is_pattern(whole + bytes, GUARD) ||
        (!what->has_out && !what->in_place && !is_pattern(what->out, what->out_bytes))) {
        return false;
    }
    for (int b = 0; b < (has_blocks_in(what->kind) ? n : 1); b++) {
        bool is_kept = what->has_in && !zero && what->kind != BROADCAST &&
                       (!what->in_place || !what->has_out || (is_part && b != rank));

        if (is_kept && !is_block(what, what->in + (size_t)b * block, rank, b, memory)) {
            return false;
        }
    }
    return true;
}

static int check(const struct drawn *what, cddp_group *group, char *memory)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    bool is_right = is_result(what, rank, n, memory);

    if (is_right && is_untouched(what, rank, n, memory)) {
        return 0;
    }
    fprintf(stderr, "rank %d of %d: %s %s %s x %zu%s: %s (draws %llu)\n", rank, n,
            kind_names[what->kind], cddp_op_name(what->op), cddp_type_name(what->type), what->count,
            what->in_place ? " in place" : "", is_right ? "other memory was written" : "differs",
            (unsigned long long)first_state);
    return 1;
}

/* As if other links and other numbers of leaders had been measured. */
static void draw_link(struct net_backend *net)
{
    static const double latencies[] = {1e-9, 1e-6, 3e-5, 1e-3, 1e-1};
    static const double rates[] = {1e4, 1e6, 1e8, 1e9, 1e10, 1e12};
    int most = NET_MAX_LEADERS;

    net->link.latency_s = latencies[draw(sizeof latencies / sizeof *latencies)];
    net->link.bytes_per_s = rates[draw(sizeof rates / sizeof *rates)];
    net->link.reduce_bytes_per_s = draw(2) == 0 ? 1e10 : 1e12;
    for (int host = 0; host < net->host_count; host++) {
        most = net_host_size(net, host) < most ? net_host_size(net, host) : most;
    }
    net->leader_count = 1 + (int)draw((size_t)most);
}

static bool make_memory(cddp_group *group, struct memory *out)
{
    bool is_made = true;

    for (int slot = 0; slot < TOGETHER; slot++) {
        for (int side = 0; side < 2; side++) {
            out->region[0][slot][side] = buffer(group, false, REGION + MOST * GUARD);
            out->region[1][slot][side] = buffer(group, true, REGION + MOST * GUARD);
            is_made = is_made && out->region[0][slot][side] != NULL &&
                      out->region[1][slot][side] != NULL;
        }
    }
    return is_made;
}

static int draw_some(cddp_group *group, const struct memory *memory, char *scratch)
{
    int rank = cddp_group_rank(group);
    int n = cddp_group_world_size(group);
    struct drawn drawn[TOGETHER];
    int count = draw(3) == 0 ? TOGETHER : 1;

    if (strcmp(group_info(group).backend, "net") == 0) {
        draw_link(net_of(group->backend));
    }
    for (int i = 0; i < count; i++) {
        draw_operation(&drawn[i], memory, i, rank, n);
        fill(&drawn[i], rank, n);
    }
    CHECK(cddp_barrier(group, NULL) == CDDP_OK); /* peers may map this memory */
    for (int i = 0; i < count; i++) {
        CHECK(start(group, &drawn[i], rank) == CDDP_OK);
    }
    for (int i = 0; i < count; i++) {
        CHECK(cddp_work_wait(drawn[i].work) == CDDP_OK);
        cddp_work_destroy(drawn[i].work);
        CHECK(check(&drawn[i], group, scratch) == 0);
    }
    return 0;
}

int group_random(cddp_group *group, uint64_t draws, int steps)
{
    char *scratch = malloc(REGION);
    struct memory memory;

    CHECK(scratch != NULL && make_memory(group, &memory));
    first_state = draw_state = draws;
    for (int step = 0; step < steps; step++) {
        CHECK(draw_some(group, &memory, scratch) == 0);
    }
    for (int slot = 0; slot < TOGETHER; slot++) {
        free(memory.region[0][slot][0]);
        free(memory.region[0][slot][1]);
    }
    free(scratch);
    return 0;
}
