/* launch.c - sets up the job from options, machine and input, and starts the processes that
 * supervise it. */
#include "launcher/supervise/launch.h"

#include "launcher/hosts/head.h"
#include "launcher/hosts/parcel.h"
#include "launcher/nodes/job_store.h"
#include "launcher/nodes/nodes.h"
#include "launcher/output/output.h"
#include "launcher/supervise/generations.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/monitor.h"
#include "launcher/supervise/rank_gpus.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/machine.h"
#include "base/process.h"
#include "base/streams.h"
#include "device/device.h"
#include "group/launch/launch_node.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int exit_status_of(cddp_status status)
{
    switch (status) {
    case CDDP_OK:
        return 0;
    case CDDP_ERR_CONFIG:
    case CDDP_ERR_ARGUMENT:
        return 2;
    case CDDP_ERR_UNAVAILABLE:
        return 126;
    case CDDP_ERR_NOT_FOUND:
        return 127;
    default:
        return 1;
    }
}

static cddp_status choose_log_dir(struct cddpi_job *job)
{
    const struct cddpi_launch_options *options = &job->options;
    int length = 0;

    if (options->log_dir != NULL) {
        length = snprintf(job->log_dir, sizeof job->log_dir, "%s", options->log_dir);
    } else if (options->config != NULL && options->run_dir != NULL) {
        length = snprintf(job->log_dir, sizeof job->log_dir, "%s/logs", options->run_dir);
    }
    return length < (int)sizeof job->log_dir
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "the name of the log folder is too long");
}

/* Ranks that have a GPU each compute on cores of its NUMA node. */
static cddp_status move_cores(struct cddpi_job *job)
{
    static const struct cddpi_gpu_paths paths = {"/sys/bus/pci/devices", "/proc/driver/nvidia/gpus",
                                                 "/dev"};
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int nodes[CDDPI_MACHINE_GPUS];
    int gpus;

    if (!cddpi_gpu_per_rank(&job->options, getenv("CDDP_DEVICE"), visible)) {
        return CDDP_OK;
    }
    gpus = cddpi_gpu_nodes(&paths, visible, nodes);
    if (job->options.per_gpu && gpus != job->local_world_size) {
        return CDDP_OK; /* CUDA has counted other GPUs */
    }
    return cddpi_cores_near(&job->cores, nodes, gpus, job->local_world_size);
}

static cddp_status check_ranks(const struct cddpi_job *job)
{
    const struct cddpi_launch_options *options = &job->options;
    bool is_elastic = options->least > 0 && options->rdzv == NULL;
    int ranks = job->local_world_size;

    if (is_elastic && (ranks < options->least || ranks > options->most)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "--nproc %d: with --elastic %d:%d it is from %d to %d",
                          ranks, options->least, options->most, options->least, options->most);
    }
    ranks = is_elastic ? options->most : ranks;
    if (options->config != NULL && ranks > CDDPI_MACHINE_RANKS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--%s %d: with a train.conf 1 to %d ranks can share a machine",
                          is_elastic ? "elastic" : "nproc", ranks, CDDPI_MACHINE_RANKS);
    }
    return CDDP_OK;
}

/* Find out everything that is known before a process is started. */
static cddp_status prepare_job(struct cddpi_job *job)
{
    CDDPI_TRY(cddpi_command_find(&job->options, &job->command));
    CDDPI_TRY(choose_log_dir(job));
    CDDPI_TRY(cddpi_cores_read("/sys/devices/system", &job->cores));
    cddpi_cores_limit(&job->cores);
    job->local_world_size = job->options.nproc;
    if (job->options.per_gpu) {
        job->local_world_size = cddpi_device_count();
        if (job->local_world_size == 0) {
            return cddpi_fail_prefix(CDDP_ERR_UNAVAILABLE, "--nproc gpu");
        }
    }
    if (job->local_world_size == 0) {
        job->local_world_size = job->options.config != NULL
                                    ? cddpi_command_nproc(&job->command,
                                                          cddpi_cores_usable(&job->cores))
                                    : cddpi_cores_usable(&job->cores);
    }
    CDDPI_TRY(check_ranks(job));
    if (job->options.config != NULL && job->local_world_size > 1) {
        CDDPI_TRY(cddpi_process_check_proc());
    }
    CDDPI_TRY(move_cores(job));
    job->world_size = job->local_world_size; /* until other nodes have arrived */
    return CDDP_OK;
}

