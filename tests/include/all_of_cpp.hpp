/* all_of_cpp.hpp - shared by the two halves of the C++ rank. */
#ifndef CDDP_TESTS_INCLUDE_ALL_OF_CPP_HPP
#define CDDP_TESTS_INCLUDE_ALL_OF_CPP_HPP

#include "include/check.hpp"

#include <cddp/cddp.hpp>

#include <functional>

template <class T>
constexpr bool only_moves = std::is_move_constructible_v<T> &&std::is_move_assignable_v<T> &&
                            !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;

/* The status that @p call throws; CDDP_OK: it threw nothing. */
cddp_status status_of(const std::function<void()> &call);

/* Before any group. */
void first_of_all();
void bytes_and_messages(cddp::group &group);
void keys_of_the_group(cddp::group &group);
void batches(cddp::group &group);
/* Without a launcher that holds memory. */
void states(cddp::group &group);
/* The last: the process was asked to stop. */
void stop(cddp::group &group);

#endif
