/* test_device_queues.c - how many hardware queues CUDA is asked for, and what is printed about it;
 * on the emulated module. */
#include "support/device.h"

#include "base/alloc.h"

#include <cddp/process.h>

#include <dlfcn.h>
#include <unistd.h>

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"
#define UNSET WITH(VARIABLE "=")
#define WARNING "set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA is first used"

enum { JOBS = 3 };

struct opening {
    const char *driver;    /* a driver that someone has initialised before; NULL: nobody has */
    const char *told;      /* by --check, before; NULL: it is not asked */
    int world_sizes[JOBS]; /* of those that open a device, one after the other; 0: the end */
    const char *value;     /* of the variable then */
    const char *after;     /* told when they are open */
    int warnings;
};

static void count_warnings(void *state, const cddp_log_record *record)
{
    *(int *)state += record->level == CDDP_LOG_WARN && strstr(record->line, WARNING) != NULL;
}

static bool is_told(const char *sentence)
{
    char *text = cddpi_device_describe();
    bool told = text != NULL && strstr(text, sentence) != NULL;

    if (!told) {
        fprintf(stderr, "\"%s\" is not in:\n%s", sentence, text != NULL ? text : "");
    }
    cddpi_free(text);
    return told;
}

static int open_devices(int rank, int world_size, void *argument)
{
    const struct opening *opening = argument;
    struct cddpi_device *devices[JOBS] = {NULL};
    const char *value;
    int warnings = 0;

    (void)rank, (void)world_size;
    cddp_log_set_sink(count_warnings, &warnings);
    CHECK(opening->driver == NULL || dlopen(opening->driver, RTLD_NOW) != NULL);
    CHECK(opening->told == NULL || is_told(opening->told));
    for (int i = 0; i < JOBS && opening->world_sizes[i] > 0; i++) {
        /* the others are on other machines */
        CHECK(cddpi_device_open("cuda", 0, opening->world_sizes[i], 0, 1, false, &devices[i]) ==
              CDDP_OK);
    }
    value = getenv(VARIABLE);
    CHECK(strcmp(value != NULL ? value : "", opening->value) == 0);
    CHECK(is_told(opening->after));
    CHECK(warnings == opening->warnings);
    for (int i = 0; i < JOBS; i++) {
        cddpi_device_close(devices[i]);
    }
    return 0;
}

static void several_ranks_get_32(void **state)
{
    struct opening several = {
        .told = "queues         32 where there are several ranks: cddp sets " VARIABLE,
        .world_sizes = {2, 1, 2},
        .value = "32",
        .after = "queues         32: cddp has set " VARIABLE};

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_devices, &several, UNSET), 0);
}

static void a_rank_alone_leaves_the_default(void **state)
{
    struct opening alone = {.world_sizes = {1, 1},
                            .value = "",
                            .after = "queues         CUDA's default: this process opened a "
                                     "device for one rank alone"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_devices, &alone, UNSET), 0);
}

static void several_ranks_after_one_alone_are_warned_once(void **state)
{
    struct opening later = {.world_sizes = {1, 2, 2},
                            .value = "",
                            .after = "queues         CUDA's default: CUDA was in use before",
                            .warnings = 1};

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_devices, &later, UNSET), 0);
}

static void the_environment_decides(void **state)
{
    struct opening given = {.told = "queues         12: " VARIABLE " was set by",
                            .world_sizes = {1, 2},
                            .value = "12",
                            .after = "queues         12: " VARIABLE " was set by"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    assert_int_equal(in_process(open_devices, &given, WITH(VARIABLE "=12")), 0);
}

/* The driver answers to calls; it is built where cuDNN is tested. */
static void cuda_that_is_in_use_has_its_default(void **state)
{
    struct opening late = {.told = "queues         CUDA's default: CUDA was in use before",
                           .world_sizes = {2, 2},
                           .value = "",
                           .after = "queues         CUDA's default: CUDA was in use before",
                           .warnings = 1};
    const char *build = getenv("CDDP_TEST_BUILD");
    char driver[4096] = "";

    (void)state;
    NEEDS_EMULATED_MODULE();
    snprintf(driver, sizeof driver, "%s/tests/libcuda.so.1", build != NULL ? build : "");
    if (access(driver, R_OK) != 0) {
        skip();
    }
    late.driver = driver;
    assert_int_equal(in_process(open_devices, &late, UNSET), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_ranks_get_32),
        cmocka_unit_test(a_rank_alone_leaves_the_default),
        cmocka_unit_test(several_ranks_after_one_alone_are_warned_once),
        cmocka_unit_test(the_environment_decides),
        cmocka_unit_test(cuda_that_is_in_use_has_its_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
