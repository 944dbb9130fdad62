/* test_shared_copy.c - snapshots that several processes copy and write together: they have the same
 * bytes as others, and whatever becomes of a helper costs nothing. */
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/saving.h"
#include "checkpoint/shared_head.h"
#include "support/failure.h"
#include "support/snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { LARGE = 300000, TENSORS = 6, MODEL = 3, RANKS = 5, STEP = 5 };

static float large[LARGE], momentum[LARGE];
static unsigned char small[7]; /* so that nothing that follows is aligned */
static int64_t steps = 41;
static cddp_tensor tensors[TENSORS];
static cddp_snapshot snapshot;

/* What processes tell each other. */
static struct {
    atomic_int copied;  /* ranks that have */
    atomic_int refused; /* writes of helpers */
    atomic_bool ends;
} * told;

static pid_t children[RANKS];
static struct cddpi_shared_copy shared; /* of this process */

static void make_snapshot(void)
{
    const cddp_param params[TENSORS] = {
        {.name = "large", .dims = 1, .shape = {LARGE}, .data = large},
        {.name = "empty", .dims = 1, .shape = {0}},
        {.name = "small", .type = CDDP_U8, .dims = 1, .shape = {7}, .data = small},
        {.name = "step", .type = CDDP_I64, .data = &steps},
        {.name = "small2", .type = CDDP_U8, .dims = 1, .shape = {7}, .data = small},
        {.name = "momentum.large", .dims = 1, .shape = {LARGE}, .data = momentum},
    };

    for (int i = 0; i < LARGE; i++) {
        large[i] = (float)i;
        momentum[i] = 1 / (float)(i + 1);
    }
    memset(small, 0x5a, sizeof small);
    assert_int_equal(cddp_tensors_of(params, TENSORS, tensors), CDDP_OK);
    snapshot = (cddp_snapshot){sizeof(cddp_snapshot), STEP, tensors, MODEL, tensors + MODEL,
                               TENSORS - MODEL,       "{}"};
}

/* The offer's pieces that are not done. */
static uint32_t count_left(void)
{
    uint32_t offer = atomic_load(&shared.head->offer);
    uint32_t left = 0;

    for (uint32_t i = 0;
         offer != 0 && i < shared_piece_count(shared.layout.bytes[shared.head->file]); i++) {
        left += atomic_load(&shared.head->pieces[i]) != shared_mark(offer, PIECE_DONE);
    }
    return left;
}

static bool is_writer(void)
{
    char name[16] = "";

    (void)pthread_getname_np(pthread_self(), name, sizeof name);
    return strcmp(name, "cddp-save") == 0;
}

static void await(const atomic_int *number, int least)
{
    for (int waited_ms = 0; atomic_load(number) < least; waited_ms++) {
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(1);
    }
}

/* The writer has taken the first piece, and does not write it before others have done the rest. */
static int write_last(const char *operation)
{
    while (is_writer() && strcmp(operation, "write") == 0 && count_left() > 1) {
        support_sleep_ms(1);
    }
    return 0;
}

/* The writer does not write before a helper has had no success. */
static int write_after_refusal(const char *operation)
{
    if (is_writer() && strcmp(operation, "write") == 0 && atomic_load(&shared.head->offer) != 0) {
        await(&told->refused, 1);
    }
    return 0;
}

static int die_in_write(const char *operation)
{
    if (strcmp(operation, "write") == 0) {
        atomic_fetch_add(&told->refused, 1);
        raise(SIGKILL);
    }
    return 0;
}

/* The helper writes its piece only after the snapshot is whole. */
static int be_late(const char *operation)
{
    if (strcmp(operation, "write") == 0) {
        atomic_fetch_add(&told->refused, 1);
        while (!atomic_load(&told->ends)) {
            support_sleep_ms(1);
        }
    }
    return 0;
}

static int find_no_room(const char *operation)
{
    if (strcmp(operation, "write") == 0) {
        atomic_fetch_add(&told->refused, 1);
        return ENOSPC;
    }
    return 0;
}

