/* recovery_of_cpp.cpp - a rank of a job that is killed and goes on from memory: what each kind of
 * registration gives back, and what becomes of functions that throw. Its argument says which. */
#include "include/check.hpp"

#include <cddp/cddp.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

enum { LOST_AT = 4, STEPS = 7, PART = 3 };

struct moments {
    float first;
    double second;
};

/* The state of a loop on one rank; its values are those of a step. */
struct values {
    std::vector<float> weight = std::vector<float>(10);
    std::int64_t seen = 0;
    std::vector<moments> moment = std::vector<moments>(5);
    double best = 0;
    std::array<std::int32_t, PART> own = {}; /* this rank's of those of all */
    std::uint64_t sum = 0;                   /* this rank's; of no use but all together */

    void set(std::uint64_t step, int rank)
    {
        const auto number = static_cast<float>(step);

        weight.assign(weight.size(), number);
        seen = static_cast<std::int64_t>(step) + 100;
        moment.assign(moment.size(), {number / 2, 3.0 * step_of(step)});
        best = 0.5 * step_of(step);
        for (int i = 0; i < PART; i++) {
            own[static_cast<std::size_t>(i)] = static_cast<int>(step) * 1000 + PART * rank + i;
        }
        sum = step * static_cast<std::uint64_t>(rank + 1);
    }
    /* Except for the sum. */
    bool are_of(std::uint64_t step, int rank) const
    {
        values other;

        other.set(step, rank);
        return other.weight == weight && other.seen == seen && other.best == best &&
               other.own == own && other.moment.back().first == moment.back().first &&
               other.moment.front().second == moment.front().second;
    }
    static double step_of(std::uint64_t step)
    {
        return static_cast<double>(step);
    }
};

/* A rank that has restored the sum has that of all ranks. */
static void add_sum(cddp::recovery &state, values &own, const std::string &mode, bool is_last,
                    int &parts_seen)
{
    state.add(
        "sum", sizeof own.sum,
        [&own, mode, is_last](cddp::span<unsigned char> to) {
            if (mode == "save throws" && is_last && own.seen == 102) {
                throw std::runtime_error("the ink is used up");
            }
            CHECK(to.size() == sizeof own.sum);
            std::memcpy(to.data(), &own.sum, sizeof own.sum);
        },
        [&own, mode, is_last, &parts_seen](cddp::span<const unsigned char> from, int part,
                                           int parts) {
            std::uint64_t saved = 0;

            if (mode == "load throws" && is_last && part == 1) {
                throw std::out_of_range("a sum of apples and pears");
            }
            if (mode == "load throws 5" && is_last) {
                throw 5;
            }
            if (mode == "load throws an error" && is_last) {
                throw cddp::error(CDDP_ERR_NOT_FOUND, "no such sum");
            }
            CHECK(parts == 2 && part == parts_seen && from.size() == sizeof saved);
            parts_seen++;
            std::memcpy(&saved, from.data(), sizeof saved);
            own.sum = (part == 0 ? 0 : own.sum) + saved;
        });
}

/* The last rank is killed before step LOST_AT, which all have kept. */
static void lose_a_rank(cddp::group &group)
{
    group.barrier();
    if (group.rank() == group.world_size() - 1) {
        (void)std::raise(SIGKILL);
    }
}

static void check_restored(const values &own, std::uint64_t step, int rank, int parts_seen)
{
    CHECK(step == LOST_AT && own.are_of(step, rank) && parts_seen == 2);
    CHECK(own.sum == 3 * step); /* 1 and 2 times the step */
    std::printf("rank %d goes on from step %d\n", rank, static_cast<int>(step));
}

/* Like state.step(). If that fails, the rank ends once all have said so. */
static cddp_recovery_action begin_step(cddp::group &group, cddp::recovery &state,
                                       std::uint64_t &step)
{
    try {
        return state.step(step);
    } catch (const cddp::error &failure) {
        CHECK(failure.status() == CDDP_ERR_FORMAT);
        std::printf("it failed: %s\n", failure.what());
        (void)std::fflush(stdout);
        group.barrier();
        std::exit(9);
    }
}

static void train(const std::string &mode)
{
    cddp::group group;
    const int rank = group.rank();
    const auto size = static_cast<std::uint64_t>(group.world_size());
    values own;
    cddp::params model;
    int parts_seen = 0;
    cddp_recovery_options how = cddp::recovery::options();

    how.every_steps = 1;
    how.name = "a loop";
    model.param("w", {2, 5}, own.weight).buffer("seen", {}, own.seen);
    cddp::ddp ddp(group, model);
    cddp::recovery state(group);
    {
        cddp::recovery made(group, how);

        made.add(ddp).add("moment", own.moment).add("best", own.best);
        made.add_part("own", own.own, static_cast<std::uint64_t>(PART * rank), PART * size);
        add_sum(made, own, mode, rank == group.world_size() - 1, parts_seen);
        state = std::move(made); /* the functions move, too */
    }
    own.set(0, rank);
    for (std::uint64_t step = 0;; step++) {
        const cddp_recovery_action action = begin_step(group, state, step);

        if (action == CDDP_RECOVERY_STOP) {
            break;
        }
        if (action == CDDP_RECOVERY_REPLACED) {
            check_restored(own, step, rank, parts_seen);
            CHECK(state.info().restored_step == step);
        }
        if (step == LOST_AT && group.generation() == 0 && mode != "save throws") {
            lose_a_rank(group);
        }
        own.set(step + 1, rank);
        if (step == STEPS - 1 && rank == 0) {
            cddp::request_stop();
        }
    }
    CHECK(own.are_of(STEPS, rank));
    std::printf("rank %d: %d copies, generation %d\n", rank, static_cast<int>(state.info().copies),
                static_cast<int>(group.generation()));
}

int main(int, char **arguments)
{
    try {
        train(arguments[1]);
    } catch (const cddp::error &failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
    return 0;
}
