/* test_structs.c - programs of other versions: a newer one's structs are larger, an older one's
 * smaller. What both know works, what the library does not know is refused, and nothing is dropped
 * in silence. */
#include "support/failure.h"
#include "support/test.h"
#include "support/zero_model.h"

#include <cddp/cddp.h>
#include <cddp/parallel.h>

#include <glob.h>
#include <stdalign.h>
#include <stdbool.h>

enum { ROOM = 512, TAIL = 40, MARK = 0xa5 };

static cddp_group *group;
static cddp_ddp *ddp;
static cddp_devices *devices;
static char *folder;
static char url[4200];
static float values[4];
static float grads[4];

static void *take(void *state, size_t bytes, size_t alignment)
{
    (void)state;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void *retake(void *state, void *memory, size_t bytes)
{
    (void)state;
    return realloc(memory, bytes);
}

static void drop(void *state, void *memory)
{
    (void)state;
    free(memory);
}

static cddp_status use_allocator(const void *from)
{
    cddp_status status = cddp_allocator_set(from);

    return status == CDDP_ERR_STATE ? CDDP_OK : status; /* it was read; cddp has memory already */
}

static cddp_status use_group_options(const void *from)
{
    cddp_group *made = NULL;
    cddp_status status = cddp_group_create(from, &made);

    cddp_group_destroy(made);
    return status;
}

static cddp_status never_share(void *state, void *data, size_t bytes)
{
    (void)state, (void)data, (void)bytes;
    return CDDP_OK;
}

static cddp_status never_gather(void *state, const void *own, size_t bytes, void *out_all)
{
    (void)state, (void)own, (void)bytes, (void)out_all;
    return CDDP_OK;
}

static cddp_status use_bootstrap(const void *from)
{
    cddp_group *made = NULL;
    cddp_status status = cddp_group_create_by(from, NULL, &made);

    cddp_group_destroy(made);
    return status;
}

static cddp_status use_store_options(const void *from)
{
    cddp_store *store = NULL;
    cddp_status status = cddp_store_open(from, &store);

    cddp_store_close(store);
    return status;
}

static cddp_status load_nothing(void *state, uint64_t index, void *out)
{
    (void)state, (void)index;
    memset(out, 0, 1);
    return CDDP_OK;
}

static cddp_status use_loader_options(const void *from)
{
    cddp_loader *loader = NULL;
    cddp_status status = cddp_loader_create(from, &loader);

    cddp_loader_destroy(loader);
    return status;
}

static cddp_status use_ddp_options(const void *from)
{
    cddp_param param = {.name = "w", .type = CDDP_F32, .dims = 1, .shape = {4}, .data = values};
    cddp_ddp *made = NULL;
    cddp_status status = cddp_ddp_create(group, &param, 1, NULL, 0, from, &made);

    cddp_ddp_destroy(made);
    return status;
}

static cddp_status use_step(const void *from)
{
    return cddp_ddp_begin(ddp, from);
}

static cddp_status run_rank(void *state, int rank)
{
    (void)rank, (void)state;
    return CDDP_OK;
}

static cddp_status use_spawn_options(const void *from)
{
    return cddp_spawn(1, run_rank, NULL, from);
}

static cddp_status use_snapshot(const void *from)
{
    return cddp_snapshot_write(folder, from, NULL, NULL);
}

static cddp_status use_snapshot_options(const void *from)
{
    cddp_snapshot what = CDDP_SNAPSHOT_INIT;

    return cddp_snapshot_write(folder, &what, from, NULL);
}

static cddp_status compute(void *state, const cddp_replica *replica)
{
    (void)replica, (void)state;
    return CDDP_OK;
}

static cddp_status use_data_parallel_options(const void *from)
{
    return cddp_data_parallel(devices, from, compute, NULL);
}

static cddp_status use_recovery_options(const void *from)
{
    cddp_recovery *made = NULL;
    cddp_status status = cddp_recovery_create(group, from, &made);

    cddp_recovery_destroy(made);
    return status;
}

static cddp_status use_recovery_array(const void *from)
{
    cddp_recovery *recovery = NULL;
    cddp_status status = cddp_recovery_create(group, NULL, &recovery);

    status = status == CDDP_OK ? cddp_recovery_add(recovery, from) : status;
    cddp_recovery_destroy(recovery);
    return status;
}

static cddp_status use_recovery_callbacks(const void *from)
{
    cddp_recovery *recovery = NULL;
    cddp_status status = cddp_recovery_create(group, NULL, &recovery);

    status = status == CDDP_OK ? cddp_recovery_add_callbacks(recovery, from) : status;
    cddp_recovery_destroy(recovery);
    return status;
}

static cddp_status save_nothing(void *state, void *to)
{
    (void)state, (void)to;
    return CDDP_OK;
}

static cddp_status load_part_of_nothing(void *state, const void *from, int part, int parts)
{
    (void)state, (void)from, (void)part, (void)parts;
    return CDDP_OK;
}

static const cddp_allocator allocator = {sizeof allocator, NULL, take, retake, drop};
static const cddp_group_options group_options = CDDP_GROUP_OPTIONS_INIT;
static const cddp_bootstrap bootstrap = {sizeof bootstrap, NULL, 0, 1, never_share, never_gather};
static const cddp_store_options store_options = {CDDP_SIZED(cddp_store_options), .url = url};
static const cddp_loader_options loader_options = {CDDP_SIZED(cddp_loader_options), .samples = 2,
                                                   .sample_bytes = 1, .batch_size = 2,
                                                   .load = load_nothing};
static const cddp_ddp_options ddp_options = CDDP_DDP_OPTIONS_INIT;
static const cddp_step step = {CDDP_SIZED(cddp_step), .samples = 1};
static const cddp_spawn_options spawn_options = CDDP_SPAWN_OPTIONS_INIT;
static const cddp_snapshot snapshot = {CDDP_SIZED(cddp_snapshot), .state_json = "{}"};
static const cddp_snapshot_options snapshot_options = CDDP_SNAPSHOT_OPTIONS_INIT;
static const cddp_data_parallel_options data_parallel_options = {
    CDDP_SIZED(cddp_data_parallel_options), .in = values, .rows = 4, .in_row_bytes = 4};
static const cddp_recovery_options recovery_options = CDDP_RECOVERY_OPTIONS_INIT;
static const cddp_recovery_array recovery_array = {CDDP_SIZED(cddp_recovery_array), .name = "a",
                                                   .data = values, .bytes = 4};
static const cddp_recovery_callbacks recovery_callbacks = {
    CDDP_SIZED(cddp_recovery_callbacks), .name = "a", .bytes = 1, .save = save_nothing,
    .load = load_part_of_nothing};

static const cddp_model_options model_options = CDDP_MODEL_OPTIONS_INIT;
static const cddp_generate_options generate_options = CDDP_GENERATE_OPTIONS_INIT;

/* What a program passes to the library: the struct, a call that reads it, and where its last field
 * is. An older program does not have that field; 0: it would lack what the call must have. */
#define IN(type, from, last)                                                                       \
    {                                                                                              \
#type, &(from), sizeof(type), offsetof(type, last), use_##from                             \
    }
static const struct input {
    const char *type;
    const void *from;
    size_t bytes;
    size_t older_bytes;
    cddp_status (*use)(const void *from);
} inputs[] = {
    IN(cddp_allocator, allocator, struct_size),
    IN(cddp_group_options, group_options, stream),
    IN(cddp_bootstrap, bootstrap, struct_size),
    IN(cddp_store_options, store_options, timeout_ms),
    IN(cddp_loader_options, loader_options, micro_batches),
    IN(cddp_ddp_options, ddp_options, part_bytes),
    IN(cddp_step, step, micro_batches),
    IN(cddp_spawn_options, spawn_options, grace_ms),
    IN(cddp_snapshot, snapshot, struct_size),
    IN(cddp_data_parallel_options, data_parallel_options, output_device),
    IN(cddp_snapshot_options, snapshot_options, flags),
    IN(cddp_model_options, model_options, struct_size),
    IN(cddp_generate_options, generate_options, struct_size),
    IN(cddp_recovery_options, recovery_options, flags),
    IN(cddp_recovery_array, recovery_array, first_byte),
    IN(cddp_recovery_callbacks, recovery_callbacks, state),
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static cddp_status fill_stats(void *out)
{
    return cddp_ddp_get_stats(ddp, out);
}

static cddp_status fill_bucket_stats(void *out)
{
    return cddp_ddp_get_bucket_stats(ddp, 0, out);
}

static cddp_status fill_batch(void *out)
{
    cddp_loader *loader = NULL;
    cddp_status status = cddp_loader_create(&loader_options, &loader);

    status = status == CDDP_OK ? cddp_loader_begin(loader, 0, 0) : status;
    status = status == CDDP_OK ? cddp_loader_next(loader, out) : status;
    cddp_loader_destroy(loader);
    return status;
}

static cddp_status fill_group_info(void *out)
{
    return cddp_group_get_info(group, out);
}

static cddp_status fill_recovery_info(void *out)
{
    cddp_recovery *recovery = NULL;
    cddp_status status = cddp_recovery_create(group, NULL, &recovery);

    status = status == CDDP_OK ? cddp_recovery_get_info(recovery, out) : status;
    cddp_recovery_destroy(recovery);
    return status;
}

static cddp_status fill_failure(void *out)
{
    return cddp_last_failure(out);
}

/* What the library fills. */
static const struct output {
    const char *type;
    size_t bytes;
    cddp_status (*fill)(void *out);
} outputs[] = {
    {"cddp_ddp_stats", sizeof(cddp_ddp_stats), fill_stats},
    {"cddp_bucket_stats", sizeof(cddp_bucket_stats), fill_bucket_stats},
    {"cddp_batch", sizeof(cddp_batch), fill_batch},
    {"cddp_failure", sizeof(cddp_failure), fill_failure},
    {"cddp_group_info", sizeof(cddp_group_info), fill_group_info},
    {"cddp_recovery_info", sizeof(cddp_recovery_info), fill_recovery_info},
    {"cddp_model_value", sizeof(cddp_model_value), fill_model_value},
    {"cddp_model_info", sizeof(cddp_model_info), fill_model_info},
};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

/* What the library makes for callbacks, so that a program does not say its size. */
static const char *const made[] = {"cddp_bucket", "cddp_log_record"};
enum { MADE = sizeof made / sizeof *made };

/* A program's struct, with @p after behind it. */
static void *struct_of(const struct input *input, size_t struct_size, int after)
{
    static alignas(64) unsigned char room[ROOM];

    memset(room, after, sizeof room);
    memcpy(room, input->from, input->bytes);
    memcpy(room, &struct_size, sizeof struct_size);
    return room;
}

static void expect(const struct input *input, const void *from, cddp_status wanted)
{
    cddp_status status = input->use(from);

    if (status != wanted) {
        fail_msg("%s: %s, not %s: %s", input->type, cddp_status_text(status),
                 cddp_status_text(wanted), cddp_last_error());
    }
}

static void a_newer_program_works_as_long_as_new_fields_have_their_defaults(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUTS; i++) {
        expect(&inputs[i], struct_of(&inputs[i], inputs[i].bytes + TAIL, 0), CDDP_OK);
    }
}

static void a_value_in_a_field_that_is_not_known_is_refused(void **state)
{
    static const size_t places[] = {0, 13, TAIL - 1};
    char text[200];

    (void)state;
    for (size_t i = 0; i < INPUTS; i++) {
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            unsigned char *from = struct_of(&inputs[i], inputs[i].bytes + TAIL, 0);

            from[inputs[i].bytes + places[p]] = 1;
            expect(&inputs[i], from, CDDP_ERR_UNAVAILABLE);
            snprintf(text, sizeof text,
                     ": the field at offset %zu is not known to cddp %s: the program was built for "
                     "a newer one",
                     inputs[i].bytes + places[p], cddp_version());
            assert_true(last_error_has(text));
        }
    }
}

