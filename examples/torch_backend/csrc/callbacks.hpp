/* callbacks.hpp - the threads in which futures are completed. A callback may wait for another
 * collective of the same group, which the worker has to advance meanwhile, so none runs in the
 * worker's thread. */
#pragma once

#include <chrono>
#include <functional>

namespace cddp_torch
{

/* Run @p one in a thread that nobody waits for: in an idle one of these, else in a new one. They
 * live as long as the process, and are as many as callbacks have run at once. */
void run_callback(std::function<void()> one);

/* Wait until no callback runs or is about to, at most until @p until. Not from a callback. */
void wait_for_callbacks(std::chrono::steady_clock::time_point until);

} // namespace cddp_torch
