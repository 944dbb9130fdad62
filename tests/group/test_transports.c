/* test_transports.c - the transports of the CUDA module, between real processes on a fake CUDA:
 * every kind of collective, type and operation, against the scalar reference of the host backend's
 * tests. */
#include "support/group_cases.h"
#include "support/rank_pool.h"
#include "support/transport.h"

#include <dlfcn.h>

enum { ARENA_BYTES = 12 << 20, MOST_SHAPES = 24, MOST_CHECKS = 24 * 32 };

struct variant {
    const char *transport;
    bool deterministic;
    bool exact; /* the host backend's bits */
    const char *devices;
    int host_ranks; /* of each host; 0: there is one host */
};

static const struct variant variants[] = {
    {"ipc", false, true, "1", 0},
    {"staged", false, true, "3", 0},
    {"nccl", true, true, "8", 0},
    {"nccl", false, false, "8", 0},
};

/* What must come out, looked at when many operations are done. */
struct check {
    const void *got; /* device memory */
    size_t from, count;
    cddp_type type;
    cddp_op op;
    bool moved; /* data of rank `from_rank`, not a reduction */
    int from_rank;
    const double *weights;
};

struct bench {
    struct transport_rank me;
    bool exact;
    char *arenas[2]; /* device memory: plain, and of alloc */
    size_t used[2];
    struct check checks[MOST_CHECKS];
    int count;
    int shapes; /* since the last flush: the same on all ranks, unlike the number of checks */
};

/* How far sums in another order and with other roundings may be off. */
static double allowed(const struct check *check, const void *const *values, int n, double expected)
{
    static const double units[] = {
        [CDDP_F32] = 1.2e-7, [CDDP_F64] = 2.3e-16, [CDDP_F16] = 1e-3, [CDDP_BF16] = 8e-3};
    double size = fabs(expected);
    double total = 0;

    for (int r = 0; r < n && check->weights != NULL; r++) {
        total += check->weights[r];
    }
    for (int r = 0; r < n && check->op != CDDP_OP_PROD; r++) {
        double share = check->weights == NULL ? 1 : total > 0 ? check->weights[r] / total : 0;

        size += share > 0 ? fabs(reference_load(values[r], check->type)) * share : 0;
    }
    return size * units[check->type] * (n + 2) + (check->type == CDDP_F16 ? 1e-6 : 0);
}

static int compare_near(const struct check *check, const void *got, int n)
{
    size_t element = cddp_type_bytes(check->type);

    for (size_t i = 0; i<check->count; i += check->count> 2000 ? 61 : 1) {
        uint64_t inputs[REFERENCE_RANKS];
        const void *values[REFERENCE_RANKS];
        uint64_t right = 0;
        double expected;
        double is;

        for (int r = 0; r < n && r < REFERENCE_RANKS; r++) {
            reference_fill(&inputs[r], r, (check->from + i) % PERIOD, check->type);
            values[r] = &inputs[r];
        }
        reference_reduce(&right, values, n, check->type, check->op, check->weights);
        expected = reference_load(&right, check->type);
        is = reference_load((const char *)got + i * element, check->type);
        if (!(fabs(is - expected) <= allowed(check, values, n, expected)) && is != expected) {
            fprintf(stderr, "%s %s x %zu at %d ranks: element %zu is %g, not %g\n",
                    cddp_op_name(check->op), cddp_type_name(check->type), check->count, n, i, is,
                    expected);
            return 1;
        }
    }
    return 0;
}

static int look(struct bench *bench, const struct check *check)
{
    size_t bytes = check->count * cddp_type_bytes(check->type);
    bool whole = check->type == CDDP_I32 || check->type == CDDP_I64 || check->type == CDDP_U8;
    char *got = malloc(bytes + 1);
    int wrong;

    CHECK(transport_download(&bench->me, got, check->got, bytes) == CDDP_OK);
    if (check->moved) {
        char *right = malloc(bytes + 1);

        fill_rank(right, check->from_rank, check->from, check->count, check->type);
        wrong = bytes > 0 && memcmp(right, got, bytes) != 0;
        free(right);
    } else if (bench->exact || whole) {
        wrong = compare_reduced(got, check->from, check->count, bench->me.size, check->type,
                                check->op, check->weights);
    } else {
        wrong = compare_near(check, got, bench->me.size);
    }
    free(got);
    CHECK(!wrong);
    return 0;
}

