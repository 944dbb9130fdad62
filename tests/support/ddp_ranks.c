/* ddp_ranks.c - shared by the tests of ddp: groups of forked ranks that meet in a file, small
 * models, and gradients whose mean over ranks is known to the bit. */
#include "support/ddp_ranks.h"

#include "support/group.h"

int meeting_set_up(void **state)
{
    struct meeting *meeting = calloc(1, sizeof *meeting);
    char *folder = support_mkdtemp();

    if (meeting == NULL || folder == NULL) {
        return 1;
    }
    snprintf(meeting->folder, sizeof meeting->folder, "%s", folder);
    meeting->timeout_ms = SUPPORT_TIMEOUT_MS;
    free(folder);
    *state = meeting;
    return 0;
}

int meeting_tear_down(void **state)
{
    struct meeting *meeting = *state;

    support_rmdir(strdup(meeting->folder));
    free(meeting);
    return 0;
}

int meet(struct meeting *meeting, int world_size, rank_fn body, const void *argument, int *statuses)
{
    static int runs;

    snprintf(meeting->job, sizeof meeting->job, "ddp-%d-%d", (int)getpid(), runs++);
    meeting->argument = argument;
    return run_ranks_status(world_size, body, meeting, statuses);
}

cddp_group *join_group(const struct meeting *meeting, int rank, int world_size)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group = NULL;
    char url[4200];

    snprintf(url, sizeof url, "file://%s/%s", meeting->folder, meeting->job);
    options.backend = world_size == 1 ? "solo" : "host";
    options.rendezvous = url;
    options.token = SUPPORT_TOKEN;
    options.job = meeting->job;
    options.rank = rank;
    options.world_size = world_size;
    if (!group_choose_host(rank)) {
        options.local_rank = rank;
        options.local_world_size = world_size;
    }
    options.timeout_ms = meeting->timeout_ms;
    if (cddp_group_create(&options, &group) != CDDP_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, cddp_last_error());
        return NULL;
    }
    return group;
}

int same_text_everywhere(cddp_group *group, const char *text)
{
    char own[4096] = {0};
    char *all = calloc((size_t)cddp_group_world_size(group), sizeof own);
    int same = 1;

    snprintf(own, sizeof own, "%s", text);
    if (all == NULL || cddp_all_gather(group, own, all, sizeof own, CDDP_U8, NULL) != CDDP_OK) {
        fprintf(stderr, "all_gather of texts: %s\n", cddp_last_error());
        same = 0;
    }
    for (int rank = 0; same && rank < cddp_group_world_size(group); rank++) {
        if (strcmp(own, all + (size_t)rank * sizeof own) != 0) {
            fprintf(stderr, "here: %s\nrank %d: %s\n", own, rank, all + (size_t)rank * sizeof own);
            same = 0;
        }
    }
    free(all);
    return same;
}

PURE float noise(unsigned a, unsigned b, unsigned c, unsigned d)
{
    uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + c * 0x94D049BB133111EBu + d;

    x ^= x >> 31;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 29;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    return (float)(x >> 40) * 0x1p-23f - 1.0f;
}

/* @p x rounded to nearest even with @p bits bits of mantissa and no exponent below @p low. */
PURE static float round_to(float x, int bits, int low)
{
    int exponent;

    frexpf(x, &exponent);
    exponent = exponent - bits > low ? exponent - bits : low;
    return (float)ldexp(rint(ldexp(x, -exponent)), exponent);
}

PURE float round_bf16(float x)
{
    return round_to(x, 8, -133);
}

PURE float round_f16(float x)
{
    return round_to(x, 11, -24);
}

PURE double tree_sum(double *values, int count, int is_f32)
{
    for (; count > 1; count = (count + 1) / 2) {
        for (int i = 0; i < count; i += 2) {
            double sum = i + 1 < count ? values[i] + values[i + 1] : values[i];

            values[i / 2] = is_f32 && i + 1 < count ? (float)values[i] + (float)values[i + 1] : sum;
        }
    }
    return values[0];
}

PURE double tree_mean(double *values, int world_size, cddp_type type)
{
    double sum = tree_sum(values, world_size, type != CDDP_F64);
    float narrow;

    if (type == CDDP_F64) {
        return sum * (1.0 / world_size);
    }
    narrow = (float)sum * (float)(1.0 / world_size);
    return type == CDDP_BF16 ? round_bf16(narrow) : type == CDDP_F16 ? round_f16(narrow) : narrow;
}

void put(void *memory, cddp_type type, size_t i, double value)
{
    uint32_t bits;
    float narrow = (float)value;

    switch (type) {
    case CDDP_F64:
        ((double *)memory)[i] = value;
        break;
    case CDDP_BF16:
        narrow = round_bf16(narrow);
        memcpy(&bits, &narrow, 4);
        ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16);
        break;
    default:
        ((float *)memory)[i] = narrow;
    }
}

double get(const void *memory, cddp_type type, size_t i)
{
    uint32_t bits;
    float narrow;

    switch (type) {
    case CDDP_F64:
        return ((const double *)memory)[i];
    case CDDP_BF16:
        bits = (uint32_t)((const uint16_t *)memory)[i] << 16;
        memcpy(&narrow, &bits, 4);
        return narrow;
    default:
        return ((const float *)memory)[i];
    }
}

void free_model(struct model *model)
{
    for (size_t p = 0; p < model->count; p++) {
        free(model->params[p].data);
        if (model->flat == NULL) {
            free(model->params[p].grad);
        }
    }
    free(model->flat);
}

