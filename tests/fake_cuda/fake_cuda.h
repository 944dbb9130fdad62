/* fake_cuda.h - a CUDA runtime on the processor, for tests: real headers, host memory, and streams
 * that do what is put into them as late and in as awkward an order as CUDA allows.
 *
 * Nothing runs while the process goes on putting work into streams. It runs when somebody waits for
 * it, asks for it again and again, or has put nothing in for a while (other processes may wait for
 * it); then, in one thread, any stream whose next piece may run, by a seeded choice; for about half
 * of the waits nothing but what leads to what is waited for. Fresh memory, and memory that was
 * released, is filled with 0xff in stream order (as floats: NaN). Copies from pageable memory read
 * it at once, those from pinned memory when they run. So work that lacks an event, a buffer that is
 * written again too early or read too early give wrong numbers with some seed.
 *
 * A call that finds the queue full waits for room, and calls of other threads wait with it: the
 * driver does not promise that they get past one another.
 *
 * Environment, all read when the runtime is first used:
 *   CDDP_FAKE_CUDA_SEED            of the order (1)
 *   CDDP_FAKE_CUDA_DEVICES         how many there are (2); CUDA_VISIBLE_DEVICES is obeyed
 *   CDDP_FAKE_CUDA_NAME            what they call themselves ("Fake GPU 0", "Fake GPU 1" ...)
 *   CDDP_FAKE_CUDA_DRIVER          what the driver supports (13000); 0: there is no driver
 *   CDDP_FAKE_CUDA_MEMORY          bytes of each device (4 GiB)
 *   CDDP_FAKE_CUDA_FAIL_ALLOC      the n-th allocation of device memory fails (1 is the first)
 *   CDDP_FAKE_CUDA_FAIL_LAUNCH     the n-th kernel that runs fails: an illegal address
 *   CDDP_FAKE_CUDA_REFUSE_LAUNCH   the n-th launch is refused: too many resources
 *   CDDP_FAKE_CUDA_KERNELS         a file: with the rank behind its name it gets, at the end, how
 *                                  often each kernel has run
 *   CDDP_FAKE_CUDA_FAIL_PIN        the n-th allocation of pinned memory fails
 *   CDDP_FAKE_CUDA_REFUSE_CAPTURE  the n-th piece of work that is captured cannot be
 *   CDDP_FAKE_CUDA_FAIL_GRAPH      the n-th graph that is made executable finds no memory
 *   CDDP_FAKE_CUDA_IPC             0: memory cannot be opened by other processes
 *   CDDP_FAKE_CUDA_PEERS           0: devices do not reach each other
 *   CDDP_FAKE_CUDA_PARTS           1: all are parts of one card (MIG)
 *   CDDP_FAKE_CUDA_POOLS           0: no stream-ordered allocation
 *   CDDP_FAKE_CUDA_WAIT_VALUE      0: the driver has no cuStreamWaitValue32
 *   CDDP_FAKE_CUDA_IDLE_US         how long "a while" is (2000)
 *   CDDP_FAKE_CUDA_NO_CODE         1: the module has no code for the card
 *   CDDP_FAKE_CUDA_WITHOUT         libraries that are not there: "cublasLt cudnn nccl" */
#ifndef CDDP_TESTS_FAKE_CUDA_H
#define CDDP_TESTS_FAKE_CUDA_H

/* For programs that link the emulated module, as a trainer that calls CUDA itself. */
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Put @p run into @p stream. It may run any number of times (replays), then @p drop (or NULL) gets
 *  the closure. Errors are cudaGetLastError()'s, as of a launch; the closure is dropped then. */
void fake_cuda_launch(cudaStream_t stream, void (*run)(void *closure), void *closure,
                      void (*drop)(void *closure));

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
