/* device_memory.c - counts the memory that training holds on each device of all ranks. */
#include "train/telemetry/device_memory.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/engines/engine.h"

/* The members of struct cddpi_held_memory, with their names in the line. */
#define PART_MAP(X) X(parameters) X(gradients) X(optimizer) X(activations) X(edges) X(outputs)
#define PART_NAME(member) #member,
static const char *const names[] = {PART_MAP(PART_NAME)};

enum { PARTS = sizeof names / sizeof names[0] };

void cddpi_trainer_add_param_memory(const struct cddpi_trainer *trainer, size_t index,
                                    struct cddpi_held_memory *out)
{
    out->gradients += cddpi_tensors_bytes(&trainer->params[index], 1);
    out->optimizer += cddpi_optim_state_bytes(trainer->optim, index);
}

cddp_status cddpi_trainer_device_memory(const struct cddpi_trainer *trainer,
                                        struct cddpi_held_memory **out, int *out_count)
{
    int count = trainer->engine->device_count(trainer);
    struct cddpi_held_memory *all = cddpi_zalloc_array((size_t)count, sizeof *all);

    if (all == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "metrics: no memory for %d devices", count);
    }
    for (; trainer != NULL; trainer = trainer->next) {
        trainer->engine->add_memory(trainer, all);
    }
    *out = all;
    *out_count = count;
    return CDDP_OK;
}

static json_t *describe(const struct cddpi_trainer *trainer, int rank, int device,
                        const uint64_t *bytes)
{
    char name[32];
    json_t *line;

    /* The first rank's device names: all ranks have devices of the same names. */
    trainer->engine->name_device(trainer, device, name, sizeof name);
    line = json_pack("{s:i, s:s}", "rank", rank, "device", name);
    for (int p = 0; p < PARTS; p++) {
        char key[48];

        snprintf(key, sizeof key, "%s_bytes", names[p]);
        (void)json_object_set_new(line, key, json_integer((json_int_t)bytes[p]));
    }
    return line;
}

/* Rank 0: @p all has a row per device of each rank. */
static void write_line(struct cddpi_trainer *trainer, int count, const uint64_t *all)
{
    json_t *devices = json_array();

    for (int i = 0; i < trainer->world_size * count; i++) {
        (void)json_array_append_new(
            devices, describe(trainer, i / count, i % count, all + (size_t)i * PARTS));
    }
    cddpi_metrics_add_object(trainer->records.metrics,
                             json_pack("{s:s, s:I, s:o}", "kind", "memory", "step",
                                       (json_int_t)trainer->cursor.step, "devices", devices));
}

cddp_status cddpi_trainer_report_memory(struct cddpi_trainer *trainer)
{
    struct cddpi_held_memory *own = NULL;
    uint64_t *rows = NULL;
    uint64_t *all = NULL;
    size_t row = 0;
    int count = 0;
    cddp_status status = cddpi_trainer_device_memory(trainer, &own, &count);

    if (status == CDDP_OK) {
        row = (size_t)count * PARTS;
        rows = cddpi_zalloc_array(row * ((size_t)trainer->world_size + 1), sizeof *rows);
        status = rows != NULL ? CDDP_OK
                              : cddpi_fail(CDDP_ERR_NO_MEMORY, "metrics: no memory for %d devices",
                                           count * trainer->world_size);
    }
    if (status != CDDP_OK) {
        cddpi_free(own);
        return status;
    }
    all = rows + row;
    for (int d = 0; d < count; d++) {
        const struct cddpi_held_memory *from = &own[d];
#define PART_BYTES(member) from->member,
        const size_t bytes[PARTS] = {PART_MAP(PART_BYTES)};

        for (int p = 0; p < PARTS; p++) {
            rows[d * PARTS + p] = bytes[p];
        }
    }
    status = cddp_gather(trainer->group, rows, all, row * sizeof *rows, CDDP_U8, 0, NULL);
    if (status == CDDP_OK && trainer->records.metrics != NULL) {
        write_line(trainer, count, all);
    }
    cddpi_free(rows);
    cddpi_free(own);
    return status;
}
