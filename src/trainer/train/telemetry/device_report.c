/* device_report.c - writes what the ranks' devices measure, and names those that are throttled. */
#include "train/telemetry/device_report.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "report/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 10000 }; /* between two lines */

/* What a rank sends. */
struct device_row {
    struct cddpi_device_meters meters;
    char host[64];
    char unique[sizeof((struct cddpi_device *)NULL)->unique];
    int index;
    int is_known;
};

void cddpi_devices_begin(struct cddpi_trainer *trainer)
{
    struct cddpi_device_meters unknown;

    (void)trainer->device->ops->meters(trainer->device, &unknown);
}

void cddpi_devices_note(struct cddpi_trainer *trainer)
{
    struct cddpi_device_records *own = &trainer->records.devices;
    unsigned before = own->meters.throttle;
    int64_t now_ns = cddpi_now_ns();

    own->are_known = trainer->device->ops->meters(trainer->device, &own->meters);
    own->meters.throttle |= before;
    trainer->records.interval.measures = trainer->rank == 0 && own->are_known &&
                                         (own->told_ns == 0 ||
                                          now_ns - own->told_ns >= PAUSE_MS * INT64_C(1000000));
}

/* --- the line {"kind": "devices"} --- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static const struct {
    unsigned bit;
    const char *word, *sentence;
} reasons[] = {
    {CDDPI_THROTTLE_HEAT, "heat", "it is too hot"},
    {CDDPI_THROTTLE_BRAKE, "brake", "the machine's power supply tells it to slow down"},
    {CDDPI_THROTTLE_HARDWARE, "hardware", "its hardware slows it down"},
    {CDDPI_THROTTLE_POWER, "power", NULL}, /* every full load does that */
};

enum { REASONS = sizeof reasons / sizeof reasons[0] };

static json_t *list_reasons(unsigned throttle)
{
    json_t *list = json_array();

    for (int i = 0; i < REASONS; i++) {
        if ((throttle & reasons[i].bit) != 0) {
            (void)json_array_append_new(list, json_string(reasons[i].word));
        }
    }
    return list;
}

static json_t *describe(int rank, const struct device_row *row)
{
    const struct cddpi_device_meters *meters = &row->meters;

    return json_pack("{s:i, s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "rank", rank, "host", row->host, "index", row->index, "unique", row->unique,
                     "memory_mib", number(meters->memory_mib), "memory_total_mib",
                     number(meters->memory_total_mib), "clock_mhz", number(meters->clock_mhz),
                     "memory_clock_mhz", number(meters->memory_clock_mhz), "power_w",
                     number(meters->power_w), "power_limit_w", number(meters->power_limit_w),
                     "temperature_c", number(meters->temperature_c), "ecc_corrected",
                     number(meters->corrected), "ecc_uncorrected", number(meters->uncorrected),
                     "throttle", list_reasons(meters->throttle));
}

static void write_line(struct cddpi_trainer *trainer, const struct device_row *rows)
{
    json_t *list = json_array();
    struct timespec now;

    for (int rank = 0; rank < trainer->world_size; rank++) {
        if (rows[rank].is_known) {
            (void)json_array_append_new(list, describe(rank, &rows[rank]));
        }
    }
    clock_gettime(CLOCK_REALTIME, &now);
    cddpi_metrics_add_object(
        trainer->records.metrics,
        json_pack("{s:s, s:I, s:I, s:o}", "kind", "devices", "step",
                  (json_int_t)trainer->cursor.step, "time_ms",
                  (json_int_t)now.tv_sec * 1000 + (json_int_t)now.tv_nsec / 1000000, "devices",
                  list));
}

/* --- the extremes --- */

static const char *why_slow(unsigned throttle)
{
    for (int i = 0; i < REASONS; i++) {
        if ((throttle & reasons[i].bit) != 0 && reasons[i].sentence != NULL) {
            return reasons[i].sentence;
        }
    }
    return NULL;
}

