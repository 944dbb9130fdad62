/* recovery_rank.c - a program that registers the state of its loops with cddp/recovery.h, and does
 * to itself what tests ask for.
 *
 *     recovery_rank [stays|late] [together] WORDS...    a loop for each argument, one after
 * another; or together
 *
 * With "stays", the process asks for a place in the next generation where it would end otherwise,
 * and each rank says which process it is. With "late", a new process of generation 1 also waits for
 * a signal before it joins. "answered" is no loop: the process stays, and is ready in its second
 * generation once there is a file "go"; it ends at the second SIGTERM.
 *
 * Words are those of recovery_loop.c, for all ranks of all generations, or "1.0:KEY=NUMBER", for
 * rank 0 of generation 1. Rank 0 prints what becomes of it; each rank, what is wrong. */
#include "recovery/recovery_loop.h"

#include "base/alloc.h"
#include "base/rejoin_wire.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOOPS = 4, FAILED = 1, STOPPED = 3, WRONG = 9 };

static cddp_status why; /* the last call that failed returned this */

static void note_why(void)
{
    cddp_failure failure = CDDP_FAILURE_INIT;

    why = cddp_last_failure(&failure) == CDDP_OK ? failure.status : CDDP_ERR_STATE;
}

static int fail(const struct loop *loop, const char *what)
{
    fprintf(stderr, "rank %d: %s at step %" PRIu64 ": %s\n", loop->rank, what, loop->step,
            cddp_last_error());
    note_why();
    return FAILED;
}

static void path_of(const struct loop *loop, const char *what, char *out, size_t size)
{
    snprintf(out, size, "%s/%s%s", loop->folder, what, loop->name);
}

/* The step in the loop's file @p what; 0: there is none. */
static uint64_t read_step(const struct loop *loop, const char *what)
{
    char path[2 * WORD_BYTES + 16];
    uint64_t step = 0;
    FILE *file;

    path_of(loop, what, path, sizeof path);
    file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%" SCNu64, &step) != 1) {
            step = 0;
        }
        fclose(file);
    }
    return step;
}

static void write_step(const struct loop *loop, const char *what)
{
    char path[2 * WORD_BYTES + 16], temporary[2 * WORD_BYTES + 32];
    FILE *file;

    path_of(loop, what, path, sizeof path);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    file = fopen(temporary, "w");
    if (file != NULL) {
        fprintf(file, "%" PRIu64 "\n", loop->step);
        fclose(file);
        (void)rename(temporary, path);
    }
}

static void say(const struct loop *loop, const char *what)
{
    if (loop->rank == 0) {
        printf("%s%s%" PRIu64 ".%d: %s %" PRIu64 "\n", loop->name, loop->name[0] != '\0' ? " " : "",
               loop->generation, loop->world_size, what, loop->step);
        fflush(stdout);
    }
}

/* What this process has kept, as the handle says. */
static int check_info(const struct loop *loop, cddp_recovery_action action, uint64_t *last)
{
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    int wrong = cddp_recovery_get_info(loop->recovery, &info) != CDDP_OK;

    wrong |= (info.copies > 0) != (info.bytes > 0) || (info.copies == 0 && info.kept_step > 0);
    wrong |= info.kept_step > loop->step || (info.copies > 0 && info.spent_ns == 0);
    wrong |= action == CDDP_RECOVERY_REPLACED ? info.restored_step != loop->step || info.copies != 0
                                              : loop->generation == 0 && info.restored_step != 0;
    if (wrong != 0) {
        printf("WRONG: info %" PRIu64 " copies, %" PRIu64 " bytes, kept %" PRIu64 "\n", info.copies,
               info.bytes, info.kept_step);
    }
    *last = info.copies;
    return wrong;
}

/* Flip bytes of what local rank 0 has kept. */
static void damage(void)
{
    const char *text = getenv("CDDP_KEEP_FDS");
    int fd = text != NULL ? atoi(text) : -1;
    unsigned char byte;

    /* (slots begin at multiples of 64 KiB; the list of pieces comes after 32 bytes) */
    for (off_t at = 65536; pread(fd, &byte, 1, at + 100) == 1; at += 65536) {
        byte ^= 1;
        if (pwrite(fd, &byte, 1, at + 100) != 1) {
            break;
        }
    }
    kill(getpid(), SIGKILL);
}

