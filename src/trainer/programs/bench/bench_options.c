/* bench_options.c - owns cddp-bench's option table, from which parsing, help and suggestions are
 * made. */
#include "programs/bench/bench_options.h"

#include "base/choices.h"
#include "base/error.h"
#include "base/number.h"
#include "base/types.h"

#include <string.h>

/* id, name, letter (0: none), argument (NULL: none), sentence */
#define OPTION_MAP(X)                                                                              \
    X(TYPE, "type", 't', "f32|f64|f16|bf16|i32|i64|u8|i8|bool",                                    \
      "type of the elements (default f32)")                                                        \
    X(OP, "op", 'o', "sum|mean|min|max|prod|and|or|xor", "operation of reductions (default sum)")  \
    X(ROOT, "root", 'r', "RANK", "root of broadcast, reduce, gather and scatter (default 0)")      \
    X(MIN, "min", 'b', "BYTES", "the smallest size: 8, 4K, 64M, 1G (default 8)")                   \
    X(MAX, "max", 'e', "BYTES", "the largest size (default 64M, or --min if that is more)")        \
    X(FACTOR, "factor", 'f', "N", "each size is N times the one before (default 2)")               \
    X(ITERATIONS, "iterations", 'n', "N",                                                          \
      "timed calls per size (default: 256 MiB divided by the size, at least 10, at most "          \
      "1000)")                                                                                     \
    X(WARMUP, "warmup", 'w', "N",                                                                  \
      "calls before the timed ones (default: a tenth as many, at least 2)")                        \
    X(CHECK, "check", 'c', NULL,                                                                   \
      "also compare one result per size, bit by bit, with the right one (for sums: the sum "       \
      "over cddp's tree of ranks); exit with 1 if an element is wrong")                            \
    X(SEED, "seed", 0, "N", "seed of the elements that --check makes (default 1)")                 \
    X(IN_PLACE, "in-place", 'i', NULL, "results overwrite the input")                              \
    X(ALLOC, "alloc", 0, "group|malloc",                                                           \
      "the kind of memory. group (default): cddp_group_alloc(), the fastest for the "              \
      "transport; malloc: any other")                                                              \
    X(TRANSPORT, "transport", 0, "NAME",                                                           \
      "what carries the data: a backend (host, nccl ...), a carrier between hosts (tcp or "        \
      "mpi), or both, such as nccl:tcp")                                                           \
    X(HOSTS, "hosts", 0, "LIST", "start the ranks with cddp-run --hosts: alpha:4,beta:4")          \
    X(HOSTFILE, "hostfile", 0, "FILE", "start the ranks with cddp-run --hostfile")                 \
    X(SSH, "ssh", 0, "COMMAND", "with --hosts or --hostfile: like cddp-run --ssh")                 \
    X(NPROC, "nproc", 0, "N", "start N ranks with cddp-run --nproc")                               \
    X(BACKEND, "backend", 0, "NAME", "like CDDP_BACKEND")                                          \
    X(DEVICE, "device", 0, "NAME", "like CDDP_DEVICE: cpu, cuda or cuda:N")                        \
    X(JSON, "json", 'J', "FILE",                                                                   \
      "also write the figures to FILE; -: to standard output, instead of the table")               \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-bench", OPTION_MAP);

#define DASHED(id, name, letter, argument, text) "--" name,
static const char *const names[OPTION_COUNT] = {OPTION_MAP(DASHED)};

enum { MAX_COUNT = 1000000000 };
_Static_assert(CDDPI_BENCH_WORDS >= 2 * OPTION_COUNT + 1, "all options and the collective");

static const int64_t max_bytes = (int64_t)1 << 44;
static const int64_t default_max_bytes = 64 << 20;

/* Read "4096", "4K" or "4KiB". */
static bool parse_bytes(const char *text, int64_t *out)
{
    static const struct {
        char letter;
        int shift;
    } units[] = {{'K', 10}, {'M', 20}, {'G', 30}, {'T', 40}};
    char digits[32];
    size_t length = strspn(text, "0123456789");
    const char *unit = text + length;
    int64_t number;
    int shift = 0;

    if (length == 0 || length >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, length);
    digits[length] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (unit[0] == units[i].letter) {
            shift = units[i].shift;
            unit += strcmp(unit + 1, "iB") == 0 ? 3 : 1;
            break;
        }
    }
    if (unit[0] != '\0' || !cddpi_parse_integer(digits, 1, max_bytes >> shift, &number)) {
        return false;
    }
    *out = number << shift;
    return true;
}

static cddp_status read_bytes(const char *const *values, int id, int64_t *out)
{
    if (values[id] != NULL && !parse_bytes(values[id], out)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--%s %s: not a size from 1 to 16T bytes, such as 8, 4K or 64M",
                          rows[id].name, values[id]);
    }
    return CDDP_OK;
}

