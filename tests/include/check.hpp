/* check.hpp - a rank in C++ ends where something is not so. */
#ifndef CDDP_TESTS_INCLUDE_CHECK_HPP
#define CDDP_TESTS_INCLUDE_CHECK_HPP

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);           \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

#endif