static void *die_soon(void *microseconds)
{
    const struct timespec pause = {.tv_nsec = (long)(uintptr_t)microseconds * 1000};

    nanosleep(&pause, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void begin_chaos(const struct loop *loop)
{
    pthread_t thread;
    uint64_t chaos = loop->events.chaos;

    if (chaos > 0 && pthread_create(&thread, NULL, die_soon, (void *)(uintptr_t)chaos) == 0) {
        pthread_detach(thread);
    }
}

/* The loop's own events before step loop->step is begun. Not 0: it fails. */
static int before(struct loop *loop)
{
    const struct events *events = &loop->events;

    if (events->back == loop->step && loop->step > 0) {
        loop->events.back = 0;
        loop->events.kill = events->gone_back;
        loop->step -= 2;
        loop_set(loop);
    }
    loop_die_if(events->kill, loop->step);
    loop_wait_if(events->waits, loop->step);
    if (events->closes == loop->step && loop->step > 0) {
        fclose(stdout);
    }
    if (events->lingers == loop->step && loop->step > 0) {
        const struct timespec pause = {.tv_nsec = 2000000};

        printf("lingers %" PRIu64 "\n", loop->step);
        while (access("go", F_OK) != 0) {
            nanosleep(&pause, NULL);
        }
    }
    if (events->term == loop->step && loop->step > 0) {
        raise(SIGTERM);
    }
    if (events->refuse == loop->step && loop->step > 0) {
        return cddp_recovery_refuse(loop->recovery) == CDDP_OK ? FAILED : WRONG;
    }
    return events->ends == loop->step && loop->step > 0 ? FAILED : 0;
}

static void after(const struct loop *loop)
{
    loop_die_if(loop->events.begun, loop->step);
    if (loop->events.damage == loop->step && loop->step > 0) {
        damage();
    }
    if (loop->checkpoint > 0 && loop->step > 0 && loop->step % loop->checkpoint == 0 &&
        loop->rank == 0) {
        write_step(loop, "checkpoint");
    }
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Copies take at most 2 % of the time, and are made as soon as that allows it. The time between
 * what is known of the call's beginning and of its end may count or not. */
static int check_cost(const struct loop *loop, const cddp_recovery_info *was, int64_t began_ns)
{
    static int64_t first_began_ns, first_ended_ns; /* the first call */
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    int64_t spent = (int64_t)was->spent_ns;
    int64_t ended_ns = now_ns();
    bool wrong = false;

    if (cddp_recovery_get_info(loop->recovery, &info) != CDDP_OK) {
        return 1;
    }
    if (first_ended_ns == 0) {
        first_began_ns = began_ns;
        first_ended_ns = ended_ns;
    } else if (loop->every == 0 && loop->slow_us > 0 && loop->rank == 0) {
        wrong = info.copies > was->copies ? spent > (ended_ns - first_began_ns) / 50
                                          : spent < (began_ns - first_ended_ns) / 50;
    }
    if (wrong) {
        printf("WRONG: %" PRIu64 " copies at step %" PRIu64 "\n", info.copies, loop->step);
    }
    return wrong;
}

/* Call cddp_recovery_step(). */
static int begin_step(struct loop *loop, cddp_recovery_action *action)
{
    cddp_recovery_info was = CDDP_RECOVERY_INFO_INIT;
    uint64_t step = loop->step + (loop->events.jump == loop->step && loop->step > 0);
    int64_t began_ns = now_ns();
    uint64_t copies;

    cddpi_alloc_fail_nth((unsigned)loop->events.no_memory);
    loop->events.no_memory = 0;
    if (cddp_recovery_get_info(loop->recovery, &was) != CDDP_OK ||
        cddp_recovery_step(loop->recovery, &step, action) != CDDP_OK) {
        return fail(loop, "step");
    }
    cddpi_alloc_fail_nth(0);
    if (*action == CDDP_RECOVERY_REPLACED) {
        loop->step = step;
        say(loop, "replaced");
    } else if (step != loop->step) {
        printf("WRONG: step %" PRIu64 " became %" PRIu64 "\n", loop->step, step);
        return WRONG;
    }
    if (loop->strict != 0 && step < read_step(loop, "met")) {
        printf("WRONG: step %" PRIu64 " is lost\n", read_step(loop, "met"));
        return WRONG;
    }
    if (check_info(loop, *action, &copies) != 0 || check_cost(loop, &was, began_ns) != 0 ||
        (*action == CDDP_RECOVERY_REPLACED && loop_check(loop, true) != 0)) {
        return WRONG;
    }
    if (*action == CDDP_RECOVERY_REPLACED) {
        loop_own_buffers(loop);
    }
    return 0;
}

/* One step of the loop. @p is_done: it was the last. */
static int do_step(struct loop *loop, bool *is_done)
{
    cddp_recovery_action action = CDDP_RECOVERY_STOP;
    int64_t ranks = 1;
    int status = before(loop);

    if (status == 0) {
        status = begin_step(loop, &action);
    }
    if (status != 0) {
        return status;
    }
    after(loop);
    if (action == CDDP_RECOVERY_STOP) {
        say(loop, "stopped");
        return STOPPED;
    }
    *is_done = loop->step >= loop->steps;
    if (*is_done) {
        return 0;
    }
    if (cddp_all_reduce(loop->group, &ranks, &ranks, 1, CDDP_I64, CDDP_OP_SUM, NULL) != CDDP_OK) {
        return fail(loop, "sum");
    }
    if (loop->rank == 0) {
        write_step(loop, "met"); /* all have ended the call before */
    }
    loop_die_if(loop->events.met, loop->step);
    return loop_update(loop) == 0 ? 0 : fail(loop, "update");
}

static int begin_loop(struct loop *loop, cddp_group *group, const char *words)
{
    strcpy(loop->folder, ".");
    loop->group = group;
    loop->rank = cddp_group_rank(group);
    loop->world_size = cddp_group_world_size(group);
    loop->generation = (uint64_t)atoi(getenv("CDDP_GENERATION") != NULL ? getenv("CDDP_GENERATION")
                                                                        : "0");
    if (loop_read(loop, words) != 0) {
        return WRONG;
    }
    loop->step = read_step(loop, "checkpoint");
    if (loop_make(loop) != 0) {
        return fail(loop, "make");
    }
    say(loop, "begins at");
    begin_chaos(loop);
    return 0;
}

static int end_loop(struct loop *loop)
{
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;

    if (cddp_recovery_get_info(loop->recovery, &info) != CDDP_OK || loop_check(loop, false) != 0) {
        return WRONG;
    }
    if (loop->rank == 0) {
        printf("copies: %" PRIu64 "\n", info.copies);
    }
    say(loop, "ends at");
    loop_die_if(loop->events.dies, loop->step);
    return 0;
}

static int run_loop(struct loop *loop)
{
    bool is_done = false;
    int status = 0;

    while (status == 0 && !is_done) {
        status = do_step(loop, &is_done);
    }
    return status == 0 ? end_loop(loop) : status;
}

/* Take turns, until the first loop is at its end. */
static int run_together(struct loop *loops, int count)
{
    bool is_done = false;
    int status = 0;

    while (status == 0 && !is_done) {
        for (int i = 0; status == 0 && i < count; i++) {
            bool other;

            status = do_step(&loops[i], i == 0 ? &is_done : &other);
        }
    }
    return status == 0 ? end_loop(&loops[0]) : status;
}

static int run(cddp_group *group, char **words, int count)
{
    static struct loop loops[LOOPS];
    bool together = count > 0 && strcmp(words[0], "together") == 0;
    int status = 0;

    memset(loops, 0, sizeof loops);
    words += together;
    count -= together;
    for (int i = 0; status == 0 && i < count && i < LOOPS; i++) {
        status = begin_loop(&loops[i], group, words[i]);
        if (status == 0 && !together) {
            status = run_loop(&loops[i]);
        }
    }
    if (status == 0 && together) {
        status = run_together(loops, count);
    }
    for (int i = 0; i < LOOPS; i++) {
        loop_release(&loops[i]);
    }
    return status;
}

/* Be a rank, from the group's beginning to its end. */
static int live(char **words, int count, bool says)
{
    cddp_group *group = NULL;
    int status = FAILED;

    why = CDDP_ERR_STATE; /* its own failure */
    if (cddp_stop_on_signals(NULL, 0) == CDDP_OK && cddp_group_create(NULL, &group) == CDDP_OK) {
        if (says) {
            printf("process %d is rank %d of generation %s\n", (int)getpid(),
                   cddp_group_rank(group), getenv("CDDP_GENERATION"));
        }
        status = run(group, words, count);
    } else {
        fprintf(stderr, "recovery_rank: %s\n", cddp_last_error());
        note_why();
    }
    cddp_group_destroy(group);
    return status;
}

static void count_signal(int number)
{
    static volatile sig_atomic_t count;
    const char text[] = {'s', 'i', 'g', 'n', 'a', 'l', ' ', (char)('1' + count), '\n'};

    (void)number;
    (void)!write(STDOUT_FILENO, text, sizeof text);
    if (++count == 2) {
        _exit(STOPPED);
    }
}

/* The rank's side of base/rejoin_wire.h, at its slowest. */
static int be_answered(void)
{
    const unsigned char failed = CDDPI_REJOIN_FAILED, ready = CDDPI_REJOIN_READY;
    const struct timespec pause = {.tv_nsec = 2000000};
    int fd = atoi(getenv("CDDP_REJOIN_FD"));
    char answer[CDDPI_REJOIN_BYTES];

    if (signal(SIGTERM, count_signal) == SIG_ERR || send(fd, &failed, 1, 0) != 1 ||
        recv(fd, answer, sizeof answer, 0) <= 0) {
        return FAILED;
    }
    printf("answered\n");
    while (access("go", F_OK) != 0) {
        nanosleep(&pause, NULL);
    }
    (void)!send(fd, &ready, 1, 0);
    for (;;) {
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    bool is_late = argc > 1 && strcmp(argv[1], "late") == 0;
    bool stays = is_late || (argc > 1 && strcmp(argv[1], "stays") == 0);
    int status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "answered") == 0) {
        return be_answered();
    }
    if (is_late && strcmp(getenv("CDDP_GENERATION"), "1") == 0) {
        printf("rank %s is late\n", getenv("CDDP_RANK"));
        pause();
    }
    do {
        status = live(argv + 1 + stays, argc - 1 - stays, stays);
        if (stays && (status == FAILED || status == STOPPED)) {
            fprintf(stderr, "recovery_rank: may this process stay?\n");
        }
    } while (stays && (status == FAILED || status == STOPPED) &&
             cddp_recovery_rejoin(status == STOPPED ? CDDP_OK : why) == CDDP_OK);
    return status;
}
