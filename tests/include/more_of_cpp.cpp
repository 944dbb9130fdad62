/* more_of_cpp.cpp - the other half: everything except groups and gradients. It is a separate file,
 * so that cddp.hpp is included twice in one program. */
#include "include/all_of_cpp.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

static_assert(only_moves<cddp::loader> && only_moves<cddp::recovery>);

static std::atomic<int> allocations;
static std::atomic<int> lines;

static void *allocate(void *, std::size_t bytes, std::size_t alignment)
{
    void *memory = nullptr;

    allocations++;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

static void *resize(void *, void *memory, std::size_t bytes)
{
    allocations++;
    return std::realloc(memory, bytes);
}

static void release(void *, void *memory)
{
    std::free(memory);
}

static void forks()
{
    int own = 5; /* which ranks see */
    std::string said;

    cddp::spawn(2, [&](int rank) {
        cddp::group group;
        int sum = own + rank;

        own = 0; /* in its own copy */
        group.all_reduce(sum);
        CHECK(group.rank() == rank && sum == 11);
    });
    CHECK(own == 5);
    try {
        cddp::spawn(2, [](int rank) {
            if (rank == 1) {
                cddp::sampler(CDDP_ORDER_RANDOM, 0, 1);
            }
        });
    } catch (const cddp::error &failure) {
        CHECK(failure.status() == CDDP_ERR_ARGUMENT);
        said = failure.what();
    }
    CHECK(said.find("rank 1: ") == 0);
    try {
        cddp::spawn(2, [](int rank) {
            if (rank == 1) {
                throw std::out_of_range("row 7 of 5");
            }
        });
    } catch (const cddp::error &failure) {
        const cddp::error kept = failure;

        CHECK(std::string(kept.failure().text) == "rank 1: row 7 of 5");
        CHECK(kept.failure().rank == 1 && kept.status() == CDDP_ERR_PEER);
        CHECK(!kept.failure().is_fatal && kept.failure().operation[0] == '\0');
        own = 6;
    }
    CHECK(own == 6);
    CHECK(status_of([] { cddp::spawn(0, [](int) {}); }) == CDDP_ERR_ARGUMENT);
}

void first_of_all()
{
    cddp_allocator functions = CDDP_ALLOCATOR_INIT;

    CHECK(status_of([&] { cddp::set_allocator(functions); }) == CDDP_ERR_ARGUMENT);
    functions.alloc = allocate;
    functions.resize = resize;
    functions.release = release;
    cddp::set_allocator(functions);
    setenv("CDDP_LOG", "debug", 1);
    cddp::set_log_sink([](const cddp_log_record &) { lines = -1000; });
    cddp::set_log_sink([](const cddp_log_record &record) {
        CHECK(record.level >= CDDP_LOG_ERROR && record.level <= CDDP_LOG_DEBUG);
        CHECK(record.line[0] != '\0');
        lines++;
        throw 1; /* which harms nothing */
    });
    forks();
    CHECK(allocations > 0);
}

void bytes_and_messages(cddp::group &group)
{
    const int rank = group.rank();
    const int size = group.world_size();
    std::vector<std::size_t> counts(static_cast<std::size_t>(size));
    cddp::work work;

    std::iota(counts.begin(), counts.end(), 0); /* rank 0 has none */
    std::vector<double> own(static_cast<std::size_t>(rank), rank);
    std::vector<double> all(static_cast<std::size_t>(size * (size - 1) / 2));
    cddp::all_gatherv(group, own, all, counts);
    CHECK(size == 1 || (all.front() == 1 && all.back() == size - 1));
    all.assign(all.size(), 0);
    cddp::all_gatherv(group, own, all, counts, &work);
    work.wait();
    CHECK(size == 1 || all.back() == size - 1);
    CHECK(status_of([&] { cddp::all_gatherv(group, own, all, {}); }) == CDDP_ERR_ARGUMENT);
    own.push_back(0);
    CHECK(status_of([&] { cddp::all_gatherv(group, own, all, counts); }) == CDDP_ERR_ARGUMENT);

    const std::string text(static_cast<std::size_t>(rank), 'a');
    std::vector<std::string> texts = cddp::all_gather_bytes(group, text);
    CHECK(texts.size() == counts.size() && texts[counts.size() - 1].size() == counts.back());
    CHECK(texts[static_cast<std::size_t>(rank)] == text);
    CHECK(cddp::broadcast_bytes(group, "from " + std::to_string(rank), size - 1) ==
          "from " + std::to_string(size - 1));

    std::vector<int> got(static_cast<std::size_t>(size), -1);
    cddp::messages both;
    for (int peer = 0; peer < size; peer++) {
        if (peer != rank) {
            both.send(rank, peer).recv(got[static_cast<std::size_t>(peer)], peer);
        }
    }
    for (cddp::work &one : both.start(group)) {
        one.wait();
    }
    got[static_cast<std::size_t>(rank)] = rank;
    CHECK(got.front() == 0 && got.back() == size - 1);
    got.assign(got.size(), -1);
    both.run(group);
    CHECK(got[static_cast<std::size_t>((rank + 1) % size)] == (size > 1 ? (rank + 1) % size : -1));
    CHECK(status_of([&] { cddp::messages().send(rank, 99).run(group); }) == CDDP_ERR_ARGUMENT);
}

void keys_of_the_group(cddp::group &group)
{
    CHECK(!cddp::store_of(group).has_value());
    cddp::store store = cddp::create_store(group);
    cddp::store again = cddp::store_of(group).value();

    CHECK(store.get() == again.get());
    if (group.rank() == group.world_size() - 1) {
        store.set("last", "here");
    }
    CHECK(again.get("last") == "here");
    group.barrier(); /* rank 0 serves them */
}

static void a_loader_ends_before_its_function(cddp_loader_options how)
{
    static bool lives = true;
    std::atomic<bool> was_called{false};
    std::atomic<bool> was_late{false};
    std::atomic<bool> is_done{false};
    std::shared_ptr<bool> held(&lives, [](bool *flag) { *flag = false; });

    how.samples = 1;
    cddp::loader moved(how, [held, &was_called, &was_late, &is_done](std::uint64_t, void *) {
        std::atomic<bool> &late = was_late; /* the end of the function destroys its references */
        std::atomic<bool> &done = is_done;

        was_called = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        late = !lives;
        done = true;
    });
    held.reset();
    moved.begin(0);
    while (!was_called) {
        std::this_thread::yield();
    }
    moved = cddp::loader(how, [](std::uint64_t, void *) {});
    CHECK(is_done && !was_late && !lives);
    moved.begin(0);
    CHECK(moved.next()->size() == 1);
}

void batches(cddp::group &group)
{
    const auto size = static_cast<std::uint64_t>(group.world_size());
    cddp_loader_options how = cddp::loader::options();
    std::uint64_t bad = UINT64_MAX;

    how.samples = 4 * size + 1;
    how.batch_size = 2 * size;
    how.sample_bytes = 2 * sizeof(float);
    cddp::loader loader(group, how, [&bad](std::uint64_t index, void *out) {
        const float numbers[2] = {static_cast<float>(index), 0.5f};

        if (index == bad) {
            throw std::out_of_range("a bad sample");
        }
        std::memcpy(out, numbers, sizeof numbers);
    });
    CHECK(loader.batch_count() == 3);
    loader.begin(0);
    std::int64_t own = 0;
    while (auto batch = loader.next()) {
        auto numbers = batch->data<float>();

        CHECK(batch->total() == (batch->number() < 2 ? 2 * size : 1));
        CHECK(numbers.size() == 2 * batch->size());
        for (std::size_t i = 0; i < batch->size(); i++) {
            CHECK(numbers[2 * i] == static_cast<float>(batch->indices()[i]));
            CHECK(numbers[2 * i + 1] == 0.5f);
        }
        CHECK(status_of([&] { batch->data<std::array<char, 3>>(); }) == CDDP_ERR_ARGUMENT);
        own += static_cast<std::int64_t>(batch->size());
    }
    group.all_reduce(own);
    CHECK(own == static_cast<std::int64_t>(how.samples));

    bad = 2 * static_cast<std::uint64_t>(group.rank()); /* the first that this rank makes */
    loader.begin(1);
    std::string said;
    try {
        loader.next();
    } catch (const std::out_of_range &thrown) {
        said = thrown.what();
    }
    CHECK(said == "a bad sample");
    CHECK(status_of([&] { loader.next(); }) == CDDP_ERR_STATE); /* not the exception once more */
    bad = UINT64_MAX;
    loader.begin(1, 2);
    CHECK(loader.next()->number() == 2 && !loader.next().has_value());

    cddp::loader alone(how, [](std::uint64_t, void *) {
        cddp::check(cddp_sampler_set_epoch(nullptr, 1)); /* what C refuses */
    });
    alone.begin(0);
    CHECK(status_of([&] { alone.next(); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { cddp::loader(how, nullptr); }) == CDDP_ERR_ARGUMENT);
    if (group.rank() == 0) {
        a_loader_ends_before_its_function(how);
    }
    how.samples = 0;
    CHECK(status_of([&] { cddp::loader(how, [](std::uint64_t, void *) {}); }) == CDDP_ERR_ARGUMENT);
}

void states(cddp::group &group)
{
    const auto size = static_cast<std::uint64_t>(group.world_size());
    const auto rank = static_cast<std::uint64_t>(group.rank());
    cddp_recovery_options how = cddp::recovery::options();
    std::vector<double> numbers(3);
    std::array<float, 2> part = {};
    std::vector<int> none;
    std::uint64_t step = 5;
    const auto save = [](cddp::span<unsigned char>) {};
    const auto load = [](cddp::span<const unsigned char>, int, int) {};
    cddp::recovery state(group);

    how.flags = 1;
    CHECK(status_of([&] { cddp::recovery(group, how); }) == CDDP_ERR_UNAVAILABLE);
    state.add("numbers", numbers).add_part("part", part, 2 * rank, 2 * size);
    state.add("called", 8, save, load).add("step", step);
    CHECK(status_of([&] { state.add("part", numbers); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add("none", none); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add_part("p", part, 0, 0); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add_part("p", part, 1, 2); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add_part("p", part, UINT64_MAX / 2, 2); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add_part("p", part, 0, UINT64_MAX / 2); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add("c", 8, nullptr, load); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add("c", 8, save, nullptr); }) == CDDP_ERR_ARGUMENT);
    CHECK(status_of([&] { state.add("c", 0, save, load); }) == CDDP_ERR_ARGUMENT);
    CHECK(state.step(step) == CDDP_RECOVERY_GO_ON && step == 5);
    CHECK(status_of([&] { state.add("late", numbers); }) == CDDP_ERR_STATE);
    step++;
    CHECK(state.step(step) == CDDP_RECOVERY_GO_ON);
    CHECK(state.info().copies == 0 && state.info().restored_step == 0);
    state.refuse();
    step += rank;
    CHECK(status_of([&] { (void)state.step(step); }) == (size > 1 ? CDDP_ERR_MISMATCH : CDDP_OK));
}

void stop(cddp::group &group)
{
    cddp::stop_on_signals();
    CHECK(!cddp::stop_requested() && !cddp::should_stop(group));
    if (group.rank() == group.world_size() - 1) {
        CHECK(std::raise(SIGTERM) == 0);
    }
    CHECK(cddp::stop_requested() == (group.rank() == group.world_size() - 1));
    CHECK(cddp::should_stop(group));
    CHECK(lines > 0);
    std::uint64_t step = 0;
    CHECK(!cddp::rejoin(CDDP_OK)); /* no launcher keeps this process */
    cddp::recovery begun(group);
    CHECK(begun.add("step", step).step(step) == CDDP_RECOVERY_STOP);
}
