/* partings.cpp - who has left a process group: see partings.hpp. Each of two ranks writes first and
 * reads then, so at least one of them sees the other. */
#include "partings.hpp"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace cddp_torch
{

static bool is_native(const c10::intrusive_ptr<c10d::Store> &store)
{
    auto *prefixed = dynamic_cast<c10d::PrefixStore *>(store.get());
    c10::intrusive_ptr<c10d::Store> inner = prefixed != nullptr
                                                ? prefixed->getUnderlyingNonPrefixStore()
                                                : store;

    return dynamic_cast<c10d::TCPStore *>(inner.get()) != nullptr ||
           dynamic_cast<c10d::FileStore *>(inner.get()) != nullptr ||
           dynamic_cast<c10d::HashStore *>(inner.get()) != nullptr;
}

static std::string key(const std::string &what, int of_rank)
{
    return "cddp/" + what + "/" + std::to_string(of_rank);
}

Partings::Partings(const c10::intrusive_ptr<c10d::Store> &store, int rank, int world_size)
    : store_(is_native(store) ? store->clone() : nullptr), rank_(rank), world_size_(world_size)
{
}

bool Partings::has(const std::string &what, int of_rank)
{
    return store_ && store_->check({key(what, of_rank)});
}

std::int64_t Partings::add(const std::string &what, std::int64_t number)
{
    return store_ ? store_->add(what, number) : 0;
}

bool Partings::has_left(int peer)
{
    try {
        if (!listens_) {
            listens_ = true;
            (void)add(key("listens", rank_), 1);
            (void)add("cddp/listeners", 1);
        }
        return has("left", peer);
    } catch (const std::exception &) {
        return false;
    }
}

std::vector<int> Partings::begin()
{
    std::vector<int> peers;

    try {
        (void)add(key("left", rank_), 1);
        if (add("cddp/listeners", 0) == 0) {
            return peers;
        }
        for (int peer = 0; peer < world_size_; peer++) {
            if (peer == rank_ || !has("listens", peer)) {
                continue;
            }
            (void)add(key("spoken-to", peer), 1);
            peers.push_back(peer);
            if (has("left", peer)) {
                (void)add(key("spoken-to", peer), -1);
                peers.pop_back();
            }
        }
    } catch (const std::exception &) { /* those that were found are there */
    }
    return peers;
}

void Partings::said(const std::vector<int> &peers)
{
    try {
        for (int peer : peers) {
            (void)add(key("spoken-to", peer), -1);
        }
    } catch (const std::exception &) { /* then nobody can read it either */
    }
}

bool Partings::is_spoken_to()
{
    try {
        return listens_ && add(key("spoken-to", rank_), 0) > 0;
    } catch (const std::exception &) {
        return false;
    }
}

} // namespace cddp_torch
