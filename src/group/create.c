/* create.c - cddp_group_create(): who this rank is, which transport, and on which device. */
#include "base/env.h"
#include "base/error.h"
#include "group/device/device.h"
#include "group/transports.h"

#include <string.h>

/* Make the group on the processor's memory, which every group has. @p transport: NULL for the best.
 */
static cddp_status connect_ranks(const struct cddpi_members *members,
                                 const struct cddpi_transport *transport, cddp_group **out)
{
    const struct cddpi_launch_env *env = members->env;
    struct cddpi_open_params params = {env->rank, env->world_size, env->timeout_ms, NULL};
    struct cddpi_backend *backend;
    cddp_status status;

    if (transport == NULL ||
        (transport == &cddpi_shm_transport && members->host_count > 1)) { /* "host" is both */
        transport = cddpi_transport_choose(members);
        status = transport != NULL ? CDDP_OK : CDDP_ERR_UNAVAILABLE;
    } else {
        status = transport->cpu.probe(members);
    }
    if (status == CDDP_OK) {
        status = transport->cpu.open(members, &backend);
    }
    if (status == CDDP_OK) {
        status = cddpi_group_build(&params, transport, backend, out);
    }
    if (status == CDDP_OK) {
        bool is_known = members->host_count == 1; /* to launchers, which may not know of hosts */

        (*out)->local_rank = is_known ? env->local_rank : members->local_rank;
        (*out)->local_world_size = is_known ? env->local_world_size : members->local_size;
        (*out)->generation = env->generation;
    }
    return status;
}

/* Meet the other ranks in the store, and connect to them. */
static cddp_status create(const struct cddpi_launch_env *env,
                          const struct cddpi_transport *transport, cddp_group **out)
{
    struct cddpi_rendezvous rendezvous;
    bool alone = env->world_size == 1;
    struct cddpi_members members = {.env = env, .host_count = 1}; /* as far as is known */
    cddp_status status = CDDP_OK;

    if (transport != NULL) {
        status = transport->cpu.probe(&members); /* as far as one rank knows, before it waits */
    }
    if (status == CDDP_OK && !alone) {
        status = cddpi_rendezvous_open(env, &rendezvous);
    }
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_members_gather(env, alone ? NULL : &rendezvous, &members);
    if (status == CDDP_OK) {
        status = connect_ranks(&members, transport, out);
        if (status == CDDP_OK) {
            cddpi_members_joined(&members);
        }
        cddpi_members_fini(&members);
    }
    if (!alone) {
        cddpi_rendezvous_close(&rendezvous, status == CDDP_OK);
    }
    return status;
}

cddp_status cddp_group_create(const cddp_group_options *options, cddp_group **out)
{
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;
    struct cddpi_launch_env env;
    cddp_group *group = NULL;
    const struct cddpi_transport *transport = NULL;
    const char *device;
    const char *name;
    bool on_device;
    cddp_status status;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: out is NULL");
    }
    status = cddpi_group_options_read(options, &read);
    if (status == CDDP_OK) {
        status = cddpi_launch_env_read(options, &env);
    }
    if (status != CDDP_OK) {
        return status;
    }
    name = read.backend != NULL ? read.backend : cddpi_env(CDDPI_ENV_BACKEND);
    device = read.device != NULL ? read.device : cddpi_env(CDDPI_ENV_DEVICE);
    on_device = strcmp(device, "cpu") != 0;
    if (name != NULL) {
        status = cddpi_transport_find(name, &transport);
        if (status != CDDP_OK) {
            return status;
        }
    }
    if (read.stream != NULL && !on_device) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "options.stream is for CUDA devices, not for cpu");
    }
    if (name != NULL && transport == NULL && !on_device) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "backend %s reduces a GPU's memory: it needs options.device or "
                          "CDDP_DEVICE to be cuda, not cpu",
                          name);
    }
    status = create(&env, transport, &group);
    if (status == CDDP_OK && on_device) {
        status = cddpi_group_device_open(group, device, name, read.deterministic, read.stream);
    }
    if (status != CDDP_OK) {
        cddp_group_destroy(group);
        return status;
    }
    *out = group;
    return CDDP_OK;
}
