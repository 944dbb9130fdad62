/* callbacks.cpp - the threads in which futures are completed: see callbacks.hpp. */
#include "callbacks.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace cddp_torch
{

namespace
{

struct Threads {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> waiting;
    std::size_t idle = 0;
    pid_t process = getpid();

    void run()
    {
        std::unique_lock<std::mutex> lock(mutex);

        while (true) {
            idle++;
            wake.wait(lock, [this] { return !waiting.empty(); });
            idle--;
            std::function<void()> one = std::move(waiting.front());
            waiting.pop_front();
            lock.unlock();
            one();
            one = nullptr; /* what it holds ends before the lock is taken */
            lock.lock();
        }
    }
};

/* Never destroyed: at the end of the process a callback may still be waiting. A fork has its own,
 * since the threads are the parent's. */
Threads &threads()
{
    static std::mutex mutex;
    static Threads *ours;
    std::lock_guard<std::mutex> lock(mutex);

    if (ours == nullptr || ours->process != getpid()) {
        ours = new Threads;
    }
    return *ours;
}

} // namespace

void run_callback(std::function<void()> one)
{
    Threads &all = threads();
    std::lock_guard<std::mutex> lock(all.mutex);

    all.waiting.push_back(std::move(one));
    if (all.waiting.size() > all.idle) {
        std::thread([&all] { all.run(); }).detach();
    } else {
        all.wake.notify_one();
    }
}

} // namespace cddp_torch
