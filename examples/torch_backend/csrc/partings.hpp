/* partings.hpp - who has left a process group, and who would wait for it, by PyTorch's store.
 * Between hosts a message to a rank that has left ends the whole group there, and so does a receive
 * from it: so a rank that leaves says goodbye to those alone that still listen, and who listens
 * looks first at whether the other one is there. */
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

namespace cddp_torch
{

/* Of a process group. All functions are called by the worker's thread. A store that is gone, since
 * the process that serves it has ended, is as one that nobody has written to. */
class Partings
{
  public:
    /* @p store: of this group alone. One that is written in Python is not used: it would want its
     * interpreter where that waits for this thread. */
    Partings(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world_size);
    /* Whether @p peer has left. If not it will say goodbye to this rank when it leaves, for it can
     * see from now on that this rank listens. */
    bool has_left(int peer);
    /* This rank leaves: the peers that want a goodbye and will be there until it was said(). */
    std::vector<int> begin();
    void said(const std::vector<int> &peers);
    /* This rank leaves: whether a peer says goodbye to it right now. */
    bool is_spoken_to();

  private:
    bool has(const std::string &what, int of_rank);
    std::int64_t add(const std::string &what, std::int64_t number);

    c10::intrusive_ptr<c10d::Store> store_; /* null: there is none */
    int rank_, world_size_;
    bool listens_ = false;
};

} // namespace cddp_torch
