/* net_message.c - owns send and recv. Between ranks of one host they use the inner transport;
 * otherwise a header and the data go directly from rank to rank. */
#include "group/net/net_message.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/net/net_collective.h"
#include "group/net/transfer.h"

#include <string.h>

struct net_message_header {
    uint64_t count;
    uint32_t type;
    uint32_t number;
};

struct net_message {
    struct cddpi_group_op inner; /* used if the peer is on this host */
    bool is_inside;
    struct net_message_header header;
    struct cddpi_transfer head, body;
    bool has_body; /* the data's transfer has begun */
};

/* Its tag differs from the tags of all messages that may be in progress between the two ranks in
 * this direction. */
static struct cddpi_transfer transfer_of(const struct cddpi_group_op *op, bool is_body, void *data,
                                         size_t bytes)
{
    return (struct cddpi_transfer){.peer = op->root,
                                   .channel = CDDPI_NET_MESSAGES,
                                   .tag = (uint32_t)(op->number << 1 | is_body) &
                                          ((1U << CDDPI_NET_TAG_LOW_BITS) - 1),
                                   .is_send = op->kind == CDDPI_SEND,
                                   .data = data,
                                   .bytes = bytes};
}

static cddp_status start_body(struct net_backend *net, struct cddpi_group_op *op,
                              struct net_message *message)
{
    void *data = op->kind == CDDPI_SEND ? (void *)(uintptr_t)op->in : op->out;

    message->has_body = true;
    message->body = transfer_of(op, true, data, op->count * cddp_type_bytes(op->type));
    return cddpi_net_start(net, &message->body);
}

static cddp_status begin_message(struct net_backend *net, struct cddpi_group_op *op)
{
    struct net_message *message = cddpi_zalloc(sizeof *message);

    CDDPI_TRY_MEMORY(message != NULL, "%s: no memory", cddpi_kind_name(op->kind));
    net_state(op)->message = message;
    if (net->host_of[op->root] == net->host) {
        message->is_inside = true;
        message->inner = *op;
        memset(message->inner.state, 0, sizeof message->inner.state);
        message->inner.root = net->local_of[op->root];
        return CDDP_OK;
    }
    if (op->kind == CDDPI_SEND) {
        message->header = (struct net_message_header){op->count, (uint32_t)op->type,
                                                      (uint32_t)op->number};
    }
    message->head = transfer_of(op, false, &message->header, sizeof message->header);
    CDDPI_TRY(cddpi_net_start(net, &message->head));
    return op->kind == CDDPI_SEND ? start_body(net, op, message) : CDDP_OK;
}

static cddp_status check_header(const struct net_backend *net, const struct cddpi_group_op *op,
                                const struct net_message_header *header)
{
    if (header->count == op->count && header->type == (uint32_t)op->type) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_MISMATCH,
                      "message #%llu from rank %d to rank %d: rank %d sends %s x %llu, rank %d "
                      "receives %s x %zu",
                      (unsigned long long)op->number, op->root, net->rank, op->root,
                      cddp_type_name((cddp_type)header->type), (unsigned long long)header->count,
                      net->rank, cddp_type_name(op->type), op->count);
}

cddp_status cddpi_net_message(struct net_backend *net, struct cddpi_group_op *op, bool *out_done)
{
    struct net_message *message;

    if (net_state(op)->message == NULL) {
        CDDPI_TRY(begin_message(net, op));
    }
    message = net_state(op)->message;
    if (message->is_inside) {
        CDDPI_TRY(net->inner->ops->advance(net->inner, &message->inner, out_done));
    } else if (message->head.is_done) {
        if (!message->has_body) {
            CDDPI_TRY(check_header(net, op, &message->header));
            CDDPI_TRY(start_body(net, op, message));
        }
        *out_done = message->body.is_done;
    }
    if (*out_done) {
        cddpi_free(message);
        net_state(op)->message = NULL;
    }
    return CDDP_OK;
}

void cddpi_net_message_drop(struct net_backend *net, struct cddpi_group_op *op)
{
    struct net_message *message = net_state(op)->message;

    if (message != NULL && message->is_inside && net->inner->ops->drop != NULL) {
        net->inner->ops->drop(net->inner, &message->inner);
    }
    if (!net->is_memory_lent) {
        cddpi_free(message);
    }
    net_state(op)->message = NULL;
}

const struct cddpi_group_op *cddpi_net_message_inside(const struct cddpi_group_op *op)
{
    const struct net_message *message = net_state_of(op)->message;

    return message != NULL && message->is_inside ? &message->inner : NULL;
}
