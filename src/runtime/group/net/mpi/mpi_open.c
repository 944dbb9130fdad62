/* mpi_open.c - opens and closes a carrier: the group's ranks exchange their ranks in
 * MPI_COMM_WORLD, and create a communicator of their own from these. */
#include "group/net/mpi/mpi_internal.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* tag of an abort in carrier.c */
    LARGEST_TAG = (int)CDDPI_NET_CHANNELS << CDDPI_NET_TAG_LOW_BITS,
    CREATE_TAG = 7531 /* tag of MPI_Comm_create_group(), which only matches other calls of itself */
};

/* What each rank sends to the others. */
struct mpi_open_place {
    int32_t world_rank;
    int32_t world_size;
    /* hash of the name of mpirun's job; ranks of different jobs have different worlds */
    uint64_t world;
    char host[CDDPI_MPI_HOST_BYTES];
};

static uint64_t hash_of_world(void)
{
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"};
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hash = cddpi_hash_text(hash, getenv(names[i]));
    }
    return hash;
}

static cddp_status read_place(struct mpi_open_place *out)
{
    const int *largest = NULL;
    int has_largest = 0;
    int rank = 0;
    int size = 0;

    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&largest, &has_largest);
    if (has_largest == 0 || *largest < LARGEST_TAG) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "this MPI has tags up to %d only; %d are needed",
                          has_largest != 0 ? *largest : 0, LARGEST_TAG);
    }
    *out = (struct mpi_open_place){
        .world_rank = rank, .world_size = size, .world = hash_of_world()};
    (void)gethostname(out->host, sizeof out->host - 1);
    return CDDP_OK;
}

/* Leaks the memory that MPI may still use, if requests are still in progress; the group has then
 * failed. */
void cddpi_mpi_carrier_close(struct cddpi_carrier *base)
{
    struct mpi_carrier *carrier = mpi_of(base);
    bool is_empty = true;

    if (carrier->comm != MPI_COMM_NULL && cddpi_mpi_enter() == CDDP_OK) {
        is_empty = cddpi_mpi_carrier_drain(carrier) && !atomic_load(&carrier->is_broken);
        if (is_empty) {
            (void)MPI_Comm_free(&carrier->comm);
        }
        cddpi_mpi_leave();
    }
    if (is_empty) {
        cddpi_mpi_requests_free(&carrier->under_way);
        cddpi_free(carrier->hosts);
        cddpi_free((void *)carrier->heard_ns);
        cddpi_free(carrier->abort_sends);
        cddpi_free(carrier);
    }
}

static cddp_status allocate(const struct cddpi_carrier_params *params, struct mpi_carrier **out)
{
    struct mpi_carrier *carrier = cddpi_zalloc(sizeof *carrier);
    size_t hosts = (size_t)params->host_count;

    CDDPI_TRY_MEMORY(carrier != NULL, "MPI: no memory for a carrier");
    carrier->base.ops = &cddpi_mpi_carrier_ops;
    carrier->params = *params;
    carrier->comm = MPI_COMM_NULL;
    carrier->hosts = cddpi_zalloc_array(hosts, sizeof *carrier->hosts);
    carrier->heard_ns = cddpi_zalloc_array((size_t)params->world_size, sizeof *carrier->heard_ns);
    carrier->abort_sends = cddpi_zalloc_array(hosts, sizeof(MPI_Request));
    if (carrier->hosts == NULL || carrier->heard_ns == NULL || carrier->abort_sends == NULL) {
        cddpi_mpi_carrier_close(&carrier->base);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory for %zu hosts and %d ranks", hosts,
                          params->world_size);
    }
    for (size_t i = 0; i < hosts; i++) {
        carrier->abort_sends[i] = MPI_REQUEST_NULL;
    }
    *out = carrier;
    return CDDP_OK;
}

/* The part of opening that needs no other rank. */
static cddp_status prepare(const struct cddpi_carrier_params *params, struct mpi_open_place *place,
                           struct mpi_carrier **out)
{
    cddp_status status;

    CDDPI_TRY(cddpi_mpi_start(params->timeout_ms));
    CDDPI_TRY(cddpi_mpi_enter());
    status = read_place(place);
    cddpi_mpi_leave();
    CDDPI_TRY(status);
    return allocate(params, out);
}