/* Raise our limit of open files, since each rank needs several descriptors. Ranks get the limit
 * that we inherited. */
static void raise_file_limit(struct cddpi_job *job)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &job->file_limit) == 0) {
        limit = job->file_limit;
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Wait until our readers have taken all output, a signal asks us to end, or the monitor dies. */
static void flush_output(struct cddpi_output *output, const struct cddpi_monitor *monitor,
                         int signal_fd)
{
    for (int i = 0; i < 2; i++) {
        struct cddpi_sink *sink = &output->sinks[i];
        struct pollfd events[] = {
            {sink->fd, POLLOUT, 0}, {monitor->lifeline, POLLIN, 0}, {signal_fd, POLLIN, 0}};

        for (cddpi_sink_flush(sink); cddpi_sink_queued(sink) > 0; cddpi_sink_flush(sink)) {
            struct signalfd_siginfo got;

            if (poll(events, 3, -1) < 0 && errno != EINTR) {
                return;
            }
            if (events[1].revents != 0 ||
                ((events[2].revents & POLLIN) != 0 &&
                 read(signal_fd, &got, sizeof got) == (ssize_t)sizeof got &&
                 sigismember(&monitor->ending, (int)got.ssi_signo) == 1)) {
                return;
            }
        }
    }
}

/* Run a job that uses only this machine. */
static int run_alone(struct cddpi_job *job, struct cddpi_wait *wait)
{
    struct cddpi_nodes nodes;
    int exit_status = 1;

    job->world_size = job->local_world_size;
    if (cddpi_rendezvous_init(job->world_size, &job->rendezvous) != CDDP_OK) {
        cddpi_output_say(wait->output, "%s", cddp_last_error());
        return 1;
    }
    if (cddpi_nodes_alone(job, wait, &nodes) == CDDP_OK) {
        exit_status = cddpi_generations_run(&nodes);
    } else {
        cddpi_output_say(wait->output, "%s", cddp_last_error());
    }
    cddpi_nodes_fini(&nodes);
    cddpi_rendezvous_fini(&job->rendezvous);
    return exit_status;
}

/* Node 0: remove the file with the token that was made for this job. */
static void remove_token(const struct cddpi_job *job)
{
    if (job->token_file[0] != '\0' && job->options.node_rank == 0) {
        (void)unlink(job->token_file);
    }
}

/* Run this machine's part of a job on several machines. */
static int run_node(struct cddpi_job *job, struct cddpi_wait *wait)
{
    struct cddpi_nodes nodes = {.members = {.self = -1}};
    cddp_status status = cddpi_nodes_meet(job, wait, &nodes);
    int exit_status;

    if (status != CDDP_OK || !nodes.members.is_elastic) {
        remove_token(job); /* all nodes have read it by now */
    }
    if (status == CDDP_OK) {
        exit_status = cddpi_generations_run(&nodes);
        remove_token(job);
    } else {
        /* With --hosts, one cddp-run shows the output of all nodes. So only node 0 prints a refusal
         * that it told to all nodes, and nothing is printed once that cddp-run is gone. */
        if (!job->options.is_agent ||
            (!wait->is_over && (job->options.node_rank == 0 || !nodes.is_refused))) {
            cddpi_output_say(wait->output, "%s", cddp_last_error());
        }
        exit_status = exit_status_of(status);
    }
    cddpi_nodes_fini(&nodes);
    cddpi_nodes_await_readers(&job->rendezvous, wait);
    cddpi_rendezvous_fini(&job->rendezvous);
    return exit_status;
}

/* Write the last messages before this process ends. */
static int finish_output(struct cddpi_output *output, const struct cddpi_monitor *monitor,
                         int signal_fd, int exit_status)
{
    flush_output(output, monitor, signal_fd);
    if (output->out->error != 0 || output->out->lost > 0) {
        int error = output->out->error != 0 ? output->out->error : ENOMEM;

        cddpi_output_say(output, "standard output: %s%s: some output of the ranks is lost",
                         strerror(error), cddpi_limit_text(error));
        exit_status = exit_status != 0 ? exit_status : 1;
        flush_output(output, monitor, signal_fd);
    }
    cddpi_output_fini(output);
    return exit_status;
}

/* Open the signalfd from which all signals to us are read. */
static cddp_status open_signals(const struct cddpi_monitor *monitor, int *out)
{
    *out = signalfd(-1, &monitor->blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out >= 0 ? CDDP_OK
                     : cddpi_fail_errno(CDDP_ERR_UNAVAILABLE, errno,
                                        "signalfd, by which cddp-run hears of signals and of ranks "
                                        "that end (does a seccomp filter refuse it?)");
}

/* The supervisor process, also of --store. */
static int supervise(const struct cddpi_monitor *monitor, void *argument)
{
    struct cddpi_job *job = argument;
    struct cddpi_output output;
    int signal_fd;
    cddp_status status = open_signals(monitor, &signal_fd);
    struct cddpi_wait wait = {.monitor = monitor,
                              .signal_fd = signal_fd,
                              .head_fd = job->head_fd,
                              .output = &output,
                              .began_ns = cddpi_now_ns()};
    int exit_status = 1;

    cddpi_output_init(&output);
    output.host = job->options.is_agent ? job->host : NULL;
    if (job->options.is_agent && getenv("CDDP_PROGRESS") != NULL &&
        strcmp(getenv("CDDP_PROGRESS"), "tty") == 0) {
        output.err->is_terminal = true; /* the terminal of the cddp-run that relays our output */
    }
    raise_file_limit(job);
    if (status == CDDP_OK) {
        status = cddpi_folder_make(job->log_dir);
    }
    if (status != CDDP_OK) {
        cddpi_output_say(&output, "%s", cddp_last_error());
    } else {
        exit_status = job->options.store != NULL  ? cddpi_job_store_run(job, &wait)
                      : job->options.rdzv != NULL ? run_node(job, &wait)
                                                  : run_alone(job, &wait);
    }
    return finish_output(&output, monitor, signal_fd, exit_status);
}

/* The supervisor process of a job on a list of hosts. */
static int supervise_hosts(const struct cddpi_monitor *monitor, void *argument)
{
    struct cddpi_head *head = argument;
    struct cddpi_output output;
    cddp_status status = open_signals(monitor, &head->signal_fd);
    int exit_status = 1;

    cddpi_output_init(&output);
    head->monitor = monitor;
    head->output = &output;
    if (status != CDDP_OK) {
        cddpi_output_say(&output, "%s", cddp_last_error());
    } else {
        exit_status = cddpi_head_supervise(head);
    }
    return finish_output(&output, monitor, head->signal_fd, exit_status);
}

/* Read or make the job's token. With tcp:// one is required, since other machines can reach the
 * store. */
static cddp_status read_token(struct cddpi_job *job)
{
    const struct cddpi_launch_options *options = &job->options;
    const char *option = options->store != NULL ? "--store" : "--rdzv";
    char *token = job->rendezvous.token;

    if (options->rdzv == NULL && options->token_file == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_token_read(options->token_file, token));
    if (options->rdzv == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "--token-file is for --rdzv: else cddp-run makes a token itself");
    }
    if (options->launcher != NULL && options->rdzv == options->launcher->rdzv && token[0] == '\0') {
        CDDPI_TRY(cddpi_launch_node_token(token, sizeof job->rendezvous.token, job->token_file,
                                          sizeof job->token_file));
    }
    if (strncmp(options->rdzv, "tcp://", 6) == 0 && token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s %s: other machines can reach this store, so the job needs a "
                          "secret. Make one (openssl rand -hex 16 >FILE; chmod 600 FILE), copy the "
                          "file to all nodes and give --token-file FILE, or set CDDP_TOKEN",
                          option, options->rdzv);
    }
    return options->is_agent ? CDDP_OK : cddpi_token_suits(token, option, options->rdzv);
}

