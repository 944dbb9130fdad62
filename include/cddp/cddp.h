/** @file
 *  cddp.h - process groups and gradient synchronisation for C, C++ and CUDA trainers. Includes
 *  every header of the runtime but mpi.h and parallel.h. See examples/embed/ for a small trainer
 *  that uses them. */
#ifndef CDDP_CDDP_H
#define CDDP_CDDP_H

#include <cddp/checkpoint.h>
#include <cddp/ddp.h>
#include <cddp/exchange.h>
#include <cddp/group.h>
#include <cddp/loader.h>
#include <cddp/process.h>
#include <cddp/recovery.h>
#include <cddp/sampler.h>
#include <cddp/spawn.h>
#include <cddp/status.h>
#include <cddp/store.h>
#include <cddp/types.h>

#endif
