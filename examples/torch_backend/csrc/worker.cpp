/* worker.cpp - the thread that owns a cddp group: see worker.hpp. */
#include "worker.hpp"

#include "callbacks.hpp"
#include "per_process.hpp"

#include <set>

#include <unistd.h>

namespace cddp_torch
{

enum { look_again_ms = 1, linger_s = 10, goodbye_s = 2 };

namespace
{

struct Workers {
    std::mutex mutex;
    std::set<Worker *> all;
};

} // namespace

Work::Work(int rank, c10d::OpType type, std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type), outputs_(std::move(outputs)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get())))
{
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    std::lock_guard<std::mutex> lock(future_mutex_);

    future_is_shared_ = true;
    return future_;
}

std::vector<at::Tensor> Work::result()
{
    return outputs_;
}

int Work::sourceRank() const
{
    return source_;
}

/* PyTorch's own kind of error, for what cddp says. */
static std::exception_ptr as_torch_error(const std::exception_ptr &failure)
{
    try {
        std::rethrow_exception(failure);
    } catch (const cddp::error &error) {
        return std::make_exception_ptr(
            c10::DistBackendError({__func__, __FILE__, __LINE__}, error.what()));
    } catch (...) {
        return failure;
    }
}

void Work::complete(std::exception_ptr failure, int source)
{
    source_ = source;
    if (failure) {
        failure = as_torch_error(failure);
    }
    finish(failure);
    auto complete_future = [future = future_, failure, outputs = outputs_] {
        if (failure) {
            future->setErrorIfNeeded(failure);
        } else {
            future->markCompleted(c10::IValue(outputs));
        }
    };
    {
        std::lock_guard<std::mutex> lock(future_mutex_);

        if (future_is_shared_) {
            run_callback(std::move(complete_future));
        } else { /* nobody has it, so it has no callbacks */
            complete_future();
        }
    }
    if (batch_) {
        batch_->end_one(failure);
    }
}

void Work::belong_to(std::shared_ptr<Batch> batch)
{
    batch->add();
    batch_ = std::move(batch);
}

void Batch::end_one(const std::exception_ptr &failure)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);

        failure_ = failure_ ? failure_ : failure;
    }
    if (--left_ == 0) {
        whole_->complete(failure_);
    }
}

Worker::Worker(cddp::group group, std::unique_ptr<Partings> partings)
    : group_(std::move(group)), messages_(group_.rank(), group_.world_size(), std::move(partings)),
      process_(getpid()), thread_([this] { run(); })
{
    Workers &workers = of_this_process<Workers>();
    std::lock_guard<std::mutex> lock(workers.mutex);

    workers.all.insert(this);
}

Worker::~Worker()
{
    if (process_ != getpid()) { /* forked: the thread and the group are the parent's */
        thread_.detach();
        new cddp::group(std::move(group_));
        return;
    }
    {
        Workers &workers = of_this_process<Workers>();
        std::lock_guard<std::mutex> lock(workers.mutex);

        workers.all.erase(this);
    }
    ask_to_stop(clock::now() + std::chrono::seconds(linger_s));
    stop();
}

void Worker::leave(bool at_once)
{
    Workers &workers = of_this_process<Workers>();
    const auto until = clock::now() + std::chrono::seconds(at_once ? 0 : linger_s);

    wait_for_callbacks(until); /* which may wait for more operations */
    {
        std::lock_guard<std::mutex> lock(workers.mutex);

        for (Worker *worker : workers.all) {
            worker->ask_to_stop(until);
        }
        for (Worker *worker : workers.all) {
            worker->stop();
        }
    }
    wait_for_callbacks(std::max(until, clock::now() + std::chrono::seconds(goodbye_s)));
}

void Worker::ask_to_stop(clock::time_point until)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);

        if (!stop_) {
            give_up_ = until;
        }
        stop_ = true;
    }
    wake_.notify_one();
}

/* After ask_to_stop(): wait for the thread. It may be inside an operation of several rounds. */
void Worker::stop()
{
    if (!thread_.joinable()) {
        return;
    }
    bool is_late;
    {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto late = give_up_ + std::chrono::seconds(goodbye_s);

        is_late = !ended_.wait_until(lock, late, [this] { return has_left_; });
    }
    if (is_late) {
        abort("the process group was destroyed meanwhile");
    }
    thread_.join();
}

