/** @file
 *  exchange.hpp - exchanges between ranks other than tensors of equal size (exchange.h) for C++. */
#ifndef CDDP_CPP_EXCHANGE_HPP
#define CDDP_CPP_EXCHANGE_HPP

#include <cddp/cpp/group.hpp>
#include <cddp/cpp/store.hpp>
#include <cddp/exchange.h>

#include <string_view>
#include <vector>

namespace cddp
{
inline namespace v0_2
{

/** Gather blocks of different lengths from all ranks, in rank order. Collective.
 *  @param in      counts[rank] numbers.
 *  @param out     As many numbers as all @p counts together.
 *  @param counts  How many numbers each rank contributes; the same on all ranks. */
template <class I, class O>
void all_gatherv(group &among, I &&in, O &&out, const std::vector<std::size_t> &counts,
                 work *started = nullptr)
{
    auto from = detail::view(std::forward<I>(in));
    auto to = detail::view(std::forward<O>(out));
    using number = std::remove_reference_t<decltype(*to.data())>;
    std::size_t all = 0;
    cddp_work *handle = nullptr;

    static_assert(
        std::is_same_v<std::remove_cv_t<std::remove_reference_t<decltype(*from.data())>>, number>,
        "in and out hold numbers of different types");
    if (counts.size() != static_cast<std::size_t>(among.world_size())) {
        throw error(CDDP_ERR_ARGUMENT, "all_gatherv: there are " + std::to_string(counts.size()) +
                                           " counts for " + std::to_string(among.world_size()) +
                                           " ranks");
    }
    for (std::size_t count : counts) {
        all += count;
    }
    if (from.size() != counts[static_cast<std::size_t>(among.rank())] || to.size() != all) {
        throw error(CDDP_ERR_ARGUMENT,
                    "all_gatherv: in has " + std::to_string(from.size()) + " numbers, out " +
                        std::to_string(to.size()) + ", but the counts say " +
                        std::to_string(counts[static_cast<std::size_t>(among.rank())]) + " and " +
                        std::to_string(all));
    }
    check(cddp_all_gatherv(among.get(), from.data(), to.data(), counts.data(), type_of<number>(),
                           started == nullptr ? nullptr : &handle));
    if (started != nullptr) {
        started->reset(handle);
    }
}

/** Gather bytes from all ranks: one string for each rank. Collective. */
inline std::vector<std::string> all_gather_bytes(group &among, std::string_view own)
{
    std::vector<std::size_t> lengths(static_cast<std::size_t>(among.world_size()));
    std::vector<std::string> out;
    detail::given<void> all;
    const char *at;

    check(cddp_all_gather_bytes(among.get(), own.data(), own.size(), all.out(), lengths.data()));
    at = static_cast<const char *>(all.get());
    for (std::size_t length : lengths) {
        out.emplace_back(at, length);
        at += length;
    }
    return out;
}

/** Broadcast the bytes of rank @p root; @p own is ignored on other ranks. Collective. */
inline std::string broadcast_bytes(group &among, std::string_view own, int root)
{
    detail::given<void> bytes;
    std::size_t length = 0;

    check(cddp_broadcast_bytes(among.get(), own.data(), own.size(), root, bytes.out(), &length));
    return std::string(static_cast<const char *>(bytes.get()), length);
}

/** Messages that start together, so that ranks cannot deadlock whatever their order. */
class messages
{
  public:
    /** Add a message to rank @p to. @p data is not copied. */
    template <class D> messages &send(D &&data, int to)
    {
        auto numbers = detail::view(std::forward<D>(data));

        add(to, numbers).in = numbers.data();
        return *this;
    }
    /** Add a message from rank @p from. */
    template <class D> messages &recv(D &&data, int from)
    {
        auto numbers = detail::view(std::forward<D>(data));
        cddp_message &made = add(from, numbers);

        made.receives = true;
        made.out = numbers.data();
        return *this;
    }
    /** Start all messages. Returns a handle for each, in the order in which they were added. */
    std::vector<work> start(group &among) const
    {
        std::vector<cddp_work *> handles(list_.size(), nullptr);
        std::vector<work> out(list_.size());

        check(cddp_messages_start(among.get(), list_.data(), list_.size(), handles.data()));
        for (std::size_t i = 0; i < out.size(); i++) {
            out[i].reset(handles[i]);
        }
        return out;
    }
    /** Start all messages, and wait until all are done. */
    void run(group &among) const
    {
        check(cddp_messages_start(among.get(), list_.data(), list_.size(), nullptr));
    }

  private:
    template <class T> cddp_message &add(int peer, span<T> data)
    {
        cddp_message made = {};

        made.peer = peer;
        made.count = data.size();
        made.type = type_of<T>();
        list_.push_back(made);
        return list_.back();
    }

    std::vector<cddp_message> list_;
};

/** Create the group's key-value store for the caller, cddp_group_store_create(). Collective. It
 *  keeps the C handle of the group alive. */
inline store create_store(group &among)
{
    cddp_store *made = nullptr;

    check(cddp_group_store_create(among.get(), &made));
    return store(made, among.share());
}

/** The store that create_store() has created, if there is one. */
inline std::optional<store> store_of(const group &among)
{
    cddp_store *found = cddp_group_store(among.get());

    return found == nullptr ? std::nullopt : std::optional<store>(store(found, among.share()));
}

/** Whether a signal has asked any rank to stop: the same answer on all ranks. Collective. */
inline bool should_stop(group &among)
{
    bool stop = false;

    check(cddp_group_should_stop(among.get(), &stop));
    return stop;
}

} // namespace v0_2
} // namespace cddp

#endif
