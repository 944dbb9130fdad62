/* test_launch_hosts.c - ranks on different hosts find each other by the variables of Slurm, the
 * training operator and an indexed Job. A host is a process with its own network, host name and
 * /etc/hosts; one bridge connects all hosts. */
#include "support/failure.h"
#include "support/group.h"
#include "support/test.h"

#include <cddp/cddp.h>

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>

enum { HOSTS = 3 };

/* What a host and the test tell each other. */
struct host {
    volatile pid_t ready; /* it has a network of its own */
    volatile bool plugged;
};

/* One job: a rank a host. */
struct trial {
    void (*environment)(int rank);
    const char *names[HOSTS]; /* of hosts: others know host i as names[i] at 10.77.0.i+1 */
    const char *own;          /* host 0's address of itself in its /etc/hosts; NULL: its real one */
    bool nameless; /* names resolve only once the log has the line, or never without one */
    bool separate_homes;
    bool token; /* CDDP_TOKEN is set */
    uint32_t timeout_ms;
    cddp_status status; /* of joining */
    const char *text;   /* in the error */
    const char *log;    /* in what rank 0 or 1 prints; NULL: nothing is looked for */
    char *folder;
    struct host *hosts;
};

static bool run(const char *format, ...)
{
    char command[1000];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

static bool is_in(const char *path, const char *text)
{
    char all[10000] = "";
    FILE *file = fopen(path, "re");

    if (file != NULL) {
        all[fread(all, 1, sizeof all - 1, file)] = '\0';
        fclose(file);
    }
    return strstr(all, text) != NULL;
}

/* /etc/hosts of host @p rank, whose file it is already. */
static void write_names(const struct trial *trial, int rank, bool all)
{
    FILE *file = fopen("/etc/hosts", "we");

    fprintf(file, "127.0.0.1 localhost\n");
    for (int i = 0; i < HOSTS && all; i++) {
        if (i == 0 && rank == 0 && trial->own != NULL) {
            fprintf(file, "%s%s%s\n", trial->own, trial->own[0] != '\0' ? " " : "# ",
                    trial->names[0]);
        } else {
            fprintf(file, "10.77.0.%d %s\n", i + 1, trial->names[i]);
        }
    }
    fclose(file);
}

/* Become a host. False: it may not be done here. */
static bool become_host(const struct trial *trial, int rank)
{
    char path[4300];

    snprintf(path, sizeof path, "%s/hosts-%d", trial->folder, rank);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(path, "/etc/hosts", NULL, MS_BIND, NULL) != 0 ||
        sethostname(trial->names[rank], strlen(trial->names[rank])) != 0) {
        return false;
    }
    write_names(trial, rank, !trial->nameless);
    trial->hosts[rank].ready = getpid();
    while (!trial->hosts[rank].plugged) {
        support_sleep_ms(2);
    }
    return run("ip link set lo up && ip addr add 10.77.0.%d/24 dev eth0 && ip link set eth0 up",
               rank + 1);
}

/* A group that works: the sum of all ranks. */
static int use(cddp_group *group, int rank, int n)
{
    int32_t sum = 0;

    CHECK(cddp_group_rank(group) == rank && cddp_group_world_size(group) == n);
    CHECK(group_info(group).local_rank == 0 && group_info(group).local_world_size == 1);
    CHECK(cddp_all_reduce(group, &rank, &sum, 1, CDDP_I32, CDDP_OP_SUM, NULL) == CDDP_OK);
    CHECK(sum == n * (n - 1) / 2);
    return 0;
}

