/* worker.hpp - the thread that owns a cddp group: it starts operations in the order in which they
 * were submitted, advances them, and completes their work objects. */
#pragma once

#include "p2p.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace cddp_torch
{

class Batch;

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
    /* Before it is submitted: it is one of those that @p batch waits for. */
    void belong_to(std::shared_ptr<Batch> batch);

  private:
    std::vector<at::Tensor> outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::mutex future_mutex_;
    bool future_is_shared_ = false; /* somebody may have put callbacks into it */
    int source_ = -1;
    std::shared_ptr<Batch> batch_;
};

/* Works that are one for PyTorch, which is done when all of them are, with the first failure. */
class Batch
{
  public:
    explicit Batch(c10::intrusive_ptr<Work> whole) : whole_(std::move(whole))
    {
    }
    void add()
    {
        left_++;
    }
    /* One of them has ended, or (failure: none) no more will be added. */
    void end_one(const std::exception_ptr &failure);
    const c10::intrusive_ptr<Work> &whole() const
    {
        return whole_;
    }

  private:
    c10::intrusive_ptr<Work> whole_;
    std::mutex mutex_; /* of the failure */
    std::exception_ptr failure_;
    std::atomic<int> left_ = 1;
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
    Worker(cddp::group group, std::unique_ptr<Partings> partings);
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;
    void submit(Op op);
    void submit(Message message);
    /* Peers get the reason as an error. */
    void abort(const std::string &reason);
    /* End all of this process, and wait for callbacks that run. Python calls it before it ends:
     * a thread that wants its lock after that is ended by Python, and the process with it, as an
     * exception would pass through destructors. What is under way gets linger_s, all together, or
     * (@p at_once) nothing; what is submitted afterwards is an error. */
    static void leave(bool at_once);

  private:
    using clock = std::chrono::steady_clock;

    void ask_to_stop(clock::time_point until);
    void stop();
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
    std::condition_variable wake_, ended_;
    std::deque<std::function<void()>> submitted_;
    bool stop_ = false, has_left_ = false; /* asked to stop; the group is given up */
    clock::time_point give_up_;            /* once asked to stop: wait no longer */
    int process_;
    std::thread thread_;
};

} // namespace cddp_torch
