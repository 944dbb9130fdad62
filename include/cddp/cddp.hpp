/** @file
 *  cddp.hpp - the same calls for C++17: handles that are moved and release themselves, and
 * exceptions. Header only; link what C programs link. Nothing of cddp.h is hidden: get() gives the
 * handle of C, and check() turns any status into an exception.
 *
 * What waits, which thread may call, and what a buffer's shape is, the headers of C say; here a
 * buffer is anything with data() and size() (vectors, arrays, std::span), or one number. */
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
#include <cddp/cpp/sampler.hpp>
#include <cddp/cpp/spawn.hpp>
#include <cddp/cpp/store.hpp>

#endif