/* Let everything under way end, and look at it. */
static int flush(struct bench *bench)
{
    if (bench->shapes > 0) {
        CHECK(transport_watch(&bench->me, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    }
    for (int i = 0; i < bench->count; i++) {
        CHECK(look(bench, &bench->checks[i]) == 0);
    }
    bench->count = bench->shapes = 0;
    bench->used[0] = bench->used[1] = 0;
    return 0;
}

/* A shape begins: @p bytes are left in both arenas, after a flush if need be. */
static int make_room(struct bench *bench, size_t bytes)
{
    if (ARENA_BYTES - bench->used[0] < bytes || ARENA_BYTES - bench->used[1] < bytes ||
        bench->shapes == MOST_SHAPES) {
        CHECK(flush(bench) == 0);
    }
    bench->shapes++;
    return 0;
}

static char *take(struct bench *bench, bool registered, size_t bytes, size_t offset)
{
    size_t at = bench->used[registered];

    bench->used[registered] = (at + bytes + offset + 255) / 256 * 256;
    return bench->arenas[registered] + at + offset;
}

/* This rank's elements @p from... in the arena. */
static char *input(struct bench *bench, bool registered, size_t count, cddp_type type,
                   size_t offset)
{
    size_t bytes = count * cddp_type_bytes(type);
    char *host = malloc(bytes + 1);
    char *memory = take(bench, registered, bytes, offset);

    fill_rank(host, bench->me.rank, 0, count, type);
    memory = transport_upload(&bench->me, memory, host, bytes);
    free(host);
    return memory;
}

static void expect(struct bench *bench, struct check check)
{
    bench->checks[bench->count++] = check;
}

struct shape {
    cddp_type type;
    cddp_op op;
    size_t count;
    bool registered, in_place;
    size_t offset; /* bytes, from what is aligned */
};

static int reduce_shape(struct bench *bench, const struct shape *s)
{
    struct transport_rank *me = &bench->me;
    size_t bytes = s->count * cddp_type_bytes(s->type);
    int root = (int)(s->count % (size_t)me->size);
    struct cddpi_group_op op = {.type = s->type, .op = s->op, .count = s->count, .root = root};
    struct check check = {.count = s->count, .type = s->type, .op = s->op};

    CHECK(make_room(bench, (bytes + 1024) * (size_t)(me->size + 6)) == 0);
    op.kind = CDDPI_ALL_REDUCE;
    op.in = input(bench, s->registered, s->count, s->type, s->offset);
    op.out = s->in_place ? (void *)(uintptr_t)op.in : take(bench, s->registered, bytes, s->offset);
    CHECK(transport_start(me, &op) == CDDP_OK);
    check.got = op.out;
    expect(bench, check);

    op.kind = CDDPI_REDUCE;
    op.in = input(bench, s->registered, s->count, s->type, s->offset);
    op.out = s->in_place ? (void *)(uintptr_t)op.in : take(bench, s->registered, bytes, s->offset);
    check.got = op.out;
    if (me->rank == root) {
        expect(bench, check);
    } else {
        op.out = NULL;
    }
    CHECK(transport_start(me, &op) == CDDP_OK);

    op.kind = CDDPI_REDUCE_SCATTER;
    op.in = input(bench, s->registered, s->count * (size_t)me->size, s->type, s->offset);
    op.out = s->in_place ? (char *)(uintptr_t)op.in + (size_t)me->rank * bytes
                         : take(bench, false, bytes, s->offset);
    CHECK(transport_start(me, &op) == CDDP_OK);
    check.got = op.out;
    check.from = (size_t)me->rank * s->count;
    expect(bench, check);
    return 0;
}

static int move_shape(struct bench *bench, const struct shape *s)
{
    struct transport_rank *me = &bench->me;
    size_t ranks = (size_t)me->size;
    size_t bytes = s->count * cddp_type_bytes(s->type);
    int root = (int)(s->count % ranks);
    bool is_root = me->rank == root;
    struct cddpi_group_op op = {.type = s->type, .count = s->count, .root = root};
    struct check check = {.count = s->count, .type = s->type, .moved = true};

    CHECK(make_room(bench, (bytes + 1024) * ranks * 8) == 0);
    op.kind = CDDPI_BROADCAST;
    op.in = op.out = input(bench, s->registered, s->count, s->type, s->offset);
    CHECK(transport_start(me, &op) == CDDP_OK);
    check.got = op.out;
    check.from_rank = root;
    expect(bench, check);

    for (int gather = 0; gather < 2; gather++) {
        char *all = take(bench, s->registered, bytes * ranks, s->offset);
        char *host = malloc(bytes + 1);

        op.kind = gather ? CDDPI_GATHER : CDDPI_ALL_GATHER;
        op.out = gather && !is_root ? NULL : all;
        if (s->in_place) {
            fill_rank(host, me->rank, 0, s->count, s->type);
            op.in = transport_upload(me, all + (size_t)me->rank * bytes, host, bytes);
        } else {
            op.in = input(bench, s->registered, s->count, s->type, s->offset);
        }
        free(host);
        CHECK(transport_start(me, &op) == CDDP_OK);
        for (int r = 0; r < me->size && op.out != NULL; r++) {
            check.got = all + (size_t)r * bytes;
            check.from_rank = r;
            expect(bench, check);
        }
    }
    return 0;
}

static int scatter_shape(struct bench *bench, const struct shape *s)
{
    struct transport_rank *me = &bench->me;
    size_t ranks = (size_t)me->size;
    size_t bytes = s->count * cddp_type_bytes(s->type);
    int root = (int)(s->count % ranks);
    bool is_root = me->rank == root;
    struct cddpi_group_op op = {.type = s->type, .count = s->count, .root = root};
    struct check check = {.count = s->count, .type = s->type, .moved = true};

    CHECK(make_room(bench, (bytes + 1024) * ranks * 8) == 0);
    op.kind = CDDPI_SCATTER;
    op.in = input(bench, s->registered, s->count * ranks, s->type, s->offset);
    op.in = is_root ? op.in : NULL;
    op.out = take(bench, false, bytes, s->offset);
    if (s->in_place && is_root) {
        op.out = (char *)(uintptr_t)op.in + (size_t)root * bytes;
    }
    CHECK(transport_start(me, &op) == CDDP_OK);
    check.got = op.out;
    check.from_rank = root;
    check.from = (size_t)me->rank * s->count;
    expect(bench, check);

    CHECK(make_room(bench, (bytes + 1024) * ranks * 8) == 0);
    op.kind = CDDPI_ALL_TO_ALL;
    op.in = input(bench, s->registered, s->count * ranks, s->type, s->offset);
    op.out = s->in_place ? (void *)(uintptr_t)op.in
                         : take(bench, s->registered, bytes * ranks, s->offset);
    CHECK(transport_start(me, &op) == CDDP_OK);
    for (int r = 0; r < me->size; r++) {
        check.got = (char *)op.out + (size_t)r * bytes;
        check.from_rank = r;
        expect(bench, check);
    }
    return 0;
}

static int open_bench(struct bench *bench, struct transport_world *world, int rank,
                      const struct variant *variant)
{
    void *memory;

    memset(bench, 0, sizeof *bench);
    bench->exact = variant->exact;
    CHECK(transport_rank_open(world, rank, variant->transport, variant->deterministic,
                              &bench->me) == CDDP_OK);
    if (variant->host_ranks > 0) {
        static const char *const names[] = {"host 0", "host 1", "host 2", "host 3"};
        struct cddpi_device_open_params *params = &bench->me.params;

        params->host = rank / variant->host_ranks;
        params->host_count = (world->size + variant->host_ranks - 1) / variant->host_ranks;
        params->host_id = names[params->host];
    }
    CHECK(transport_open(&bench->me) == CDDP_OK);
    CHECK(bench->me.device->ops->alloc(bench->me.device, ARENA_BYTES, "test", &memory) == CDDP_OK);
    bench->arenas[0] = memory;
    CHECK(bench->me.ops->alloc(bench->me.transport, ARENA_BYTES, &memory) == CDDP_OK);
    bench->arenas[1] = memory;
    return 0;
}

static int close_bench(struct bench *bench)
{
    CHECK(flush(bench) == 0);
    CHECK(bench->me.ops->poll(bench->me.transport) == CDDP_OK);
    bench->me.ops->free_memory(bench->me.transport, bench->arenas[1]);
    bench->me.device->ops->release(bench->me.device, bench->arenas[0]);
    transport_rank_end(&bench->me);
    return 0;
}

/* What ranks are started with. */
struct job {
    const struct variant *variant;
    struct transport_world *world;
};

static int reduce_rank(int rank, int n, void *argument)
{
    static const size_t counts[] = {0, 1, 33, 1000, 20011};
    const struct job *job = argument;
    struct bench bench;

    (void)n;
    CHECK(open_bench(&bench, job->world, rank, job->variant) == 0);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int op = CDDP_OP_SUM; op <= CDDP_OP_PROD; op++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                struct shape shape = {.type = types[t],
                                      .op = (cddp_op)op,
                                      .count = counts[c],
                                      .registered = (c + (size_t)op) % 2 == 1,
                                      .in_place = (t + c) % 2 == 0,
                                      .offset = (t + c) % 3 == 0 ? cddp_type_bytes(types[t]) : 0};

                CHECK(reduce_shape(&bench, &shape) == 0);
            }
        }
    }
    return close_bench(&bench);
}

