/* test_process.c - the log's sink, the allocator and the signals of a program that embeds cddp. */
#include "base/alloc.h"
#include "base/launcher_report.h"
#include "base/log.h"
#include "support/test.h"

#include <cddp/cddp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

/* Each block has a header, so that memory of another allocator is noticed. */
struct header {
    uint64_t magic;
    void *block;
};
enum { MAGIC = 0x1337c0de };

static atomic_long live; /* the store's server has a thread */

static void *give(void *state, size_t bytes, size_t alignment)
{
    unsigned char *block = malloc(bytes + alignment + sizeof(struct header));
    uintptr_t at = ((uintptr_t)block + sizeof(struct header) + alignment - 1) / alignment *
                   alignment;

    ((struct header *)at)[-1] = (struct header){MAGIC, block};
    memset((void *)at, 0xaa, bytes);
    ++*(atomic_long *)state;
    return (void *)at;
}

static void take(void *state, void *memory)
{
    struct header *header = (struct header *)memory - 1;

    if (header->magic != MAGIC) {
        abort();
    }
    free(header->block);
    --*(atomic_long *)state;
}

static void *resize(void *state, void *memory, size_t bytes)
{
    void *more = give(state, bytes, 16);

    if (memory != NULL) { /* blocks of this test are not longer */
        memcpy(more, memory, bytes < 64 ? bytes : 64);
        take(state, memory);
    }
    return more;
}

static int allocator_rank(int rank, int world_size, void *argument)
{
    cddp_allocator allocator = CDDP_ALLOCATOR_INIT;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    float data[64] = {0};
    cddp_param param = {.name = "w", .dims = 1, .shape = {64}, .data = data};
    cddp_group *group;
    cddp_store *store;
    cddp_step step = CDDP_STEP_INIT;
    cddp_ddp *ddp;
    void *value;

    (void)argument;
    (void)world_size;
    (void)rank;
    CHECK(cddp_allocator_set(NULL) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_allocator_set(&allocator) == CDDP_ERR_ARGUMENT);
    allocator.state = &live;
    allocator.alloc = give;
    allocator.resize = resize;
    allocator.release = take;
    CHECK(cddp_allocator_set(&allocator) == CDDP_OK);
    options.backend = "solo";
    options.world_size = 1;
    CHECK(cddp_group_create(&options, &group) == CDDP_OK);
    CHECK(live > 0);
    CHECK(cddp_allocator_set(&allocator) == CDDP_ERR_STATE);
    CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_OK);
    CHECK(((float *)cddp_ddp_grad(ddp, 0))[63] == 0);
    step.samples = 1;
    CHECK(cddp_ddp_begin(ddp, &step) == CDDP_OK);
    CHECK(cddp_ddp_grad_ready(ddp, 0) == CDDP_OK && cddp_ddp_wait(ddp) == CDDP_OK);
    CHECK(cddp_group_store_create(group, &store) == CDDP_OK);
    CHECK(cddp_store_set(store, "a", "b", 1) == CDDP_OK);
    CHECK(cddp_store_get(store, "a", 0, &value, NULL) == CDDP_OK && *(char *)value == 'b');
    cddp_free(value);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    CHECK(live < 8); /* handles that were destroyed are kept for a while */
    return 0;
}

static void memory_comes_from_the_callers_allocator(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, allocator_rank, NULL), 0);
}

static char said[256];
static cddp_log_level said_level;
static uint64_t said_ns;

