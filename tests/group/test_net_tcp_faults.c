/* test_net_tcp_faults.c - how the tcp carrier handles strangers, and peers that die, stop or
 * leave. */
#include "base/clock.h"
#include "group/net/tcp/tcp.h"
#include "support/carrier.h"
#include "support/failure.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/resource.h>

#define TOKEN SUPPORT_TOKEN
enum { WAIT_MS = SUPPORT_TIMEOUT_MS };
enum { NOTE_PORT, NOTE_PID, NOTE_DONE }; /* in carrier_job.notes */

struct job {
    struct carrier_job *shared;
    bool encrypts;
};

static cddp_status open_rank(struct job *job, int rank, struct carrier_rank *out)
{
    cddp_status status;

    setenv("CDDP_ENCRYPT", job->encrypts ? "1" : "0", 1);
    status = carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, WAIT_MS, out);
    if (status == CDDP_OK && rank == 0) {
        atomic_store(&job->shared->notes[NOTE_PORT], tcp_of(out->carrier)->own.port);
    }
    return status;
}

static void run_job(int world_size, rank_fn body, int expected_failures)
{
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct job job = {carrier_job_create(world_size, NULL), encrypts};

        assert_non_null(job.shared);
        assert_int_equal(run_ranks(world_size, body, &job), expected_failures);
        carrier_job_free(job.shared);
    }
}

static cddp_status run_one(struct carrier_rank *self, struct cddpi_transfer *transfer)
{
    cddp_status status = self->ops->start(self->carrier, transfer);

    return status == CDDP_OK ? carrier_wait(self, transfer, 1, WAIT_MS) : status;
}

/* Rank 1 is killed while rank 0 receives from it, and rank 2 waits for nothing. */
static int killed_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    enum { BYTES = 64 << 20 };
    struct carrier_rank self;
    uint8_t *data = calloc(1, BYTES);
    struct cddpi_transfer transfer = carrier_transfer(1 - rank, rank == 1, CDDPI_NET_COLLECTIVES, 1,
                                                      data, BYTES);

    (void)world_size;
    setenv("CDDP_HEARTBEAT_MS", "86400000", 1); /* a process that dies is not a silent host */
    CHECK(open_rank(job, rank, &self) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    if (rank < 2) {
        CHECK(self.ops->start(self.carrier, &transfer) == CDDP_OK);
    }
    if (rank == 1) {
        CHECK(!transfer.is_done);
        raise(SIGKILL);
    }
    CHECK(failure_is(carrier_wait_failure(&self, WAIT_MS), CDDP_ERR_PEER, -1, 1, ""));
    CHECK(last_error_has("rank 1 on host ") && last_error_has(" port "));
    self.ops->forget(self.carrier);
    carrier_close(&self);
    free(data);
    return 0;
}

static void a_peer_that_is_killed_is_named_by_all(void **state)
{
    (void)state;
    run_job(3, killed_rank, 1);
}