static int move_rank(int rank, int n, void *argument)
{
    static const size_t counts[] = {0, 1, 33, 1024, 20011};
    static const cddp_type some[] = {CDDP_F32, CDDP_F64, CDDP_BF16, CDDP_U8};
    const struct job *job = argument;
    struct bench bench;

    (void)n;
    CHECK(open_bench(&bench, job->world, rank, job->variant) == 0);
    for (size_t t = 0; t < sizeof some / sizeof *some; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (unsigned how = 0; how < 4; how++) {
                struct shape shape = {.type = some[t],
                                      .count = counts[c],
                                      .registered = how % 2 == 1,
                                      .in_place = how / 2 == 1,
                                      .offset = (t + c) % 3 == 0 ? cddp_type_bytes(some[t]) : 0};

                CHECK(move_shape(&bench, &shape) == 0);
                CHECK(scatter_shape(&bench, &shape) == 0);
            }
        }
    }
    return close_bench(&bench);
}

static int weighted_once(struct bench *bench, const struct shape *s, const double *weights)
{
    struct transport_rank *me = &bench->me;
    size_t bytes = s->count * cddp_type_bytes(s->type);
    struct cddpi_group_op op = {.type = s->type,
                                .op = CDDP_OP_SUM,
                                .count = s->count,
                                .weighted = true,
                                .weight = weights[me->rank]};
    struct check check = {
        .count = s->count, .type = s->type, .op = CDDP_OP_SUM, .weights = weights};

    CHECK(make_room(bench, (bytes + 1024) * (size_t)(me->size + 4)) == 0);
    for (int scatter = 0; scatter < 2; scatter++) {
        size_t count = scatter ? s->count * (size_t)me->size : s->count;
        char *in = input(bench, s->registered, count, s->type, s->offset);

        if (weights[me->rank] == 0) { /* NaN in every floating type */
            char *nan = malloc(count * cddp_type_bytes(s->type));

            memset(nan, 0xff, count * cddp_type_bytes(s->type));
            in = transport_upload(me, in, nan, count * cddp_type_bytes(s->type));
            free(nan);
        }
        op.kind = scatter ? CDDPI_REDUCE_SCATTER : CDDPI_ALL_REDUCE;
        op.in = in;
        op.out = !s->in_place ? take(bench, s->registered, bytes, s->offset)
                 : scatter    ? in + (size_t)me->rank * bytes
                              : in;
        CHECK(transport_start(me, &op) == CDDP_OK);
        check.got = op.out;
        check.from = scatter ? (size_t)me->rank * s->count : 0;
        expect(bench, check);
    }
    return 0;
}

