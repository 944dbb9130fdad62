/* cores.c - owns the names of a process's devices: which processor each "cpu:N" is. */
#include "device/parallel.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind the colon, at most 65535; -1: it is none. */
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

static cddp_status find_core(const cpu_set_t *allowed, const char *name, struct cddpi_core *out)
{
    long index;

    out->cpu = -1;
    if (name == NULL || strlen(name) >= sizeof out->name) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: \"%.40s\" is no device: cpu or cpu:N",
                          name != NULL ? name : "NULL");
    }
    snprintf(out->name, sizeof out->name, "%s", name);
    if (strcmp(name, "cpu") == 0) {
        return CDDP_OK;
    }
    if (strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", 5) == 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "devices: %s: one process works on several processors, but not on "
                          "several GPUs yet: start a rank for each",
                          name);
    }
    index = strncmp(name, "cpu:", 4) == 0 ? read_index(name + 4) : -1;
    if (index < 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: \"%s\" is no device: cpu or cpu:N", name);
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, allowed) && index-- == 0) {
            out->cpu = cpu;
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "devices: there is no %s: this process may use %d processors, which count "
                      "from cpu:0",
                      name, CPU_COUNT(allowed));
}

cddp_status cddpi_core_bind(const struct cddpi_core *core)
{
    cpu_set_t own;

    if (core->cpu < 0) {
        return CDDP_OK;
    }
    CPU_ZERO(&own);
    CPU_SET(core->cpu, &own);
    return sched_setaffinity(0, sizeof own, &own) == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                  "its thread cannot be bound to processor %d", core->cpu);
}

cddp_status cddp_devices_create(const char *const *names, int count, cddp_devices **out)
{
    cddp_devices *devices;
    cpu_set_t allowed;
    cddp_status status = CDDP_OK;

    if (names == NULL || out == NULL || count < 1 || count > CDDP_PARALLEL_DEVICES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "devices: %d names at %p: between 1 and %d", count,
                          (const void *)names, CDDP_PARALLEL_DEVICES);
    }
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                "devices: which processors this process may use");
    }
    devices = cddpi_zalloc(sizeof *devices + (size_t)count * sizeof *devices->cores);
    if (devices == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "devices: no memory for %d", count);
    }
    for (; devices->count < count && status == CDDP_OK; devices->count++) {
        status = find_core(&allowed, names[devices->count], &devices->cores[devices->count]);
    }
    if (status != CDDP_OK) {
        cddpi_free(devices);
        return status;
    }
    *out = devices;
    return CDDP_OK;
}

void cddp_devices_destroy(cddp_devices *devices)
{
    cddpi_free(devices);
}

int cddp_devices_count(const cddp_devices *devices)
{
    return devices != NULL ? devices->count : 0;
}

const char *cddp_devices_name(const cddp_devices *devices, int index)
{
    return devices != NULL && index >= 0 && index < devices->count ? devices->cores[index].name
                                                                   : NULL;
}
