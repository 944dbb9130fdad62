/* describe_plan.c - writes the table of a step's parts: the implementation of each, its expected
 * time on one core, and warnings about parts that are slower than they could be.
 *
 * Expected times are the plan's estimates, which depend on shapes alone, divided by two measured
 * speeds of this machine: multiplying matrices, and copying. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "nn/model_state.h"

#include <stdio.h>
#include <string.h>

struct speeds {
    double work, bytes; /* per second: multiplications; bytes read or written */
};

enum { SIDE = 384, TRIES = 5, COPIED_BYTES = 8 << 20 };

/* The minimum of some tries: other processes may use the core, too. */
static cddp_status measure_with(float *memory, struct speeds *out)
{
    size_t matrix = (size_t)SIDE * SIDE;
    int64_t least[2] = {INT64_MAX, INT64_MAX};
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < TRIES; i++) {
        int64_t start = cddpi_now_ns();
        int64_t between;

        status = cddpi_gemm(false, false, SIDE, SIDE, SIDE, memory, memory + matrix, 0,
                            memory + 2 * matrix);
        between = cddpi_now_ns();
        least[0] = between - start < least[0] ? between - start : least[0];
        memcpy((char *)memory + COPIED_BYTES, memory, COPIED_BYTES);
        between = cddpi_now_ns() - between;
        least[1] = between < least[1] ? between : least[1];
    }
    out->work = 1e9 * (double)SIDE * SIDE * SIDE / (double)(least[0] > 0 ? least[0] : 1);
    out->bytes = 1e9 * 2.0 * COPIED_BYTES / (double)(least[1] > 0 ? least[1] : 1);
    return status;
}

static cddp_status measure(struct speeds *out)
{
    float *memory = cddpi_zalloc(2 * COPIED_BYTES);
    cddp_status status;

    CDDPI_TRY_MEMORY(memory != NULL, "model: no memory to measure this machine");
    status = measure_with(memory, out);
    cddpi_free(memory);
    return status;
}

/* Bytes of the op's input and output that one pass reads and writes. */
static double passed_bytes(const struct cddpi_plan *plan, const struct cddpi_op *op)
{
    double elements = 0;

    for (int k = 0; k < op->input_count; k++) {
        elements += (double)plan->values[op->inputs[k]].elements;
    }
    if (op->output >= 0) {
        elements += (double)plan->values[op->output].elements;
    }
    return elements * sizeof(float);
}

/* One row of the table. */
struct describe_plan_row {
    const struct cddpi_op *op;
    const char *what, *name, *reason;
    double seconds;
    double ideal; /* with a good kernel, without padding and copies */
};

struct table {
    FILE *file;
    double total;
    struct describe_plan_row *rows;
    int count;
};

static void add(struct table *table, struct describe_plan_row row)
{
    table->total += row.seconds;
    table->rows[table->count++] = row;
}

static void add_part(struct table *table, const struct cddpi_plan *plan,
                     const struct speeds *speeds, const struct cddpi_plan_part *part)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, part->op);
    double work = op->ops->work != NULL ? plan->count * op->ops->work(op) : 0;
    double bytes = passed_bytes(plan, op);

    add(table, (struct describe_plan_row){.op = op,
                                          .what = part->what,
                                          .name = part->name,
                                          .reason = part->reason,
                                          .seconds = part->work / speeds->work +
                                                     (bytes + part->copied) / speeds->bytes,
                                          .ideal = work / speeds->work + bytes / speeds->bytes});
}

static void add_own(struct table *table, const struct cddpi_op *op, const char *what,
                    const char *name, double seconds)
{
    add(table, (struct describe_plan_row){
                   .op = op, .what = what, .name = name, .seconds = seconds, .ideal = seconds});
}

/* The cost of an op whose implementations are not in the plan, i.e. our own products and loops. Its
 * backward multiplies twice as much, and also reads the gradient. */
