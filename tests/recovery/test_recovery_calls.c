/* test_recovery_calls.c - calls of cddp/recovery.h with wrong arguments, or at the wrong time: an
 * error with a message, and the handle goes on as if the call had not been. */
#include "base/alloc.h"
#include "recovery/kept_memory.h"
#include "support/misuse.h"

#include <sys/mman.h>

#define GIVES(call, status, text) assert_true(misuse_gives((call), (status), (text)))
#define REFUSES(call, text) GIVES(call, CDDP_ERR_ARGUMENT, text)

static cddp_group *group;
static cddp_recovery *recovery;
static unsigned char data[64];

static int begin(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    (void)state;
    unsetenv("CDDP_KEEP_FDS");
    options.world_size = 1;
    return cddp_group_create(&options, &group) != CDDP_OK ||
           cddp_recovery_create(group, NULL, &recovery) != CDDP_OK;
}

static int end(void **state)
{
    (void)state;
    cddp_recovery_destroy(recovery);
    cddp_group_destroy(group);
    return 0;
}

static cddp_recovery_array array_of(const char *name, void *at, uint64_t bytes, uint64_t total,
                                    uint64_t first)
{
    cddp_recovery_array array = CDDP_RECOVERY_ARRAY_INIT;

    array.name = name;
    array.data = at;
    array.bytes = bytes;
    array.total_bytes = total;
    array.first_byte = first;
    return array;
}

static cddp_status add(const char *name, void *at, uint64_t bytes, uint64_t total, uint64_t first)
{
    const cddp_recovery_array array = array_of(name, at, bytes, total, first);

    return cddp_recovery_add(recovery, &array);
}

static cddp_status save(void *state, void *to)
{
    (void)state;
    *(char *)to = 1;
    return CDDP_OK;
}

static cddp_status load(void *state, const void *from, int part, int parts)
{
    (void)state;
    (void)from;
    return part < parts ? CDDP_OK : CDDP_ERR_ARGUMENT;
}

static cddp_recovery_callbacks calls_of(const char *name, uint64_t bytes)
{
    cddp_recovery_callbacks calls = CDDP_RECOVERY_CALLBACKS_INIT;

    calls.name = name;
    calls.bytes = bytes;
    calls.save = save;
    calls.load = load;
    return calls;
}

static cddp_status add_calls(const char *name, uint64_t bytes)
{
    const cddp_recovery_callbacks calls = calls_of(name, bytes);

    return cddp_recovery_add_callbacks(recovery, &calls);
}

static void options_that_no_version_knows_are_refused(void **state)
{
    cddp_recovery_options options = CDDP_RECOVERY_OPTIONS_INIT;
    cddp_recovery *other = NULL;

    (void)state;
    options.flags = 4;
    GIVES(cddp_recovery_create(group, &options, &other), CDDP_ERR_UNAVAILABLE, "unknown flags 0x4");
    options.flags = 0;
    options.reserved = 1;
    assert_int_not_equal(cddp_recovery_create(group, &options, &other), CDDP_OK);
    options.reserved = 0;
    options.struct_size = 0;
    REFUSES(cddp_recovery_create(group, &options, &other), "CDDP_RECOVERY_OPTIONS_INIT");
    REFUSES(cddp_recovery_create(NULL, NULL, &other), "");
    REFUSES(cddp_recovery_create(group, NULL, NULL), "out is NULL");
    assert_null(other);
    cddp_recovery_destroy(NULL);
}

static void arrays_that_cannot_be_are_refused(void **state)
{
    cddp_recovery_array array = array_of("a", data, 8, 0, 0);

    (void)state;
    REFUSES(cddp_recovery_add(recovery, NULL), "array is NULL");
    array.struct_size = 0;
    REFUSES(cddp_recovery_add(recovery, &array), "CDDP_RECOVERY_ARRAY_INIT");
    REFUSES(add(NULL, data, 8, 0, 0), "name is NULL");
    REFUSES(add("a", NULL, 8, 0, 0), "a: data is NULL");
    REFUSES(add("a", data, 0, 0, 0), "a: 0 bytes");
    REFUSES(add("a", data, UINT64_MAX, 0, 0), "a: 18446744073709551615 bytes");
    REFUSES(add("a", data, 8, 0, 1), "a: bytes 1 to 9 are not inside of 0");
    REFUSES(add("a", data, 8, 7, 0), "a: bytes 0 to 8 are not inside of 7");
    REFUSES(add("a", data, 8, 10, 3), "a: bytes 3 to 11 are not inside of 10");
    REFUSES(add("a", data, 8, 10, UINT64_MAX - 3), "a: bytes");
    assert_int_equal(add("a", data, 8, 8, 0), CDDP_OK); /* the name was not taken */
    assert_int_equal(add("b", NULL, 0, 10, 10), CDDP_OK);
    REFUSES(add("a", data, 8, 0, 0), "a: the name is taken");
    REFUSES(add_calls("a", 8), "a: the name is taken");
}

