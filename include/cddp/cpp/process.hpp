/** @file
 *  process.hpp - what concerns the whole process (process.h) for C++. */
#ifndef CDDP_CPP_PROCESS_HPP
#define CDDP_CPP_PROCESS_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/exchange.h>
#include <cddp/process.h>

#include <functional>

namespace cddp
{

/** Gets a line of the log; by any thread, also by several at once. What it throws is dropped. */
using log_sink = std::function<void(cddp_log_level level, const char *line)>;

/** Let @p sink have the lines that would go to stderr; empty: to stderr again. Before other calls
 *  of cddp, or while no other thread is in one. */
inline void set_log_sink(log_sink sink)
{
    /* Not destroyed when the process ends: a thread of cddp's may still have something to say. */
    static log_sink *kept = nullptr;
    std::unique_ptr<log_sink> fresh(sink ? new log_sink(std::move(sink)) : nullptr);
    cddp_log_fn call = [](void *state, cddp_log_level level, const char *line) {
        try {
            (*static_cast<log_sink *>(state))(level, line);
        } catch (...) {
        }
    };

    cddp_log_set_sink(fresh != nullptr ? call : nullptr, fresh.get());
    delete kept;
    kept = fresh.release();
}

/** Where the memory of cddp's objects comes from. Before any other call of cddp. */
inline void set_allocator(const cddp_allocator &functions)
{
    check(cddp_allocator_set(&functions));
}

/** Let SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGUSR1 ask this process to stop. */
inline void stop_on_signals()
{
    cddp_stop_on_signals();
}

/** Whether this process was asked to end; talks to no other. */
inline bool should_stop()
{
    bool stop = false;

    check(cddp_should_stop(nullptr, &stop));
    return stop;
}

} // namespace cddp

#endif
