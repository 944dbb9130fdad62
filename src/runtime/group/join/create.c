/* create.c - owns cddp_group_create() and cddp_group_create_by(): finds out who this rank is, and
 * chooses the transport and the device. */
#include "base/env.h"
#include "base/error.h"
#include "base/types.h"
#include "group/device/group_device.h"
#include "group/join/bootstrap.h"
#include "group/transports.h"
#include "group/watch/dump.h"
#include "store/auth.h"

#include <string.h>

/* Create the group's part for CPU memory, which every group has. @p transport NULL: the best.
 */
static cddp_status connect_ranks(const struct cddpi_members *members,
                                 const struct cddpi_transport *transport, cddp_group **out)
{
    const struct cddpi_launch_env *env = members->env;
    struct cddpi_open_params params = {env->rank, env->world_size, env->timeout_ms, NULL};
    struct cddpi_backend *backend;
    /* with several hosts, a launcher's local rank may be wrong: it may not know about hosts */
    bool is_known = members->host_count == 1 && env->local_world_size != 0;

    if (transport == NULL || (transport == &cddpi_shm_transport && members->host_count > 1)) {
        /* "host" means both transports */
        transport = cddpi_transport_choose(members);
        if (transport == NULL) {
            return CDDP_ERR_UNAVAILABLE;
        }
    } else {
        CDDPI_TRY(transport->cpu.probe(members));
    }
    CDDPI_TRY(transport->cpu.open(members, &backend));
    CDDPI_TRY(cddpi_group_build(&params, transport, backend, out));
    (*out)->local_rank = is_known ? env->local_rank : members->local_rank;
    (*out)->local_world_size = is_known ? env->local_world_size : members->local_size;
    (*out)->host = members->host;
    (*out)->generation = env->generation;
    memcpy((*out)->token, env->token, sizeof(*out)->token);
    return CDDP_OK;
}

/* Meet the other ranks in the store, and connect to them. */
static cddp_status meet_and_connect(struct cddpi_launch_env *env,
                                    const struct cddpi_transport *transport, cddp_group **out)
{
    struct cddpi_rendezvous rendezvous;
    bool alone = env->world_size == 1;
    struct cddpi_members members = {.env = env, .host_count = 1}; /* as far as known */
    cddp_status status;

    if (transport != NULL) {
        /* as far as one rank knows; before it waits for others */
        CDDPI_TRY(transport->cpu.probe(&members));
    }
    if (!alone) {
        CDDPI_TRY(cddpi_rendezvous_open(env, &rendezvous));
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
        if (status == CDDP_OK) {
            (*out)->place = cddpi_rendezvous_keep(&rendezvous);
        }
        cddpi_rendezvous_close(&rendezvous, status == CDDP_OK);
    }
    return status;
}

/* What the caller and the environment have chosen. */
struct choice {
    const struct cddpi_transport *transport; /* NULL: the best, or a transport of device memory */
    const char *name;                        /* name of the backend; NULL: not given */
    const char *device;
    bool on_device;
};

static cddp_status choose_backend(const cddp_group_options *options, struct choice *out)
{
    const char *name = options->backend != NULL ? options->backend : cddpi_env(CDDPI_ENV_BACKEND);
    const char *device = options->device != NULL ? options->device : cddpi_env(CDDPI_ENV_DEVICE);
    struct choice choice = {NULL, name, device, strcmp(device, "cpu") != 0};
    bool encrypts;

    /* an invalid setting must fail before anything is sent */
    CDDPI_TRY(cddpi_encryption_wanted(&encrypts));
    if (name != NULL) {
        CDDPI_TRY(cddpi_transport_find(name, &choice.transport));
    }
    if (options->stream != NULL && !choice.on_device) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "options.stream is for CUDA devices, not for cpu");
    }
    if (name != NULL && choice.transport == NULL && !choice.on_device) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "backend %s reduces a GPU's memory: it needs options.device or "
                          "CDDP_DEVICE to be cuda, not cpu",
                          name);
    }
    *out = choice;
    return CDDP_OK;
}

/* Join the group that @p env describes. */
static cddp_status join_group(const cddp_group_options *options, const struct choice *choice,
                              struct cddpi_launch_env *env, cddp_group **out)
{
    cddp_group *group = NULL;
    cddp_status status = meet_and_connect(env, choice->transport, &group);

    status = cddpi_bootstrap_end(env, status);
    if (status == CDDP_OK && choice->on_device) {
        status = cddpi_group_device_open(group, choice->device, choice->name,
                                         options->deterministic, options->stream);
    }
    if (status != CDDP_OK) {
        cddp_group_destroy(group);
        return status;
    }
    cddpi_dump_publish(group);
    *out = group;
    return CDDP_OK;
}

cddp_status cddp_group_create(const cddp_group_options *options, cddp_group **out)
{
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;
    struct cddpi_launch_env env;
    struct choice choice;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: out is NULL");
    }
    CDDPI_TRY(cddpi_group_options_read(options, &read));
    CDDPI_TRY(cddpi_launch_env_read(options, &env));
    CDDPI_TRY(choose_backend(&read, &choice));
    if (env.rendezvous_by_mpi) {
        CDDPI_TRY(cddpi_bootstrap_rendezvous_by_mpi(&env));
    }
    return join_group(&read, &choice, &env, out);
}

static cddp_status check_bootstrap(const cddp_bootstrap *given, cddp_bootstrap *bootstrap)
{
    if (given == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: bootstrap is NULL");
    }
    CDDPI_TRY(
        cddpi_struct_read("bootstrap", "CDDP_BOOTSTRAP_INIT", given, sizeof *bootstrap, bootstrap));
    if (bootstrap->world_size < 1 || bootstrap->rank < 0 ||
        bootstrap->rank >= bootstrap->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: rank %d of %d", bootstrap->rank,
                          bootstrap->world_size);
    }
    if (bootstrap->broadcast == NULL || bootstrap->all_gather == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: bootstrap lacks a function");
    }
    return CDDP_OK;
}

/* Read everything except where the ranks meet, which is found out later. */
static cddp_status read_bootstrap(const cddp_bootstrap *bootstrap,
                                  const cddp_group_options *options, struct cddpi_launch_env *out)
{
    cddp_group_options read = *options;

    read.rendezvous = "bootstrap";
    read.rank = bootstrap->rank;
    read.world_size = bootstrap->world_size;
    read.local_world_size = 0; /* found out */
    CDDPI_TRY(cddpi_launch_env_read(&read, out));
    out->origin = "a bootstrap";
    return CDDP_OK;
}

cddp_status cddp_group_create_by(const cddp_bootstrap *bootstrap, const cddp_group_options *options,
                                 cddp_group **out)
{
    cddp_bootstrap known = CDDP_BOOTSTRAP_INIT;
    cddp_group_options read = CDDP_GROUP_OPTIONS_INIT;
    struct cddpi_launch_env env;
    struct choice choice;

    CDDPI_TRY(check_bootstrap(bootstrap, &known));
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group: out is NULL");
    }
    CDDPI_TRY(cddpi_group_options_read(options, &read));
    CDDPI_TRY(read_bootstrap(&known, &read, &env));
    CDDPI_TRY(choose_backend(&read, &choice));
    CDDPI_TRY(cddpi_bootstrap_rendezvous(&known, &env));
    return join_group(&read, &choice, &env, out);
}