static void hear(void *state, const cddp_log_record *record)
{
    ++*(int *)state;
    said_level = record->level;
    said_ns = record->time_ns;
    snprintf(said, sizeof said, "%s%s", record->line,
             record->struct_size != sizeof *record || record->rank != 7 ? " by whom?" : "");
}

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int log_rank(int rank, int world_size, void *argument)
{
    uint64_t before_ns;
    int lines = 0;

    (void)rank;
    (void)world_size;
    (void)argument;
    setenv("CDDP_LOG", "info", 1);
    setenv("CDDP_RANK", "7", 1);
    cddp_log_set_sink(hear, &lines);
    before_ns = clock_ns();
    cddpi_log(CDDPI_LOG_WARN, "%d bytes", 7);
    CHECK(said_ns >= before_ns && said_ns <= clock_ns());
    CHECK(lines == 1 && said_level == CDDP_LOG_WARN && strcmp(said, "7 bytes") == 0);
    cddpi_log(CDDPI_LOG_DEBUG, "not wanted");
    CHECK(lines == 1);
    cddp_log_set_level(CDDP_LOG_DEBUG);
    cddpi_log(CDDPI_LOG_DEBUG, "wanted now");
    CHECK(lines == 2 && said_level == CDDP_LOG_DEBUG && strcmp(said, "wanted now") == 0);
    cddp_log_set_level(CDDP_LOG_OFF);
    cddpi_log(CDDPI_LOG_ERROR, "not wanted");
    CHECK(lines == 2);
    cddp_log_set_sink(NULL, NULL);
    cddp_log_set_level(CDDP_LOG_INFO);
    cddpi_log(CDDPI_LOG_INFO, "to stderr");
    CHECK(lines == 2);
    return 0;
}

static void lines_of_the_log_go_to_the_callers_sink(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, log_rank, NULL), 0);
}

static void count_stop(int number)
{
    (void)number;
    cddp_stop_request(); /* as in a program with handlers of its own */
}

static int stop_rank(int rank, int world_size, void *argument)
{
    static const int own[] = {SIGUSR2, SIGTERM};
    struct sigaction action;

    (void)rank;
    (void)world_size;
    (void)argument;
    CHECK(cddp_stop_on_signals((const int[]){SIGTERM, SIGKILL}, 2) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_stop_on_signals((const int[]){SIGSEGV}, 1) == CDDP_ERR_ARGUMENT);
    CHECK(cddp_stop_on_signals(NULL, 1) == CDDP_ERR_ARGUMENT);
    CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK(cddp_stop_on_signals(NULL, 0) == CDDP_OK);
    CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler != SIG_DFL);
    CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK(cddp_stop_on_signals(own, 2) == CDDP_OK);
    CHECK(signal(SIGUSR1, count_stop) == SIG_DFL);
    CHECK(!cddp_stop_requested());
    CHECK(raise(SIGUSR1) == 0 && cddp_stop_requested());
    CHECK(raise(SIGUSR2) == 0 && raise(SIGUSR2) == 0); /* only announce an end, */
    support_sleep_ms(250);
    CHECK(raise(SIGTERM) == 0); /* so this is the first that asks for it */
    return 0;
}

static void a_program_chooses_the_signals_that_request_a_stop(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, stop_rank, NULL), 0);
}

/* A process that stands for the launcher of its parent: for each byte it sends SIGTERM. */
struct sender {
    pid_t pid;
    int order[2], done[2];
};

static int start_sender(struct sender *sender)
{
    char byte;

    CHECK(pipe(sender->order) == 0 && pipe(sender->done) == 0);
    sender->pid = fork();
    CHECK(sender->pid >= 0);
    if (sender->pid == 0) {
        close(sender->order[1]);
        while (read(sender->order[0], &byte, 1) == 1 && kill(getppid(), SIGTERM) == 0 &&
               write(sender->done[1], &byte, 1) == 1) {
        }
        _exit(0);
    }
    close(sender->order[0]);
    close(sender->done[1]);
    return 0;
}

/* Returns after the signal was handled: it is pending before read() returns. */
static int let_send(const struct sender *sender)
{
    char byte = 0;

    CHECK(write(sender->order[1], &byte, 1) == 1 && read(sender->done[0], &byte, 1) == 1);
    return 0;
}