static int abort_rank(int rank, int world_size, void *argument)
{
    struct carrier_rank self;

    (void)world_size;
    CHECK(open_rank(argument, rank, &self) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    if (rank == 1) {
        (void)cddpi_fail_rank(CDDP_ERR_BROKEN, 1, "the GPU \x1b[31m is on fire");
        cddpi_error_blame(7);
        cddpi_error_during("all_reduce #12");
        self.ops->abort(self.carrier, cddpi_last_failure());
    } else {
        CHECK(failure_is(carrier_wait_failure(&self, WAIT_MS), CDDP_ERR_BROKEN, 1, 7,
                         "all_reduce #12"));
        CHECK(strcmp(cddp_last_error(), "rank 1: the GPU \\x1b[31m is on fire") == 0);
    }
    carrier_close(&self); /* at once: the abort still goes out */
    return 0;
}

static void an_abort_reaches_all_hosts_with_its_text(void **state)
{
    (void)state;
    run_job(3, abort_rank, 0);
}

static int leaving_rank(int rank, int world_size, void *argument)
{
    struct carrier_rank self;
    uint8_t data[10];
    struct cddpi_transfer transfer = carrier_transfer(0, false, CDDPI_NET_COLLECTIVES, 1, data,
                                                      sizeof data);

    (void)world_size;
    CHECK(open_rank(argument, rank, &self) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    if (rank == 1) {
        CHECK(carrier_meet(self.job));
        CHECK(carrier_wait_failure(&self, 600) == CDDP_OK); /* that it left is no failure */
        CHECK(self.ops->start(self.carrier, &transfer) == CDDP_OK);
        /* but that one waits is */
        CHECK(failure_is(carrier_wait_failure(&self, WAIT_MS), CDDP_ERR_PEER, -1, 0, ""));
        CHECK(last_error_has("left"));
        self.ops->forget(self.carrier);
        carrier_close(&self);
        return 0;
    }
    carrier_close(&self);
    CHECK(carrier_meet(argument == NULL ? NULL : ((struct job *)argument)->shared));
    return 0;
}

static void a_peer_that_leaves_has_not_failed(void **state)
{
    (void)state;
    run_job(2, leaving_rank, 0);
}

static int stopped_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;
    char text[512] = "it is late: ";
    const char *heard;
    uint8_t data = 1;
    struct cddpi_transfer transfer = carrier_transfer(1 - rank, rank == 1, CDDPI_NET_COLLECTIVES, 1,
                                                      &data, 1);

    (void)world_size;
    setenv("CDDP_HEARTBEAT_MS", "200", 1);
    CHECK(open_rank(job, rank, &self) == CDDP_OK);
    if (rank == 1) {
        atomic_store(&job->shared->notes[NOTE_PID], (int)getpid());
    }
    CHECK(carrier_meet(self.job));
    if (rank == 0) {
        pid_t peer = (pid_t)atomic_load(&job->shared->notes[NOTE_PID]);

        CHECK(kill(peer, SIGSTOP) == 0);
        CHECK(self.ops->start(self.carrier, &transfer) == CDDP_OK);
        CHECK(carrier_wait_failure(&self, 2000) == CDDP_OK); /* ten times the limit */
        self.ops->describe(self.carrier, 1, text, sizeof text);
        CHECK(strstr(text, "it is late: rank 1 on host ") == text);
        heard = strstr(text, "last heard of ");
        CHECK(heard != NULL && atof(heard + strlen("last heard of ")) >= 1.0);
        CHECK(kill(peer, SIGCONT) == 0);
        CHECK(carrier_wait(&self, &transfer, 1, WAIT_MS) == CDDP_OK);
    } else {
        CHECK(run_one(&self, &transfer) == CDDP_OK);
    }
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void a_peer_that_is_stopped_is_not_dead(void **state)
{
    (void)state;
    run_job(2, stopped_rank, 0);
}

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Say @p data and wait until the other side hangs up. */
static int is_refused(int port, const void *data, size_t bytes)
{
    char answer[256];
    int fd = connect_to(port);
    ssize_t got;

    CHECK(fd >= 0);
    CHECK(send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    do {
        got = recv(fd, answer, sizeof answer, 0);
    } while (got > 0);
    close(fd);
    return 0;
}

/* A proper answer to the hello, but for what @p change does to it. */
static int answers_wrongly(const struct carrier_rank *self, int port, const char *token,
                           void (*change)(struct tcp_answer *answer), uint32_t reply)
{
    uint8_t hello[TCP_HELLO_BYTES];
    uint8_t message[TCP_ANSWER_BYTES];
    uint8_t welcome[TCP_WELCOME_BYTES];
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    struct cddpi_session session;
    struct tcp_answer answer;
    struct tcp_welcome got;
    int fd = connect_to(port);

    memset(&answer, 0, sizeof answer);
    answer.purpose = (struct tcp_purpose){.from = 1,
                                          .generation = 3,
                                          .slot = 1,
                                          .sockets = tcp_of(self->carrier)->sockets,
                                          .encrypts = tcp_of(self->carrier)->encrypts};
    memcpy(answer.purpose.job, tcp_of(self->carrier)->job, TCP_JOB_BYTES);
    change(&answer);
    CHECK(recv(fd, hello, sizeof hello, MSG_WAITALL) == sizeof hello);
    cddpi_tcp_key(token, &answer.purpose, key);
    cddpi_session_offer(&session, key, hello + 12, tcp_of(self->carrier)->ciphers, answer.offer);
    cddpi_tcp_answer_put(&answer, message);
    CHECK(send(fd, message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message);
    CHECK(recv(fd, welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
    CHECK(cddpi_tcp_welcome_get(welcome, &got) && got.reply == reply);
    CHECK(recv(fd, welcome, 1, 0) == 0);
    close(fd);
    return 0;
}

static void change_nothing(struct tcp_answer *answer)
{
    (void)answer;
}

static void change_job(struct tcp_answer *answer)
{
    answer->purpose.job[5] ^= 1;
}

static void change_generation(struct tcp_answer *answer)
{
    answer->purpose.generation--;
}

static void change_rank(struct tcp_answer *answer)
{
    answer->purpose.from = 4000000000;
}

static void change_slot(struct tcp_answer *answer)
{
    answer->purpose.slot = 31;
}

static int be_strange(const struct carrier_rank *self)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    int port = atomic_load(&self->job->notes[NOTE_PORT]);
    uint8_t garbage[5000];
    uint8_t other_version[TCP_ANSWER_BYTES] = {0};
    int silent[300];

    for (size_t i = 0; i < sizeof garbage; i++) {
        garbage[i] = (uint8_t)(i * 37 + 1);
    }
    cddpi_tcp_hello_put(garbage, other_version);
    other_version[8]++;
    for (int i = 0; i < 300; i++) {
        silent[i] = connect_to(port); /* more than are let in at once */
    }
    CHECK(is_refused(port, http, sizeof http - 1) == 0);
    CHECK(is_refused(port, garbage, sizeof garbage) == 0);
    CHECK(is_refused(port, other_version, sizeof other_version) == 0);
    CHECK(answers_wrongly(self, port, "not the token", change_nothing, TCP_WRONG_TOKEN) == 0);
    CHECK(answers_wrongly(self, port, TOKEN, change_job, TCP_WRONG_JOB) == 0);
    CHECK(answers_wrongly(self, port, TOKEN, change_generation, TCP_WRONG_JOB) == 0);
    CHECK(answers_wrongly(self, port, TOKEN, change_rank, TCP_WRONG_JOB) == 0);
    CHECK(answers_wrongly(self, port, TOKEN, change_slot, TCP_WRONG_SETTINGS) == 0);
    /* a proper one, for what there is already */
    CHECK(answers_wrongly(self, port, TOKEN, change_nothing, TCP_HAVE_ONE) == 0);
    for (int i = 0; i < 300; i++) {
        close(silent[i]);
    }
    return 0;
}

static int strangers_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;
    int descriptors;
    int round = 0;

    (void)world_size;
    CHECK(open_rank(job, rank, &self) == CDDP_OK);
    CHECK(carrier_exchange(&self, 2, 0) == 0);
    CHECK(carrier_meet(self.job));
    descriptors = support_descriptors();
    if (rank == 2) {
        CHECK(be_strange(&self) == 0);
        atomic_store(&job->shared->notes[NOTE_DONE], 1);
    }
    do { /* the job goes on meanwhile, also with the one that behaves so badly */
        CHECK(carrier_exchange(&self, 2, round++) == 0);
        CHECK(carrier_meet(self.job));
    } while (rank != 2 ? atomic_load(&job->shared->notes[NOTE_DONE]) == 0 : false);
    CHECK(self.ops->check(self.carrier) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    while (support_descriptors() > descriptors) { /* strangers that proved nothing have to go */
        support_sleep_ms(10);
    }
    carrier_close(&self);
    return 0;
}

static void strangers_are_refused_while_the_job_goes_on(void **state)
{
    (void)state;
    run_job(3, strangers_rank, 0);
}

enum { FEW_FILES = 256, CHECKPOINT_FILES = 60, FLOOD_ROUNDS = 20, FLOOD = 150, KEPT = 600 };

/* Some thousand connections that say nothing, of which the last @p KEPT stay. */
static int flood(struct carrier_rank *self)
{
    int port = atomic_load(&self->job->notes[NOTE_PORT]);
    int silent[KEPT];
    int count = 0;

    for (int i = 0; i < KEPT; i++) {
        silent[i] = -1;
    }
    for (int round = 0; round < FLOOD_ROUNDS; round++) {
        for (int i = 0; i < FLOOD; i++, count++) {
            if (silent[count % KEPT] >= 0) {
                close(silent[count % KEPT]);
            }
            silent[count % KEPT] = connect_to(port);
        }
        CHECK(carrier_exchange(self, 2, round) == 0);
        CHECK(carrier_meet(self->job));
    }
    for (int i = 0; i < KEPT; i++) {
        if (silent[i] >= 0) {
            close(silent[i]);
        }
    }
    return 0;
}

/* Open as many files as a checkpoint has, @p times over. */
static int open_files(int times)
{
    int fds[CHECKPOINT_FILES];

    for (int k = 0; k < times; k++) {
        for (int i = 0; i < CHECKPOINT_FILES; i++) {
            fds[i] = open("/dev/null", O_WRONLY | O_CLOEXEC);
            CHECK(fds[i] >= 0);
        }
        for (int i = 0; i < CHECKPOINT_FILES; i++) {
            close(fds[i]);
        }
    }
    return 0;
}

static int few_files_rank(int rank, int world_size, void *argument)
{
    struct rlimit few = {FEW_FILES, FEW_FILES};
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    setenv("CDDP_LOG", "error", 1);
    if (rank == 0) {
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    CHECK(open_rank(job, rank, &self) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    if (rank == 2) {
        CHECK(flood(&self) == 0);
    } else {
        for (int round = 0; round < FLOOD_ROUNDS; round++) {
            CHECK(rank != 0 || open_files(50) == 0);
            CHECK(carrier_exchange(&self, 2, round) == 0);
            CHECK(rank != 0 || open_files(50) == 0);
            CHECK(carrier_meet(self.job));
        }
    }
    CHECK(self.ops->check(self.carrier) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void thousands_of_silent_strangers_leave_the_program_its_descriptors(void **state)
{
    struct rlimit limit;

    (void)state;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < KEPT + 100) {
        print_message("skipped: fewer than %d descriptors\n", KEPT + 100);
        skip();
    }
    run_job(3, few_files_rank, 0);
}

static int wrong_token_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;

    (void)world_size;
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank,
                       rank == 1 ? "another secret than of these tests" : TOKEN, 2000,
                       &self) == CDDP_ERR_AUTH);
    CHECK(self.carrier == NULL);
    carrier_close(&self);
    return 0;
}

static void a_rank_with_another_token_is_an_error_on_all_ranks(void **state)
{
    struct job job = {carrier_job_create(2, NULL), false};

    (void)state;
    assert_int_equal(run_ranks(2, wrong_token_rank, &job), 0);
    carrier_job_free(job.shared);
}

/* A rank that does not answer: its kernel accepts connections, its process is stopped. */
static int silent_rank(int rank, int world_size, void *argument)
{
    struct job *job = argument;
    struct carrier_rank self;
    uint8_t data = 0;
    struct cddpi_transfer transfer = carrier_transfer(3, true, CDDPI_NET_MESSAGES, 1, &data, 1);

    (void)world_size;
    CHECK(carrier_open(&cddpi_tcp_carrier, job->shared, rank, TOKEN, 5000, &self) == CDDP_OK);
    if (rank == 3) {
        atomic_store(&job->shared->notes[NOTE_PID], (int)getpid());
    }
    CHECK(carrier_meet(self.job));
    if (rank == 1) {
        char text[512] = "";
        pid_t peer = (pid_t)atomic_load(&job->shared->notes[NOTE_PID]);

        CHECK(kill(peer, SIGSTOP) == 0);
        CHECK(self.ops->start(self.carrier, &transfer) == CDDP_OK);
        self.ops->describe(self.carrier, 3, text, sizeof text);
        CHECK(strstr(text, "rank 3 on host") == text && strstr(text, "not connected") != NULL);
        CHECK(failure_is(carrier_wait_failure(&self, WAIT_MS), CDDP_ERR_PEER, -1, 3, ""));
        CHECK(kill(peer, SIGCONT) == 0);
        self.ops->forget(self.carrier);
    }
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void a_rank_that_does_not_connect_in_time_is_named(void **state)
{
    static const int host_of[] = {0, 0, 1, 1};
    struct job job = {carrier_job_create(4, host_of), false};

    (void)state;
    assert_int_equal(run_ranks(4, silent_rank, &job), 0);
    carrier_job_free(job.shared);
}

static int forking_rank(int rank, int world_size, void *argument)
{
    struct carrier_rank self;
    int status = 0;
    pid_t child;

    (void)world_size;
    CHECK(open_rank(argument, rank, &self) == CDDP_OK);
    child = fork();
    if (child == 0) { /* as a trainer that starts loader processes, which then exit */
        (void)cddpi_fail(CDDP_ERR_IO, "of the child");
        self.ops->abort(self.carrier, cddpi_last_failure());
        carrier_close(&self);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(carrier_exchange(&self, 2, 0) == 0);
    CHECK(carrier_wait_failure(&self, 300) == CDDP_OK);
    CHECK(carrier_meet(self.job));
    carrier_close(&self);
    return 0;
}

static void a_forked_child_that_closes_its_copy_disturbs_nobody(void **state)
{
    (void)state;
    run_job(2, forking_rank, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_is_killed_is_named_by_all),
        cmocka_unit_test(an_abort_reaches_all_hosts_with_its_text),
        cmocka_unit_test(a_peer_that_leaves_has_not_failed),
        cmocka_unit_test(a_peer_that_is_stopped_is_not_dead),
        cmocka_unit_test(strangers_are_refused_while_the_job_goes_on),
        cmocka_unit_test(thousands_of_silent_strangers_leave_the_program_its_descriptors),
        cmocka_unit_test(a_rank_with_another_token_is_an_error_on_all_ranks),
        cmocka_unit_test(a_rank_that_does_not_connect_in_time_is_named),
        cmocka_unit_test(a_forked_child_that_closes_its_copy_disturbs_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
