/* run_options.h - cddp-run's command line. One table feeds the parser, --help and the suggestions.
 */
#ifndef CDDPI_LAUNCHER_OPTIONS_H
#define CDDPI_LAUNCHER_OPTIONS_H

#include "base/choices.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>

struct cddpi_launch_node;

enum { CDDPI_MAX_RANKS = 4096 };

enum cddpi_action {
    CDDPI_ACTION_RUN,
    CDDPI_ACTION_CHECK,
    CDDPI_ACTION_ENV,
    CDDPI_ACTION_KEYS,
    CDDPI_ACTION_DRY_RUN,
    CDDPI_ACTION_STORE,
    CDDPI_ACTION_HELP,
    CDDPI_ACTION_VERSION
};

/* X(value, the argument of --bind that selects it). */
#define CDDPI_BIND_MAP(X)                                                                          \
    X(CDDPI_BIND_AUTO, "auto")                                                                     \
    X(CDDPI_BIND_CORE, "core")                                                                     \
    X(CDDPI_BIND_NONE, "none")
enum cddpi_bind { CDDPI_BIND_MAP(CDDPI_CHOICE_ID) };

/* Which ranks' lines get "[rank] " in front. */
enum cddpi_tag { CDDPI_TAG_AUTO, CDDPI_TAG_ALL, CDDPI_TAG_NONE };

struct cddpi_launch_options {
    enum cddpi_action action;
    int nproc;        /* ranks; 0: auto, or per_gpu */
    bool per_gpu;     /* one rank per CUDA device */
    const char *keys; /* what --keys names; "": nothing; NULL: it was not given */
    const char *run_dir;
    const char *log_dir;
    int max_restarts; /* -1: without limit */
    int64_t grace_ms;
    enum cddpi_bind bind;
    enum cddpi_tag tag;
    char timeout_ms[24]; /* passed to the ranks' environment as text; "": not given */
    int nnodes;          /* the most; 1 without rdzv or hosts: only this machine */
    int least, most;     /* an elastic job goes on with this many nodes, or (without rdzv) ranks; 0:
                            their number is fixed */
    const char *replace_stragglers; /* as given; NULL: stragglers are only named */
    double straggler_factor;        /* a straggler takes so many times the median's time ... */
    int64_t straggler_ms;           /* ... for so long */
    int node_rank;                  /* -1: assigned by order of arrival */
    const char *rdzv; /* where nodes meet: "tcp://...", "file://..."; NULL: one machine */
    /* What the launcher that started this cddp-run (Slurm, for example) said; owned. NULL: no
     * launcher was asked. */
    struct cddpi_launch_node *launcher;
    const char *store; /* serve a job's store there, and run nothing; NULL: not given */
    const char *token_file;
    const char *hosts;             /* list of machines to start the job on; NULL: not given */
    const char *hostfile;          /* the same, in a file */
    const char *ssh;               /* the command that connects to them */
    const char *exports;           /* names of variables to copy to them; NULL: not given */
    const char *network_interface; /* NULL: any */
    bool is_agent;                 /* another cddp-run started this one and writes to its standard
                                      input */
    const char *config;            /* train.conf; NULL when a program is started */
    char **arguments;              /* key=value ..., or the program and its arguments */
    int argument_count;
    char **positional; /* the array that `arguments` points into; owned */
    char **words;      /* argv[0] and the options, ended by NULL; owned */
};

/** Parse @p argv. The options borrow its strings.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT: the message names the wrong argument and similar valid
 *          ones. */
CDDP_CHECKED cddp_status cddpi_launch_options_parse(int argc, char **argv,
                                                    struct cddpi_launch_options *out);
void cddpi_launch_options_fini(struct cddpi_launch_options *options);

enum { CDDPI_NNODES_BYTES = 32 };
/** Write a number of nodes as the user gives it: "3", or, unless @p least is 0, "1:3". Returns
 *  @p out. */
const char *cddpi_nnodes_text(int least, int most, char out[CDDPI_NNODES_BYTES]);

/** Print the text of --help. */
void cddpi_launch_options_help(FILE *to);

#endif