static int weighted_rank(int rank, int n, void *argument)
{
    static const double uneven[] = {3, 1, 0, 7.5, 2, 0.25, 0, 5};
    static const double even[] = {4, 4, 4, 4, 4, 4, 4, 4};
    static const double none[] = {0, 0, 0, 0, 0, 0, 0, 0};
    static const double *const all[] = {uneven, even, none};
    static const size_t counts[] = {1, 333, 1024, 9001};
    const struct job *job = argument;
    struct bench bench;

    (void)n;
    CHECK(open_bench(&bench, job->world, rank, job->variant) == 0);
    for (size_t t = 0; t < 4; t++) {
        for (size_t w = 0; w < 3; w++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                struct shape shape = {.type = types[t],
                                      .count = counts[c],
                                      .registered = (c + w) % 2 == 1,
                                      .in_place = (t + c) % 2 == 1,
                                      .offset = (w + c) % 4 == 3 ? cddp_type_bytes(types[t]) : 0};

                CHECK(weighted_once(&bench, &shape, all[w]) == 0);
            }
        }
    }
    return close_bench(&bench);
}

/* A network interface is shared by the ranks of a host, so each may only send its part of what the
 * hosts need: of 8 ranks on 2 hosts, an eighth of the data each way. Sums of a host go as f32. */