static void bytes_behind_the_struct_are_not_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUTS; i++) {
        expect(&inputs[i], struct_of(&inputs[i], inputs[i].bytes, MARK), CDDP_OK);
    }
}

static void an_older_program_gets_the_defaults_of_new_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUTS; i++) {
        size_t bytes = inputs[i].older_bytes;

        if (bytes > 0) {
            unsigned char *from = struct_of(&inputs[i], bytes, MARK);

            memset(from + bytes, MARK, inputs[i].bytes - bytes);
            expect(&inputs[i], from, CDDP_OK);
        }
    }
}

static void a_size_that_was_never_set_is_refused(void **state)
{
    static const size_t sizes[] = {0, 1, sizeof(size_t), 70000, SIZE_MAX};
    unsigned char room[ROOM] = {0};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t i = 0; i < INPUTS; i++) {
            expect(&inputs[i], struct_of(&inputs[i], sizes[s], 0), CDDP_ERR_ARGUMENT);
            assert_true(last_error_has(": begin with CDDP_"));
        }
        for (size_t i = 0; i < OUTPUTS; i++) {
            memcpy(room, &sizes[s], sizeof sizes[s]);
            assert_int_equal(outputs[i].fill(room), CDDP_ERR_ARGUMENT);
        }
    }
}

