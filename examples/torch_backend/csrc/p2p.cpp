/* p2p.cpp - messages with tags over cddp's: see p2p.hpp. */
#include "worker.hpp"

namespace cddp_torch
{

static std::size_t bytes_of(const at::Tensor &tensor)
{
    return static_cast<std::size_t>(tensor.nbytes());
}

static void complete(Message &message, int source)
{
    std::exception_ptr failure;

    try {
        if (message.finish) {
            message.finish();
        }
    } catch (...) {
        failure = std::current_exception();
    }
    message.work->complete(failure, source);
}

/* Of a message that came and does not fit. */
static void refuse(Message &message, int source, std::size_t bytes)
{
    message.work->complete(
        std::make_exception_ptr(cddp::error(
            CDDP_ERR_MISMATCH, "recv: rank " + std::to_string(source) + " sent " +
                                   std::to_string(bytes) + " bytes, for which a tensor of " +
                                   std::to_string(bytes_of(message.data)) + " was given")),
        source);
}

enum : std::int64_t { dropped_tag = INT64_MIN, goodbye_tag = INT64_MIN + 1 };

static std::exception_ptr has_left(int peer)
{
    return std::make_exception_ptr(cddp::error(CDDP_ERR_PEER, "recv: rank " + std::to_string(peer) +
                                                                  " has left the process group"));
}

Messages::Messages(int rank, int world_size, std::unique_ptr<Partings> partings)
    : partings_(std::move(partings)), rank_(rank), sources_(static_cast<std::size_t>(world_size))
{
}

void Messages::begin(cddp_group *group, Message message)
{
    if (!message.sends) {
        if (!deliver_early(message)) {
            wanted_.push_back(std::move(message));
            refuse_hopeless();
        }
        return;
    }
    Sent sent;
    cddp_work *work = nullptr;
    sent.header = std::make_unique<Header>(
        Header{message.tag, static_cast<std::int64_t>(bytes_of(message.data))});
    cddp::check(cddp_send(group, sent.header->data(), 2, CDDP_I64, message.peer, &work));
    sent.header_work.reset(work);
    cddp::check(cddp_send(group, message.data.data_ptr(), bytes_of(message.data), CDDP_U8,
                          message.peer, &work));
    sent.data_work.reset(work);
    sent.message = std::move(message);
    sent_.push_back(std::move(sent));
}

bool Messages::is_wanted(int peer) const
{
    for (const Message &message : wanted_) {
        if (message.peer == peer || message.peer < 0) {
            return true;
        }
    }
    return false;
}

/* Receives that nobody is left to send to: from a rank that has left, or from any when all have. */
void Messages::refuse_hopeless()
{
    int left = -1;

    for (std::size_t peer = 0; peer < sources_.size(); peer++) {
        if (sources_[peer].state == Source::gone) {
            left = static_cast<int>(peer);
        } else if (static_cast<int>(peer) != rank_) {
            left = -1;
            break;
        }
    }
    for (auto at = wanted_.begin(); at != wanted_.end();) {
        const bool is_hopeless = at->peer < 0
                                     ? left >= 0
                                     : sources_[static_cast<std::size_t>(at->peer)].state ==
                                           Source::gone;

        if (is_hopeless) {
            at->work->complete(has_left(at->peer < 0 ? left : at->peer));
            at = wanted_.erase(at);
        } else {
            ++at;
        }
    }
}

std::vector<int> Messages::who_is_here()
{
    std::vector<int> peers;

    if (partings_) {
        return partings_->begin();
    }
    for (int peer = 0; peer < static_cast<int>(sources_.size()); peer++) {
        if (peer != rank_ && sources_[static_cast<std::size_t>(peer)].state != Source::gone) {
            peers.push_back(peer);
        }
    }
    return peers;
}

void Messages::say_goodbye(cddp_group *group)
{
    const auto give_up = clock::now() + std::chrono::seconds(1);
    const std::vector<int> peers = who_is_here();

    goodbye_ = {goodbye_tag, 0};
    for (int peer : peers) {
        cddp_work *work = nullptr;

        if (cddp_send(group, goodbye_.data(), goodbye_.size(), CDDP_I64, peer, &work) == CDDP_OK) {
            goodbyes_.emplace_back();
            goodbyes_.back().reset(work);
        }
    }
    for (bool all = false; !all && clock::now() < give_up;) {
        all = true;
        for (cddp::work &work : goodbyes_) {
            bool done = false;

            all = (cddp_work_test(work.get(), &done) != CDDP_OK || done) && all;
        }
        if (!all) {
            bool done = false;

            (void)!cddp_work_wait_host(goodbyes_.back().get(), 1, &done);
        }
    }
    if (partings_) {
        partings_->said(peers);
        while (partings_->is_spoken_to() && clock::now() < give_up) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

/* The first receive that waits for such a message. */
std::optional<Message> Messages::take(int peer, std::int64_t tag)
{
    for (auto at = wanted_.begin(); at != wanted_.end(); ++at) {
        if ((at->peer == peer || at->peer < 0) && at->tag == tag) {
            Message found = std::move(*at);

            wanted_.erase(at);
            return found;
        }
    }
    return std::nullopt;
}

/* Whether what @p message wants had come before. */
bool Messages::deliver_early(Message &message)
{
    for (std::size_t peer = 0; peer < sources_.size(); peer++) {
        auto &early = sources_[peer].early;

        for (auto at = early.begin();
             at != early.end() && (message.peer < 0 || message.peer == static_cast<int>(peer));
             ++at) {
            if (at->first != message.tag) {
                continue;
            }
            if (bytes_of(at->second) != bytes_of(message.data)) {
                refuse(message, static_cast<int>(peer), bytes_of(at->second));
            } else {
                std::memcpy(message.data.data_ptr(), at->second.data_ptr(), bytes_of(at->second));
                complete(message, static_cast<int>(peer));
            }
            early.erase(at);
            return true;
        }
    }
    return false;
}

/* The header is there: its data goes to whom it is for, or is kept. */
void Messages::start_data(cddp_group *group, int peer)
{
    Source &source = sources_[static_cast<std::size_t>(peer)];
    const std::int64_t bytes = (*source.header)[1];
    cddp_work *work = nullptr;
    void *to;

    source.target = take(peer, (*source.header)[0]);
    if (source.target && static_cast<std::int64_t>(bytes_of(source.target->data)) != bytes) {
        refuse(*source.target, peer, static_cast<std::size_t>(bytes));
        source.target.reset();
        source.kept = at::empty({bytes}, at::kByte);
        (*source.header)[0] = dropped_tag; /* nobody's: dropped */
        to = source.kept.data_ptr();
    } else if (source.target) {
        to = source.target->data.data_ptr();
    } else {
        source.kept = at::empty({bytes}, at::kByte);
        to = source.kept.data_ptr();
    }
    cddp::check(cddp_recv(group, to, static_cast<std::size_t>(bytes), CDDP_U8, peer, &work));
    source.data_work.reset(work);
    source.state = Source::data_under_way;
}

bool Messages::advance_source(cddp_group *group, int peer)
{
    Source &source = sources_[static_cast<std::size_t>(peer)];
    cddp_work *work = nullptr;

    switch (source.state) {
    case Source::idle:
        if (!is_wanted(peer)) {
            return false;
        }
        if (partings_ && !source.was_here) {
            source.was_here = !partings_->has_left(peer);
            if (!source.was_here) {
                source.state = Source::gone;
                refuse_hopeless();
                return true;
            }
        }
        cddp::check(cddp_recv(group, source.header->data(), 2, CDDP_I64, peer, &work));
        source.header_work.reset(work);
        source.state = Source::header_under_way;
        return true;
    case Source::header_under_way:
        if (!source.header_work.test()) {
            return false;
        }
        source.header_work.wait(); /* its error, if there is one */
        if ((*source.header)[0] == goodbye_tag) {
            source.state = Source::gone;
            refuse_hopeless();
            return true;
        }
        start_data(group, peer);
        return true;
    case Source::gone:
        return false;
    default:
        break;
    }
    if (!source.data_work.test()) {
        return false;
    }
    source.data_work.wait();
    source.state = Source::idle;
    if (source.target) {
        Message done = std::move(*source.target);

        source.target.reset();
        complete(done, peer);
    } else if ((*source.header)[0] != dropped_tag) {
        auto now = take(peer, (*source.header)[0]); /* asked for meanwhile */

        source.early.emplace_back((*source.header)[0], std::move(source.kept));
        if (now && !deliver_early(*now)) {
            wanted_.push_front(std::move(*now));
        }
    }
    return true;
}

bool Messages::advance(cddp_group *group)
{
    bool moved = false;

    for (auto at = sent_.begin(); at != sent_.end();) {
        if (at->header_work.test() && at->data_work.test()) {
            at->header_work.wait();
            at->data_work.wait();
            complete(at->message, -1);
            at = sent_.erase(at);
            moved = true;
        } else {
            ++at;
        }
    }
    for (int peer = 0; peer < static_cast<int>(sources_.size()); peer++) {
        while (peer != rank_ && advance_source(group, peer)) {
            moved = true;
        }
    }
    return moved;
}

bool Messages::has_sends() const
{
    return !sent_.empty();
}

cddp_work *Messages::under_way() const
{
    for (const Source &source : sources_) {
        if (source.state != Source::idle && source.state != Source::gone) {
            return (source.state == Source::header_under_way ? source.header_work
                                                             : source.data_work)
                .get();
        }
    }
    return sent_.empty() ? nullptr : sent_.front().data_work.get();
}

bool Messages::is_busy() const
{
    return !sent_.empty() || !wanted_.empty() ||
           std::any_of(sources_.begin(), sources_.end(),
                       [](const Source &source) { return source.target.has_value(); });
}

void Messages::fail_all(const std::exception_ptr &failure)
{
    for (Sent &sent : sent_) {
        sent.message.work->complete(failure);
    }
    for (Source &source : sources_) {
        if (source.target) {
            source.target->work->complete(failure);
        }
        source.target.reset();
    }
    for (Message &message : wanted_) {
        message.work->complete(failure);
    }
    sent_.clear();
    wanted_.clear();
}

} // namespace cddp_torch