static int frugal_rank(int rank, int n, void *argument)
{
    enum { ALL = 80000 };
    const struct job *job = argument;
    size_t (*bytes_out)(void) = NULL;
    void *module;
    struct bench bench;

    CHECK(open_bench(&bench, job->world, rank, job->variant) == 0);
    module = dlopen(getenv("CDDP_CUDA_MODULE"), RTLD_LAZY | RTLD_NOLOAD);
    CHECK(module != NULL);
    *(void **)&bytes_out = dlsym(module, "fake_nccl_bytes_to_other_hosts");
    CHECK(bytes_out != NULL);
    for (int i = 0; i < 4; i++) {
        bool scatter = i % 2 == 1;
        cddp_type type = i < 2 ? CDDP_F32 : CDDP_BF16;
        struct cddpi_group_op op = {.kind = scatter ? CDDPI_REDUCE_SCATTER : CDDPI_ALL_REDUCE,
                                    .type = type,
                                    .op = CDDP_OP_SUM,
                                    .count = ALL / (size_t)(scatter ? n : 1)};
        size_t each = sizeof(float) + (scatter ? 0 : cddp_type_bytes(type));
        size_t needed = ALL / (size_t)n * each;

        CHECK(make_room(&bench, ALL * 12) == 0);
        op.in = input(&bench, false, ALL, type, 0);
        op.out = take(&bench, false, ALL * cddp_type_bytes(type), 0);
        (void)bytes_out();
        CHECK(transport_run(&bench.me, &op) == CDDP_OK);
        CHECK(bytes_out() <= needed + 1024); /* parts begin at multiples of 256 bytes */
    }
    return close_bench(&bench);
}

/* The same memory again and again: results are read, and inputs written, as soon as the streams
 * may, with nobody waiting in between. */
