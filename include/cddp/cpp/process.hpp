/** @file
 *  process.hpp - settings of the whole process (process.h) for C++. */
#ifndef CDDP_CPP_PROCESS_HPP
#define CDDP_CPP_PROCESS_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/exchange.h>
#include <cddp/process.h>

#include <functional>

namespace cddp
{

/** Receives a log line. Any thread may call it, several at once if need be. Its exceptions are
 *  dropped. */
using log_sink = std::function<void(cddp_log_level level, const char *line)>;

/** Send log lines to @p sink instead of stderr; empty: stderr again. Call it before any other
 *  function of cddp, or while no other thread is in a call of cddp. */
inline void set_log_sink(log_sink sink)
{
    /* Not destroyed when the process ends: a thread of cddp may still log a line. */
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

/** Set where the memory of cddp's objects comes from. Call it before any other function of cddp. */
inline void set_allocator(const cddp_allocator &functions)
{
    check(cddp_allocator_set(&functions));
}

/** Treat SIGTERM, SIGINT, SIGHUP, SIGQUIT and SIGUSR1 as requests to stop. */
inline void stop_on_signals()
{
    cddp_stop_on_signals();
}

/** Whether a signal has asked this process to stop, without communication. */
inline bool should_stop()
{
    bool stop = false;

    check(cddp_should_stop(nullptr, &stop));
    return stop;
}

} // namespace cddp

#endif
