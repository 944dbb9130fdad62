/* refused.cpp - what cddp.hpp refuses when it is compiled: test_cpp.c compiles each case, and case
 * 0, which is right. */
#include <cddp/cddp.hpp>

#include <utility>
#include <vector>

void use(cddp::group &group, std::vector<float> &numbers, cddp::recovery &state);

void use(cddp::group &group, std::vector<float> &numbers, cddp::recovery &state)
{
    cddp::messages messages;
    cddp::params params;
    cddp::tensors tensors;

#if CASE == 0
    group.all_reduce(cddp::span<float>(numbers));
    messages.send(cddp::span<const float>(numbers), 1);
    cddp::params moved = std::move(params);
    cddp::tensors kept = std::move(tensors);
    state.add("numbers", numbers).add("some", cddp::span<float>(numbers));
#elif CASE == 1
    group.all_reduce(5.0);
#elif CASE == 2
    group.all_reduce(std::vector<float>{1});
#elif CASE == 3
    messages.send(std::vector<float>{1}, 1);
#elif CASE == 4
    params.param("w", {1}, std::vector<float>{1});
#elif CASE == 5
    group.all_gather(std::vector<float>{1}, numbers);
#elif CASE == 6
    cddp::params copied = params;
#elif CASE == 7
    cddp::tensors copied = tensors;
#elif CASE == 8
    state.add("numbers", std::vector<float>{1});
#elif CASE == 9
    state.add_part("numbers", std::vector<float>{1}, 0, 2);
#elif CASE == 10
    state.add("numbers", std::as_const(numbers));
#elif CASE == 11
    std::vector<std::vector<float>> lists;
    state.add("lists", lists);
#endif
}
