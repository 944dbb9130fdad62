/* backend.cpp - cddp as a c10d::Backend: see backend.hpp. */
#include "backend.hpp"

#include "numbers.hpp"

namespace cddp_torch
{

static void check_tensor(const at::Tensor &tensor)
{
    TORCH_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided,
                "cddp: this backend takes dense tensors on the CPU");
}

static const at::Tensor &only(const tensors &data)
{
    TORCH_CHECK(data.size() == 1, "cddp: one tensor is expected, not ", data.size());
    check_tensor(data[0]);
    return data[0];
}

static std::size_t bytes_of(const at::Tensor &tensor)
{
    return static_cast<std::size_t>(tensor.nbytes());
}

/* One after the other. */
static void then(std::function<void()> *finish, std::function<void()> more)
{
    *finish = [before = std::move(*finish), more = std::move(more)] {
        if (before) {
            before();
        }
        more();
    };
}

/* A contiguous tensor whose numbers reach @p tensor when @p op is finished. */
static at::Tensor landing(std::function<void()> *finish, const at::Tensor &tensor)
{
    at::Tensor dense = tensor.contiguous();

    if (dense.data_ptr() != tensor.data_ptr()) {
        then(finish, [tensor, dense] { copy_back(tensor, dense); });
    }
    return dense;
}

/* The tensors of @p list as one block of bytes; all as long as the first. */
static at::Tensor joined(const tensors &list)
{
    tensors flat;

    for (const at::Tensor &tensor : list) {
        check_tensor(tensor);
        TORCH_CHECK(tensor.nbytes() == list[0].nbytes() &&
                        tensor.scalar_type() == list[0].scalar_type(),
                    "cddp: the tensors of the list differ in size or type");
        flat.push_back(tensor.contiguous().view({-1}));
    }
    return at::cat(flat);
}

