/* callbacks.cpp - the threads in which futures are completed: see callbacks.hpp. */
#include "callbacks.hpp"

#include "per_process.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace cddp_torch
{

namespace
{

struct Threads {
    std::mutex mutex;
    std::condition_variable wake, quiet;
    std::deque<std::function<void()>> waiting;
    std::size_t idle = 0;
    std::size_t unfinished = 0; /* callbacks that wait or run */

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
            if (--unfinished == 0) {
                quiet.notify_all();
            }
        }
    }
};

} // namespace

void run_callback(std::function<void()> one)
{
    Threads &all = of_this_process<Threads>();
    std::lock_guard<std::mutex> lock(all.mutex);

    all.waiting.push_back(std::move(one));
    all.unfinished++;
    if (all.waiting.size() > all.idle) {
        std::thread([&all] { all.run(); }).detach();
    } else {
        all.wake.notify_one();
    }
}

void wait_for_callbacks(std::chrono::steady_clock::time_point until)
{
    Threads &all = of_this_process<Threads>();
    std::unique_lock<std::mutex> lock(all.mutex);

    (void)all.quiet.wait_until(lock, until, [&all] { return all.unfinished == 0; });
}

} // namespace cddp_torch
