/* arrivals.cpp - who has come to a monitored barrier: see arrivals.hpp. The errors begin with the
 * words of gloo's, which programs may look for. */
#include "arrivals.hpp"

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>

namespace cddp_torch
{

static const char all_came[] = "all came";

static std::string list_of(const std::vector<int> &ranks)
{
    std::string list;

    for (int rank : ranks) {
        list += (list.empty() ? "" : ", ") + std::to_string(rank);
    }
    return (ranks.size() == 1 ? "Rank " : "Ranks ") + list;
}

Arrivals::Arrivals(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                   std::chrono::milliseconds timeout)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout)
{
}

std::string Arrivals::key(std::uint64_t barrier, const std::string &of) const
{
    return "cddp/barrier/" + std::to_string(barrier) + "/" + of;
}

/* Whether @p key is there, now or before @p until. */
bool Arrivals::is_set(const std::string &key, clock::time_point until)
{
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now());

    if (left.count() > 0) { /* 0 would be for ever */
        try {
            store_->wait({key}, left);
            return true;
        } catch (const std::exception &) { /* that it took too long, or what the next call says */
        }
    }
    return store_->check({key});
}

std::vector<int> Arrivals::absent()
{
    std::vector<int> ranks;

    for (int rank = 0; rank < world_size_; rank++) {
        if (!store_->check({key(barrier_, std::to_string(rank))})) {
            ranks.push_back(rank);
        }
    }
    return ranks;
}

/* All have come to this barrier, so nobody looks for a key of those before. */
void Arrivals::forget()
{
    while (forgotten_ + 1 < barrier_) {
        forgotten_++;
        store_->deleteKey(key(forgotten_, "end"));
        for (int rank = 0; rank < world_size_; rank++) {
            store_->deleteKey(key(forgotten_, std::to_string(rank)));
        }
    }
}

/* How the barrier ends is decided once, by the first that knows: @p text, unless it was. */
std::string Arrivals::decide(const std::string &text)
{
    const std::vector<std::uint8_t> none;
    const std::vector<std::uint8_t> ours(text.begin(), text.end());
    const std::vector<std::uint8_t> end = store_->compareSet(key(barrier_, "end"), none, ours);

    return {end.begin(), end.end()};
}

/* On rank 0. */
void Arrivals::await_all(std::chrono::milliseconds timeout, bool name_all)
{
    const auto until = clock::now() + timeout;
    std::vector<int> late;

    for (int rank = 1; rank < world_size_ && (name_all || late.empty()); rank++) {
        if (!is_set(key(barrier_, std::to_string(rank)), until)) {
            late.push_back(rank);
        }
    }
    std::string text = all_came;
    if (late.empty()) {
        text = decide(text); /* others may have given up */
        forget();
    } else {
        text = list_of(late) + " failed to pass monitoredBarrier in " +
               std::to_string(timeout.count()) + " ms";
        (void)decide(text);
    }
    if (text != all_came) {
        C10_THROW_ERROR(DistBackendError, "[Rank 0]: " + text);
    }
}

/* On another rank: wait for what rank 0 says. */
void Arrivals::await_first(std::chrono::milliseconds timeout)
{
    std::string text;

    try {
        const std::string end = key(barrier_, "end");

        if (is_set(end, clock::now() + timeout)) {
            text = store_->get_to_str(end);
        } else {
            const std::vector<int> late = absent();

            text = late.empty() ? "all have reached it, but rank 0 did not say so"
                                : list_of(late) + " failed to reach it";
            text = decide(text + " in " + std::to_string(timeout.count()) + " ms");
        }
    } catch (const std::exception &error) { /* rank 0 has the store, and may be gone */
        text = error.what();
    }
    if (text != all_came) {
        C10_THROW_ERROR(DistBackendError,
                        "[Rank " + std::to_string(rank_) + "]: Rank " + std::to_string(rank_) +
                            " successfully reached monitoredBarrier, but received errors while "
                            "waiting for send/recv from rank 0: " +
                            text);
    }
}

void Arrivals::pass(std::chrono::milliseconds timeout, bool name_all)
{
    timeout = timeout == c10d::kUnsetTimeout ? timeout_ : timeout;
    barrier_++;
    store_->set(key(barrier_, std::to_string(rank_)), std::string("here"));
    if (rank_ == 0) {
        await_all(timeout, name_all);
    } else {
        await_first(timeout);
    }
}

} // namespace cddp_torch