static void functions_that_cannot_be_are_refused(void **state)
{
    cddp_recovery_callbacks calls = calls_of("f", 8);
    char name[16];

    (void)state;
    REFUSES(cddp_recovery_add_callbacks(recovery, NULL), "callbacks is NULL");
    calls.save = NULL;
    REFUSES(cddp_recovery_add_callbacks(recovery, &calls), "save is NULL");
    calls.save = save;
    calls.load = NULL;
    REFUSES(cddp_recovery_add_callbacks(recovery, &calls), "load is NULL");
    REFUSES(add_calls(NULL, 8), "name is NULL");
    REFUSES(add_calls("f", 0), "bytes is out of range");
    REFUSES(add_calls("f", UINT64_MAX), "bytes is out of range");
    REFUSES(add_calls("f", UINT64_MAX / 2), "bytes is out of range"); /* two would be none */
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(add_calls(name, 8), CDDP_OK);
    }
    REFUSES(add_calls("f", 8), "f: more than 64");
}

static cddp_status watch(cddp_group *of, float *at, cddp_ddp **out)
{
    const cddp_param param = {.name = "a", .type = CDDP_F32, .dims = 1, .shape = {4}, .data = at};

    return cddp_ddp_create(of, &param, 1, NULL, 0, NULL, out);
}

static void a_model_of_another_group_is_refused(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    float values[4] = {0};
    cddp_group *other;
    cddp_ddp *ddp, *own;

    (void)state;
    options.world_size = 1;
    assert_int_equal(cddp_group_create(&options, &other), CDDP_OK);
    assert_int_equal(watch(other, values, &ddp), CDDP_OK);
    assert_int_equal(watch(group, values, &own), CDDP_OK);
    REFUSES(cddp_recovery_add_ddp(recovery, ddp), "the cddp_ddp is of another group");
    REFUSES(cddp_recovery_add_ddp(recovery, NULL), "");
    REFUSES(cddp_recovery_add_ddp(recovery, (cddp_ddp *)other), "");
    assert_int_equal(cddp_recovery_add_ddp(recovery, own), CDDP_OK);
    cddp_ddp_destroy(own);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(other);
}

/* Without a launcher, the loop goes on as it would. */
static void nothing_is_registered_after_the_first_step(void **state)
{
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;
    cddp_recovery_action action = CDDP_RECOVERY_STOP;
    float values[4] = {0};
    uint64_t step = 3;
    cddp_ddp *ddp;

    (void)state;
    assert_int_equal(watch(group, values, &ddp), CDDP_OK);
    assert_int_equal(add("a", data, 8, 0, 0), CDDP_OK);
    for (; step < 6; step++) {
        assert_int_equal(cddp_recovery_step(recovery, &step, &action), CDDP_OK);
        assert_int_equal(action, CDDP_RECOVERY_GO_ON);
        GIVES(add("b", data, 8, 0, 0), CDDP_ERR_STATE, "b: the first step has begun");
        GIVES(add_calls("b", 8), CDDP_ERR_STATE, "b: the first step has begun");
        GIVES(cddp_recovery_add_ddp(recovery, ddp), CDDP_ERR_STATE, "the first step has begun");
    }
    assert_int_equal(step, 6);
    assert_int_equal(cddp_recovery_get_info(recovery, &info), CDDP_OK);
    assert_int_equal(info.copies + info.bytes + info.spent_ns + info.kept_step, 0);
    assert_int_equal(info.restored_step, 0);
    cddp_ddp_destroy(ddp);
}

static void steps_that_cannot_be_are_refused(void **state)
{
    cddp_recovery_action action = CDDP_RECOVERY_STOP;
    uint64_t step = UINT64_MAX;

    (void)state;
    REFUSES(cddp_recovery_step(recovery, NULL, &action), "step is NULL");
    REFUSES(cddp_recovery_step(recovery, &step, NULL), "out_action is NULL");
    REFUSES(cddp_recovery_step(recovery, &step, &action), "step 18446744073709551615 is too large");
    REFUSES(cddp_recovery_step(NULL, &step, &action), "");
    step = INT64_MAX;
    assert_int_equal(add("a", data, 8, 0, 0), CDDP_OK); /* no step was begun */
    assert_int_equal(cddp_recovery_step(recovery, &step, &action), CDDP_OK);
    assert_int_equal(cddp_recovery_step(recovery, &step, &action), CDDP_OK);
}