/* Export cddp-run's own command line to the ranks, for the message that says how to resume. */
static void export_words(const struct cddpi_launch_options *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = options->config != NULL ? open_memstream(&text, &bytes) : NULL;

    unsetenv("CDDP_LAUNCH");
    if (to == NULL) {
        return;
    }
    for (int i = 0; options->words[i] != NULL; i++) {
        if (i > 0) {
            fputc(' ', to);
        }
        cddpi_shell_print(to, options->words[i]);
    }
    if (fclose(to) == 0) {
        setenv("CDDP_LAUNCH", text, 1);
    }
    free(text);
}

/* Print that a launcher's environment made this machine a node of a larger job, and which launcher
 * that is. */
static void say_launcher(const struct cddpi_launch_options *options)
{
    const struct cddpi_launch_node *node = options->launcher;

    if (node == NULL) {
        return;
    }
    if (node->warning[0] != '\0') {
        cddpi_say(stderr, "cddp-run: warning: %s\n", node->warning);
    }
    if (node->nodes > 1 && options->action == CDDPI_ACTION_RUN) {
        char count[CDDPI_NNODES_BYTES];

        cddpi_say(stderr, "cddp-run: node %d of %s, which meet at %s (%s)\n", options->node_rank,
                  cddpi_nnodes_text(options->least, options->nnodes, count), options->rdzv,
                  node->says);
    }
}

