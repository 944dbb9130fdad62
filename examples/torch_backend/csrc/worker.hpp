/* worker.hpp - the thread that owns a cddp group: it starts operations in the order in which they
 * were submitted, advances them, and completes their work objects. */
#pragma once

#include "p2p.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace cddp_torch
{

/* What PyTorch holds of an operation that was submitted. */
class Work : public c10d::Work
{
  public:
    Work(int rank, c10d::OpType type, std::vector<at::Tensor> outputs);
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    std::vector<at::Tensor> result() override;
    int sourceRank() const override;
    /* Ends the work, by the worker's thread; callbacks of the future run in others. */
    void complete(std::exception_ptr failure, int source = -1);

  private:
    std::vector<at::Tensor> outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::mutex future_mutex_;
    bool future_is_shared_ = false; /* somebody may have put callbacks into it */
    int source_ = -1;
};

/* An operation. All functions run in the worker's thread. */
struct Op {
    /* Begin a collective; called in order, all of them before one is waited for. */
    std::vector<std::function<cddp_status(cddp_group *, cddp_work **)>> starts;
    /* Instead of those: may wait; for operations of several rounds. */
    std::function<void(cddp_group *)> whole;
    /* Once all are done: move results to where they belong. May be empty. */
    std::function<void()> finish;
    c10::intrusive_ptr<Work> work;
    std::vector<cddp::work> started;
};

class Worker
{
  public:
    explicit Worker(cddp::group group);
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;
    void submit(Op op);
    void submit(Message message);
    /* Peers get the reason as an error. */
    void abort(const std::string &reason);

  private:
    void run();
    void begin(Op op);
    /* Whether something was completed. */
    bool advance();
    void wait_for_one();
    void fail_all(const std::exception_ptr &failure);

    cddp::group group_;
    Messages messages_;
    std::deque<Op> pending_; /* of the thread alone, as are group_ and messages_ */
    std::mutex mutex_;       /* of what is below */
    std::condition_variable wake_;
    std::deque<std::function<void()>> submitted_;
    bool stop_ = false;
    int process_;
    std::thread thread_;
};

} // namespace cddp_torch