/* A rank that copies its part and helps. */
static int be_helper(const char *dir, int rank, int ranks, int (*hook)(const char *))
{
    struct cddpi_shared_copy own = {.head = NULL};
    struct cddpi_helper *helper = NULL;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
    if (cddpi_shared_copy_open(&shared.place, shared.bytes, &own) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 1;
    }
    cddpi_shared_lay_out(&snapshot, &own.layout);
    cddpi_shared_copy_tensors(&own, &snapshot, rank, ranks);
    cddpi_file_set_hook(hook);
    atomic_fetch_add(&told->copied, 1);
    if (cddpi_helper_begin(&own, dir, rank, ranks, &helper) != CDDP_OK) {
        return 2;
    }
    while (!atomic_load(&told->ends)) {
        support_sleep_ms(1);
    }
    assert_true(cddpi_helper_end(helper, SUPPORT_TIMEOUT_MS));
    cddpi_shared_copy_close(&own);
    return 0;
}

/* Let @p ranks ranks copy the snapshot; all but the first look for its files in @p dir. */
static void start(int ranks, const char *dir, int (*hook)(const char *))
{
    struct cddpi_shared_layout layout;

    make_snapshot();
    cddpi_shared_lay_out(&snapshot, &layout);
    if (shared.head == NULL) {
        assert_int_equal(cddpi_shared_copy_create((size_t)layout.whole, &shared), CDDP_OK);
    }
    shared.layout = layout;
    memset((unsigned char *)shared.head + SHARED_HEAD_BYTES, 0xff,
           shared.bytes - SHARED_HEAD_BYTES);
    cddpi_shared_copy_begin(&shared, STEP);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    for (int rank = 1; rank < ranks; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            _exit(be_helper(dir, rank, ranks, hook));
        }
    }
    await(&told->copied, ranks - 1);
    assert_false(cddpi_shared_copy_is_whole(&shared));
    cddpi_shared_copy_tensors(&shared, &snapshot, 0, ranks);
    assert_true(cddpi_shared_copy_is_whole(&shared));
}

static cddp_status save(int (*hook)(const char *), unsigned keep)
{
    const struct cddpi_saving_options options = {.keep = keep, .spare = 1};
    struct cddpi_snapshot_copy copy = {.shared = &shared};
    cddp_saving *saving = NULL;
    cddp_status status;

    cddpi_shared_copy_bind(&shared, CDDPI_SNAPSHOT_MODEL, tensors, MODEL);
    cddpi_shared_copy_bind(&shared, CDDPI_SNAPSHOT_OPTIMIZER, tensors + MODEL, TENSORS - MODEL);
    assert_int_equal(cddpi_snapshot_copy_take(&copy, &snapshot, NULL), CDDP_OK);
    memset(tensors, 0, sizeof tensors);
    cddpi_file_set_hook(hook);
    assert_int_equal(cddpi_saving_begin(folder, &copy, &options, &saving), CDDP_OK);
    status = cddp_saving_wait(saving);
    cddp_saving_destroy(saving);
    cddpi_file_set_hook(NULL);
    cddpi_snapshot_copy_release(&copy);
    return status;
}

/* Let the helpers end; each with @p expected, as of waitpid(). */
static void finish(int ranks, int expected)
{
    atomic_store(&told->ends, true);
    for (int rank = 1; rank < ranks; rank++) {
        int result = -1;

        assert_int_equal(waitpid(children[rank], &result, 0), children[rank]);
        assert_int_equal(result, expected);
    }
    munmap(told, sizeof *told);
    cddpi_shared_copy_close(&shared);
}

/* Write the snapshot alone, below `alone`; the one of the ranks has the same files. */
static void assert_same_files(void)
{
    char *alone = cddpi_format("%s/alone", folder);

    make_snapshot();
    assert_int_equal(cddp_snapshot_write(alone, &snapshot, NULL, NULL), CDDP_OK);
    for (int i = 0; i < CDDPI_SNAPSHOT_FILES; i++) {
        char *one = cddpi_format("%s/step-%08d/%s", alone, STEP, cddpi_snapshot_files[i]);
        char *other = cddpi_format("%s/step-%08d/%s", folder, STEP, cddpi_snapshot_files[i]);
        char digests[2][CDDPI_DIGEST_HEX_BYTES];
        uint64_t bytes[2];

        assert_int_equal(cddpi_file_digest(one, &bytes[0], digests[0]), CDDP_OK);
        assert_int_equal(cddpi_file_digest(other, &bytes[1], digests[1]), CDDP_OK);
        assert_int_equal(bytes[0], bytes[1]);
        assert_string_equal(digests[0], digests[1]);
        cddpi_free(one);
        cddpi_free(other);
    }
    assert_int_equal(count_hidden(), 0);
    cddpi_free(alone);
}

