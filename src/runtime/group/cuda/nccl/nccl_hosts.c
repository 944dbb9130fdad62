/* nccl_hosts.c - owns deterministic reductions between hosts: each host's ranks reduce among
 * themselves, then the hosts. With as many ranks on each host, a power of two, the tree over ranks
 * is the same, so the bits are. A host then sends and receives as many bytes as with a ring (of 16
 * bits 1.5 times as many, since sums are sent as f32); without this, its number of ranks times as
 * many.
 *
 * Part r of a piece belongs to rank r, as in deterministic.c. Scratch has a row for each part of
 * this rank's local index from each rank of its host; and one for each of these parts, reduced. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/cuda_kernels.h"

/* One piece, and who takes part: rank host x each + local. */
struct hosts_piece {
    struct nccl_cut cut;
    struct cddpi_cuda_hosts hosts;
    int host, local, each;
};

void cddpi_nccl_find_hosts(struct nccl_transport *nccl, const int32_t *hosts)
{
    int each = 1;

    while (each < nccl->size && hosts[each] == hosts[0]) {
        each++;
    }
    if (each < 2 || each > CDDPI_CUDA_HOST_RANKS || (each & (each - 1)) != 0 ||
        nccl->size % each != 0 || nccl->size == each || nccl->size / each > CDDPI_CUDA_HOSTS) {
        return;
    }
    for (int r = 0; r < nccl->size; r++) {
        int first = r / each * each;

        if (hosts[r] != hosts[first] || (first > 0 && hosts[r] == hosts[first - 1])) {
            return;
        }
    }
    nccl->hosts = nccl->size / each;
    nccl->host_ranks = each;
}

bool cddpi_nccl_has_hosts(const struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    bool sums = op->weighted || op->op == CDDP_OP_SUM || op->op == CDDP_OP_MEAN;
    bool real = op->type == CDDP_F32 || op->type == CDDP_BF16 || op->type == CDDP_F16;

    return nccl->hosts > 0 && sums && real &&
           (op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE_SCATTER);
}

static char *row_of(const struct nccl_transport *nccl, int index)
{
    return nccl->scratch + (size_t)index * nccl->row;
}

/* What this host's ranks make of this rank's part of @p host. */
static char *partial_of(const struct nccl_transport *nccl, int host)
{
    return row_of(nccl, nccl->size + 1 + host);
}

static int rank_of(const struct hosts_piece *piece, int host, int local)
{
    return host * piece->each + local;
}

/* Give each rank of this host its parts, and get those of this rank's local index. */
static cddp_status collect(struct nccl_transport *nccl, const struct hosts_piece *piece)
{
    const struct nccl_cut *cut = &piece->cut;
    struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);
    int count = 0;

    for (int i = 1; i < piece->each; i++) {
        int local = (piece->local + i) % piece->each;

        for (int host = 0; host < nccl->hosts; host++) {
            size_t start;
            size_t own = cddpi_nccl_part(cut, rank_of(piece, host, piece->local), &start);
            size_t theirs = cddpi_nccl_part(cut, rank_of(piece, host, local), &start);

            transfers[count++] = (struct nccl_transfer){
                rank_of(piece, piece->host, local),
                (const char *)cut->op->in + start * cut->element, theirs * cut->element,
                row_of(nccl, rank_of(piece, host, local)), own * cut->element};
        }
    }
    return cddpi_nccl_exchange_list(nccl, count);
}

/* Sum this host's ranks, for each host's part. */
static cddp_status sum_own_host(struct nccl_transport *nccl, const struct hosts_piece *piece)
{
    const struct nccl_cut *cut = &piece->cut;

    for (int host = 0; host < nccl->hosts; host++) {
        size_t start;
        size_t count = cddpi_nccl_part(cut, rank_of(piece, host, piece->local), &start);
        const char *own = (const char *)cut->op->in + start * cut->element;

        for (int local = 0; local < piece->each; local++) {
            nccl->inputs[local] = row_of(nccl, rank_of(piece, host, local));
        }
        if (cuda_is_aligned(own)) {
            nccl->inputs[piece->local] = own;
        } else {
            CDDPI_TRY(cddpi_nccl_copy(nccl, row_of(nccl, rank_of(piece, host, piece->local)), own,
                                      count * cut->element));
        }
        CDDPI_TRY(nccl->device->kernels->sum_host(nccl->device, cut->op->type, &piece->hosts,
                                                  piece->host, nccl->inputs, count,
                                                  (float *)(void *)partial_of(nccl, host)));
    }
    return CDDP_OK;
}

