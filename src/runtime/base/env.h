/* env.h - every environment variable that cddp itself reads, one row each. `cddp-run --env` prints
 * the table. (src/runtime/group/launch/launch_claim.c and the files beside it read the variables of
 * other launchers.) */
#ifndef CDDPI_ENV_H
#define CDDPI_ENV_H

#include "base/shared.h"

#include <stddef.h>
#include <stdint.h>

/* id, name, default as text ("" = unset), sentence */
#define CDDPI_ENV_MAP(X)                                                                           \
    X(RANK, "CDDP_RANK", "", "this process's rank; set by cddp-run")                               \
    X(WORLD_SIZE, "CDDP_WORLD_SIZE", "", "number of ranks of the job; set by cddp-run")            \
    X(LOCAL_RANK, "CDDP_LOCAL_RANK", "", "rank among those of this machine; set by cddp-run")      \
    X(LOCAL_WORLD_SIZE, "CDDP_LOCAL_WORLD_SIZE", "",                                               \
      "number of ranks on this machine; set by cddp-run")                                          \
    X(STORE, "CDDP_STORE", "",                                                                     \
      "where ranks meet: tcp://host:port or file:///path; set by cddp-run, or by you for rank 0 "  \
      "of a Slurm step on several nodes or of an indexed Job")                                     \
    X(TOKEN, "CDDP_TOKEN", "",                                                                     \
      "the job's secret, which every rank must prove that it knows; set by cddp-run")              \
    X(JOB, "CDDP_JOB", "", "the job's id, part of every key in the store; set by cddp-run")        \
    X(GENERATION, "CDDP_GENERATION", "0",                                                          \
      "number of times that the job's ranks were started again, so that no rank reads old keys; "  \
      "set by cddp-run")                                                                           \
    X(GENERATION_REASON, "CDDP_GENERATION_REASON", "",                                             \
      "why this generation follows the one before, in words; set by cddp-run")                     \
    X(HOST_ID, "CDDP_HOST_ID", "",                                                                 \
      "the host of this rank: ranks with the same host share memory; unset: the kernel's boot "    \
      "id, the host name and the process namespace")                                               \
    X(DEVICE, "CDDP_DEVICE", "cpu",                                                                \
      "where process groups have their memory: cpu, cuda (the local rank's device) or cuda:N")     \
    X(BACKEND, "CDDP_BACKEND", "",                                                                 \
      "backend of process groups: host or solo, on a CUDA device also nccl, ipc or staged; "       \
      "unset: the best one here")                                                                  \
    X(CUDA_MODULE, "CDDP_CUDA_MODULE", "",                                                         \
      "file of the CUDA module; unset: libcddp-cuda.so beside the program or the library")         \
    X(MPI_MODULE, "CDDP_MPI_MODULE", "",                                                           \
      "file of the MPI module; unset: libcddp-mpi.so beside the program or the library")           \
    X(MIXED_LIBRARIES, "CDDP_MIXED_LIBRARIES", "0",                                                \
      "1: of cuBLASLt, cuDNN and NCCL, some may come from the system and others from Python's "    \
      "wheels; 0: that is an error")                                                               \
    X(TIMEOUT_MS, "CDDP_TIMEOUT_MS", "300000",                                                     \
      "deadline for joining and for each collective, in milliseconds")                             \
    X(HEARTBEAT_MS, "CDDP_HEARTBEAT_MS", "10000",                                                  \
      "a host that has not answered for this many milliseconds is lost, within two seconds "       \
      "more; for cddp-run at least 1000")                                                          \
    X(SETTLE_MS, "CDDP_SETTLE_MS", "3000",                                                         \
      "a job with --nnodes MIN:MAX that has MIN machines begins when no other has come for this "  \
      "many milliseconds")                                                                         \
    X(STRAGGLER_MS, "CDDP_STRAGGLER_MS", "5000",                                                   \
      "after a collective has waited this many milliseconds, a warning names the ranks that "      \
      "it waits for; 0: never")                                                                    \
    X(SOCKET_IFNAME, "CDDP_SOCKET_IFNAME", "",                                                     \
      "network interfaces to use between hosts, as in NCCL_SOCKET_IFNAME: beginnings of names "    \
      "with commas between them; after ^: those not to use; after =: whole names; unset: all")     \
    X(CARRIER, "CDDP_CARRIER", "",                                                                 \
      "what carries data between machines: tcp or mpi; unset: mpi if mpirun started the ranks "    \
      "and the MPI module is there, else tcp")                                                     \
    X(SOCKETS, "CDDP_SOCKETS", "2",                                                                \
      "number of TCP connections between two hosts for each kind of traffic; the same on all "     \
      "ranks")                                                                                     \
    X(LEADERS, "CDDP_LEADERS", "",                                                                 \
      "how many ranks of each machine exchange data with other machines, 1 to 4; the same on "     \
      "all ranks; unset: 1, or more if that is measured to be faster")                             \
    X(CONGESTION, "CDDP_CONGESTION", "",                                                           \
      "the kernel's congestion control for TCP connections that carry data; system: this "         \
      "host's default; unset: the default, but reno instead of bbr between near hosts")            \
    X(ENCRYPT, "CDDP_ENCRYPT", "0",                                                                \
      "1: also encrypt data between hosts, and use TCP only, unless CDDP_CARRIER or "              \
      "CDDP_BACKEND names MPI or NCCL, which cannot encrypt; 0: encrypt only connections to "      \
      "the store and control connections; the same on all ranks")                                  \
    X(CIPHER, "CDDP_CIPHER", "",                                                                   \
      "the only cipher allowed: aes256gcm or chacha20; unset: aes256gcm if both CPUs have "        \
      "instructions for it, else chacha20")                                                        \
    X(THREADS, "CDDP_THREADS", "",                                                                 \
      "compute threads of a rank; unset: 1, except that initial parameters are drawn by as "       \
      "many threads as the rank has cores")                                                        \
    X(MAX_ISA, "CDDP_MAX_ISA", "",                                                                 \
      "the newest x86 instructions to use: generic, avx2, avx512 or amx; unset: all that the "     \
      "CPU has")                                                                                   \
    X(SPIN_US, "CDDP_SPIN_US", "",                                                                 \
      "for how many microseconds a waiting rank spins before it sleeps; unset: 50, or 0 if "       \
      "ranks outnumber cores")                                                                     \
    X(COMM_THREAD, "CDDP_COMM_THREAD", "",                                                         \
      "1: a thread of its own advances collectives that overlap with compute; 0: the compute "     \
      "thread does; unset: 1 if the rank has a core to spare, else 0, except between machines "    \
      "by TCP, where both threads do it in turn")                                                  \
    X(SHARE_GRADS, "CDDP_SHARE_GRADS", "",                                                         \
      "0: copy the caller's gradient block (flat_grads) at each step, even if the caller lets "    \
      "ranks share its pages (share_flat_grads); unset or 1: as the caller says")                  \
    X(PRODUCTS, "CDDP_PRODUCTS", "",                                                               \
      "how to choose an algorithm for products on a CUDA device: first (the library's "            \
      "choice), same (the fastest with the same bits as that one) or fast (the fastest; bits "     \
      "may differ between runs); unset: same, or fast without ddp.deterministic")                  \
    X(CACHE, "CDDP_CACHE", "",                                                                     \
      "folder where choices that were measured on a CUDA device are kept for later runs; off: "    \
      "each run measures; unset: cddp in $XDG_CACHE_HOME, else ~/.cache/cddp")                     \
    X(TF32, "CDDP_TF32", "0",                                                                      \
      "1: float32 products and convolutions on a CUDA device round their factors to TF32, "        \
      "which is faster")                                                                           \
    X(LOG, "CDDP_LOG", "warn", "what the library prints: off, error, warn, info or debug")         \
    X(PROGRESS, "CDDP_PROGRESS", "",                                                               \
      "how rank 0 shows progress: tty (one line, redrawn), plain (a line every few seconds) "      \
      "or off; unset: tty if stderr is a terminal, else plain")                                    \
    X(RUN_DIR, "CDDP_RUN_DIR", "", "folder of this run's files; set by cddp-run --run-dir")        \
    X(DUMP_DIR, "CDDP_DUMP_DIR", "",                                                               \
      "when a group fails, each rank writes its last 1000 operations to "                          \
      "collectives/rank-R.json in this folder; unset: CDDP_RUN_DIR, or for cddp-train the "        \
      "run's folder; without either, nothing is written")                                          \
    X(DUMP_SIGNAL, "CDDP_DUMP_SIGNAL", "",                                                         \
      "USR1 or USR2: a rank that gets this signal writes the same file, unless the program "       \
      "handles the signal itself; unset: none (cddp-train does it for SIGUSR1)")                   \
    X(TRACE, "CDDP_TRACE", "",                                                                     \
      "steps to trace, such as 10-20 or 10, counted from 1: each rank writes "                     \
      "trace/rank-R.json in the folder of CDDP_DUMP_DIR, for cddp-trace; unset: none")             \
    X(PROFILE, "CDDP_PROFILE", "",                                                                 \
      "file for a profile: the time, bytes and operations of every kernel of a step on a CUDA "    \
      "device, a JSON object per line; ranks above 0 add their number to the name")                \
    X(ARRIVALS, "CDDP_ARRIVALS", "",                                                               \
      "file to which rank 0 of cddp-train writes when the gradients of a step become ready "       \
      "(medians over the last steps), a JSON object per line; on the CPU only")                    \
    X(AVAILABLE_CORES, "CDDP_AVAILABLE_CORES", "",                                                 \
      "how many cores cddp-run --nproc auto has found, when it asks cddp-train how many ranks "    \
      "make sense; set by cddp-run")                                                               \
    X(LAUNCH, "CDDP_LAUNCH", "",                                                                   \
      "the words before train.conf on cddp-run's command line, for the command that continues "    \
      "a stopped run; set by cddp-run")                                                            \
    X(INHERITED, "CDDP_INHERITED", "",                                                             \
      "variables of other launchers that ranks inherited through cddp-run, as digests, so "        \
      "that ranks ignore them; set by cddp-run")                                                   \
    X(REPORT_FD, "CDDP_REPORT_FD", "",                                                             \
      "a pipe to cddp-run, through which a rank that was asked to end reports that it is "         \
      "still saving; set by cddp-run")                                                             \
    X(LAUNCHER_PID, "CDDP_LAUNCHER_PID", "",                                                       \
      "process id of the cddp-run that sends signals to this rank: a rank tells it of those "      \
      "that others send; set by cddp-run")                                                         \
    X(KEEP_FDS, "CDDP_KEEP_FDS", "",                                                               \
      "descriptors of memory that cddp-run holds until the job ends, the first for local rank 0: " \
      "a restart can go on from what ranks keep there; set by cddp-run")                           \
    X(REJOIN_FD, "CDDP_REJOIN_FD", "",                                                             \
      "a socket through which a rank's process asks cddp-run for a place in the job's next "       \
      "generation, when other ranks were lost; set by cddp-run")

