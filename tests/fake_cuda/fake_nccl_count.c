/* fake_nccl_count.c - counts the calls of each kind, and writes the counts when the process
 * ends. */
#include "fake_cuda/fake_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 64 };

static struct {
    char what[64];
    unsigned long count;
} counts[MOST_KINDS];
static int kinds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_nccl_count(const char *what)
{
    int i = 0;

    pthread_mutex_lock(&lock);
    while (i < kinds && strcmp(counts[i].what, what) != 0) {
        i++;
    }
    if (i < MOST_KINDS) {
        snprintf(counts[i].what, sizeof counts[i].what, "%s", what);
        counts[i].count++;
        kinds = i == kinds ? kinds + 1 : kinds;
    }
    pthread_mutex_unlock(&lock);
}

void fake_nccl_count_call(const struct fake_nccl_call *call, bool factor)
{
    static const char *const names[] = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                        "reduce_scatter", "send",   "recv"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};
    bool reduces = call->kind == FAKE_NCCL_ALL_REDUCE || call->kind == FAKE_NCCL_REDUCE ||
                   call->kind == FAKE_NCCL_REDUCE_SCATTER;
    const char *type = call->type == ncclFloat32    ? "f32"
                       : call->type == ncclFloat64  ? "f64"
                       : call->type == ncclFloat16  ? "f16"
                       : call->type == ncclBfloat16 ? "bf16"
                                                    : "other";
    char what[64];

    snprintf(what, sizeof what, "%s %s%s%s", names[call->kind], type, reduces ? " " : "",
             !reduces ? ""
             : factor ? "factor"
                      : ops[call->op]);
    fake_nccl_count(what);
}

static _Atomic size_t bytes_out;

void fake_nccl_count_bytes(const struct fake_nccl_call *call)
{
    const struct fake_nccl_shared *shared = call->comm->shared;

    if (call->kind == FAKE_NCCL_SEND &&
        shared->members[call->root].host != shared->members[call->comm->rank].host) {
        atomic_fetch_add(&bytes_out, call->count); /* the transport sends bytes */
    }
}

size_t fake_nccl_bytes_to_other_hosts(void)
{
    return atomic_exchange(&bytes_out, 0);
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("CDDP_FAKE_NCCL_CALLS");
    const char *rank = getenv("CDDP_RANK");
    char name[4096];
    FILE *file;

    if (path == NULL || kinds == 0) {
        return;
    }
    snprintf(name, sizeof name, "%s.%s", path, rank != NULL ? rank : "0");
    file = fopen(name, "we");
    for (int i = 0; file != NULL && i < kinds; i++) {
        fprintf(file, "%s %lu\n", counts[i].what, counts[i].count);
    }
    if (file != NULL) {
        fclose(file);
    }
}