/* Between the ranks of this local index: get what each host has made of this rank's part. */
static cddp_status cross(struct nccl_transport *nccl, const struct hosts_piece *piece)
{
    struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);
    size_t start;
    size_t own = cddpi_nccl_part(&piece->cut, nccl->rank, &start);
    int count = 0;

    for (int i = 1; i < nccl->hosts; i++) {
        int host = (piece->host + i) % nccl->hosts;
        int peer = rank_of(piece, host, piece->local);
        size_t theirs = cddpi_nccl_part(&piece->cut, peer, &start);

        transfers[count++] = (struct nccl_transfer){peer, partial_of(nccl, host),
                                                    theirs * sizeof(float), row_of(nccl, host),
                                                    own * sizeof(float)};
    }
    return cddpi_nccl_exchange_list(nccl, count);
}

static cddp_status join(struct nccl_transport *nccl, const struct hosts_piece *piece, char *out)
{
    const struct nccl_cut *cut = &piece->cut;
    char *result = cuda_is_aligned(out) ? out : row_of(nccl, nccl->size);
    size_t start;
    size_t count = cddpi_nccl_part(cut, nccl->rank, &start);

    for (int host = 0; host < nccl->hosts; host++) {
        nccl->inputs[host] = host == piece->host ? partial_of(nccl, host) : row_of(nccl, host);
    }
    CDDPI_TRY(nccl->device->kernels->join_hosts(nccl->device, cut->op->type, &piece->hosts,
                                                nccl->inputs, count, result));
    return cddpi_nccl_copy(nccl, out, result, count * cut->element);
}

/* An all_reduce: exchange the results, first between the ranks of this local index, then those that
 * are now on this host. */
static cddp_status spread(struct nccl_transport *nccl, const struct hosts_piece *piece)
{
    const struct nccl_cut *cut = &piece->cut;
    struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);
    char *out = cut->op->out;
    size_t own_start;
    size_t own = cddpi_nccl_part(cut, nccl->rank, &own_start);
    int count = 0;

    for (int i = 1; i < nccl->hosts; i++) {
        int peer = rank_of(piece, (piece->host + i) % nccl->hosts, piece->local);
        size_t start;
        size_t theirs = cddpi_nccl_part(cut, peer, &start);

        transfers[count++] = (struct nccl_transfer){peer, out + own_start * cut->element,
                                                    own * cut->element, out + start * cut->element,
                                                    theirs * cut->element};
    }
    CDDPI_TRY(cddpi_nccl_exchange_list(nccl, count));
    count = 0;
    for (int i = 1; i < piece->each; i++) {
        int local = (piece->local + i) % piece->each;

        for (int host = 0; host < nccl->hosts; host++) {
            size_t start;
            size_t had = cddpi_nccl_part(cut, rank_of(piece, host, piece->local), &own_start);
            size_t theirs = cddpi_nccl_part(cut, rank_of(piece, host, local), &start);

            transfers[count++] = (struct nccl_transfer){
                rank_of(piece, piece->host, local), out + own_start * cut->element,
                had * cut->element, out + start * cut->element, theirs * cut->element};
        }
    }
    return cddpi_nccl_exchange_list(nccl, count);
}

static cddp_status one_piece(struct nccl_transport *nccl, const struct hosts_piece *piece)
{
    const struct nccl_cut *cut = &piece->cut;
    bool scatters = cut->op->kind == CDDPI_REDUCE_SCATTER;
    size_t start = cut->at;

    if (!scatters) {
        (void)cddpi_nccl_part(cut, nccl->rank, &start);
    }
    CDDPI_TRY(collect(nccl, piece));
    CDDPI_TRY(sum_own_host(nccl, piece));
    CDDPI_TRY(cross(nccl, piece));
    CDDPI_TRY(join(nccl, piece, (char *)cut->op->out + start * cut->element));
    return scatters ? CDDP_OK : spread(nccl, piece);
}

cddp_status cddpi_nccl_over_hosts(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    size_t parts = op->kind == CDDPI_REDUCE_SCATTER ? 1 : (size_t)nccl->size;
    /* of float32; a part may have a few elements more, since it begins at a multiple of a grain */
    size_t most = (nccl->row - 4 * NCCL_GRAIN) / sizeof(float) * parts;
    struct hosts_piece piece = {.cut = {op, cddp_type_bytes(op->type), 0, 0, nccl->size},
                                .hosts = {nccl->hosts, nccl->host_ranks,
                                          op->weighted ? nccl->weights : NULL,
                                          op->op == CDDP_OP_MEAN},
                                .host = nccl->rank / nccl->host_ranks,
                                .local = nccl->rank % nccl->host_ranks,
                                .each = nccl->host_ranks};

    for (; piece.cut.at < op->count; piece.cut.at += piece.cut.count) {
        size_t left = op->count - piece.cut.at;

        piece.cut.count = left < most ? left : most;
        CDDPI_TRY(one_piece(nccl, &piece));
    }
    return CDDP_OK;
}
