/* p2p.hpp - messages with tags, and from any source, over cddp's, which are ordered between each
 * pair and have neither: a header of tag and length goes before each. */
#pragma once

#include "partings.hpp"

#include <ATen/ATen.h>
#include <cddp/cddp.hpp>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <optional>
#include <thread>

namespace cddp_torch
{

class Work;

/* A send, or a receive, which PyTorch asked for. */
struct Message {
    bool sends;
    int peer; /* -1: a receive from any */
    std::int64_t tag;
    at::Tensor data; /* contiguous, on the processor */
    std::function<void()> finish;
    c10::intrusive_ptr<Work> work;
};

/* All functions are called by the worker's thread. */
class Messages
{
  public:
    /* @p partings: null where all ranks are on one machine, whose transport bears a message to a
     * rank that has left. */
    Messages(int rank, int world_size, std::unique_ptr<Partings> partings);
    void begin(cddp_group *group, Message message);
    /* Start what can be started, and complete what is done: whether there was something. */
    bool advance(cddp_group *group);
    /* Whether something is under way that somebody waits for. */
    bool is_busy() const;
    bool has_sends() const;
    /* Something to wait for; NULL: there is nothing. */
    cddp_work *under_way() const;
    /* The last call before the group is destroyed: peers that wait for a message from any rank do
     * not wait for this one. Takes a second at most. */
    void say_goodbye(cddp_group *group);
    /* Let nobody wait any longer. */
    void fail_all(const std::exception_ptr &failure);

  private:
    using clock = std::chrono::steady_clock;
    using Header = std::array<std::int64_t, 2>; /* tag, bytes */
    struct Sent {
        Message message;
        std::unique_ptr<Header> header;
        cddp::work header_work, data_work;
    };
    /* Receives from one peer, one message at a time. */
    struct Source {
        std::unique_ptr<Header> header = std::make_unique<Header>();
        cddp::work header_work, data_work;
        enum { idle, header_under_way, data_under_way, gone } state = idle;
        bool was_here = false;         /* when a receive from it was begun for the first time */
        std::optional<Message> target; /* of the data under way; none: it is kept */
        at::Tensor kept;
        std::list<std::pair<std::int64_t, at::Tensor>> early; /* tag, bytes: nobody wanted it yet */
    };

    std::vector<int> who_is_here();
    bool is_wanted(int peer) const;
    std::optional<Message> take(int peer, std::int64_t tag);
    bool deliver_early(Message &message);
    void refuse_hopeless();
    void start_data(cddp_group *group, int peer);
    bool advance_source(cddp_group *group, int peer);

    std::unique_ptr<Partings> partings_;
    int rank_;
    Header goodbye_ = {};
    std::vector<cddp::work> goodbyes_;
    std::vector<Source> sources_;
    std::list<Sent> sent_;
    std::list<Message> wanted_; /* in the order in which they were posted */
};

} // namespace cddp_torch