/* Whether another rank, before @p rank, uses the same device. */
static bool is_counted(const struct device_row *rows, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (rows[i].is_known && strcmp(rows[i].unique, rows[rank].unique) == 0) {
            return true;
        }
    }
    return false;
}

static void find_extremes(const struct device_row *rows, int count,
                          struct cddpi_device_extremes *out)
{
    out->all_power_w = 0;
    out->throttled = 0;
    for (int rank = 0; rank < count; rank++) {
        const struct cddpi_device_meters *meters = &rows[rank].meters;

        if (!rows[rank].is_known) {
            continue;
        }
        /* a number, if one of the two is */
        out->most_memory_mib = fmax(out->most_memory_mib, meters->memory_mib);
        out->least_clock_mhz = fmin(out->least_clock_mhz, meters->clock_mhz);
        out->most_temperature_c = fmax(out->most_temperature_c, meters->temperature_c);
        out->all_power_w += is_counted(rows, rank) ? 0 : meters->power_w;
        out->throttled += why_slow(meters->throttle) != NULL;
    }
}

/* --- ranks that are throttled --- */

/* Append @p value and its unit, if it is known. */
static void append(char *out, size_t bytes, double value, const char *unit)
{
    size_t used = strlen(out);

    if (isfinite(value)) {
        snprintf(out + used, bytes - used, ", %.0f %s", value, unit);
    }
}

static void name_rank(struct cddpi_trainer *trainer, int rank, const struct device_row *row)
{
    char measured[128] = "";

    append(measured, sizeof measured, row->meters.temperature_c, "degrees Celsius");
    append(measured, sizeof measured, row->meters.power_w, "W");
    append(measured, sizeof measured, row->meters.clock_mhz, "MHz");
    cddpi_trainer_warn(trainer, "rank %d on %s: cuda:%d (%s) is throttled: %s%s", rank, row->host,
                       row->index, row->unique, why_slow(row->meters.throttle), measured);
}

static void name_throttled(struct cddpi_trainer *trainer, const struct device_row *rows)
{
    struct cddpi_device_records *records = &trainer->records.devices;

    for (int rank = 0; rank < trainer->world_size; rank++) {
        if (rows[rank].is_known && why_slow(rows[rank].meters.throttle) != NULL &&
            !records->named[rank]) {
            records->named[rank] = true;
            name_rank(trainer, rank, &rows[rank]);
        }
    }
}

/* Rank 0 has everyone's. */
static cddp_status tell(struct cddpi_trainer *trainer, const struct device_row *rows,
                        struct cddpi_device_extremes *out)
{
    struct cddpi_device_records *records = &trainer->records.devices;

    if (records->named == NULL) {
        records->named = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *records->named);
        CDDPI_TRY_MEMORY(records->named != NULL, "metrics: no memory for %d ranks",
                         trainer->world_size);
    }
    if (trainer->records.metrics != NULL) {
        write_line(trainer, rows);
    }
    find_extremes(rows, trainer->world_size, out);
    name_throttled(trainer, rows);
    return CDDP_OK;
}

cddp_status cddpi_devices_report(struct cddpi_trainer *trainer, struct cddpi_device_extremes *out)
{
    struct cddpi_device_records *own = &trainer->records.devices;
    struct device_row row = {
        .meters = own->meters, .index = trainer->device->index, .is_known = own->are_known};
    struct device_row *all = NULL;
    cddp_status status;

    *out = (struct cddpi_device_extremes){NAN, NAN, NAN, NAN, NAN};
    (void)gethostname(row.host, sizeof row.host - 1);
    memcpy(row.unique, trainer->device->unique, sizeof row.unique);
    if (trainer->rank == 0) {
        all = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *all);
        CDDPI_TRY_MEMORY(all != NULL, "metrics: no memory for %d ranks", trainer->world_size);
    }
    own->told_ns = cddpi_now_ns();
    own->meters.throttle = 0;
    status = cddp_gather(trainer->group, &row, all, sizeof row, CDDP_U8, 0, NULL);
    if (status == CDDP_OK && trainer->rank == 0) {
        status = tell(trainer, all, out);
    }
    cddpi_free(all);
    return status;
}