static const char after_the_end[] =
    "cddp: Python ends, and has left all process groups: nothing can be sent any more";

void Worker::submit(Op op)
{
    auto held = std::make_shared<Op>(std::move(op));

    TORCH_CHECK(process_ == getpid(), "cddp: a forked process must join a group of its own");
    {
        std::lock_guard<std::mutex> lock(mutex_);
        TORCH_CHECK(!stop_, after_the_end);
        submitted_.push_back([this, held] { begin(std::move(*held)); });
    }
    wake_.notify_one();
}

void Worker::submit(Message message)
{
    auto held = std::make_shared<Message>(std::move(message));

    TORCH_CHECK(process_ == getpid(), "cddp: a forked process must join a group of its own");
    {
        std::lock_guard<std::mutex> lock(mutex_);
        TORCH_CHECK(!stop_, after_the_end);
        submitted_.push_back([this, held] {
            auto work = held->work;

            try {
                messages_.begin(group_.get(), std::move(*held));
            } catch (...) {
                work->complete(std::current_exception());
            }
        });
    }
    wake_.notify_one();
}

void Worker::abort(const std::string &reason)
{
    std::lock_guard<std::mutex> lock(mutex_);

    if (!has_left_) {
        cddp_group_abort(group_.get(), reason.c_str());
    }
}

void Worker::begin(Op op)
{
    try {
        for (const auto &start : op.starts) {
            cddp_work *work = nullptr;

            cddp::check(start(group_.get(), &work));
            op.started.emplace_back();
            op.started.back().reset(work);
        }
        if (op.whole) {
            op.whole(group_.get());
        }
        pending_.push_back(std::move(op));
    } catch (...) {
        op.work->complete(std::current_exception());
    }
}

bool Worker::advance()
{
    bool moved = false;

    while (!pending_.empty()) {
        Op &op = pending_.front();
        std::exception_ptr failure;

        try {
            for (cddp::work &work : op.started) {
                if (!work.test()) {
                    return moved;
                }
                work.wait();
            }
            if (op.finish) {
                op.finish();
            }
        } catch (...) {
            failure = std::current_exception();
        }
        Op done = std::move(op);
        pending_.pop_front();
        done.work->complete(failure);
        moved = true;
    }
    return moved;
}

void Worker::fail_all(const std::exception_ptr &failure)
{
    messages_.fail_all(failure);
    for (Op &op : pending_) {
        op.work->complete(failure);
    }
    pending_.clear();
}

/* An error of what is waited for is found where it is tested. */
void Worker::wait_for_one()
{
    cddp_work *one = messages_.under_way();

    if (!pending_.empty() && !pending_.front().started.empty()) {
        one = pending_.front().started.back().get();
    }
    if (one != nullptr) {
        bool done = false;

        (void)!cddp_work_wait_host(one, look_again_ms, &done);
    }
}

void Worker::run()
{
    while (true) {
        std::deque<std::function<void()>> now;
        clock::time_point give_up;
        bool stop;
        {
            std::unique_lock<std::mutex> lock(mutex_);

            wake_.wait(lock, [this] {
                return stop_ || !submitted_.empty() || !pending_.empty() || messages_.is_busy();
            });
            now.swap(submitted_);
            stop = stop_;
            give_up = give_up_;
        }
        for (const auto &begin_one : now) {
            begin_one();
        }
        bool moved = advance();
        try {
            moved |= messages_.advance(group_.get());
        } catch (...) {
            messages_.fail_all(std::current_exception());
        }
        if (stop && ((pending_.empty() && !messages_.has_sends()) || clock::now() > give_up)) {
            break;
        }
        if (!moved) { /* waiting for one advances all of the group; not long, for there may be news
                       */
            wait_for_one();
        }
    }
    messages_.say_goodbye(group_.get());
    std::optional<cddp::group> last;
    {
        std::lock_guard<std::mutex> lock(mutex_);

        last.emplace(std::move(group_));
        has_left_ = true;
    }
    ended_.notify_one();
    last.reset(); /* before the handles of works, which would wait */
    fail_all(std::make_exception_ptr(
        cddp::error(CDDP_ERR_CLOSED, "cddp: the process group was destroyed meanwhile")));
}

} // namespace cddp_torch