static int reusing_rank(int rank, int n, void *argument)
{
    enum { REUSED = 4096, ROUNDS = 12 };
    static const enum cddpi_kind kinds[] = {CDDPI_ALL_REDUCE, CDDPI_REDUCE_SCATTER,
                                            CDDPI_ALL_TO_ALL, CDDPI_BROADCAST};
    const struct job *job = argument;
    size_t bytes = REUSED * sizeof(float);
    size_t all = bytes * (size_t)n;
    struct bench bench;
    struct transport_rank *me = &bench.me;

    CHECK(open_bench(&bench, job->world, rank, job->variant) == 0);
    for (int registered = 0; registered < 2; registered++) {
        char *host = malloc(all);
        char *in = take(&bench, registered, all, 0);
        char *out = take(&bench, registered, all, 0);

        for (size_t i = 0; i < ROUNDS; i++) {
            char *kept = take(&bench, false, bytes, 0);
            enum cddpi_kind kind = kinds[i % 4];
            struct check check = {.from = i * 100,
                                  .count = REUSED,
                                  .type = CDDP_F32,
                                  .op = CDDP_OP_SUM,
                                  .got = kept,
                                  .moved = kind == CDDPI_ALL_TO_ALL || kind == CDDPI_BROADCAST,
                                  .from_rank = (rank + 1) % n};
            struct cddpi_group_op op = {.kind = kind,
                                        .type = CDDP_F32,
                                        .op = CDDP_OP_SUM,
                                        .count = REUSED,
                                        .in = in,
                                        .out = kind == CDDPI_BROADCAST ? in : out};
            /* what comes from the next rank, or all of it */
            const char *result = kind == CDDPI_ALL_TO_ALL ? out + (size_t)check.from_rank * bytes
                                                          : (const char *)op.out;

            fill_rank(host, rank, i * 100, REUSED * (size_t)n, CDDP_F32);
            CHECK(transport_upload(me, in, host, all) != NULL);
            CHECK(transport_start(me, &op) == CDDP_OK);
            CHECK(me->device->ops->copy(me->device, CDDPI_STREAM_COMPUTE, kept, result, bytes) ==
                  CDDP_OK);
            if (kind == CDDPI_REDUCE_SCATTER || kind == CDDPI_ALL_TO_ALL) {
                check.from += (size_t)rank * REUSED;
            }
            check.from_rank = kind == CDDPI_BROADCAST ? 0 : check.from_rank;
            expect(&bench, check);
        }
        free(host);
        bench.shapes = 1;
        CHECK(flush(&bench) == 0);
    }
    return close_bench(&bench);
}

enum { RECORDED = 9001 };

/* The same reduction, done again on other numbers. */
static int replay(struct bench *bench, struct cddpi_captured_graph *captured, char *data,
                  size_t from)
{
    struct transport_rank *me = &bench->me;
    struct check check = {
        .from = from, .count = RECORDED, .type = CDDP_F32, .op = CDDP_OP_SUM, .got = data};
    float host[RECORDED];

    fill_rank(host, me->rank, from, RECORDED, CDDP_F32);
    CHECK(transport_upload(me, data, host, sizeof host) != NULL);
    CHECK(me->device->ops->replay(me->device, captured) == CDDP_OK);
    return look(bench, &check);
}

static int record_rank(int rank, int n, void *argument)
{
    const struct job *job = argument;
    struct cddpi_captured_graph *captured;
    struct bench bench;
    struct transport_rank *me = &bench.me;
    char *data;
    struct cddpi_group_op op = {
        .kind = CDDPI_ALL_REDUCE, .type = CDDP_F32, .op = CDDP_OP_SUM, .count = RECORDED};

    CHECK(open_bench(&bench, job->world, rank, job->variant) == 0);
    CHECK(me->ops->can_capture(me->transport) ==
          (n == 1 || strcmp(job->variant->transport, "nccl") == 0));
    data = input(&bench, true, RECORDED, CDDP_F32, 0);
    op.in = op.out = data;
    CHECK(transport_run(me, &op) == CDDP_OK); /* the first one connects */
    if (me->ops->can_capture(me->transport)) {
        CHECK(me->device->ops->capture_begin(me->device) == CDDP_OK);
        CHECK(transport_start(me, &op) == CDDP_OK);
        CHECK(me->device->ops->capture_end(me->device, &captured) == CDDP_OK);
        for (size_t i = 0; i < 4; i++) {
            CHECK(replay(&bench, captured, data, i * 1000) == 0);
        }
        me->device->ops->graph_destroy(me->device, captured);
    }
    return close_bench(&bench);
}

static const int ranks[] = {1, 2, 3, 4, 7};
enum { SIZES = sizeof ranks / sizeof *ranks };

