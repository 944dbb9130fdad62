/* transports.c - owns the list of transports, and gets the link of a group's transport (link.h). */
#include "group/transports.h"

#include "base/error.h"
#include "group/join/link.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 16 };

static const struct cddpi_transport *rows[MOST] = {&cddpi_solo_transport, &cddpi_shm_transport,
                                                   &cddpi_net_transport,
                                                   &cddpi_solo_device_transport};
static int count = 4;

#define NAME(name) #name,
static const char *const in_module[] = {CDDPI_CUDA_TRANSPORTS(NAME)};
enum { IN_MODULE = sizeof in_module / sizeof *in_module };

static const struct cddpi_transport *find(const char *name, enum cddpi_memory carries)
{
    for (int i = 0; i < count; i++) {
        if (rows[i]->carries == carries && strcmp(rows[i]->name, name) == 0) {
            return rows[i];
        }
    }
    return NULL;
}

/* Whether @p name is a row of the module, which has a name even where there is no module. */
static bool is_of_device(const char *name)
{
    for (int i = 0; i < IN_MODULE; i++) {
        if (strcmp(in_module[i], name) == 0) {
            return true;
        }
    }
    return find(name, CDDPI_MEMORY_DEVICE) != NULL;
}

/* "a, b or c" */
static void list_names(char *out, size_t bytes)
{
    const char *names[MOST + IN_MODULE];
    int n = 0;
    size_t used = 0;

    for (int i = 0; i < count; i++) {
        if (rows[i]->carries == CDDPI_MEMORY_CPU || find(rows[i]->name, CDDPI_MEMORY_CPU) == NULL) {
            names[n++] = rows[i]->name;
        }
    }
    for (int i = 0; i < IN_MODULE; i++) {
        names[n++] = in_module[i];
    }
    for (int i = 0; i < n && used < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%s",
                                 i == 0       ? ""
                                 : i == n - 1 ? " or "
                                              : ", ",
                                 names[i]);
    }
}

cddp_status cddpi_transport_find(const char *name, const struct cddpi_transport **out)
{
    const struct cddpi_transport *row = find(name, CDDPI_MEMORY_CPU);
    char names[256];

    if (row == NULL && !is_of_device(name)) {
        list_names(names, sizeof names);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "there is no backend %s: choose %s", name, names);
    }
    *out = row;
    return CDDP_OK;
}

const struct cddpi_transport *cddpi_transport_choose(const struct cddpi_members *members)
{
    for (int i = 0; i < count; i++) {
        if (rows[i]->carries == CDDPI_MEMORY_CPU && rows[i]->cpu.probe(members) == CDDP_OK) {
            return rows[i];
        }
    }
    return NULL;
}

const struct cddpi_transport *cddpi_transport_of_device(const struct cddpi_device *device,
                                                        size_t index)
{
    size_t i = 0;

    for (int row = 0; row < count; row++) {
        if (rows[row]->carries == CDDPI_MEMORY_DEVICE && i++ == index) {
            return rows[row];
        }
    }
    for (size_t row = 0; device->transports != NULL && device->transports[row] != NULL; row++) {
        if (i++ == index) {
            return device->transports[row];
        }
    }
    return NULL;
}

cddp_status cddpi_transport_add(const struct cddpi_transport *row)
{
    if (find(row->name, row->carries) != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "there is a backend %s already", row->name);
    }
    if (count == MOST) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "there is no room for backend %s beside %d others",
                          row->name, MOST);
    }
    rows[count++] = row;
    return CDDP_OK;
}

bool cddpi_group_link(const cddp_group *group, cddp_type type, struct cddpi_group_link *out)
{
    *out = (struct cddpi_group_link){.hosts = 1};
    return group->world_size > 1 && group->transport->cpu.link != NULL &&
           group->transport->cpu.link(group->backend, type, out);
}

double cddpi_link_all_reduce_s(const struct cddpi_group_link *link, double bytes)
{
    int i = 1;
    double least, slope;

    if (bytes <= cddpi_link_size(0)) {
        return link->all_reduce_s[0];
    }
    while (i < CDDPI_LINK_SIZES - 1 && bytes > cddpi_link_size(i)) {
        i++;
    }
    least = cddpi_link_size(i - 1);
    slope = (link->all_reduce_s[i] - link->all_reduce_s[i - 1]) / (cddpi_link_size(i) - least);
    return link->all_reduce_s[i - 1] + (bytes - least) * slope;
}
