/* device.c - maps a device name and a local rank to a device, and counts CUDA devices. */
#include "device/device.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/module_loader.h"
#include "base/number.h"
#include "device/device_module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A driver may need seconds for many cards. The limit is for drivers that hang. */
enum { ANSWER_MS = 60000 };

/* The index after "cuda:", or else the device for @p local_rank among @p count. */
static cddp_status choose(const char *name, int local_rank, int local_world_size, bool shared,
                          int count, int *out)
{
    int64_t index;

    if (name[4] == ':') {
        if (!cddpi_parse_integer(name + 5, 0, INT32_MAX, &index)) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "device \"%s\": it must be cpu, cuda or cuda:N",
                              name);
        }
        if (index >= count) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "device \"%s\": this process sees %d CUDA device%s, numbered from 0",
                              name, count, count == 1 ? "" : "s");
        }
        *out = (int)index;
        return CDDP_OK;
    }
    if (!shared && local_world_size > count) {
        return cddpi_fail(
            CDDP_ERR_UNAVAILABLE,
            "%d ranks on this machine, but %d CUDA device%s: start one rank per device "
            "(cddp-run --nproc gpu), or let ranks share devices: CDDP_BACKEND=host",
            local_world_size, count, count == 1 ? "" : "s");
    }
    *out = local_rank % count;
    return CDDP_OK;
}

/* Log which card was opened, and what determined its number. */
static void tell(const struct cddpi_device *device, int count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const char *entry = visible;
    char number[64] = "";

    for (int i = 0; entry != NULL && i < device->index; i++) {
        entry = strchr(entry, ',');
        entry = entry != NULL ? entry + 1 : NULL;
    }
    if (entry == NULL) {
        cddpi_log(CDDPI_LOG_INFO,
                  "cuda:%d is %s, %s: one of %d; CUDA_VISIBLE_DEVICES is not set, so these are "
                  "all of the machine's, in CUDA's order",
                  device->index, device->title, device->unique, count);
        return;
    }
    snprintf(number, sizeof number, "%.*s", (int)strcspn(entry, ","), entry);
    cddpi_log(CDDPI_LOG_INFO,
              "cuda:%d is %s, %s: the machine's \"%s\", as CUDA_VISIBLE_DEVICES=%s leaves %d and "
              "numbers them in its order",
              device->index, device->title, device->unique, number, visible, count);
}

cddp_status cddpi_device_open(const char *name, int rank, int world_size, int local_rank,
                              int local_world_size, bool shared, struct cddpi_device **out)
{
    const struct cddpi_module_host *host = cddpi_module_host();
    const struct cddpi_module *module;
    int count = 0;
    int index = 0;
    cddp_status status;

    if (strcmp(name, "cpu") == 0) {
        *out = cddpi_device_cpu();
        return CDDP_OK;
    }
    if (strncmp(name, "cuda", 4) != 0 || (name[4] != '\0' && name[4] != ':')) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "device \"%s\": it must be cpu, cuda or cuda:N", name);
    }
    CDDPI_TRY_GOTO(failed, status, cddpi_module_open(&module));
    CDDPI_TRY_GOTO(failed, status, module->count(host, world_size > 1, &count));
    CDDPI_TRY_GOTO(failed, status,
                   choose(name, local_rank, local_world_size, shared, count, &index));
    CDDPI_TRY_GOTO(failed, status, module->open(host, index, rank, out));
    (*out)->transports = module->transports;
    tell(*out, count);
    return CDDP_OK;

failed:
    return cddpi_fail_name(status, rank);
}

cddp_status cddpi_device_visible(int world_size, int *out)
{
    const struct cddpi_module *module;

    CDDPI_TRY(cddpi_module_open(&module));
    return module->count(cddpi_module_host(), world_size > 1, out);
}

void cddpi_device_close(struct cddpi_device *device)
{
    if (device != NULL) {
        device->ops->close(device);
    }
}

/* Runs in a child process: write the number of devices, or why there is none. */
static void write_count(int fd, const void *context)
{
    int count = 0;

    (void)context;
    if (cddpi_device_visible(1, &count) == CDDP_OK) {
        dprintf(fd, "%d", count);
    } else {
        dprintf(fd, "-%s", cddp_last_error());
    }
}

int cddpi_device_count(void)
{
    char *answer = cddpi_probe_child(write_count, NULL, ANSWER_MS);
    int count = 0;

    if (answer == NULL) {
        return 0;
    }
    if (answer[0] == '-') {
        cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s", answer + 1);
    } else {
        count = atoi(answer);
    }
    cddpi_free(answer);
    return count;
}

void cddpi_device_write_list(int fd)
{
    enum { LIST_BYTES = 32768 };
    const struct cddpi_module *module;
    char *text = cddpi_zalloc(LIST_BYTES);
    int count;

    if (text == NULL || cddpi_module_open(&module) != CDDP_OK ||
        module->count(cddpi_module_host(), false, &count) != CDDP_OK) {
        dprintf(fd, "-%s", cddp_last_error());
    } else {
        module->list(text, LIST_BYTES);
        dprintf(fd, "%s", text);
    }
    cddpi_free(text);
}

/* Runs in a child process. */
static void execute(int fd, const void *context)
{
    const struct cddpi_device_lister *lister = context;

    if (dup2(fd, STDOUT_FILENO) >= 0) {
        execve(lister->path, lister->argv, lister->environment);
    }
    dprintf(fd, "-%s cannot be executed: %s", lister->path, strerror(errno));
}

char *cddpi_device_list(const struct cddpi_device_lister *lister, uint32_t limit_ms)
{
    char *answer = cddpi_probe_child(execute, lister, limit_ms);

    if (answer != NULL && answer[0] == '-') {
        cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s", answer + 1);
        cddpi_free(answer);
        answer = NULL;
    }
    return answer;
}

static void write_description(int fd, const void *context)
{
    enum { TEXT_BYTES = 32768 };
    const struct cddpi_module *module;
    char *text;

    (void)context;
    if (cddpi_module_open(&module) != CDDP_OK) {
        dprintf(fd, "no: %s\n", cddp_last_error());
        return;
    }
    text = cddpi_zalloc(TEXT_BYTES);
    if (text != NULL && module->describe(cddpi_module_host(), text, TEXT_BYTES) != CDDP_OK) {
        dprintf(fd, "no: %s\n", cddp_last_error());
    } else if (text != NULL) {
        dprintf(fd, "%s", text);
    }
    cddpi_free(text);
}

char *cddpi_device_describe(void)
{
    char *text = cddpi_probe_child(write_description, NULL, ANSWER_MS);

    return text != NULL ? text : cddpi_format("no: %s\n", cddp_last_error());
}
