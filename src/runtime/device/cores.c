/* cores.c - owns the names of a process's devices: which CPU each "cpu:N" is, and which GPU each
 * "cuda:N" is. */
#include "device/parallel.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read the number after the colon, at most 65535; -1: not such a number. */
static long read_index(const char *text)
{
    char *end;
    long index;

    if (text[0] < '0' || text[0] > '9' || strlen(text) > 5) {
        return -1;
    }
    index = strtol(text, &end, 10);
    return *end == '\0' && index <= 65535 ? index : -1;
}

/* The GPUs that the names refer to. */
struct gpus {
    const struct cddpi_devices_place *place; /* NULL: GPUs are not allowed */
    int first;                               /* which of the visible GPUs the rank calls cuda:0 */
    int share;                               /* the number of GPUs in the rank's share */
};

static bool names_gpu(const char *name)
{
    return strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", 5) == 0;
}

/* Give the rank a share of the visible GPUs, after the shares of the lower local ranks. The rank
 * gets a share only if it contains all GPUs that the names ask for; else gpus->first stays 0 and
 * names count in all visible GPUs. */
static cddp_status divide_gpus(const char *const *names, int count, struct gpus *gpus)
{
    const struct cddpi_devices_place *place = gpus->place;
    long named = 0;
    int visible = 0;

    for (int i = 0; i < count; i++) {
        long index = names[i] != NULL && strncmp(names[i], "cuda:", 5) == 0
                         ? read_index(names[i] + 5)
                         : -1;

        named = index + 1 > named ? index + 1 : named;
    }
    if (place == NULL || named == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_device_visible(place->world_size, &visible));
    if (named <= visible / place->local_world_size) {
        gpus->share = visible / place->local_world_size;
        gpus->first = gpus->share * place->local_rank;
    }
    return CDDP_OK;
}

static cddp_status open_gpu(const struct gpus *gpus, const char *name, struct cddpi_core *out)
{
    const struct cddpi_devices_place *place = gpus->place;
    long index = name[4] == ':' ? read_index(name + 5) : 0;
    char own[32];

    if (place == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "devices: %s: the devices of a program's own DataParallel are CPU cores: "
                          "start a rank for each GPU",
                          name);
    }
    if (index < 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: \"%s\" is not a device: use cuda or cuda:N",
                          name);
    }
    if (gpus->first > 0) {
        cddpi_log(CDDPI_LOG_INFO,
                  "rank %d: %s is cuda:%ld of this process, as rank %d of the %d on this machine "
                  "has the %d from cuda:%d on",
                  place->rank, name, gpus->first + index, place->local_rank,
                  place->local_world_size, gpus->share, gpus->first);
    }
    snprintf(own, sizeof own, name[4] == ':' ? "cuda:%ld" : "cuda", gpus->first + index);
    return cddpi_device_open(own, place->rank, place->world_size, place->local_rank,
                             place->local_world_size, true, &out->device);
}

/* @p allowed: the @p count processors that this process may use. */
static cddp_status find_core(const int *allowed, int count, const struct gpus *gpus,
                             const char *name, struct cddpi_core *out)
{
    long index;

    out->cpu = -1;
    out->device = cddpi_device_cpu();
    if (name == NULL || strlen(name) >= sizeof out->name) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: \"%.40s\" is not a device: use cpu or cpu:N",
                          name != NULL ? name : "NULL");
    }
    snprintf(out->name, sizeof out->name, "%s", name);
    if (strcmp(name, "cpu") == 0) {
        return CDDP_OK;
    }
    if (names_gpu(name)) {
        return open_gpu(gpus, name, out);
    }
    index = strncmp(name, "cpu:", 4) == 0 ? read_index(name + 4) : -1;
    if (index < 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: \"%s\" is not a device: use cpu or cpu:N",
                          name);
    }
    if (index < count) {
        out->cpu = allowed[index];
        return CDDP_OK;
    }
    return cddpi_fail(
        CDDP_ERR_UNAVAILABLE,
        "devices: there is no %s: this process may use %d core%s, numbered from cpu:0. The ranks "
        "of a machine share its cores: for several devices, use --nproc 1",
        name, count, count == 1 ? "" : "s");
}