/* The id of the first row of each subject, and its name */
#define CDDPI_ENV_SUBJECT_MAP(X)                                                                   \
    X(RANK, "Which rank this is, and where ranks meet")                                            \
    X(DEVICE, "Devices, backends and modules")                                                     \
    X(TIMEOUT_MS, "Time limits")                                                                   \
    X(SOCKET_IFNAME, "Between machines")                                                           \
    X(THREADS, "Speed")                                                                            \
    X(LOG, "What is printed and written")                                                          \
    X(AVAILABLE_CORES, "Between cddp-run and its ranks")

enum cddpi_env {
#define CDDPI_ENV_ID(id, name, fallback, text) CDDPI_ENV_##id,
    CDDPI_ENV_MAP(CDDPI_ENV_ID)
#undef CDDPI_ENV_ID
        CDDPI_ENV_COUNT
};

struct cddpi_env_row {
    const char *name;
    const char *fallback;
    const char *text;
};

extern const struct cddpi_env_row cddpi_env_rows[CDDPI_ENV_COUNT];

/** The variable's value, or its default if the variable is unset or "". NULL: it has no default
 *  either. */
CDDPI_SHARED const char *cddpi_env(enum cddpi_env variable);

/** The variable as an integer. Gives @p otherwise if cddpi_env() gives NULL, and, after a warning
 *  in the log, if the text is not a number in [@p low, @p high]. */
CDDPI_SHARED int64_t cddpi_env_integer(enum cddpi_env variable, int64_t low, int64_t high,
                                       int64_t otherwise);

/** CDDP_TIMEOUT_MS: how long to wait for something that another rank, thread or device should do
 *  soon. */
CDDPI_SHARED uint32_t cddpi_env_timeout_ms(void);

#endif