static void ranks_write_the_bytes_that_one_writes(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        start(ranks, folder, NULL);
        assert_int_equal(save(ranks > 1 ? write_last : NULL, 0), CDDP_OK);
        finish(ranks, 0);
        assert_same_files();
    }
}

static void the_memory_serves_for_the_next_one(void **state)
{
    (void)state;
    start(1, folder, NULL);
    assert_int_equal(save(NULL, 0), CDDP_OK);
    start(1, folder, NULL);
    assert_int_equal(save(NULL, 0), CDDP_OK);
    finish(1, 0);
    assert_same_files();
}

static void a_helper_that_dies_costs_nothing(void **state)
{
    (void)state;
    start(2, folder, die_in_write);
    assert_int_equal(save(write_after_refusal, 0), CDDP_OK);
    finish(2, SIGKILL);
    assert_same_files();
}

/* It writes to the file that is in place: the same bytes. */
static void a_helper_that_is_late_changes_nothing(void **state)
{
    (void)state;
    start(2, folder, be_late);
    assert_int_equal(save(write_after_refusal, 0), CDDP_OK);
    finish(2, 0);
    assert_same_files();
}

static void what_a_helper_cannot_write_the_writer_writes(void **state)
{
    (void)state;
    start(3, folder, find_no_room);
    assert_int_equal(save(write_after_refusal, 0), CDDP_OK);
    finish(3, 0);
    assert_same_files();
}

/* A folder of that name on another machine, say. */
static void a_file_of_the_same_name_elsewhere_is_left_alone(void **state)
{
    char *other = cddpi_format("%s/other", folder);
    char *inside, *file;
    struct stat info;
    FILE *stream;

    (void)state;
    start(1, other, NULL);
    inside = cddpi_format("%s/%s", other, shared.head->temporary);
    file = cddpi_format("%s/model.safetensors", inside);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mkdir(inside, 0700), 0);
    stream = fopen(file, "w");
    assert_non_null(stream);
    fclose(stream);
    start(2, other, NULL);
    assert_int_equal(save(NULL, 0), CDDP_OK);
    finish(2, 0);
    assert_same_files();
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_size, 0);
    cddpi_free(file);
    cddpi_free(inside);
    cddpi_free(other);
}

static atomic_int full; /* so many flushes still fail */

static int write_last_on_a_full_disk(const char *operation)
{
    if (is_writer() && strcmp(operation, "fsync") == 0 && atomic_fetch_sub(&full, 1) > 0) {
        return ENOSPC;
    }
    return write_last(operation);
}

static void a_full_disk_is_told_and_older_ones_stay(void **state)
{
    (void)state;
    assert_int_equal(write_step(1, 1, 0), CDDP_OK);
    start(2, folder, NULL);
    atomic_store(&full, 1);
    assert_int_equal(save(write_last_on_a_full_disk, 0), CDDP_ERR_IO);
    assert_non_null(
        strstr(cddp_last_error(), "No space left on device; a checkpoint takes about "));
    finish(2, 0);
    assert_found(1, 1);
    assert_int_equal(count_hidden(), 0);
}

/* The second file with this name is another one. */
static void after_room_was_made_ranks_write_it_again(void **state)
{
    (void)state;
    for (int step = 1; step <= 3; step++) {
        assert_int_equal(write_step((uint64_t)step, (float)step, 0), CDDP_OK);
    }
    start(3, folder, NULL);
    atomic_store(&full, 1);
    assert_int_equal(save(write_last_on_a_full_disk, 9), CDDP_OK);
    finish(3, 0);
    assert_false(exists("step-00000001"));
    assert_true(exists("step-00000002"));
    assert_same_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ranks_write_the_bytes_that_one_writes),
        CASE(the_memory_serves_for_the_next_one),
        CASE(a_helper_that_dies_costs_nothing),
        CASE(a_helper_that_is_late_changes_nothing),
        CASE(what_a_helper_cannot_write_the_writer_writes),
        CASE(a_file_of_the_same_name_elsewhere_is_left_alone),
        CASE(a_full_disk_is_told_and_older_ones_stay),
        CASE(after_room_was_made_ranks_write_it_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
