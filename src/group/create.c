/* create.c - cddp_group_create(): who this rank is, which transport, and on which device. */
#include "base/env.h"
#include "base/error.h"
#include "group/device/device.h"
#include "group/transports.h"

#include <string.h>

/* Make the group on the processor's memory, which every group has. @p transport: NULL for the best.
 */
static cddp_status create(const struct cddpi_launch_env *env,
                          const struct cddpi_transport *transport, cddp_group **out)
{
    struct cddpi_open_params params = {env->rank, env->world_size, env->timeout_ms};
    struct cddpi_backend *backend;
    cddp_status status;

    if (transport == NULL) {
        transport = cddpi_transport_choose(env);
        status = transport != NULL ? CDDP_OK : CDDP_ERR_UNAVAILABLE;
    } else {
        status = transport->cpu.probe(env);
    }
    if (status == CDDP_OK) {
        status = transport->cpu.open(env, &backend);
    }
    if (status == CDDP_OK) {
        status = cddpi_group_build(&params, transport, backend, out);
    }
    if (status == CDDP_OK) {
        (*out)->local_rank = env->local_rank;
        (*out)->local_world_size = env->local_world_size;
        (*out)->generation = env->generation;
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