/* Numbers of @p block go to each of @p list. */
static void deal(const at::Tensor &block, const tensors &list)
{
    std::int64_t at = 0;

    for (const at::Tensor &tensor : list) {
        copy_back(tensor, block.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
    }
}

Backend::Backend(cddp::group group, Arrivals arrivals, std::unique_ptr<Partings> partings,
                 std::chrono::milliseconds timeout)
    : c10d::Backend(group.rank(), group.world_size()), timeout_(timeout),
      worker_(std::move(group), std::move(partings)), arrivals_(std::move(arrivals))
{
    init();
}

Backend::~Backend() = default;

void Backend::abort()
{
    worker_.abort("torch.distributed aborted the process group");
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<Options> &how)
{
    const auto own = std::find(ranks.begin(), ranks.end(), getRank());

    if (own == ranks.end()) {
        return nullptr;
    }
    /* a connection of its own: the parent's would wait as long as a rank does not come */
    auto part = create(store->clone(), static_cast<int>(own - ranks.begin()),
                       static_cast<int>(ranks.size()), how ? how->timeout : timeout_);

    if (how) {
        part->setGroupUid(how->group_name);
        part->setGroupDesc(how->group_desc);
    }
    return part;
}

void Backend::startCoalescing()
{
    /* one whose end was never reached, since Python raised an error before, is nobody's */
    batch_ = std::make_shared<Batch>(
        c10::make_intrusive<Work>(getRank(), c10d::OpType::COALESCED, tensors()));
}

work_ptr Backend::endCoalescing()
{
    TORCH_CHECK(batch_, "cddp: endCoalescing() without startCoalescing()");
    const std::shared_ptr<Batch> batch = std::move(batch_);

    batch->end_one(nullptr);
    return batch->whole();
}

c10::intrusive_ptr<Work> Backend::make_work(c10d::OpType type, tensors outputs)
{
    auto work = c10::make_intrusive<Work>(getRank(), type, std::move(outputs));

    if (batch_) {
        work->belong_to(batch_);
    }
    return work;
}

work_ptr Backend::submit(c10d::OpType type, Op op, tensors outputs)
{
    auto work = make_work(type, std::move(outputs));

    sequence_++;
    op.work = work;
    worker_.submit(std::move(op));
    return work;
}

/* --- one to all, all to one --- */

work_ptr Backend::broadcast(tensors &data, const c10d::BroadcastOptions &how)
{
    Op op;
    at::Tensor dense = landing(&op.finish, only(data));
    const int root = static_cast<int>(how.rootRank);

    op.starts.push_back([dense, root](cddp_group *group, cddp_work **work) {
        return cddp_broadcast(group, dense.data_ptr(), bytes_of(dense), CDDP_U8, root, work);
    });
    return submit(c10d::OpType::BROADCAST, std::move(op), data);
}

work_ptr Backend::reduce(tensors &data, const c10d::ReduceOptions &how)
{
    const at::Tensor &tensor = only(data);
    const int root = static_cast<int>(how.rootRank);
    Op op;

    Reduction plan = reduction_of(tensor, how.reduceOp);
    op.starts.push_back([plan, root](cddp_group *group, cddp_work **work) {
        void *numbers = plan.numbers.data_ptr();

        return cddp_reduce(group, numbers, cddp_group_rank(group) == root ? numbers : nullptr,
                           static_cast<std::size_t>(plan.numbers.numel()), plan.type, plan.op, root,
                           work);
    });
    if (plan.is_copy && getRank() == root) {
        then(&op.finish, [plan, tensor] { copy_back(tensor, plan.numbers); });
    }
    return submit(c10d::OpType::REDUCE, std::move(op), data);
}

work_ptr Backend::gather(tensor_lists &out, tensors &in, const c10d::GatherOptions &how)
{
    const at::Tensor own = only(in).contiguous();
    const int root = static_cast<int>(how.rootRank);
    at::Tensor block;
    Op op;

    if (getRank() == root) {
        TORCH_CHECK(out.size() == 1 && out[0].size() == static_cast<std::size_t>(getSize()),
                    "cddp: gather needs one list of as many tensors as ranks");
        block = at::empty({own.numel() * getSize()}, own.options());
        op.finish = [block, list = out[0]] { deal(block, list); };
    }
    op.starts.push_back([own, block, root](cddp_group *group, cddp_work **work) {
        return cddp_gather(group, own.data_ptr(), block.defined() ? block.data_ptr() : nullptr,
                           bytes_of(own), CDDP_U8, root, work);
    });
    return submit(c10d::OpType::GATHER, std::move(op), out.empty() ? tensors() : out[0]);
}

work_ptr Backend::scatter(tensors &out, tensor_lists &in, const c10d::ScatterOptions &how)
{
    Op op;
    at::Tensor own = landing(&op.finish, only(out));
    const int root = static_cast<int>(how.rootRank);
    at::Tensor block;

    if (getRank() == root) {
        TORCH_CHECK(in.size() == 1 && in[0].size() == static_cast<std::size_t>(getSize()),
                    "cddp: scatter needs one list of as many tensors as ranks");
        block = joined(in[0]);
    }
    op.starts.push_back([own, block, root](cddp_group *group, cddp_work **work) {
        return cddp_scatter(group, block.defined() ? block.data_ptr() : nullptr, own.data_ptr(),
                            bytes_of(own), CDDP_U8, root, work);
    });
    return submit(c10d::OpType::SCATTER, std::move(op), out);
}

/* --- all to all --- */

void Backend::add_all_reduce(Op *op, const at::Tensor &data, const c10d::ReduceOp &how)
{
    check_tensor(data);
    Reduction plan = reduction_of(data, how);
    op->starts.push_back([plan](cddp_group *group, cddp_work **work) {
        return cddp_all_reduce(group, plan.numbers.data_ptr(), plan.numbers.data_ptr(),
                               static_cast<std::size_t>(plan.numbers.numel()), plan.type, plan.op,
                               work);
    });
    if (plan.is_copy) {
        then(&op->finish, [plan, data] { copy_back(data, plan.numbers); });
    }
}

work_ptr Backend::allreduce(tensors &data, const c10d::AllreduceOptions &how)
{
    Op op;

    add_all_reduce(&op, only(data), how.reduceOp);
    return submit(c10d::OpType::ALLREDUCE, std::move(op), data);
}

work_ptr Backend::allreduce_coalesced(tensors &data, const c10d::AllreduceCoalescedOptions &how)
{
    Op op;

    for (const at::Tensor &tensor : data) {
        add_all_reduce(&op, tensor, how.reduceOp);
    }
    return submit(c10d::OpType::ALLREDUCE_COALESCED, std::move(op), data);
}

/* @p out: one tensor for all ranks, or one for each. */
void Backend::add_all_gather(Op *op, const tensors &out, const at::Tensor &in)
{
    check_tensor(in);
    at::Tensor own = in.contiguous();
    at::Tensor all;

    if (out.size() == 1 && out[0].numel() == in.numel() * getSize()) {
        check_tensor(out[0]);
        all = landing(&op->finish, out[0]);
    } else {
        TORCH_CHECK(out.size() == static_cast<std::size_t>(getSize()),
                    "cddp: all_gather needs as many tensors as ranks");
        for (const at::Tensor &tensor : out) {
            TORCH_CHECK(tensor.numel() == in.numel(), "cddp: all_gather needs tensors of one size");
        }
        all = at::empty({own.numel() * getSize()}, own.options());
        then(&op->finish, [all, out] { deal(all, out); });
    }
    TORCH_CHECK(out[0].scalar_type() == in.scalar_type(),
                "cddp: all_gather needs tensors of one type");
    op->starts.push_back([own, all](cddp_group *group, cddp_work **work) {
        return cddp_all_gather(group, own.data_ptr(), all.data_ptr(), bytes_of(own), CDDP_U8, work);
    });
}

work_ptr Backend::allgather(tensor_lists &out, tensors &in, const c10d::AllgatherOptions &)
{
    Op op;

    TORCH_CHECK(out.size() == 1, "cddp: one list of tensors is expected, not ", out.size());
    add_all_gather(&op, out[0], only(in));
    return submit(c10d::OpType::ALLGATHER, std::move(op), out[0]);
}

work_ptr Backend::allgather_coalesced(tensor_lists &out, tensors &in,
                                      const c10d::AllgatherOptions &)
{
    Op op;
    tensors all;

    TORCH_CHECK(out.size() == static_cast<std::size_t>(getSize()),
                "cddp: all_gather_coalesced needs a list for each rank");
    for (std::size_t i = 0; i < in.size(); i++) {
        tensors of_one;

        for (const tensors &list : out) {
            of_one.push_back(list.at(i));
            all.push_back(list[i]);
        }
        add_all_gather(&op, of_one, in[i]);
    }
    return submit(c10d::OpType::ALLGATHER_COALESCED, std::move(op), all);
}

work_ptr Backend::_allgather_base(at::Tensor &out, at::Tensor &in, const c10d::AllgatherOptions &)
{
    Op op;

    TORCH_CHECK(out.numel() == in.numel() * getSize(), "cddp: all_gather_into_tensor needs ",
                in.numel() * getSize(), " numbers of output, not ", out.numel());
    add_all_gather(&op, {out}, in);
    return submit(c10d::OpType::_ALLGATHER_BASE, std::move(op), {out});
}

work_ptr Backend::allgather_into_tensor_coalesced(tensors &out, tensors &in,
                                                  const c10d::AllgatherOptions &)
{
    Op op;

    TORCH_CHECK(out.size() == in.size(), "cddp: as many outputs as inputs are needed");
    for (std::size_t i = 0; i < in.size(); i++) {
        add_all_gather(&op, {out[i]}, in[i]);
    }
    return submit(c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED, std::move(op), out);
}

/* @p in: one tensor for all ranks, or one for each. */
void Backend::add_reduce_scatter(Op *op, const at::Tensor &out, const tensors &in,
                                 const c10d::ReduceOp &how)
{
    check_tensor(out);
    TORCH_CHECK(!in.empty(), "cddp: reduce_scatter needs input");
    at::Tensor all = in.size() == 1 ? in[0].contiguous().view({-1}) : joined(in);
    TORCH_CHECK(all.numel() == out.numel() * getSize() && all.scalar_type() == out.scalar_type(),
                "cddp: reduce_scatter needs an input of as many outputs as ranks");
    Reduction from = reduction_of(all, how);
    at::Tensor to = at::empty(from.numbers.numel() / getSize(), from.numbers.options());
    op->starts.push_back([from, to](cddp_group *group, cddp_work **work) {
        return cddp_reduce_scatter(group, from.numbers.data_ptr(), to.data_ptr(),
                                   static_cast<std::size_t>(to.numel()), from.type, from.op, work);
    });
    then(&op->finish, [out, to] {
        copy_back(out, out.is_complex() ? at::view_as_complex(to.view({-1, 2})).view(out.sizes())
                                        : to.view(out.sizes()));
    });
}

work_ptr Backend::reduce_scatter(tensors &out, tensor_lists &in,
                                 const c10d::ReduceScatterOptions &how)
{
    Op op;

    TORCH_CHECK(in.size() == 1 && in[0].size() == static_cast<std::size_t>(getSize()),
                "cddp: reduce_scatter needs one list of as many tensors as ranks");
    add_reduce_scatter(&op, only(out), in[0], how.reduceOp);
    return submit(c10d::OpType::REDUCE_SCATTER, std::move(op), out);
}

work_ptr Backend::_reduce_scatter_base(at::Tensor &out, at::Tensor &in,
                                       const c10d::ReduceScatterOptions &how)
{
    Op op;

    add_reduce_scatter(&op, out, {in}, how.reduceOp);
    return submit(c10d::OpType::_REDUCE_SCATTER_BASE, std::move(op), {out});
}

work_ptr Backend::reduce_scatter_tensor_coalesced(tensors &out, tensors &in,
                                                  const c10d::ReduceScatterOptions &how)
{
    Op op;

    TORCH_CHECK(out.size() == in.size(), "cddp: as many outputs as inputs are needed");
    for (std::size_t i = 0; i < in.size(); i++) {
        add_reduce_scatter(&op, out[i], {in[i]}, how.reduceOp);
    }
    return submit(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, std::move(op), out);
}

/* Tell every rank what each one sends and expects, and return the longest block. What does not fit
 * is the same error on all of them. */
static std::int64_t compare_sizes(cddp_group *group, const tensors &out, const tensors &in)
{
    const auto ranks = static_cast<std::size_t>(cddp_group_world_size(group));
    std::vector<std::int64_t> own; /* to each rank, then from each */
    std::vector<std::int64_t> all(2 * ranks * ranks);
    std::int64_t longest = 0;

    for (const tensors *list : {&in, &out}) {
        for (const at::Tensor &tensor : *list) {
            own.push_back(static_cast<std::int64_t>(tensor.nbytes()));
        }
    }
    cddp::check(cddp_all_gather(group, own.data(), all.data(), own.size(), CDDP_I64, nullptr));
    for (std::size_t from = 0; from < ranks; from++) {
        for (std::size_t to = 0; to < ranks; to++) {
            const std::int64_t sent = all[2 * ranks * from + to];
            const std::int64_t expected = all[2 * ranks * to + ranks + from];

            if (sent != expected) {
                throw cddp::error(CDDP_ERR_MISMATCH, "all_to_all: rank " + std::to_string(from) +
                                                         " sends " + std::to_string(sent) +
                                                         " bytes to rank " + std::to_string(to) +
                                                         ", which expects " +
                                                         std::to_string(expected));
            }
            longest = std::max(longest, sent);
        }
    }
    return longest;
}

/* Unequal blocks: all ranks send as much as the longest has. */
static void exchange(cddp_group *group, const tensors &out, const tensors &in)
{
    const std::int64_t ranks = cddp_group_world_size(group);
    const std::int64_t longest = compare_sizes(group, out, in);

    at::Tensor from = at::zeros({ranks, longest}, at::kByte);
    at::Tensor to = at::empty({ranks, longest}, at::kByte);
    for (std::int64_t i = 0; i < ranks; i++) {
        at::Tensor own = in[i].contiguous();

        if (own.nbytes() > 0) {
            std::memcpy(from[i].data_ptr(), own.data_ptr(), bytes_of(own));
        }
    }
    cddp::check(cddp_all_to_all(group, from.data_ptr(), to.data_ptr(),
                                static_cast<std::size_t>(longest), CDDP_U8, nullptr));
    for (std::int64_t i = 0; i < ranks; i++) {
        at::Tensor dense = at::empty(out[i].sizes(), out[i].options());

        if (dense.nbytes() > 0) {
            std::memcpy(dense.data_ptr(), to[i].data_ptr(), bytes_of(dense));
            copy_back(out[i], dense);
        }
    }
}

work_ptr Backend::alltoall(tensors &out, tensors &in, const c10d::AllToAllOptions &)
{
    Op op;

    TORCH_CHECK(out.size() == static_cast<std::size_t>(getSize()) && in.size() == out.size(),
                "cddp: all_to_all needs a tensor for each rank on both sides");
    for (std::size_t i = 0; i < in.size(); i++) {
        check_tensor(in[i]);
        check_tensor(out[i]);
    }
    op.whole = [out, in](cddp_group *group) { exchange(group, out, in); };
    return submit(c10d::OpType::ALLTOALL, std::move(op), out);
}

/* Rows of @p tensor for each rank. */
static tensors rows_of(const at::Tensor &tensor, const std::vector<int64_t> &splits, int ranks)
{
    if (splits.empty()) {
        TORCH_CHECK(tensor.size(0) % ranks == 0, "cddp: ", tensor.size(0),
                    " rows cannot be divided among ", ranks, " ranks");
        return tensor.chunk(ranks, 0).size() == static_cast<std::size_t>(ranks)
                   ? tensor.chunk(ranks, 0)
                   : tensors(static_cast<std::size_t>(ranks), tensor);
    }
    TORCH_CHECK(splits.size() == static_cast<std::size_t>(ranks),
                "cddp: all_to_all needs a size for each rank");
    return tensor.split_with_sizes(splits, 0);
}

work_ptr Backend::alltoall_base(at::Tensor &out, at::Tensor &in, std::vector<int64_t> &out_splits,
                                std::vector<int64_t> &in_splits, const c10d::AllToAllOptions &)
{
    Op op;

    check_tensor(out);
    check_tensor(in);
    TORCH_CHECK(out.scalar_type() == in.scalar_type(),
                "cddp: all_to_all needs tensors of one type");
    /* whether blocks are equal must not depend on the rank: sizes that are given may differ */
    if (out_splits.empty() && in_splits.empty()) {
        at::Tensor from = in.contiguous();
        at::Tensor to = landing(&op.finish, out);

        TORCH_CHECK(in.numel() == out.numel() && in.numel() % getSize() == 0,
                    "cddp: all_to_all_single cannot divide ", in.numel(), " numbers to ",
                    out.numel(), " among ", getSize(), " ranks");
        op.starts.push_back([from, to](cddp_group *group, cddp_work **work) {
            const auto ranks = static_cast<std::size_t>(cddp_group_world_size(group));

            return cddp_all_to_all(group, from.data_ptr(), to.data_ptr(), bytes_of(from) / ranks,
                                   CDDP_U8, work);
        });
    } else {
        const tensors to = rows_of(out, out_splits, getSize());
        const tensors from = rows_of(in, in_splits, getSize());

        op.whole = [to, from](cddp_group *group) { exchange(group, to, from); };
    }
    return submit(c10d::OpType::ALLTOALL_BASE, std::move(op), {out});
}

work_ptr Backend::barrier(const c10d::BarrierOptions &)
{
    Op op;

    op.starts.push_back(
        [](cddp_group *group, cddp_work **work) { return cddp_barrier(group, work); });
    return submit(c10d::OpType::BARRIER, std::move(op), {});
}

void Backend::monitoredBarrier(const c10d::BarrierOptions &how, bool wait_all_ranks)
{
    arrivals_.pass(how.timeout, wait_all_ranks);
}

/* --- point to point --- */

work_ptr Backend::send(tensors &data, int to, int tag)
{
    TORCH_CHECK(to >= 0 && to < getSize() && to != getRank(), "cddp: rank ", getRank(),
                " cannot send to rank ", to);
    const at::Tensor dense = only(data).contiguous();
    auto work = make_work(c10d::OpType::SEND, tensors());

    worker_.submit(Message{true, to, tag, dense, {}, work});
    return work;
}

work_ptr Backend::receive(c10d::OpType type, tensors &data, int from, int tag)
{
    Message message = {false, from, tag, {}, {}, {}};

    message.data = landing(&message.finish, only(data));
    auto work = make_work(type, data);
    message.work = work;
    worker_.submit(std::move(message));
    return work;
}

work_ptr Backend::recv(tensors &data, int from, int tag)
{
    TORCH_CHECK(from >= 0 && from < getSize() && from != getRank(), "cddp: rank ", getRank(),
                " cannot receive from rank ", from);
    return receive(c10d::OpType::RECV, data, from, tag);
}

work_ptr Backend::recvAnysource(tensors &data, int tag)
{
    return receive(c10d::OpType::RECVANYSOURCE, data, -1, tag);
}

} // namespace cddp_torch
