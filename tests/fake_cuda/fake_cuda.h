/* fake_cuda.h - a CUDA runtime on the CPU, for tests: real headers, host memory, and streams that
 * run their work late, and in the most awkward order that CUDA allows.
 *
 * Nothing runs while the process keeps queueing work. Work runs when a thread waits for it, queries
 * it repeatedly, or when the process has queued nothing for a while (other processes may wait for
 * it). Then one thread runs the next piece of any stream that may run, by a seeded choice. For
 * about half of the waits it runs only what leads to the work that is waited for. Fresh memory and
 * freed memory are filled with 0xff in stream order (as floats: NaN). Copies from pageable memory
 * read it at once, copies from pinned memory when they run. So a missing event, or a buffer that is
 * overwritten or read too early, gives wrong numbers with some seed.
 *
 * A call that finds the queue full waits for room, and calls of other threads wait with it, since
 * the driver does not promise that they can overtake each other.
 *
 * Environment, all read when the runtime is first used:
 *   CDDP_FAKE_CUDA_SEED            seed of the order (1)
 *   CDDP_FAKE_CUDA_DEVICES         number of devices (2); CUDA_VISIBLE_DEVICES is obeyed, with
 *                                  numbers and with unique names
 *   CDDP_FAKE_CUDA_NAME            name of all devices ("Fake GPU 0", "Fake GPU 1" ...)
 *   CDDP_FAKE_CUDA_DRIVER          version that the driver supports (13000); 0: no driver
 *   CDDP_FAKE_CUDA_MEMORY          bytes of each device (4 GiB)
 *   CDDP_FAKE_CUDA_MULTIPROCESSORS number of each device (132)
 *   CDDP_FAKE_CUDA_FAIL_ALLOC      the n-th allocation of device memory fails (1 is the first)
 *   CDDP_FAKE_CUDA_FAIL_LAUNCH     the n-th kernel that runs fails with an illegal address
 *   CDDP_FAKE_CUDA_FAIL_CARD       only if it is a kernel of this card (-1: of any)
 *   CDDP_FAKE_CUDA_HANG_CARD       a process that sees this card hangs when it first uses CUDA
 *   CDDP_FAKE_CUDA_LAUNCH_ERROR    with which error (700, an illegal address)
 *   CDDP_FAKE_CUDA_REFUSE_LAUNCH   the n-th launch is refused for too many resources
 *   CDDP_FAKE_CUDA_KERNELS         a file name; at exit, the file of that name plus the rank
 *                                  gets the number of runs of each kernel
 *   CDDP_FAKE_CUDA_FAIL_PIN        the n-th allocation of pinned memory fails
 *   CDDP_FAKE_CUDA_REFUSE_CAPTURE  the n-th piece of work in captures cannot be captured
 *   CDDP_FAKE_CUDA_FAIL_GRAPH      instantiating the n-th graph finds no memory
 *   CDDP_FAKE_CUDA_IPC             0: other processes cannot open memory
 *   CDDP_FAKE_CUDA_PEERS           0: devices cannot access each other's memory
 *   CDDP_FAKE_CUDA_PARTS           1: all devices are parts of one GPU (MIG)
 *   CDDP_FAKE_CUDA_POOLS           0: no stream-ordered allocation
 *   CDDP_FAKE_CUDA_WAIT_VALUE      0: the driver has no cuStreamWaitValue32
 *   CDDP_FAKE_CUDA_IDLE_US         microseconds of "a while" above (2000)
 *   CDDP_FAKE_CUDA_NO_CODE         1: the module has no code for the GPU
 *   CDDP_FAKE_CUDA_WITHOUT         missing libraries: "cublasLt cudnn nccl nvml"
 * What NVML tells of the cards; two numbers mean at first and later ("0:2"):
 *   CDDP_FAKE_NVML_CARD            only of this card (-1: of all)
 *   CDDP_FAKE_NVML_XIDS            Xid errors, told to those who have registered: "48,79"
 *   CDDP_FAKE_NVML_ERRORS          uncorrectable memory errors (0)
 *   CDDP_FAKE_NVML_ROWS            1: rows of memory wait to be replaced, 2: they cannot be (0)
 *   CDDP_FAKE_NVML_LINKS           active NVLinks (0)
 *   CDDP_FAKE_NVML_RECOVERIES      of NVLink 2 (0)
 *   CDDP_FAKE_NVML_METERS          MiB in use, MHz, MHz of the memory, W, W at most, degrees, each
 *                                  plus the card's number; those that are missing are not measured
 *   CDDP_FAKE_NVML_THROTTLE        why clocks are low, as NVML's bits (0)
 *   CDDP_FAKE_NVML_HANG            a call that never returns: "wait", "init", "free", "measure" */
#ifndef CDDP_TESTS_FAKE_CUDA_H
#define CDDP_TESTS_FAKE_CUDA_H

/* Visible to programs that link the emulated module, like a trainer that calls CUDA itself. */
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Queue @p run in @p stream. It may run several times (replays); after that, @p drop (or NULL)
 *  gets the closure. Errors are reported by cudaGetLastError(), as for a launch; the closure is
 *  then dropped. */
void fake_cuda_launch(cudaStream_t stream, void (*run)(void *closure), void *closure,
                      void (*drop)(void *closure));

/** The number of blocks of the largest launch that has run since the last call. */
size_t fake_cuda_most_blocks(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