static int open_reports(const struct sender *sender, int out_ends[2])
{
    char text[16];

    CHECK(pipe(out_ends) == 0);
    snprintf(text, sizeof text, "%d", out_ends[1]);
    setenv("CDDP_REPORT_FD", text, 1);
    snprintf(text, sizeof text, "%d", (int)sender->pid);
    setenv("CDDP_LAUNCHER_PID", text, 1);
    setenv("CDDP_RANK", "513", 1);
    return 0;
}

/* A user and the launcher ask at once: that is no second request of either. The launcher is told of
 * the user's, once. Ends by the user's second signal. */
static int leave_rank(int rank, int world_size, void *argument)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
    const char expected[] = {'w', 'l', 1, 2, 0};
    struct sender sender = {.pid = 0};
    char reports[16];
    int ends[2];

    (void)rank;
    (void)world_size;
    CHECK(start_sender(&sender) == 0 && open_reports(&sender, ends) == 0);
    CHECK(cddp_stop_on_signals(signals, 3) == CDDP_OK);
    CHECK(let_send(&sender) == 0 && cddp_stop_requested());
    support_sleep_ms(250);
    CHECK(raise(SIGTERM) == 0 && raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0);
    CHECK(read(ends[0], reports, sizeof reports) == sizeof expected);
    CHECK(memcmp(reports, expected, sizeof expected) == 0);
    support_sleep_ms(250);
    *(bool *)argument = true;
    (void)raise(SIGTERM);
    return 0;
}

/* Also for one that is not asked to end. */
static int keep_rank(int rank, int world_size, void *argument)
{
    struct sender sender = {.pid = getppid()};
    char reports[16];
    int ends[2];

    (void)rank;
    (void)world_size;
    (void)argument;
    CHECK(open_reports(&sender, ends) == 0);
    cddpi_launcher_report_kept(); /* before there is a pipe */
    cddpi_launcher_report_open();
    cddpi_launcher_report_kept();
    CHECK(read(ends[0], reports, sizeof reports) == 1 && reports[0] == CDDPI_REPORT_KEPT);
    return 0;
}

static int ask_rank(int rank, int world_size, void *argument)
{
    struct sender sender = {.pid = 0};
    char reports[16];
    int ends[2];

    (void)rank;
    (void)world_size;
    CHECK(start_sender(&sender) == 0 && open_reports(&sender, ends) == 0);
    CHECK(cddp_stop_on_signals(NULL, 0) == CDDP_OK);
    CHECK(raise(SIGINT) == 0); /* is no leave: it ends the job */
    CHECK(let_send(&sender) == 0);
    CHECK(read(ends[0], reports, sizeof reports) == 1 && reports[0] == 'w');
    support_sleep_ms(250);
    *(bool *)argument = true;
    (void)let_send(&sender);
    return 0;
}

static void assert_ends_by_sigterm(rank_fn body)
{
    bool *is_due = mmap(NULL, sizeof *is_due, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    int status = 0;

    assert_ptr_not_equal(is_due, MAP_FAILED);
    assert_int_equal(run_ranks_status(1, body, is_due, &status), 1);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_true(*is_due);
    munmap(is_due, sizeof *is_due);
}

static void a_rank_tells_its_launcher_that_someone_else_asked_it_to_leave(void **state)
{
    (void)state;
    assert_ends_by_sigterm(leave_rank);
}

static void a_rank_tells_its_launcher_that_it_keeps_its_progress(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, keep_rank, NULL), 0);
}

static void a_second_request_of_the_launcher_ends_a_rank(void **state)
{
    (void)state;
    assert_ends_by_sigterm(ask_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_from_the_callers_allocator),
        cmocka_unit_test(lines_of_the_log_go_to_the_callers_sink),
        cmocka_unit_test(a_program_chooses_the_signals_that_request_a_stop),
        cmocka_unit_test(a_rank_tells_its_launcher_that_someone_else_asked_it_to_leave),
        cmocka_unit_test(a_rank_tells_its_launcher_that_it_keeps_its_progress),
        cmocka_unit_test(a_second_request_of_the_launcher_ends_a_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
