/* group_call.c - owns the fingerprints of calls: compares them, and describes differences. */
#include "group/engine/group_call.h"

#include "base/error.h"

#include <stdio.h>

struct cddpi_call cddpi_call_of(const struct cddpi_group_op *op)
{
    return (struct cddpi_call){.kind = (uint8_t)op->kind,
                               .type = (uint8_t)op->type,
                               .op = (uint8_t)op->op,
                               .weighted = op->weighted,
                               .root = op->root,
                               .count = op->count};
}

void cddpi_op_title(const struct cddpi_group_op *op, char *out, size_t bytes)
{
    const char *name = cddpi_kind_name(op->kind);

    if (op->call != 0) {
        snprintf(out, bytes, "%s #%llu", name, (unsigned long long)op->call);
    } else {
        snprintf(out, bytes, "%s", name);
    }
}

cddp_status cddpi_call_mismatch(const struct cddpi_group_op *op, const char *text)
{
    uint64_t call = op->whole != NULL ? op->whole->call : op->call;

    return call != 0 ? cddpi_fail(CDDP_ERR_MISMATCH, "ranks disagree at collective #%llu: %s",
                                  (unsigned long long)call, text)
                     : cddpi_fail(CDDP_ERR_MISMATCH,
                                  "ranks disagree at a collective of a cddp_ddp: %s", text);
}

void cddpi_call_describe(const struct cddpi_call *call, char *out, size_t bytes)
{
    const char *name = cddpi_kind_name((enum cddpi_kind)call->kind);
    const char *type = cddp_type_name((cddp_type)call->type);
    const char *op = call->weighted ? "weighted mean" : cddp_op_name((cddp_op)call->op);
    unsigned long long count = call->count;

    switch ((enum cddpi_kind)call->kind) {
    case CDDPI_BARRIER:
        snprintf(out, bytes, "%s", name);
        break;
    case CDDPI_ALLOC:
        snprintf(out, bytes, "%s of %llu bytes", name, count);
        break;
    case CDDPI_REPLAY:
        snprintf(out, bytes, "%s of captured graph %016llx", name, count);
        break;
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        snprintf(out, bytes, "%s %s %s x %llu", name, op, type, count);
        break;
    case CDDPI_REDUCE:
        snprintf(out, bytes, "%s %s %s x %llu to %d", name, op, type, count, call->root);
        break;
    case CDDPI_BROADCAST:
    case CDDPI_SCATTER:
        snprintf(out, bytes, "%s %s x %llu from %d", name, type, count, call->root);
        break;
    case CDDPI_GATHER:
        snprintf(out, bytes, "%s %s x %llu to %d", name, type, count, call->root);
        break;
    default:
        snprintf(out, bytes, "%s %s x %llu", name, type, count);
    }
}

bool cddpi_call_same(const struct cddpi_call *a, const struct cddpi_call *b)
{
    return a->kind == b->kind && a->type == b->type && a->op == b->op &&
           a->weighted == b->weighted && a->root == b->root && a->count == b->count;
}

void cddpi_call_describe_all(cddpi_call_fn call_of, const void *context, const int *names, int size,
                             char *out, size_t bytes)
{
    size_t used = 0;

    for (int first = 0; first < size && used < bytes - 200; first++) {
        const struct cddpi_call *what = call_of(context, first);
        char text[128];
        bool told = false;
        int others = 0;

        for (int r = 0; r < first && !told; r++) {
            told = cddpi_call_same(what, call_of(context, r));
        }
        if (told) {
            continue;
        }
        for (int r = first + 1; r < size; r++) {
            others += cddpi_call_same(what, call_of(context, r));
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s%s %d", used > 0 ? "; " : "",
                                 others > 0 ? "ranks" : "rank",
                                 names != NULL ? names[first] : first);
        for (int r = first + 1; r < size && used < bytes - 200; r++) {
            if (cddpi_call_same(what, call_of(context, r))) {
                used += (size_t)snprintf(out + used, bytes - used, ", %d",
                                         names != NULL ? names[r] : r);
            }
        }
        cddpi_call_describe(what, text, sizeof text);
        used += (size_t)snprintf(out + used, bytes - used, ": %s", text);
    }
}

const char *cddpi_kind_name(enum cddpi_kind kind)
{
    static const char *const names[] = {CDDPI_KIND_MAP(CDDPI_CHOICE_WORD)};

    return (unsigned)kind < CDDPI_KINDS ? names[kind] : "?";
}