static int join(const struct trial *trial, int rank, int n)
{
    cddp_group *group = NULL;
    cddp_status status = cddp_group_create(NULL, &group);
    DIR *folder;
    int failed;

    if (trial->status != CDDP_OK) {
        CHECK(status != CDDP_OK);
        if (rank > 0) { /* rank 0's own store has it: it waits for the others */
            CHECK(status == trial->status);
            CHECK(last_error_has(trial->text));
        }
        return 0;
    }
    CHECK(status == CDDP_OK);
    failed = use(group, rank, n);
    cddp_group_destroy(group);
    CHECK(chdir(getenv("HOME")) == 0);
    folder = opendir(".cddp"); /* where the token was, if it was in a file */
    while (folder != NULL && failed == 0) {
        const struct dirent *entry = readdir(folder);

        if (entry == NULL) {
            break;
        }
        CHECK(entry->d_name[0] == '.');
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return failed;
}

static int host_rank(int rank, int n, void *argument)
{
    struct trial *trial = argument;
    char path[4300];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!become_host(trial, rank)) {
        fprintf(stderr, "host %d could not be made\n", rank);
        return 1;
    }
    snprintf(path, sizeof path, "%s/log", trial->folder);
    if (trial->log != NULL) {
        CHECK(dup2(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), 2) == 2);
    }
    if (trial->nameless && trial->log != NULL && fork() == 0) {
        while (!is_in(path, trial->log)) {
            support_sleep_ms(20);
        }
        write_names(trial, rank, true);
        _exit(0);
    }
    trial->environment(rank);
    snprintf(path, sizeof path, trial->separate_homes ? "%s/home-%d" : "%s/home", trial->folder,
             rank);
    (void)mkdir(path, 0700);
    setenv("HOME", path, 1);
    support_setenv_number("CDDP_TIMEOUT_MS", (int)trial->timeout_ms);
    if (trial->token) {
        setenv("CDDP_TOKEN", SUPPORT_TOKEN, 1);
    }
    return join(trial, rank, n);
}

/* In a process with a network of its own: the bridge, and each host's cable once it is there. */
static void plug_hosts(struct host *hosts)
{
    for (int i = 0; i < HOSTS; i++) {
        while (hosts[i].ready == 0) {
            support_sleep_ms(2);
        }
        (void)run("ip link add v%d type veth peer name eth0 netns %d && ip link set v%d master "
                  "br0 && ip link set v%d up",
                  i, (int)hosts[i].ready, i, i);
        hosts[i].plugged = true;
    }
}

static int run_job(int rank, int n, void *argument)
{
    struct trial *trial = argument;
    pid_t plugger;
    int failed;

    (void)rank;
    (void)n;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(unshare(CLONE_NEWNET) == 0);
    CHECK(run("ip link add br0 type bridge && ip link set br0 up"));
    plugger = fork();
    if (plugger == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        plug_hosts(trial->hosts);
        _exit(0);
    }
    failed = run_ranks(HOSTS, host_rank, trial);
    kill(plugger, SIGKILL);
    waitpid(plugger, NULL, 0);
    return failed;
}

