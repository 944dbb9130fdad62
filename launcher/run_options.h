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
    CDDPI_ACTION_DRY_RUN,
    CDDPI_ACTION_HELP,
    CDDPI_ACTION_VERSION
};

/* X(value, its word behind --bind). */
#define CDDPI_BIND_MAP(X)                                                                          \
    X(CDDPI_BIND_AUTO, "auto")                                                                     \
    X(CDDPI_BIND_CORE, "core")                                                                     \
    X(CDDPI_BIND_NONE, "none")
enum cddpi_bind { CDDPI_BIND_MAP(CDDPI_CHOICE_ID) };

/* Which ranks' lines get "[rank] " in front. */
enum cddpi_tag { CDDPI_TAG_AUTO, CDDPI_TAG_ALL, CDDPI_TAG_NONE };

struct cddpi_launch_options {
    enum cddpi_action action;
    int nproc;    /* 0: auto, or */
    bool per_gpu; /* one a CUDA device */
    const char *run_dir;
    const char *log_dir;
    int max_restarts;
    int64_t grace_ms;
    enum cddpi_bind bind;
    enum cddpi_tag tag;
    char timeout_ms[24]; /* text for the ranks' environment; "": not given */
    int nnodes;          /* 1: this machine alone, unless rdzv is set */
    int node_rank;       /* -1: by order of arrival */
    const char *rdzv;    /* where nodes meet: "tcp://...", "file://..."; NULL: one machine */
    /* What the launcher said that started this cddp-run; owned. NULL: it was not asked. */
    struct cddpi_launch_node *launcher;
    const char *token_file;
    const char *hosts;    /* list of machines on which this cddp-run starts others; NULL: none */
    const char *hostfile; /* the same, in a file */
    const char *ssh;      /* the command that reaches them */
    const char *exports;  /* names of variables that go there; NULL: none */
    const char *network_interface; /* NULL: any */
    bool is_agent;                 /* started by another cddp-run, which is our standard input */
    const char *config;            /* train.conf; NULL when a program is started */
    char **arguments;              /* key=value ..., or the program and its arguments */
    int argument_count;
    char **positional; /* memory of `arguments`, owned */
    char **words;      /* argv[0] and the options, ended by NULL; owned */
};

/** Read @p argv. Texts are borrowed from it.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that says which argument and what is near. */
CDDP_CHECKED cddp_status cddpi_launch_options_parse(int argc, char **argv,
                                                    struct cddpi_launch_options *out);
void cddpi_launch_options_fini(struct cddpi_launch_options *options);

/** The text of --help. */
void cddpi_launch_options_help(FILE *to);

#endif
