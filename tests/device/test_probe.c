/* test_probe.c - a child process asks the CUDA driver, which may hang or crash. */
#include "base/alloc.h"
#include "base/error.h"
#include "device/device_module.h"
#include "support/test.h"

static void answer(int fd, const void *context)
{
    dprintf(fd, "%s", (const char *)context);
}

static void answer_and_hang(int fd, const void *context)
{
    (void)context;
    dprintf(fd, "two");
    close(fd);
    for (;;) {
        pause();
    }
}

static void hang(int fd, const void *context)
{
    (void)fd;
    (void)context;
    for (;;) {
        pause();
    }
}

static void crash(int fd, const void *context)
{
    (void)fd;
    (void)context;
    raise(SIGKILL);
}

static void talk_too_much(int fd, const void *context)
{
    static const char line[100];

    (void)context;
    for (int i = 0; i < 1000; i++) {
        (void)!write(fd, line, sizeof line);
    }
}

static void leave(int fd, const void *context)
{
    (void)fd;
    (void)context;
    _exit(3);
}

static void a_driver_that_hangs_or_crashes_when_it_is_asked_is_told(void **state)
{
    static const struct {
        void (*probe)(int fd, const void *context);
        const char *text;
    } cases[] = {{hang, "CUDA did not answer within 100 ms"},
                 {answer_and_hang, "CUDA did not answer within 100 ms"},
                 {crash, "CUDA crashed when it was asked: Killed"},
                 {talk_too_much, "CUDA's answer has more than 65535 bytes"},
                 {leave, "CUDA ended the process that asked it with status 3"}};
    char *text = cddpi_probe_child(answer, "two", SUPPORT_TIMEOUT_MS);

    (void)state;
    assert_non_null(text);
    assert_string_equal(text, "two");
    cddpi_free(text);
    for (int i = 0; i < 5; i++) {
        uint32_t limit_ms = i < 2 ? 100 : SUPPORT_TIMEOUT_MS;

        assert_null(cddpi_probe_child(cases[i].probe, NULL, limit_ms));
        assert_string_equal(cddp_last_error(), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_hangs_or_crashes_when_it_is_asked_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