cddp_status cddpi_core_bind(const struct cddpi_core *core)
{
    cpu_set_t own[CDDPI_MAX_CPUS / CPU_SETSIZE] = {0};

    if (core->cpu < 0) {
        return CDDP_OK;
    }
    CPU_SET_S(core->cpu, sizeof own, own);
    return sched_setaffinity(0, sizeof own, own) == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                  "its thread cannot be bound to CPU %d", core->cpu);
}

static cddp_status open_all(const char *const *names, int count, struct gpus *gpus,
                            cddp_devices **out)
{
    cddp_devices *devices;
    int *allowed;
    int allowed_count;
    cddp_status status;

    if (names == NULL || out == NULL || count < 1 || count > CDDP_MAX_PARALLEL_DEVICES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: %d names at %p: between 1 and %d", count,
                          (const void *)names, CDDP_MAX_PARALLEL_DEVICES);
    }
    devices = cddpi_zalloc(sizeof *devices + (size_t)count * sizeof *devices->cores);
    CDDPI_TRY_MEMORY(devices != NULL, "devices: no memory for %d", count);
    cddpi_handle_init(&devices->handle, CDDPI_HANDLE_DEVICES);
    devices->bytes = sizeof *devices + (size_t)count * sizeof *devices->cores;
    allowed_count = cddpi_allowed_cpus(&allowed);
    status = allowed_count > 0 ? divide_gpus(names, count, gpus)
                               : cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                                  "devices: which cores this process may use");
    for (; devices->count < count && status == CDDP_OK; devices->count++) {
        status = find_core(allowed, allowed_count, gpus, names[devices->count],
                           &devices->cores[devices->count]);
    }
    cddpi_free(allowed);
    if (status != CDDP_OK) {
        cddp_devices_destroy(devices);
        return status;
    }
    *out = devices;
    return CDDP_OK;
}

cddp_status cddp_devices_create(const char *const *names, int count, cddp_devices **out)
{
    struct gpus none = {NULL, 0, 0};

    return open_all(names, count, &none, out);
}

cddp_status cddpi_devices_open(const char *const *names, int count,
                               const struct cddpi_devices_place *place, cddp_devices **out)
{
    struct gpus gpus = {place, 0, 0};

    return open_all(names, count, &gpus, out);
}

bool cddpi_devices_have_gpu(const cddp_devices *devices)
{
    bool found = false;

    for (int d = 0; d < devices->count; d++) {
        found = found || cddpi_device_is_async(devices->cores[d].device);
    }
    return found;
}

cddp_status cddpi_devices_check(const cddp_devices *devices, const char *call)
{
    return cddpi_handle_check((const struct cddpi_handle *)devices, CDDPI_HANDLE_DEVICES, call);
}

cddp_status cddpi_devices_enter(const cddp_devices *devices, const char *call)
{
    CDDPI_TRY(cddpi_devices_check(devices, call));
    atomic_fetch_add(&((cddp_devices *)devices)->busy, 1);
    return CDDP_OK;
}

void cddpi_devices_leave(const cddp_devices *devices)
{
    atomic_fetch_sub(&((cddp_devices *)devices)->busy, 1);
}

void cddp_devices_destroy(cddp_devices *devices)
{
    if (devices == NULL || !cddpi_handle_enter_last((struct cddpi_handle *)devices,
                                                    CDDPI_HANDLE_DEVICES, "devices_destroy")) {
        return;
    }
    if (atomic_load(&devices->busy) > 0) {
        cddpi_log(CDDPI_LOG_WARN,
                  "devices_destroy: a call runs on these devices; nothing was done");
        (void)cddpi_handle_leave(&devices->handle, CDDP_OK);
        return;
    }
    for (int d = 0; d < devices->count; d++) {
        cddpi_device_close(devices->cores[d].device);
    }
    cddpi_handle_release(&devices->handle, devices->bytes);
}

int cddp_devices_count(const cddp_devices *devices)
{
    return cddpi_devices_check(devices, "devices_count") == CDDP_OK ? devices->count : 0;
}

const char *cddp_devices_name(const cddp_devices *devices, int index)
{
    return cddpi_devices_check(devices, "devices_name") == CDDP_OK && index >= 0 &&
                   index < devices->count
               ? devices->cores[index].name
               : NULL;
}