static void add_op(struct table *table, const struct cddpi_plan *plan, const struct speeds *speeds,
                   int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    double work = op->ops->work != NULL ? plan->count * op->ops->work(op) : 0;
    double seconds = work / speeds->work + passed_bytes(plan, op) / speeds->bytes;
    const char *name = work > 0 ? "own:products" : "own:loops";

    if ((plan->ops[index].flags & CDDPI_FORWARD_VIEW) != 0) {
        return; /* this op does nothing */
    }
    add_own(table, op, "forward", name, seconds);
    if (plan->training) {
        add_own(table, op, "backward", name, 2 * seconds);
    }
}

/* One row for each part of an op, and one for its products that belong to no part. */
static void add_parts(struct table *table, const struct cddpi_plan *plan,
                      const struct speeds *speeds, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    double passes = !plan->training ? 1 : cddpi_plan_wants_grad(plan, index, 0) ? 3 : 2;
    double work = op->ops->work != NULL ? plan->count * op->ops->work(op) : 0;
    double left = passes * work;
    bool any = false;

    for (int k = 0; k < plan->part_count; k++) {
        if (plan->parts[k].op == index) {
            add_part(table, plan, speeds, &plan->parts[k]);
            left -= plan->parts[k].work;
            any = true;
        }
    }
    if (!any) {
        add_op(table, plan, speeds, index);
    } else if (left > 0.1 * work) {
        add_own(table, op, "other products", "own:products", left / speeds->work);
    }
}

static void write_rows(const struct table *table, int count)
{
    fprintf(table->file, "%-24s  %-32s  %-20s  %s\n", "layer", "part", "implementation",
            "expected ms");
    for (int i = 0; i < table->count; i++) {
        const struct describe_plan_row *row = &table->rows[i];

        fprintf(table->file, "%-24s  %-32s  %-20s  %.3f\n", row->op->layer.name, row->what,
                row->name, 1e3 * row->seconds);
    }
    fprintf(table->file, "expected time of a step of %d samples on one core: about %.3g ms\n",
            count, 1e3 * table->total);
}

/* Warn about parts that are slower than they could be, and take enough of the step to matter. */
static void write_warnings(const struct table *table)
{
    for (int i = 0; i < table->count; i++) {
        const struct describe_plan_row *row = &table->rows[i];

        if (row->seconds < 2 * row->ideal || row->seconds < table->total / 20) {
            continue;
        }
        fprintf(table->file,
                "warning: %s: its %s (%s) is expected to take %.1f times as long as it could: %s. "
                "Channels (here %d in, %d out) that are multiples of 16 are fastest.\n",
                row->op->layer.name, row->what, row->name, row->seconds / row->ideal,
                row->reason != NULL ? row->reason : "its channels leave parts of vectors empty",
                row->op->in.channels, row->op->out.channels);
    }
}

static cddp_status write_plan(FILE *file, const struct cddpi_plan *plan)
{
    size_t most = (size_t)plan->part_count + 2 * (size_t)plan->model->graph.op_count;
    struct table table = {.file = file, .rows = cddpi_zalloc_array(most, sizeof *table.rows)};
    const char *note = cddpi_model_precision_note(plan->model);
    struct speeds speeds = {1, 1};
    cddp_status status;

    if (table.rows == NULL) {
        return cddpi_plan_no_memory(plan);
    }
    CDDPI_TRY_GOTO(done, status, measure(&speeds));
    for (int i = 0; i < plan->model->graph.op_count; i++) {
        add_parts(&table, plan, &speeds, i);
    }
    write_rows(&table, plan->count);
    write_warnings(&table);
    if (note != NULL) {
        fprintf(file, "warning: %s\n", note);
    }
done:
    cddpi_free(table.rows);
    return status;
}

cddp_status cddpi_cpu_describe_plan(struct cddpi_model *model, int count, FILE *file)
{
    struct cddpi_plan *plan = NULL;

    CDDPI_TRY(cddpi_check_count(count, 1));
    CDDPI_TRY(cddpi_model_plan(model, count, true, &plan));
    return write_plan(file, plan);
}