static bool may_make_hosts(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        bool may = unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) == 0 &&
                   mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   run("ip link add br0 type bridge 2>/dev/null");

        _exit(may ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static void job(struct trial *trial)
{
    char path[4300];

    if (!may_make_hosts()) {
        print_message("no hosts can be made here: network namespaces and ip(8) are needed\n");
        skip();
    }
    trial->folder = support_mkdtemp();
    trial->timeout_ms = trial->timeout_ms != 0 ? trial->timeout_ms : SUPPORT_TIMEOUT_MS;
    trial->hosts = mmap(NULL, HOSTS * sizeof *trial->hosts, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(trial->hosts != MAP_FAILED);
    assert_int_equal(run_ranks(1, run_job, trial), 0);
    munmap(trial->hosts, HOSTS * sizeof *trial->hosts);
    snprintf(path, sizeof path, "%s/log", trial->folder);
    assert_true(trial->log == NULL || is_in(path, trial->log));
    support_rmdir(trial->folder);
}

static void slurm(int rank)
{
    support_setenv_number("SLURM_PROCID", rank);
    support_setenv_number("SLURM_NODEID", rank);
    setenv("SLURM_LOCALID", "0", 1);
    setenv("SLURM_NTASKS", "3", 1);
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1(x3)", 1);
    setenv("SLURM_STEP_NODELIST", "node[01-03]", 1);
}

static void pytorch_job(int rank)
{
    support_setenv_number("RANK", rank);
    support_setenv_number("PET_NODE_RANK", rank);
    setenv("WORLD_SIZE", "3", 1);
    setenv("PET_NNODES", "3", 1);
    setenv("PET_NPROC_PER_NODE", "auto", 1);
    setenv("MASTER_ADDR", "job-master-0", 1);
    setenv("MASTER_PORT", "23456", 1);
    setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
}

/* Operators before 1.5 told the master that it was at "localhost". */
static void old_pytorch_job(int rank)
{
    pytorch_job(rank);
    if (rank == 0) {
        setenv("MASTER_ADDR", "localhost", 1);
    }
}

/* Ranks come from the pods' names. */
static void elastic_job(int rank)
{
    (void)rank;
    setenv("PET_RDZV_ENDPOINT", "job-worker-0:23456", 1);
    setenv("PET_RDZV_BACKEND", "c10d", 1);
    setenv("PET_NNODES", "3:3", 1);
}

static void indexed_job(int rank)
{
    support_setenv_number("JOB_COMPLETION_INDEX", rank);
    setenv("WORLD_SIZE", "3", 1);
    setenv("MASTER_ADDR", "train-0.train", 1);
}

#define NODES                                                                                      \
    {                                                                                              \
        "node01", "node02", "node03"                                                               \
    }
#define PODS                                                                                       \
    {                                                                                              \
        "job-master-0", "job-worker-0", "job-worker-1"                                             \
    }
#define WORKERS                                                                                    \
    {                                                                                              \
        "job-worker-0", "job-worker-1", "job-worker-2"                                             \
    }
#define INDEXED                                                                                    \
    {                                                                                              \
        "train-0.train", "train-1.train", "train-2.train"                                          \
    }

static void ranks_of_slurm_nodes_join_by_a_token_in_their_home(void **state)
{
    (void)state;
    job(&(struct trial){.environment = slurm, .names = NODES});
}

static void a_first_node_that_knows_itself_as_loopback_listens_everywhere(void **state)
{
    (void)state;
    job(&(struct trial){.environment = slurm,
                        .names = NODES,
                        .own = "127.0.1.1",
                        .log = "node01: here it means this machine's loopback, so it listens on "
                               "all interfaces, port 21232"});
}

static void homes_that_nodes_do_not_share_are_named(void **state)
{
    (void)state;
    job(&(struct trial){.environment = slurm,
                        .names = NODES,
                        .separate_homes = true,
                        .timeout_ms = 10000,
                        .status = CDDP_ERR_AUTH,
                        .text = "slurm-77.0.token, which the nodes do not share: set CDDP_TOKEN"});
}

static void pods_of_a_pytorch_job_join(void **state)
{
    (void)state;
    job(&(struct trial){.environment = pytorch_job, .names = PODS, .token = true});
    job(&(struct trial){.environment = old_pytorch_job, .names = PODS, .token = true});
    job(&(struct trial){.environment = elastic_job, .names = WORKERS, .token = true});
}

static void pods_whose_names_resolve_late_are_waited_for(void **state)
{
    (void)state;
    job(&(struct trial){.environment = indexed_job,
                        .names = INDEXED,
                        .token = true,
                        .nameless = true,
                        .log = "waiting, the name train-0.train has not resolved for"});
}

static void a_name_that_never_resolves_is_named(void **state)
{
    (void)state;
    job(&(struct trial){.environment = indexed_job,
                        .names = INDEXED,
                        .token = true,
                        .nameless = true,
                        .timeout_ms = 1500,
                        .status = CDDP_ERR_TIMEOUT,
                        .text = "the name train-0.train has not resolved for "});
}

static void pods_without_a_token_are_told_to_have_one(void **state)
{
    (void)state;
    job(&(struct trial){.environment = indexed_job,
                        .names = INDEXED,
                        .status = CDDP_ERR_ARGUMENT,
                        .text = "the job needs a secret: set CDDP_TOKEN"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_slurm_nodes_join_by_a_token_in_their_home),
        cmocka_unit_test(a_first_node_that_knows_itself_as_loopback_listens_everywhere),
        cmocka_unit_test(homes_that_nodes_do_not_share_are_named),
        cmocka_unit_test(pods_of_a_pytorch_job_join),
        cmocka_unit_test(pods_whose_names_resolve_late_are_waited_for),
        cmocka_unit_test(a_name_that_never_resolves_is_named),
        cmocka_unit_test(pods_without_a_token_are_told_to_have_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
