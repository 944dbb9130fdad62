/** @file
 *  process.hpp - settings of the whole process (process.h) for C++. */
#ifndef CDDP_CPP_PROCESS_HPP
#define CDDP_CPP_PROCESS_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/process.h>

#include <functional>
#include <initializer_list>

namespace cddp
{
inline namespace v0_2
{

/** Receives a log line. Any thread may call it, several at once if need be. Its exceptions are
 *  dropped. */
using log_sink = std::function<void(const cddp_log_record &record)>;

/** Send log lines to @p sink instead of stderr; empty: stderr again. Call it before any other
 *  function of cddp, or while no other thread is in a call of cddp. */
inline void set_log_sink(log_sink sink)
{
    /* Not destroyed when the process ends: a thread of cddp may still log a line. */
    static log_sink *kept = nullptr;
    std::unique_ptr<log_sink> fresh(sink ? new log_sink(std::move(sink)) : nullptr);
    cddp_log_fn call = [](void *state, const cddp_log_record *record) {
        try {
            (*static_cast<log_sink *>(state))(*record);
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

/** Log lines up to @p level from now on, whatever $CDDP_LOG says. */
inline void set_log_level(cddp_log_level level)
{
    cddp_log_set_level(level);
}

/** Treat @p signals as requests to stop; none: SIGTERM, SIGINT, SIGHUP and SIGQUIT. */
inline void stop_on_signals(std::initializer_list<int> signals = {})
{
    check(cddp_stop_on_signals(signals.size() > 0 ? signals.begin() : nullptr, signals.size()));
}

/** Request this process to stop. Any thread, and signal handlers. */
inline void request_stop() noexcept
{
    cddp_stop_request();
}

/** Whether this process was requested to stop, without communication. */
inline bool stop_requested() noexcept
{
    return cddp_stop_requested();
}

} // namespace v0_2
} // namespace cddp

#endif