/* Run a job on a list of hosts. */
static int launch_hosts(const struct cddpi_launch_options *options)
{
    static struct cddpi_head head;
    cddp_status status = cddpi_head_init(&head, options);
    int exit_status;

    if (status == CDDP_OK && options->token_file != NULL) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "--token-file is for --rdzv: with a list of hosts "
                                               "cddp-run makes a token itself");
    }
    if (status != CDDP_OK) {
        fprintf(stderr, "cddp-run: %s\n", cddp_last_error());
        exit_status = exit_status_of(status);
    } else if (options->action == CDDPI_ACTION_DRY_RUN) {
        exit_status = cddpi_head_dry_run(&head);
    } else {
        export_words(options);
        exit_status = cddpi_monitor_run(supervise_hosts, &head);
    }
    cddpi_head_fini(&head);
    return exit_status;
}

/* Describe the job from the command line, this machine and, for an agent, standard input. */
static cddp_status make_job(struct cddpi_job *job)
{
    bool is_dry = job->options.action == CDDPI_ACTION_DRY_RUN;

    if (job->options.is_agent && !is_dry) {
        CDDPI_TRY(cddpi_parcel_receive(job));
    }
    CDDPI_TRY(prepare_job(job));
    return job->options.is_agent || is_dry ? CDDP_OK : read_token(job);
}

/* Serve the store of a job. */
static int launch_store(struct cddpi_job *job)
{
    cddp_status status;

    job->options.rdzv = job->options.store; /* as to tokens, it is a place like any other */
    status = read_token(job);
    if (status != CDDP_OK) {
        cddpi_say(stderr, "cddp-run: %s\n", cddp_last_error());
        return exit_status_of(status);
    }
    return cddpi_monitor_run(supervise, job);
}

int cddpi_launch(const struct cddpi_launch_options *options)
{
    static struct cddpi_job job; /* zeroed; too large for a small stack */
    int exit_status;
    cddp_status status;

    unsetenv("CDDP_KEEP_FDS"); /* memory of an outer job's ranks, one of which we are */
    unsetenv("CDDP_REJOIN_FD");
    job.options = *options;
    cddpi_rendezvous_clear(&job.rendezvous);
    job.report_fd = -1;
    job.reports = -1;
    job.head_fd = -1;
    if (options->action == CDDPI_ACTION_STORE) {
        return launch_store(&job);
    }
    say_launcher(options);
    if (options->hosts != NULL || options->hostfile != NULL) {
        return launch_hosts(options);
    }
    if (options->run_dir != NULL) {
        setenv("CDDP_RUN_DIR", options->run_dir, 1); /* for our own calls of cddp-train, too */
    }
    status = make_job(&job);
    if (status != CDDP_OK) {
        cddpi_say(stderr, "cddp-run%s%s: %s\n", job.host != NULL ? " on " : "",
                  job.host != NULL ? job.host : "", cddp_last_error());
        exit_status = exit_status_of(status);
    } else if (options->action == CDDPI_ACTION_DRY_RUN) {
        exit_status = cddpi_dry_run_print(&job);
    } else {
        if (!options->is_agent) {
            export_words(options);
        }
        exit_status = options->config != NULL && options->rdzv == NULL
                          ? cddpi_command_validate(&job.command, job.world_size)
                          : 0;
        if (exit_status == 0) {
            exit_status = cddpi_monitor_run(supervise, &job);
        }
    }
    cddpi_command_fini(&job.command);
    cddpi_cores_fini(&job.cores);
    return exit_status;
}
