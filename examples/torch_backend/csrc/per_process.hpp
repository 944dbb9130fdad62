/* per_process.hpp - what each process has for itself: after a fork the parent's threads are not
 * there, and its locks may be held for ever. */
#pragma once

#include <mutex>

#include <unistd.h>

namespace cddp_torch
{

/* The one T of this process. It is never destroyed: threads may use it until the process ends. */
template <class T> T &of_this_process()
{
    static std::mutex mutex;
    static T *ours;
    static pid_t process;
    std::lock_guard<std::mutex> lock(mutex);

    if (ours == nullptr || process != getpid()) {
        ours = new T;
        process = getpid();
    }
    return *ours;
}

} // namespace cddp_torch