static void a_reserved_field_must_be_zero(void **state)
{
    static const struct {
        size_t input;
        size_t offset;
    } rows[] = {{1, offsetof(cddp_group_options, reserved) + 1},
                {3, offsetof(cddp_store_options, reserved)},
                {9, offsetof(cddp_data_parallel_options, reserved) + 3},
                {13, offsetof(cddp_recovery_options, reserved)}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct input *input = &inputs[rows[i].input];
        unsigned char *from = struct_of(input, input->bytes, 0);

        from[rows[i].offset] = 1;
        expect(input, from, CDDP_ERR_UNAVAILABLE);
        assert_true(last_error_has(": reserved is not 0"));
    }
}

/* Whether bytes [from, to) of @p room are as they were. */
static bool is_untouched(const unsigned char *room, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (room[i] != MARK) {
            return false;
        }
    }
    return true;
}

static void only_fields_that_the_program_has_are_filled(void **state)
{
    alignas(64) unsigned char room[ROOM];

    (void)state;
    for (size_t i = 0; i < OUTPUTS; i++) {
        size_t sizes[] = {16, outputs[i].bytes, outputs[i].bytes + TAIL};

        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t filled = sizes[s] < outputs[i].bytes ? sizes[s] : outputs[i].bytes;
            size_t kept;

            memset(room, MARK, sizeof room);
            memcpy(room, &sizes[s], sizeof sizes[s]);
            assert_int_equal(outputs[i].fill(room), CDDP_OK);
            memcpy(&kept, room, sizeof kept);
            assert_int_equal(kept, sizes[s]);
            assert_false(is_untouched(room, sizeof kept, filled));
            assert_true(is_untouched(room, filled, sizeof room));
        }
    }
}