void make_model(struct model *model, int rank, enum memory memory, size_t count,
                const size_t *elements, const cddp_type *types)
{
    size_t bytes = 0;

    memset(model, 0, sizeof *model);
    model->options = (cddp_ddp_options)CDDP_DDP_OPTIONS_INIT;
    model->count = count;
    for (size_t p = 0; p < count; p++) {
        cddp_param *param = &model->params[p];

        snprintf(model->names[p], sizeof model->names[p], "p%zu", p);
        param->name = model->names[p];
        param->type = types != NULL ? types[p] : CDDP_F32;
        param->dims = 1;
        param->shape[0] = (int64_t)elements[p];
        model->elements[p] = elements[p];
        param->data = calloc(elements[p] + 1, cddp_type_bytes(param->type));
        for (size_t i = 0; i < elements[p]; i++) {
            put(param->data, param->type, i, noise(99, (unsigned)rank, (unsigned)p, (unsigned)i));
        }
        if (memory == SCATTERED || (memory == MIXED && p % 2 == 0)) {
            param->grad = calloc(elements[p] + 1, cddp_type_bytes(param->type));
        }
        bytes += elements[p] * cddp_type_bytes(param->type);
    }
    if (memory != FLAT) {
        return;
    }
    model->flat = calloc(1, bytes + 1);
    model->options.flat_grads = model->flat;
    model->options.share_flat_grads = true;
    bytes = 0;
    for (size_t p = 0; p < count; p++) {
        model->params[p].grad = model->flat + bytes;
        bytes += elements[p] * cddp_type_bytes(model->params[p].type);
    }
}

PURE double stored(double value, cddp_type type)
{
    float narrow = type == CDDP_BF16 ? round_bf16((float)value) : (float)value;

    return type == CDDP_F64 ? value : narrow;
}

PURE double gradient(int rank, int step, size_t p, size_t i)
{
    return noise((unsigned)rank, (unsigned)step + 1000, (unsigned)p, (unsigned)i);
}

void write_gradient(cddp_ddp *ddp, const struct model *model, int rank, int step, size_t p)
{
    void *grad = cddp_ddp_grad(ddp, p);

    for (size_t i = 0; i < model->elements[p]; i++) {
        put(grad, model->params[p].type, i, gradient(rank, step, p, i));
    }
}

PURE static double expected_mean(cddp_type type, int world_size, int step, size_t p, size_t i)
{
    double values[RANKS_MOST];

    for (int rank = 0; rank < world_size; rank++) {
        values[rank] = stored(gradient(rank, step, p, i), type);
    }
    return tree_mean(values, world_size, type);
}

int is_mean(cddp_ddp *ddp, const struct model *model, int world_size, int step, size_t p)
{
    cddp_type type = model->params[p].type;
    const void *grad = cddp_ddp_grad(ddp, p);

    for (size_t i = 0; i < model->elements[p]; i++) {
        double expected = expected_mean(type, world_size, step, p, i);

        if (get(grad, type, i) != expected) {
            fprintf(stderr, "step %d, parameter %zu (%s), element %zu: %.17g, not %.17g\n", step, p,
                    cddp_type_name(type), i, get(grad, type, i), expected);
            return 0;
        }
    }
    return 1;
}

int enter(struct trainer *out, const struct meeting *meeting, int rank, int world_size,
          enum memory memory, size_t count, const size_t *elements, const cddp_type *types)
{
    out->ddp = NULL;
    out->group = join_group(meeting, rank, world_size);
    make_model(&out->model, rank, memory, count, elements, types);
    return out->group == NULL;
}

int watch(struct trainer *trainer)
{
    CHECK(cddp_ddp_create(trainer->group, trainer->model.params, trainer->model.count, NULL, 0,
                          &trainer->model.options, &trainer->ddp) == CDDP_OK);
    return 0;
}

int leave(struct trainer *trainer)
{
    cddp_ddp_destroy(trainer->ddp);
    cddp_group_destroy(trainer->group);
    free_model(&trainer->model);
    return 0;
}

int begin_mean(cddp_ddp *ddp, int step)
{
    cddp_step how = CDDP_STEP_INIT;

    how.number = (uint64_t)step;
    how.kind = CDDP_STEP_BY_RANKS;
    CHECK(cddp_ddp_begin(ddp, &how) == CDDP_OK);
    return 0;
}

int full_backward(const struct trainer *trainer, int rank, int step)
{
    CHECK(begin_mean(trainer->ddp, step) == 0);
    return all_ready(trainer, rank, step);
}

int all_ready(const struct trainer *trainer, int rank, int step)
{
    for (size_t p = trainer->model.count; p-- > 0;) {
        write_gradient(trainer->ddp, &trainer->model, rank, step, p);
        CHECK(cddp_ddp_grad_ready(trainer->ddp, p) == CDDP_OK);
    }
    return 0;
}

int train_again(struct trainer *trainer, int rank, int world_size)
{
    cddp_ddp_destroy(trainer->ddp);
    CHECK(watch(trainer) == 0);
    CHECK(full_backward(trainer, rank, 50) == 0);
    CHECK(cddp_ddp_wait(trainer->ddp) == CDDP_OK);
    for (size_t p = 0; p < trainer->model.count; p++) {
        CHECK(is_mean(trainer->ddp, &trainer->model, world_size, 50, p));
    }
    return leave(trainer);
}
