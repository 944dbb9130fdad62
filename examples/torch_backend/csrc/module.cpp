/* module.cpp - how ranks meet by PyTorch's store, and what Python sees. */
#include "backend.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

namespace cddp_torch
{

/* cddp_bootstrap over a store, of which each group has a part of its own. */
struct Meeting {
    c10::intrusive_ptr<c10d::Store> store;
    int rank;
    int world_size;
    int calls = 0;
    std::string why; /* the last call failed; "": it did not, or nothing is known */

    /* Keep what the store said, and who of the first awaited ranks has not come to this call. */
    void explain(const std::exception &error, int awaited)
    {
        std::string absent;

        why = error.what();
        why = why.substr(0, why.find('\n')); /* PyTorch adds where it happened */
        for (int from = 0; from < awaited; from++) {
            try {
                if (!store->check({key(from)})) {
                    absent += (absent.empty() ? "" : ", ") + std::to_string(from);
                }
            } catch (const std::exception &) {
                return;
            }
        }
        if (!absent.empty()) {
            why = "of " + std::to_string(world_size) + " ranks these did not come: " + absent +
                  ". " + why;
        }
    }
    std::string key(int of_rank)
    {
        return "cddp/" + std::to_string(calls) + "/" + std::to_string(of_rank);
    }
    void put(const void *data, std::size_t bytes)
    {
        const auto *first = static_cast<const std::uint8_t *>(data);

        store->set(key(rank), std::vector<std::uint8_t>(first, first + bytes));
    }
    cddp_status take(int from, void *out, std::size_t bytes)
    {
        std::vector<std::uint8_t> value = store->get(key(from));

        if (value.size() != bytes) {
            return cddp_fail(CDDP_ERR_FORMAT, "the store: a value has another size");
        }
        std::memcpy(out, value.data(), bytes);
        return CDDP_OK;
    }
};

/* No exception may pass through C. */
template <class F> static cddp_status guarded(Meeting *meeting, int awaited, F function)
{
    try {
        return function();
    } catch (const std::exception &error) {
        meeting->explain(error, awaited);
        return cddp_fail(CDDP_ERR_PEER, ("the store: " + meeting->why).c_str());
    }
}

static cddp_status meet_broadcast(void *state, void *data, size_t bytes)
{
    auto *meeting = static_cast<Meeting *>(state);

    return guarded(meeting, 1, [&] {
        meeting->calls++;
        if (meeting->rank == 0) {
            meeting->put(data, bytes);
            return CDDP_OK;
        }
        return meeting->take(0, data, bytes);
    });
}

static cddp_status meet_all_gather(void *state, const void *own, size_t bytes, void *out_all)
{
    auto *meeting = static_cast<Meeting *>(state);

    return guarded(meeting, meeting->world_size, [&] {
        cddp_status error = CDDP_OK;

        meeting->calls++;
        meeting->put(own, bytes);
        for (int from = 0; from < meeting->world_size && error == CDDP_OK; from++) {
            error = meeting->take(
                from, static_cast<char *>(out_all) + static_cast<std::size_t>(from) * bytes, bytes);
        }
        return error;
    });
}

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                         int size, const std::chrono::milliseconds &timeout)
{
    Meeting meeting = {store, rank, size};
    cddp_bootstrap by = CDDP_BOOTSTRAP_INIT;
    cddp_group_options how = cddp::group::options();

    by.state = &meeting;
    by.rank = rank;
    by.world_size = size;
    by.broadcast = meet_broadcast;
    by.all_gather = meet_all_gather;
    how.device = "cpu";
    how.timeout_ms = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(timeout.count(), 1, UINT32_MAX));
    try {
        cddp::group group(by, how);
        std::unique_ptr<Partings> partings;

        if (group.local_world_size() < size) {
            partings = std::make_unique<Partings>(store, rank, size);
        }
        return c10::make_intrusive<Backend>(std::move(group), Arrivals(store, rank, size, timeout),
                                            std::move(partings), timeout);
    } catch (const cddp::error &error) {
        TORCH_CHECK(false, error.what());
    }
}

} // namespace cddp_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    module.def("create", &cddp_torch::create, pybind11::call_guard<pybind11::gil_scoped_release>());
    module.def("leave", &cddp_torch::Worker::leave,
               pybind11::call_guard<pybind11::gil_scoped_release>());
    module.def("version", &cddp_version);
}