/* In ranks that stay: their worlds are mapped before the first of them is forked. */
static int run_pooled(int size, rank_fn body, struct job *job)
{
    static struct transport_world *worlds[SIZES];

    for (int i = 0; i < SIZES; i++) {
        worlds[i] = worlds[i] == NULL ? transport_world_create(ranks[i]) : worlds[i];
        job->world = ranks[i] == size ? worlds[i] : job->world;
    }
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1); /* the same for all of them */
    assert_true(transport_world_reset(job->world));
    return pool_run(size, body, job, sizeof *job, NULL, 0);
}

static int run_forked(int size, rank_fn body, struct job *job)
{
    int failed;

    job->world = transport_world_create(size);
    failed = run_ranks(size, body, job);
    transport_world_destroy(job->world);
    return failed;
}

static void at_all(rank_fn body)
{

    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        for (int i = 0; i < SIZES; i++) {
            struct job job = {&variants[v], NULL};

            if (gpu_is_beyond(variants[v].transport, ranks[i]) ||
                (pool_is_wanted() && !gpu_is_real() && ranks[i] > 2)) { /* that shows the pool */
                continue;
            }
            setenv("CDDP_FAKE_CUDA_DEVICES", variants[v].devices, 1);
            support_setenv_number("CDDP_FAKE_CUDA_SEED", (int)v * 10 + i + 1);
            if ((pool_is_wanted() ? run_pooled : run_forked)(ranks[i], body, &job) != 0) {
                fprintf(stderr, "the %s transport (deterministic: %d) at %d ranks\n",
                        variants[v].transport, variants[v].deterministic, ranks[i]);
                fail();
            }
        }
    }
}

/* Hosts with as many ranks each, and two of which one has fewer. */
static void between_hosts(rank_fn body, int least)
{
    static const struct {
        int size, host_ranks;
    } cases[] = {{3, 2}, {4, 2}, {6, 2}, {8, 4}};

    if (pool_is_wanted()) {
        print_message("skipped: ranks of a pool are on one host\n");
        skip();
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct variant variant = {"nccl", true, true, "8", cases[c].host_ranks};
        struct job job = {&variant, NULL};

        if (cases[c].size < least) {
            continue;
        }
        setenv("CDDP_FAKE_CUDA_DEVICES", variant.devices, 1);
        support_setenv_number("CDDP_FAKE_CUDA_SEED", (int)c + 1);
        if (run_forked(cases[c].size, body, &job) != 0) {
            fail_msg("%d ranks, %d on a host", cases[c].size, cases[c].host_ranks);
        }
    }
}

static void between_hosts_reductions_are_the_same_tree(void **state)
{
    (void)state;
    between_hosts(reduce_rank, 0);
    between_hosts(weighted_rank, 0);
    between_hosts(reusing_rank, 4);
    between_hosts(record_rank, 4);
}

static void between_hosts_go_as_few_bytes_as_possible(void **state)
{
    (void)state;
    between_hosts(frugal_rank, 8);
}

static void every_reduction_is_the_tree_of_the_reference(void **state)
{
    (void)state;
    at_all(reduce_rank);
}

static void what_is_moved_comes_where_it_belongs(void **state)
{
    (void)state;
    at_all(move_rank);
}

static void a_rank_of_weight_zero_contributes_nothing_not_even_nan(void **state)
{
    (void)state;
    at_all(weighted_rank);
}

static void memory_may_be_used_again_in_stream_order(void **state)
{
    (void)state;
    at_all(reusing_rank);
}

static void what_can_be_recorded_reduces_again_when_it_is_replayed(void **state)
{
    (void)state;
    at_all(record_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reduction_is_the_tree_of_the_reference),
        cmocka_unit_test(what_is_moved_comes_where_it_belongs),
        cmocka_unit_test(a_rank_of_weight_zero_contributes_nothing_not_even_nan),
        cmocka_unit_test(memory_may_be_used_again_in_stream_order),
        cmocka_unit_test(what_can_be_recorded_reduces_again_when_it_is_replayed),
        cmocka_unit_test(between_hosts_reductions_are_the_same_tree),
        cmocka_unit_test(between_hosts_go_as_few_bytes_as_possible),
    };

    return transport_module() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