static bool is_in_a_table(const char *type)
{
    for (size_t i = 0; i < INPUTS; i++) {
        if (strcmp(inputs[i].type, type) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < OUTPUTS; i++) {
        if (strcmp(outputs[i].type, type) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < MADE; i++) {
        if (strcmp(made[i], type) == 0) {
            return true;
        }
    }
    return false;
}

static void every_struct_of_the_headers_is_tested_here(void **state)
{
    char pattern[4200];
    glob_t headers;
    char line[400];
    char type[100] = "";
    size_t found = 0;

    (void)state;
    if (getenv("CDDP_TEST_SOURCE") == NULL) {
        skip();
    }
    snprintf(pattern, sizeof pattern, "%s/include/cddp/*.h", getenv("CDDP_TEST_SOURCE"));
    assert_int_equal(glob(pattern, 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        FILE *header = fopen(headers.gl_pathv[i], "r");

        assert_non_null(header);
        while (fgets(line, sizeof line, header) != NULL) {
            (void)sscanf(line, "typedef struct %99[a-z_] {", type);
            if (strncmp(line, "    size_t struct_size;", 23) == 0) {
                found++;
                if (!is_in_a_table(type)) {
                    fail_msg("%s has struct_size: give it a row in a table above", type);
                }
            }
        }
        fclose(header);
    }
    assert_int_equal(found, INPUTS + OUTPUTS + MADE);
    globfree(&headers);
}

static int set_up(void **state)
{
    static const char *const names[] = {"cpu"};
    cddp_param param = {
        .name = "w", .type = CDDP_F32, .dims = 1, .shape = {4}, .data = values, .grad = grads};

    (void)state;
    folder = support_mkdtemp();
    snprintf(url, sizeof url, "file://%s/store", folder);
    open_zero_model(folder);
    return cddp_group_create(NULL, &group) == CDDP_OK &&
                   cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_OK &&
                   cddp_ddp_begin(ddp, &step) == CDDP_OK &&
                   cddp_ddp_grad_ready(ddp, 0) == CDDP_OK && cddp_ddp_wait(ddp) == CDDP_OK &&
                   cddp_devices_create(names, 1, &devices) == CDDP_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    close_zero_model();
    cddp_devices_destroy(devices);
    cddp_ddp_destroy(ddp);
    cddp_group_destroy(group);
    support_rmdir(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_program_works_as_long_as_new_fields_have_their_defaults),
        cmocka_unit_test(a_value_in_a_field_that_is_not_known_is_refused),
        cmocka_unit_test(bytes_behind_the_struct_are_not_read),
        cmocka_unit_test(an_older_program_gets_the_defaults_of_new_fields),
        cmocka_unit_test(a_size_that_was_never_set_is_refused),
        cmocka_unit_test(a_reserved_field_must_be_zero),
        cmocka_unit_test(only_fields_that_the_program_has_are_filled),
        cmocka_unit_test(every_struct_of_the_headers_is_tested_here),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
