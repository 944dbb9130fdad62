/* launcher_rank.c - programs that test_launcher starts and that a shell script cannot replace.
 *
 *     launcher_rank await KEY        wait for a key of the job's store, and print its value
 *     launcher_rank embeds           a trainer that embeds cddp: in the first generation it trains
 *                                    until a signal asks some rank to end, then it ends
 *     launcher_rank no-pidfd CMD...    run CMD as on a kernel without pidfd_open()
 *     launcher_rank no-prctl CMD...    run CMD where no process can die with its parent
 *     launcher_rank no-signalfd CMD... run CMD without signalfd()
 *     launcher_rank no-memfd CMD...    run CMD without memfd_create() */
#include <cddp/cddp.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int print_key(const char *key)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
    cddp_store *store = NULL;
    char prefix[128];
    void *text = NULL;
    cddp_status status;

    snprintf(prefix, sizeof prefix, "%s/%s/", getenv("CDDP_JOB"), getenv("CDDP_GENERATION"));
    options.url = getenv("CDDP_STORE");
    options.prefix = prefix;
    options.timeout_ms = 600000; /* the launcher's grace ends it sooner */
    status = cddp_store_open(&options, &store);
    if (status == CDDP_OK) {
        size_t bytes;

        puts("waiting");
        fflush(stdout);
        status = cddp_store_get(store, key, 0, &text, &bytes);
    }
    if (status == CDDP_OK) {
        printf("heard: %s\n", (char *)text);
    } else {
        fprintf(stderr, "launcher_rank: %s\n", cddp_last_error());
    }
    cddp_free(text);
    cddp_store_close(store);
    return status == CDDP_OK ? 0 : 1;
}

static cddp_status train(cddp_group *group)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000000};
    cddp_status status = CDDP_OK;
    bool stop = false;

    if (cddp_group_rank(group) == 0) {
        printf("up with %d\n", cddp_group_world_size(group));
        fflush(stdout);
    }
    while (status == CDDP_OK && !stop && strcmp(getenv("CDDP_GENERATION"), "0") == 0) {
        nanosleep(&pause, NULL);
        status = cddp_group_should_stop(group, &stop);
    }
    return status;
}

static int embed(void)
{
    cddp_group *group = NULL;
    cddp_status status = cddp_stop_on_signals(NULL, 0);

    if (status == CDDP_OK) {
        status = cddp_group_create(NULL, &group);
    }
    if (status == CDDP_OK) {
        status = train(group);
    }
    if (status != CDDP_OK) {
        fprintf(stderr, "launcher_rank: %s\n", cddp_last_error());
    }
    cddp_group_destroy(group);
    return status != CDDP_OK ? 1 : strcmp(getenv("CDDP_GENERATION"), "0") == 0 ? 3 : 0;
}

/* The call @p number with the first argument @p first; -1: with any. */
static int run_without(char **command, unsigned number, long first, unsigned error)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | (first < 0 ? BPF_JGE : BPF_JEQ) | BPF_K,
                 (unsigned)(first < 0 ? 0 : first), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("launcher_rank: seccomp");
        return 77;
    }
    execv(command[0], command);
    perror(command[0]);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "await") == 0) {
        int status = print_key(argv[2]);

        /* The launcher's SIGCONT may come just now, and LeakSanitizer, which traces the process
         * when it ends, then waits forever. */
        fflush(stdout);
        _exit(status);
    }
    if (argc == 2 && strcmp(argv[1], "embeds") == 0) {
        return embed();
    }
    if (argc > 2 && strcmp(argv[1], "no-pidfd") == 0) {
        return run_without(argv + 2, SYS_pidfd_open, -1, ENOSYS);
    }
    if (argc > 2 && strcmp(argv[1], "no-prctl") == 0) {
        return run_without(argv + 2, SYS_prctl, PR_SET_PDEATHSIG, EPERM);
    }
    if (argc > 2 && strcmp(argv[1], "no-signalfd") == 0) {
        return run_without(argv + 2, SYS_signalfd4, -1, EPERM);
    }
    if (argc > 2 && strcmp(argv[1], "no-memfd") == 0) {
        return run_without(argv + 2, SYS_memfd_create, -1, EPERM);
    }
    return 2;
}