static cddp_status read_sizes(const char *const *values, struct cddpi_bench_options *options)
{
    CDDPI_TRY(read_bytes(values, OPTION_MIN, &options->min_bytes));
    CDDPI_TRY(read_bytes(values, OPTION_MAX, &options->max_bytes));
    if (values[OPTION_MAX] == NULL) {
        options->max_bytes = options->min_bytes > default_max_bytes ? options->min_bytes
                                                                    : default_max_bytes;
    }
    if (options->max_bytes < options->min_bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--max %s is less than --min %s", values[OPTION_MAX],
                          values[OPTION_MIN] != NULL ? values[OPTION_MIN] : "8");
    }
    return cddpi_option_whole(&table, values, OPTION_FACTOR, 2, MAX_COUNT, &options->factor);
}

static cddp_status read_type(const char *const *values, struct cddpi_bench_options *options)
{
    const char *types[CDDPI_TYPES];
    const char *ops[CDDPI_OPS];
    int type = (int)options->type;
    int op = (int)options->op;

    for (int i = 0; i < CDDPI_TYPES; i++) {
        types[i] = cddp_type_name((cddp_type)i);
    }
    for (int i = 0; i < CDDPI_OPS; i++) {
        ops[i] = cddp_op_name((cddp_op)i);
    }
    CDDPI_TRY(cddpi_option_word(&table, values, OPTION_TYPE, types, CDDPI_TYPES, &type));
    CDDPI_TRY(cddpi_option_word(&table, values, OPTION_OP, ops, CDDPI_OPS, &op));
    options->type = (cddp_type)type;
    options->op = (cddp_op)op;
    return CDDP_OK;
}

/* Refuse an option that would be ignored: it is a mistake. */
static cddp_status refuse_useless(const char *const *values,
                                  const struct cddpi_bench_collective *collective)
{
    const struct {
        enum option_id id;
        bool is_used;
    } uses[] = {
        {OPTION_OP, cddpi_bench_reduces(collective)},
        {OPTION_ROOT, collective->has_root},
        {OPTION_TYPE, cddpi_bench_has_data(collective)},
        {OPTION_MIN, cddpi_bench_has_data(collective)},
        {OPTION_MAX, cddpi_bench_has_data(collective)},
        {OPTION_FACTOR, cddpi_bench_has_data(collective)},
        {OPTION_CHECK, cddpi_bench_has_data(collective)},
        {OPTION_ALLOC, cddpi_bench_has_data(collective)},
        {OPTION_IN_PLACE, collective->in_place != CDDPI_BENCH_IN_PLACE_NEVER},
    };

    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (values[uses[i].id] != NULL && !uses[i].is_used) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "--%s has no meaning with %s",
                              rows[uses[i].id].name, collective->name);
        }
    }
    if (values[OPTION_SEED] != NULL && values[OPTION_CHECK] == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--seed has no meaning without --check");
    }
    if (values[OPTION_SSH] != NULL && values[OPTION_HOSTS] == NULL &&
        values[OPTION_HOSTFILE] == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--ssh has no meaning without --hosts or --hostfile");
    }
    return CDDP_OK;
}

static cddp_status find_collective(int word_count, char **words,
                                   const struct cddpi_bench_collective **out)
{
    const char *near = NULL;
    unsigned best = 4; /* a word that needs more edits is not suggested */

    if (word_count != 1) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "name one collective, such as all_reduce: see cddp-bench --help");
    }
    for (int i = 0; i < CDDPI_BENCH_COLLECTIVES; i++) {
        unsigned distance = cddpi_edit_distance(cddpi_bench_collectives[i].name, words[0]);

        if (distance < best) {
            best = distance;
            near = cddpi_bench_collectives[i].name;
            *out = &cddpi_bench_collectives[i];
        }
    }
    if (near != NULL && strcmp(near, words[0]) == 0) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "%s is not a collective%s%s%s", words[0],
                      near != NULL ? ": did you mean " : ": see cddp-bench --help",
                      near != NULL ? near : "", near != NULL ? "?" : "");
}

static cddp_status read_numbers(const char *const *values, struct cddpi_bench_options *options)
{
    static const char *const kinds[] = {"malloc", "group"};
    int kind = 1;

    CDDPI_TRY(cddpi_option_whole(&table, values, OPTION_ROOT, 0, INT32_MAX, &options->root));
    CDDPI_TRY(
        cddpi_option_whole(&table, values, OPTION_ITERATIONS, 1, MAX_COUNT, &options->iterations));
    CDDPI_TRY(cddpi_option_whole(&table, values, OPTION_WARMUP, 0, MAX_COUNT, &options->warmup));
    CDDPI_TRY(cddpi_option_whole(&table, values, OPTION_SEED, 0, INT64_MAX, &options->seed));
    CDDPI_TRY(cddpi_option_word(&table, values, OPTION_ALLOC, kinds, 2, &kind));
    options->group_memory = kind == 1;
    return CDDP_OK;
}

