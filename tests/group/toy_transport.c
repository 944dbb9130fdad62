/* toy_transport.c - a transport in one file and one row: "toy". Linking it adds the row, and the
 * tests of groups run over it with CDDP_BACKEND=toy. The transport in shared memory carries the
 * bytes. The toy checks that the group keeps what group/group.h promises to its transports, and
 * ends the process otherwise. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/transports.h"

#include <stdio.h>
#include <stdlib.h>

struct toy_backend {
    struct cddpi_backend base; /* first: see toy_of() */
    struct cddpi_backend *inner;
    atomic_bool inside; /* one thread at a time advances, checks and sleeps */
    bool moved;         /* the last advance did something, so a peer may be ready for more */
};

static inline struct toy_backend *toy_of(struct cddpi_backend *base)
{
    return (struct toy_backend *)(void *)base;
}

static inline const struct toy_backend *toy_of_const(const struct cddpi_backend *base)
{
    return (const struct toy_backend *)(const void *)base;
}

static void enter(struct toy_backend *toy)
{
    if (atomic_exchange(&toy->inside, true)) {
        fprintf(stderr, "toy transport: two threads drive one backend\n");
        abort();
    }
}

static void leave(struct toy_backend *toy)
{
    atomic_store(&toy->inside, false);
}

static void close_toy(struct cddpi_backend *backend)
{
    struct toy_backend *toy = toy_of(backend);

    toy->inner->ops->close(toy->inner);
    cddpi_free(toy);
}

static cddp_status advance(struct cddpi_backend *backend, struct cddpi_group_op *op, bool *out_done)
{
    struct toy_backend *toy = toy_of(backend);
    cddp_status status;

    enter(toy);
    status = toy->inner->ops->advance(toy->inner, op, out_done);
    toy->moved = backend->moves != toy->inner->moves;
    backend->moves = toy->inner->moves;
    leave(toy);
    return status;
}

static cddp_status check(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                         bool thorough)
{
    struct toy_backend *toy = toy_of(backend);
    cddp_status status;

    enter(toy);
    status = toy->inner->ops->check(toy->inner, op, thorough);
    leave(toy);
    return status;
}

static void drop(struct cddpi_backend *backend, struct cddpi_group_op *op)
{
    struct toy_backend *toy = toy_of(backend);

    toy->inner->ops->drop(toy->inner, op);
}

static cddp_status expired(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    struct toy_backend *toy = toy_of(backend);

    return toy->inner->ops->expired(toy->inner, op);
}

static uint32_t prepare_sleep(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    struct toy_backend *toy = toy_of(backend);

    return toy->inner->ops->prepare_sleep(toy->inner, op);
}

static bool sleep_toy(struct cddpi_backend *backend, uint32_t ticket, int64_t ns)
{
    struct toy_backend *toy = toy_of(backend);
    bool woken;

    enter(toy);
    if (toy->moved) {
        fprintf(stderr, "toy transport: a rank sleeps though its operation has just moved\n");
        abort();
    }
    woken = toy->inner->ops->sleep(toy->inner, ticket, ns);
    leave(toy);
    return woken;
}

static void end_sleep(struct cddpi_backend *backend)
{
    struct toy_backend *toy = toy_of(backend);

    toy->inner->ops->end_sleep(toy->inner);
}

static void wake(struct cddpi_backend *backend)
{
    struct toy_backend *toy = toy_of(backend);

    toy->inner->ops->wake(toy->inner);
}

static void abort_toy(struct cddpi_backend *backend, const struct cddpi_failure *failure)
{
    struct toy_backend *toy = toy_of(backend);

    toy->inner->ops->abort(toy->inner, failure);
}

static cddp_status broken(struct cddpi_backend *backend)
{
    struct toy_backend *toy = toy_of(backend);

    return toy->inner->ops->broken(toy->inner);
}

static bool peers(struct cddpi_backend *backend, const void *memory, size_t bytes, const void **out)
{
    struct toy_backend *toy = toy_of(backend);

    return toy->inner->ops->peers(toy->inner, memory, bytes, out);
}

static void free_memory(struct cddpi_backend *backend, void *memory)
{
    struct toy_backend *toy = toy_of(backend);

    toy->inner->ops->free_memory(toy->inner, memory);
}

static const struct cddpi_backend_ops ops = {.close = close_toy,
                                             .advance = advance,
                                             .check = check,
                                             .drop = drop,
                                             .expired = expired,
                                             .prepare_sleep = prepare_sleep,
                                             .sleep = sleep_toy,
                                             .end_sleep = end_sleep,
                                             .wake = wake,
                                             .abort = abort_toy,
                                             .broken = broken,
                                             .peers = peers,
                                             .free_memory = free_memory};

static cddp_status wrap(struct cddpi_backend *inner, struct cddpi_backend **out)
{
    struct toy_backend *toy = cddpi_zalloc(sizeof *toy);

    if (toy == NULL) {
        inner->ops->close(inner);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "toy: no memory for a group");
    }
    toy->base.ops = &ops;
    toy->inner = inner;
    *out = &toy->base;
    return CDDP_OK;
}

static cddp_status probe(const struct cddpi_members *members)
{
    return cddpi_shm_transport.cpu.probe(members);
}

static cddp_status open_toy(const struct cddpi_members *members, struct cddpi_backend **out)
{
    struct cddpi_backend *inner;
    cddp_status status = cddpi_shm_transport.cpu.open(members, &inner);

    return status == CDDP_OK ? wrap(inner, out) : status;
}

static cddp_status split(cddp_group *group, const struct cddpi_open_params *params, int first,
                         bool joins, struct cddpi_backend **out)
{
    struct cddpi_backend *inner = NULL;
    cddp_status status = cddpi_shm_transport.cpu.split(group, params, first, joins, &inner);

    return status == CDDP_OK && inner != NULL ? wrap(inner, out) : status;
}

static void cores(const struct cddpi_backend *backend, struct cddpi_cores *out)
{
    const struct toy_backend *toy = toy_of_const(backend);

    cddpi_shm_transport.cpu.cores(toy->inner, out);
}

static const struct cddpi_transport toy_transport = {
    .name = "toy",
    .carries = CDDPI_MEMORY_CPU,
    .cpu = {.probe = probe, .open = open_toy, .split = split, .cores = cores}};

__attribute__((constructor)) static void add_row(void)
{
    if (cddpi_transport_add(&toy_transport) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        abort();
    }
}
