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
      "the job's secret: whoever joins the store must know it; set by cddp-run")                   \
    X(JOB, "CDDP_JOB", "", "the job's id, part of every key in the store; set by cddp-run")        \
    X(GENERATION, "CDDP_GENERATION", "0",                                                          \
      "grows with each restart of the job, so that nothing stale is read; set by cddp-run")        \
    X(HOST_ID, "CDDP_HOST_ID", "",                                                                 \
      "which host this rank is on: ranks with the same one share memory; unset: told by the "      \
      "kernel's boot id, the host name and the process namespace")                                 \
    X(DEVICE, "CDDP_DEVICE", "cpu",                                                                \
      "where process groups have their memory: cpu, cuda (the local rank's device) or cuda:N")     \
    X(BACKEND, "CDDP_BACKEND", "",                                                                 \
      "process group backend: host or solo, on a CUDA device also nccl, ipc or staged; "           \
      "unset: the best here")                                                                      \
    X(CUDA_MODULE, "CDDP_CUDA_MODULE", "",                                                         \
      "file of the CUDA module; unset: libcddp-cuda.so beside the program or the library")         \
    X(MPI_MODULE, "CDDP_MPI_MODULE", "",                                                           \
      "file of the MPI module; unset: libcddp-mpi.so beside the program or the library")           \
    X(MIXED_LIBRARIES, "CDDP_MIXED_LIBRARIES", "0",                                                \
      "1: cuBLASLt, cuDNN and NCCL may come some from the system and some from Python's wheels; "  \
      "else that is an error")                                                                     \
    X(TIMEOUT_MS, "CDDP_TIMEOUT_MS", "300000",                                                     \
      "deadline of joining and of each collective, in milliseconds")                               \
    X(HEARTBEAT_MS, "CDDP_HEARTBEAT_MS", "10000",                                                  \
      "another host that does not answer for so many milliseconds, and up to two seconds more, "   \
      "is lost; for cddp-run at least 1000")                                                       \
    X(STRAGGLER_MS, "CDDP_STRAGGLER_MS", "5000",                                                   \
      "a warning names the ranks for which a collective has waited so long; 0: never")             \
    X(SOCKET_IFNAME, "CDDP_SOCKET_IFNAME", "",                                                     \
      "network interfaces for traffic between hosts, in NCCL_SOCKET_IFNAME's syntax: prefixes "    \
      "with commas, behind ^ those to leave out, behind = exact names; unset: all")                \
    X(CARRIER, "CDDP_CARRIER", "",                                                                 \
      "what carries data between machines: tcp or mpi; unset: mpi where the module is there and "  \
      "mpirun started the ranks, else tcp")                                                        \
    X(SOCKETS, "CDDP_SOCKETS", "2",                                                                \
      "TCP connections between two hosts for each kind of traffic, the same on all ranks")         \
    X(LEADERS, "CDDP_LEADERS", "",                                                                 \
      "how many ranks of each machine exchange data with other machines, 1 to 4, the same on all " \
      "ranks; unset: 1, or more where that is measured to be faster")                              \
    X(CONGESTION, "CDDP_CONGESTION", "",                                                           \
      "the kernel's congestion control for TCP connections that data go by, or system: this "      \
      "host's default; unset: the default, but towards near hosts reno in the place of bbr")       \
    X(ENCRYPT, "CDDP_ENCRYPT", "0",                                                                \
      "1: data between hosts are encrypted too, and go by TCP only, unless CDDP_CARRIER or "       \
      "CDDP_BACKEND names what cannot do that; 0: only connections to the store and control "      \
      "connections are; the same on all ranks")                                                    \
    X(CIPHER, "CDDP_CIPHER", "",                                                                   \
      "the one cipher that may be used: aes256gcm or chacha20; unset: the first where both "       \
      "processors have instructions for it, else the second")                                      \
    X(THREADS, "CDDP_THREADS", "",                                                                 \
      "compute threads of a rank; unset: 1, but the first values of parameters are made by as "    \
      "many as the rank has processors")                                                           \
    X(MAX_ISA, "CDDP_MAX_ISA", "",                                                                 \
      "the newest instructions of an x86 processor that may be used: generic, avx2, avx512 or "    \
      "amx; unset: all that it has")                                                               \
    X(SPIN_US, "CDDP_SPIN_US", "",                                                                 \
      "microseconds a waiting rank spins before it sleeps; unset: 50, or 0 when ranks outnumber "  \
      "cores")                                                                                     \
    X(COMM_THREAD, "CDDP_COMM_THREAD", "",                                                         \
      "1: collectives that overlap run on a thread of their own, 0: the compute thread advances "  \
      "them; unset: 1 if the rank has a core to spare, else, over several machines by TCP, the "   \
      "thread in turn with the compute thread, which runs them while it waits")                    \
    X(SHARE_GRADS, "CDDP_SHARE_GRADS", "",                                                         \
      "0: a gradient block of the caller's (flat_grads) is copied at each step, also where the "   \
      "caller lets ranks share its pages (share_flat_grads); unset or 1: as the caller says")      \
    X(PRODUCTS, "CDDP_PRODUCTS", "",                                                               \
      "how products on a CUDA device are chosen: first (the library's own choice), same (the "     \
      "fastest that gives the same bits as that one) or fast (the fastest: bits may differ "       \
      "between runs); unset: same, or fast without ddp.deterministic")                             \
    X(TF32, "CDDP_TF32", "0",                                                                      \
      "1: float32 products and convolutions on a CUDA device round their factors to TF32, which "  \
      "is faster")                                                                                 \
    X(LOG, "CDDP_LOG", "warn", "what the library prints: off, error, warn, info or debug")         \
    X(PROGRESS, "CDDP_PROGRESS", "",                                                               \
      "how rank 0 shows progress: tty (one line, redrawn), plain or off; unset: what stderr is")   \
    X(RUN_DIR, "CDDP_RUN_DIR", "", "folder of this run's files; set by cddp-run --run-dir")        \
    X(DUMP_DIR, "CDDP_DUMP_DIR", "",                                                               \
      "folder below which each rank writes its group's last 1000 operations when it fails, as "    \
      "collectives/rank-R.json; unset: CDDP_RUN_DIR, and without that none but cddp-train's own "  \
      "run folder")                                                                                \
    X(DUMP_SIGNAL, "CDDP_DUMP_SIGNAL", "",                                                         \
      "USR1 or USR2: the library handles that signal, if the program does not, and each rank "     \
      "that gets it writes the same files; unset: none (cddp-train has its own for SIGUSR1)")      \
    X(TRACE, "CDDP_TRACE", "",                                                                     \
      "steps that each rank traces, as 10-20 or 10, counted from 1: it writes trace/rank-R.json "  \
      "below the same folder, for cddp-trace; unset: none")                                        \
    X(PROFILE, "CDDP_PROFILE", "",                                                                 \
      "file for a profile: every kernel of a step on a CUDA device with its time, bytes and "      \
      "operations, one JSON line each; ranks from 1 on add their number to the name")              \
    X(ARRIVALS, "CDDP_ARRIVALS", "",                                                               \
      "file to which rank 0 of cddp-train writes when the gradients of a step become ready, one "  \
      "JSON line each, medians over the last steps; on the processor only")                        \
    X(AVAILABLE_CORES, "CDDP_AVAILABLE_CORES", "",                                                 \
      "cores that cddp-run --nproc auto has found, when it asks cddp-train how many ranks make "   \
      "sense; set by cddp-run")                                                                    \
    X(LAUNCH, "CDDP_LAUNCH", "",                                                                   \
      "the words before the train.conf on cddp-run's command line, as a stopped run shows them "   \
      "again; set by cddp-run")                                                                    \
    X(INHERITED, "CDDP_INHERITED", "",                                                             \
      "other launchers whose variables ranks have through cddp-run, with a digest of each, "       \
      "so that they are not taken for the ranks' own; set by cddp-run")                            \
    X(REPORT_FD, "CDDP_REPORT_FD", "",                                                             \
      "a pipe to cddp-run, in which a rank that was asked to end says that it is still saving; "   \
      "set by cddp-run")

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