/* Read "host", "tcp" or "nccl:tcp". */
static cddp_status read_transport(const char *const *values, struct cddpi_bench_options *options)
{
    static const char *const carriers[] = {"tcp", "mpi"};
    const char *text = values[OPTION_TRANSPORT];
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    const char *last = colon != NULL ? colon + 1 : text;
    size_t bytes = colon != NULL ? (size_t)(colon - text) : 0;

    if (text == NULL) {
        return CDDP_OK;
    }
    if (values[OPTION_BACKEND] != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--backend has no meaning with --transport");
    }
    for (size_t i = 0; i < sizeof carriers / sizeof *carriers; i++) {
        if (strcmp(last, carriers[i]) == 0) {
            options->carrier = carriers[i];
        }
    }
    if (colon == NULL && options->carrier == NULL) {
        bytes = strlen(text);
    } else if (options->carrier == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--transport %s: %s is not a carrier: choose tcp or mpi", text, last);
    }
    if ((colon != NULL && bytes == 0) || last[0] == '\0' || bytes >= sizeof options->transport) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--transport %s: name a backend, a carrier, or both as in host:tcp",
                          text);
    }
    memcpy(options->transport, text, bytes);
    return CDDP_OK;
}

/* Set which ranks to start, and their command line: this one without the options that say where. */
static void read_start(const char *const *values, struct cddpi_bench_options *options)
{
    options->hosts = values[OPTION_HOSTS];
    options->hostfile = values[OPTION_HOSTFILE];
    options->nproc = values[OPTION_NPROC];
    options->ssh = values[OPTION_SSH];
    if (options->hosts == NULL && options->hostfile == NULL && options->nproc == NULL) {
        return;
    }
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (values[i] == NULL || i == OPTION_HOSTS || i == OPTION_HOSTFILE || i == OPTION_SSH ||
            i == OPTION_NPROC) {
            continue;
        }
        options->words[options->word_count++] = names[i];
        if (rows[i].argument != NULL) {
            options->words[options->word_count++] = values[i];
        }
    }
    options->words[options->word_count++] = options->collective->name;
}

cddp_status cddpi_bench_options_parse(const char *const *values, char **words, int count,
                                      struct cddpi_bench_options *out)
{
    *out = (struct cddpi_bench_options){
        .type = CDDP_F32, .min_bytes = 8, .factor = 2, .warmup = -1, .seed = 1};
    CDDPI_TRY(find_collective(count, words, &out->collective));
    CDDPI_TRY(refuse_useless(values, out->collective));
    CDDPI_TRY(read_type(values, out));
    CDDPI_TRY(read_sizes(values, out));
    CDDPI_TRY(read_numbers(values, out));
    CDDPI_TRY(read_transport(values, out));
    out->in_place = values[OPTION_IN_PLACE] != NULL ||
                    out->collective->in_place == CDDPI_BENCH_IN_PLACE_ALWAYS;
    out->check = values[OPTION_CHECK] != NULL;
    out->backend = out->transport[0] != '\0' ? out->transport : values[OPTION_BACKEND];
    out->device = values[OPTION_DEVICE];
    out->json = values[OPTION_JSON];
    read_start(values, out);
    return CDDP_OK;
}

static void print_collectives(void)
{
    for (int i = 0; i < CDDPI_BENCH_COLLECTIVES; i++) {
        printf("  %-15s %s\n", cddpi_bench_collectives[i].name, cddpi_bench_collectives[i].text);
    }
    putchar('\n');
}

const struct cddpi_program cddpi_bench_program = {
    .options = &table,
    .column = 22,
    .usage =
        "usage: cddp-bench [OPTIONS] COLLECTIVE\n"
        "       cddp-bench --help | --version\n"
        "\nMeasures a collective. Any launcher can start the ranks, or cddp-bench starts them:\n"
        "  cddp-bench --nproc 4 all_reduce --check\n"
        "  cddp-bench --hosts alpha:4,beta:4 --transport tcp all_reduce\n"
        "  cddp-run --nproc 4 -- cddp-bench all_reduce --check\n"
        "  mpirun -np 4 cddp-bench all_gather --min 4K --max 64M --factor 4\n\n",
    .print_more = print_collectives,
    .run = cddpi_bench_run};
