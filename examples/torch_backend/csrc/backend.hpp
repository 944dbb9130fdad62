/* backend.hpp - cddp as a c10d::Backend: what torch.distributed calls. */
#pragma once

#include "arrivals.hpp"
#include "worker.hpp"

namespace cddp_torch
{

using tensors = std::vector<at::Tensor>;
using tensor_lists = std::vector<tensors>;
using work_ptr = c10::intrusive_ptr<c10d::Work>;

/* All calls but one return at once. Tensors are on the processor; those that are not contiguous are
 * copied in and out. Anything but a reduction goes as bytes, so every element type does. */
class Backend : public c10d::Backend
{
  public:
    Backend(cddp::group group, Arrivals arrivals, std::unique_ptr<Partings> partings,
            std::chrono::milliseconds timeout);
    ~Backend() override;
    const std::string getBackendName() const override
    {
        return "cddp";
    }
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }
    void abort() override;
    c10::intrusive_ptr<Options> getBackendOptions() override
    {
        return c10::make_intrusive<Options>("cddp", timeout_);
    }
    bool supportsSplitting() const override
    {
        return true;
    }
    /* A group of some of the ranks, by the store; null on the others, which do not wait. */
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                            const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &how) override;
    /* What is called between them is begun at once; the work of the whole is done when all is. */
    void startCoalescing() override;
    work_ptr endCoalescing() override;

    work_ptr broadcast(tensors &data, const c10d::BroadcastOptions &how) override;
    work_ptr allreduce(tensors &data, const c10d::AllreduceOptions &how) override;
    work_ptr allreduce_coalesced(tensors &data,
                                 const c10d::AllreduceCoalescedOptions &how) override;
    work_ptr reduce(tensors &data, const c10d::ReduceOptions &how) override;
    work_ptr allgather(tensor_lists &out, tensors &in, const c10d::AllgatherOptions &how) override;
    work_ptr allgather_coalesced(tensor_lists &out, tensors &in,
                                 const c10d::AllgatherOptions &how) override;
    work_ptr _allgather_base(at::Tensor &out, at::Tensor &in,
                             const c10d::AllgatherOptions &how) override;
    work_ptr allgather_into_tensor_coalesced(tensors &out, tensors &in,
                                             const c10d::AllgatherOptions &how) override;
    work_ptr gather(tensor_lists &out, tensors &in, const c10d::GatherOptions &how) override;
    work_ptr scatter(tensors &out, tensor_lists &in, const c10d::ScatterOptions &how) override;
    work_ptr reduce_scatter(tensors &out, tensor_lists &in,
                            const c10d::ReduceScatterOptions &how) override;
    work_ptr _reduce_scatter_base(at::Tensor &out, at::Tensor &in,
                                  const c10d::ReduceScatterOptions &how) override;
    work_ptr reduce_scatter_tensor_coalesced(tensors &out, tensors &in,
                                             const c10d::ReduceScatterOptions &how) override;
    work_ptr alltoall_base(at::Tensor &out, at::Tensor &in, std::vector<int64_t> &out_splits,
                           std::vector<int64_t> &in_splits,
                           const c10d::AllToAllOptions &how) override;
    work_ptr alltoall(tensors &out, tensors &in, const c10d::AllToAllOptions &how) override;
    work_ptr send(tensors &data, int to, int tag) override;
    work_ptr recv(tensors &data, int from, int tag) override;
    work_ptr recvAnysource(tensors &data, int tag) override;
    work_ptr barrier(const c10d::BarrierOptions &how) override;
    /* The one call that waits: PyTorch has it so. */
    void monitoredBarrier(const c10d::BarrierOptions &how, bool wait_all_ranks) override;

  private:
    work_ptr submit(c10d::OpType type, Op op, tensors outputs);
    work_ptr receive(c10d::OpType type, tensors &data, int from, int tag);
    void add_all_reduce(Op *op, const at::Tensor &data, const c10d::ReduceOp &how);
    void add_all_gather(Op *op, const tensors &out, const at::Tensor &in);
    void add_reduce_scatter(Op *op, const at::Tensor &out, const tensors &in,
                            const c10d::ReduceOp &how);

    c10::intrusive_ptr<Work> make_work(c10d::OpType type, tensors outputs);

    std::chrono::milliseconds timeout_;
    Worker worker_;
    Arrivals arrivals_;
    std::shared_ptr<Batch> batch_; /* null: nothing is coalesced */
    uint64_t sequence_ = 0;
};

/* Join rank 0 to @p size - 1 of a group that meets by @p store. */
c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                         int size, const std::chrono::milliseconds &timeout);

} // namespace cddp_torch