/* Get the ranks' places in the world, and check that they differ and belong to one world. */
static cddp_status check_places(const struct mpi_open_place *places, int count,
                                int *out_world_ranks)
{
    for (int rank = 0; rank < count; rank++) {
        const struct mpi_open_place *place = &places[rank];

        if (place->world != places[0].world || place->world_size != places[0].world_size ||
            place->world_rank < 0 || place->world_rank >= place->world_size) {
            return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                              "ranks 0 and %d were started by different mpiruns, so MPI does not "
                              "connect them",
                              rank);
        }
        for (int other = 0; other < rank; other++) {
            if (places[other].world_rank == place->world_rank) {
                return cddpi_fail(
                    CDDP_ERR_UNAVAILABLE,
                    "ranks %d and %d of the group are the same process of MPI's world", other,
                    rank);
            }
        }
        out_world_ranks[rank] = place->world_rank;
    }
    return CDDP_OK;
}

/* Call it inside the section, on all ranks at once. */
static cddp_status connect(struct mpi_carrier *carrier, const int *world_ranks)
{
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group ours = MPI_GROUP_NULL;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &world);

    if (code == MPI_SUCCESS) {
        code = MPI_Group_incl(world, carrier->params.world_size, world_ranks, &ours);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(MPI_COMM_WORLD, ours, CREATE_TAG, &carrier->comm);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_set_errhandler(carrier->comm, MPI_ERRORS_RETURN);
    }
    if (ours != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&ours);
    }
    if (world != MPI_GROUP_NULL) {
        (void)MPI_Group_free(&world);
    }
    return code == MPI_SUCCESS
               ? cddpi_mpi_carrier_listen(carrier)
               : cddpi_mpi_fail(CDDP_ERR_PEER, code, "make a communicator of %d ranks by MPI",
                                carrier->params.world_size);
}

static cddp_status exchange_places(struct mpi_carrier *carrier, const struct mpi_open_place *own,
                                   int *world_ranks)
{
    const struct cddpi_carrier_params *params = &carrier->params;
    struct mpi_open_place *places = cddpi_zalloc_array((size_t)params->world_size, sizeof *places);
    cddp_status status = places != NULL
                             ? CDDP_OK
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory for %d places",
                                          params->world_size);

    CDDPI_TRY_GOTO(out, status, cddpi_mpi_host->agree(params->exchange, status));
    CDDPI_TRY_GOTO(
        out, status,
        params->exchange->all_gather(params->exchange->context, own, sizeof *own, places));
    CDDPI_TRY_GOTO(out, status, check_places(places, params->world_size, world_ranks));
    for (int rank = 0; rank < params->world_size; rank++) {
        char *name = carrier->hosts[params->host_of[rank]];

        memcpy(name, places[rank].host, CDDPI_MPI_HOST_BYTES);
        name[CDDPI_MPI_HOST_BYTES - 1] = '\0';
    }

out:
    cddpi_free(places);
    return status;
}

cddp_status cddpi_mpi_carrier_open(const struct cddpi_carrier_params *params,
                                   struct cddpi_carrier **out)
{
    struct mpi_open_place own = {0};
    struct mpi_carrier *carrier = NULL;
    int *world_ranks = cddpi_zalloc_array((size_t)params->world_size, sizeof *world_ranks);
    cddp_status status = world_ranks != NULL
                             ? prepare(params, &own, &carrier)
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "MPI: no memory for %d ranks",
                                          params->world_size);

    status = cddpi_mpi_host->agree(params->exchange, status);
    if (status == CDDP_OK) {
        status = exchange_places(carrier, &own, world_ranks);
    }
    if (status == CDDP_OK) {
        status = cddpi_mpi_enter();
        if (status == CDDP_OK) {
            status = connect(carrier, world_ranks);
            cddpi_mpi_leave();
        }
        status = cddpi_mpi_host->agree(params->exchange, status);
    }
    cddpi_free(world_ranks);
    if (status == CDDP_OK) {
        *out = &carrier->base;
    } else if (carrier != NULL) {
        cddpi_mpi_carrier_close(&carrier->base);
    }
    return status;
}
