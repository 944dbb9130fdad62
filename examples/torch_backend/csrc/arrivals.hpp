/* arrivals.hpp - who has come to a monitored barrier, by PyTorch's store: the group's own
 * operations are not touched, so that one that hangs does not matter, nor does a barrier that
 * failed. */
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace cddp_torch
{

/* Of a process group. One thread at a time. */
class Arrivals
{
  public:
    /* @p store: of this group alone. @p timeout: of a barrier that has none of its own. */
    Arrivals(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
             std::chrono::milliseconds timeout);
    /* Wait until all ranks have come, which rank 0 finds and says. Else an error names, on rank 0,
     * the first that has not come within its @p timeout, or all of them; on the others, who was not
     * there then. All ranks call it equally often: who comes late to a barrier gets an error. */
    void pass(std::chrono::milliseconds timeout, bool name_all);

  private:
    using clock = std::chrono::steady_clock;

    std::string key(std::uint64_t barrier, const std::string &of) const;
    bool is_set(const std::string &key, clock::time_point until);
    std::vector<int> absent();
    std::string decide(const std::string &text);
    void await_all(std::chrono::milliseconds timeout, bool name_all);
    void await_first(std::chrono::milliseconds timeout);
    void forget();

    c10::intrusive_ptr<c10d::Store> store_;
    int rank_, world_size_;
    std::chrono::milliseconds timeout_;
    std::uint64_t barrier_ = 0;   /* the last one */
    std::uint64_t forgotten_ = 0; /* its keys, and those of all before it, are deleted */
};

} // namespace cddp_torch
