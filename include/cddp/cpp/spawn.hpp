/** @file
 *  spawn.hpp - ranks as forks of one program (spawn.h) for C++. */
#ifndef CDDP_CPP_SPAWN_HPP
#define CDDP_CPP_SPAWN_HPP

#include <cddp/cpp/base.hpp>
#include <cddp/spawn.h>

#include <exception>
#include <functional>

namespace cddp
{
inline namespace v0_2
{

/** The default options. */
inline cddp_spawn_options spawn_options()
{
    cddp_spawn_options how = CDDP_SPAWN_OPTIONS_INIT;

    return how;
}

/** Run @p body in @p nprocs forks of this process, and wait for them. If @p body throws in a rank,
 *  that is reported with the exception's what(): an error of cddp with its status, any other with
 *  CDDP_ERR_PEER. In a rank, the objects on the stack of @p body are destroyed, but not those of
 *  the caller. */
inline void spawn(int nprocs, const std::function<void(int rank)> &body,
                  const cddp_spawn_options &how = spawn_options())
{
    using function = std::function<void(int)>;
    function copy = body;
    cddp_spawn_fn call = [](void *state, int rank) noexcept {
        try {
            (*static_cast<function *>(state))(rank);
            return CDDP_OK;
        } catch (const error &failure) {
            return std::string(failure.what()) == cddp_last_error()
                       ? failure.status()
                       : cddp_fail(failure.status(), failure.what());
        } catch (const std::exception &failure) {
            return cddp_fail(CDDP_ERR_PEER, failure.what());
        } catch (...) {
            return cddp_fail(CDDP_ERR_PEER, "an exception that is no std::exception");
        }
    };

    check(cddp_spawn(nprocs, call, &copy, &how));
}

} // namespace v0_2
} // namespace cddp

#endif
