/* test_launcher_hostile.c - cddp-run among strangers, with too little of everything, and with files
 * that are none. */
#include "launcher_support.h"

#include <sys/resource.h>

/* The port in the "tcp://127.0.0.1:PORT" that rank 0 wrote into the file "store". */
static uint16_t store_port(const struct launched *job)
{
    char *text;
    uint16_t port;

    launcher_await_text(job->dir, "store", "\n");
    text = launcher_read(job->dir, "store");
    port = (uint16_t)atoi(strrchr(text, ':') + 1);
    free(text);
    return port;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* More silent connections than the launcher has descriptors; and then it starts all ranks anew. */
static void silent_strangers_do_not_hinder_a_restart(void **state)
{
    enum { STRANGERS = 150 };
    struct launched job = {0};
    int fds[STRANGERS];
    uint16_t port;

    (void)state;
    setenv("CDDP_RUN_PROGRAM", launcher_path("launcher/cddp-run"), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){
            "-c",
            "ulimit -n 100; exec \"$CDDP_RUN_PROGRAM\" --max-restarts 1 --nproc 4 -- sh -c '"
            "[ $CDDP_GENERATION = 0 ] || { echo again >again$RANK; exit 0; }; "
            "[ $RANK = 0 ] && echo $CDDP_STORE >store; "
            "while [ ! -e go ]; do sleep 0.01; done; exit 5'",
            NULL});
    port = store_port(&job);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = connect_to(port);
    }
    launcher_write(job.dir, "go", "");
    launcher_wait(&job);
    for (int i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
    assert_no_err(&job, "Too many open files");
    assert_int_equal(job.exit_status, 0);
    launcher_await_text(job.dir, "again3", "again");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_strangers_do_not_hinder_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
