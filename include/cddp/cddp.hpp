/** @file
 *  cddp.hpp - cddp for C++17: move-only handles that release themselves, and exceptions. Header
 *  only; link the same libraries as a C program. All of cddp.h stays available: get() returns the C
 *  handle, and check() turns any status into an exception.
 *
 *  The C headers say which calls wait, which thread may call them, and which shape a buffer has.
 *  Here a buffer is a single number, or anything with data() and size() (vectors, arrays,
 *  std::span). */
#ifndef CDDP_CDDP_HPP
#define CDDP_CDDP_HPP

#include <cddp/cddp.h>
#include <cddp/cpp/base.hpp>
#include <cddp/cpp/checkpoint.hpp>
#include <cddp/cpp/ddp.hpp>
#include <cddp/cpp/exchange.hpp>
#include <cddp/cpp/group.hpp>
#include <cddp/cpp/loader.hpp>
#include <cddp/cpp/process.hpp>
#include <cddp/cpp/recovery.hpp>
#include <cddp/cpp/sampler.hpp>
#include <cddp/cpp/spawn.hpp>
#include <cddp/cpp/store.hpp>

#endif