static void what_may_be_called_at_any_time(void **state)
{
    cddp_recovery_info info = CDDP_RECOVERY_INFO_INIT;

    (void)state;
    GIVES(cddp_recovery_refuse(recovery), CDDP_ERR_STATE, "no step was begun");
    assert_int_equal(cddp_recovery_get_info(recovery, &info), CDDP_OK);
    assert_int_equal(info.copies + info.bytes + info.spent_ns + info.kept_step, 0);
    REFUSES(cddp_recovery_refuse(NULL), "");
    REFUSES(cddp_recovery_get_info(NULL, &info), "");
    REFUSES(cddp_recovery_get_info(recovery, NULL), "");
    info.struct_size = 0;
    REFUSES(cddp_recovery_get_info(recovery, &info), "CDDP_RECOVERY_INFO_INIT");
    info.struct_size = 2 * sizeof(uint64_t); /* a program of an earlier version */
    info.spent_ns = 99;
    assert_int_equal(cddp_recovery_get_info(recovery, &info), CDDP_OK);
    assert_int_equal(info.spent_ns, 99);
}

/* A handle that outlives the caller's group. */
static void the_group_may_be_destroyed_first(void **state)
{
    cddp_recovery_action action = CDDP_RECOVERY_STOP;
    uint64_t step = 0;

    (void)state;
    cddp_group_destroy(group);
    group = NULL;
    assert_int_equal(add("a", data, 8, 0, 0), CDDP_OK);
    assert_int_equal(cddp_recovery_step(recovery, &step, &action), CDDP_OK);
    assert_int_equal(action, CDDP_RECOVERY_GO_ON);
}

#define WITH_HANDLE(test) cmocka_unit_test_setup_teardown(test, begin, end)

static void a_group_of_a_part_of_the_job_is_refused(void **state)
{
    cddp_recovery *other = NULL;

    (void)state;
    setenv("CDDP_WORLD_SIZE", "2", 1);
    GIVES(cddp_recovery_create(group, NULL, &other), CDDP_ERR_UNAVAILABLE,
          "does not have all ranks of the job");
    unsetenv("CDDP_WORLD_SIZE");
    assert_null(other);
}

/* How often @p step is kept in @p memory. */
static int count_kept(int memory, uint64_t step)
{
    struct cddpi_kept_memory kept;
    int count = 0;

    assert_int_equal(cddpi_kept_open(memory, &kept), CDDP_OK);
    for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
        count += cddpi_kept_stamp(&kept, slot).step == step;
    }
    cddpi_kept_close(&kept);
    return count;
}

/* A loop does a step again, with another state: parts of both must not be taken for one. */
static void a_step_that_is_kept_again_is_there_once(void **state)
{
    cddp_recovery_options options = CDDP_RECOVERY_OPTIONS_INIT;
    int memory = memfd_create("kept", MFD_CLOEXEC);
    cddp_recovery_action action;
    cddp_recovery *kept = NULL;
    uint64_t step = 0;

    (void)state;
    support_setenv_number("CDDP_KEEP_FDS", memory);
    options.every_steps = 1;
    assert_int_equal(cddp_recovery_create(group, &options, &kept), CDDP_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cddp_recovery_step(kept, &step, &action), CDDP_OK);
        step = 1 + (uint64_t)(i > 2);
    }
    assert_int_equal(count_kept(memory, 1), 1);
    assert_int_equal(cddp_recovery_step(kept, &step, &action), CDDP_OK);
    assert_int_equal(count_kept(memory, 1) + 2 * count_kept(memory, 2), 3);
    cddp_recovery_destroy(kept);
    unsetenv("CDDP_KEEP_FDS");
    close(memory);
}

/* Which allocation fails does not matter: the array is not registered, and so it can be again. */
static void what_memory_did_not_suffice_for_can_be_registered_again(void **state)
{
    unsigned failed = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        char name[] = {'a', (char)('a' + i / 26), (char)('a' + i % 26), '\0'};
        cddp_status status;
        unsigned nth = 0;

        do {
            cddpi_alloc_fail_nth(++nth);
            status = add(name, data, sizeof data, 0, 0);
            cddpi_alloc_fail_nth(0);
            assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
            failed += status != CDDP_OK;
        } while (status != CDDP_OK);
    }
    assert_in_range(failed, 6, 40); /* lists grow now and then */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HANDLE(options_that_no_version_knows_are_refused),
        WITH_HANDLE(arrays_that_cannot_be_are_refused),
        WITH_HANDLE(functions_that_cannot_be_are_refused),
        WITH_HANDLE(what_memory_did_not_suffice_for_can_be_registered_again),
        WITH_HANDLE(a_group_of_a_part_of_the_job_is_refused),
        WITH_HANDLE(a_step_that_is_kept_again_is_there_once),
        WITH_HANDLE(a_model_of_another_group_is_refused),
        WITH_HANDLE(nothing_is_registered_after_the_first_step),
        WITH_HANDLE(steps_that_cannot_be_are_refused),
        WITH_HANDLE(what_may_be_called_at_any_time),
        WITH_HANDLE(the_group_may_be_destroyed_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
