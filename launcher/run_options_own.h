/* run_options_own.h - owns cddp-run's option table, from which options are parsed, helped with and
 * suggested. Private to run_options.c and run_options_nodes.c. */
#ifndef CDDPI_LAUNCHER_RUN_OPTIONS_OWN_H
#define CDDPI_LAUNCHER_RUN_OPTIONS_OWN_H

#include "launcher/run_options.h"

#include "base/options.h"

/* id, name, letter (0: no letter), argument (NULL: no argument), help text */
#define OPTION_MAP(X)                                                                              \
    X(NPROC, "nproc", 'n', "N|auto|gpu",                                                           \
      "ranks to start. auto (the default): one per physical core that this process may use, "      \
      "and with a train.conf no more than its batches can feed. gpu: one per CUDA device "         \
      "that CUDA_VISIBLE_DEVICES allows; ranks then compute there (CDDP_DEVICE=cuda)")             \
    X(ELASTIC, "elastic", 0, "MIN:MAX",                                                            \
      "on one machine: the job goes on without ranks that are lost or leave, while MIN are left. " \
      "Default of --nproc: MAX")                                                                   \
    X(REPLACE_STRAGGLERS, "replace-stragglers", 0, "F:S",                                          \
      "with --elastic or --nnodes MIN:MAX: replace a rank that needs F times the median's time "   \
      "for a step for S seconds, such as 1.5:30. Default: only name it, at 2:60")                  \
    X(RUN_DIR, "run-dir", 0, "DIR", "folder of this run's files; ranks get it as CDDP_RUN_DIR")    \
    X(LOG_DIR, "log-dir", 0, "DIR",                                                                \
      "also append each rank's output to DIR/rank-R.log. Default: RUN_DIR/logs with a "            \
      "train.conf and --run-dir, else no such files")                                              \
    X(MAX_RESTARTS, "max-restarts", 0, "K",                                                        \
      "after a failure, restart all ranks, at most K times. Default: 0; with MIN:MAX machines "    \
      "or --elastic without limit, as long as the job makes progress")                             \
    X(GRACE, "grace", 0, "SECONDS",                                                                \
      "how long the other ranks may take to end after a rank has failed, before they are "         \
      "killed (default 10). If you stop the job, three times as long")                             \
    X(BIND, "bind", 0, "auto|core|none",                                                           \
      "give each rank cores of its own; auto (the default) does so unless ranks outnumber "        \
      "cores")                                                                                     \
    X(TIMEOUT, "timeout", 0, "SECONDS",                                                            \
      "deadline for joining and for each collective; ranks get it as CDDP_TIMEOUT_MS")             \
    X(NNODES, "nnodes", 0, "K|MIN:MAX",                                                            \
      "number of machines. Start cddp-run on each, with this option and --rdzv. MIN:MAX: the job " \
      "goes on without machines that are lost or leave, while MIN are left, and lets machines "    \
      "in that come later; also with --hosts. Default: "                                           \
      "what Slurm, Kubernetes, Open MPI, Flux ... say if they started cddp-run, else 1")           \
    X(NODE_RANK, "node-rank", 0, "I",                                                              \
      "the number of this machine, from 0; ranks are numbered in this order. Default: "            \
      "machines are numbered as they arrive, after the one that serves the store")                 \
    X(RDZV, "rdzv", 0, "URL",                                                                      \
      "where the machines meet: tcp://HOST:PORT, an address of machine 0, or file:///FOLDER "      \
      "on a file system that all share")                                                           \
    X(STORE, "store", 0, "URL",                                                                    \
      "run nothing: serve the store of one job at tcp://HOST:PORT, where its machines meet "       \
      "(their --rdzv), so that every one of them may be lost, machine 0 too")                      \
    X(TOKEN_FILE, "token-file", 0, "FILE",                                                         \
      "a file with the job's secret, which only you may read; the same secret on all "             \
      "machines. Default: CDDP_TOKEN")                                                             \
    X(HOSTS, "hosts", 'H', "A:N,B:N...",                                                           \
      "start cddp-run on these machines through ssh, with N ranks on each (without :N, as "        \
      "many as --nproc says)")                                                                     \
    X(HOSTFILE, "hostfile", 0, "FILE",                                                             \
      "the same from a file with lines of \"host slots=N\" or \"host:N\"")                         \
    X(SSH, "ssh", 0, "COMMAND",                                                                    \
      "the command that starts a program on a host; it gets the host and the program's "           \
      "words (default: ssh -o BatchMode=yes)")                                                     \
    X(EXPORT, "export", 0, "NAME,NAME=VALUE...",                                                   \
      "variables that ranks on other machines get, besides yours that begin with CDDP_")           \
    X(NETWORK_INTERFACE, "network-interface", 0, "NAMES",                                          \
      "network interfaces to use between machines: eth0, or ib0,ib1; ranks get them as "           \
      "CDDP_SOCKET_IFNAME (see --env)")                                                            \
    X(TAG_OUTPUT, "tag-output", 0, NULL,                                                           \
      "put \"[rank] \" before the lines of every rank, not only of those above 0")                 \
    X(NO_TAG, "no-tag", 0, NULL, "never put \"[rank] \" before a line")                            \
    X(DRY_RUN, "dry-run", 0, NULL,                                                                 \
      "start nothing: print the resolved configuration or the command, and a line for each "       \
      "rank")                                                                                      \
    X(AGENT, "agent", 0, NULL,                                                                     \
      "internal: --hosts starts cddp-run on each host with it; reads the token from "              \
      "standard input, and ends when that ends")                                                   \
    X(CHECK, "check", 0, NULL,                                                                     \
      "print what this machine has: libraries, GPUs, cores, memory, limits, launchers")            \
    X(ENV, "env", 0, NULL, "print every environment variable that cddp reads")                     \
    X(KEYS, "keys", 0, "[=NAME]",                                                                  \
      "print what each key of train.conf does, or only the keys that NAME names, like "            \
      "cddp-train --keys")                                                                         \
    X(HELP, "help", 'h', NULL, "print this text")                                                  \
    X(VERSION, "version", 0, NULL, "print the version")

CDDPI_OPTION_TABLE("cddp-run", OPTION_MAP);

static inline cddp_status read_int(const char *const values[OPTION_COUNT], enum option_id id,
                                   int low, int high, int *out)
{
    int64_t number = *out;
    cddp_status status = cddpi_option_whole(&table, values, (int)id, low, high, &number);

    *out = (int)number;
    return status;
}

/** run_options_nodes.c: read the options that say on which machines the job runs, and between which
 *  numbers of machines or ranks it goes on. What they do not say, a launcher's variables may. */
cddp_status cddpi_options_read_nodes(const char *const values[OPTION_COUNT],
                                     struct cddpi_launch_options *options);

#endif
