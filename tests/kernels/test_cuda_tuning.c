/* test_cuda_tuning.c - what one process has measured about products, the next one takes: with the
 * same bits, and without asking cuBLASLt's heuristics. Each case starts real processes. */
#include "device/device.h"
#include "fake_cuda/fake_cublaslt.h"
#include "kernels/cuda/cuda_kernels.h"
#include "support/folder.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>

/* Rows, inputs and outputs of layers whose algorithms differ in bits. */
static const size_t layers[][3] = {{24, 64, 32}, {32, 48, 16}, {40, 96, 64}};

enum { LAYERS = 3, MOST = 96 * 64, RUNS = 3 };

/* What a process does. */
struct tuning_process {
    bool fast;
    bool warm;   /* it may ask nothing, and start each product once */
    bool dies;   /* by SIGKILL, while the device is open */
    size_t more; /* added to all rows: other shapes */
};

static size_t count_of(size_t layer, int which, size_t more)
{
    size_t rows = layers[layer][0] + more;
    size_t inputs = layers[layer][1];
    size_t outputs = layers[layer][2];

    return which == 0 ? rows * inputs : which == 1 ? outputs * inputs : rows * outputs;
}

/* A number in [-1, 1) that needs all bits of a float32. */
static float number_at(size_t at)
{
    uint32_t bits = (uint32_t)(at + 1) * 2654435761u;

    bits ^= bits >> 15;
    bits *= 2246822519u;
    return (float)(bits >> 8) / (1 << 23) - 1;
}

static uint64_t started_in_all(void *module)
{
    uint64_t (*started)(enum fake_cublaslt_algorithm algorithm);
    uint64_t sum = 0;

    *(void **)&started = dlsym(module, "fake_cublaslt_started");
    for (int a = 0; a < FAKE_CUBLASLT_ALGORITHMS; a++) {
        sum += started((enum fake_cublaslt_algorithm)a);
    }
    return sum;
}

/* One layer's output and its weight's gradient, after each other, into @p out. */
static int run_layer(struct cddpi_device *cuda, const struct tuning_process *process, size_t layer,
                     float *out)
{
    struct cddpi_cuda_linear shape = {CDDP_F32,
                                      layers[layer][0] + process->more,
                                      layers[layer][1],
                                      layers[layer][2],
                                      CDDPI_EPILOGUE_NONE,
                                      process->fast};
    float host[2 * MOST];
    void *memory[5];

    for (int i = 0; i < 5; i++) { /* x, weight, dy, y, dweight */
        size_t count = count_of(layer, i < 2 ? i : i == 4 ? 1 : 2, process->more);

        CHECK(count <= 2 * MOST);
        for (size_t at = 0; at < count; at++) {
            host[at] = number_at(1000 * (size_t)i + at);
        }
        CHECK(cuda->ops->alloc(cuda, count * sizeof(float), "a test", &memory[i]) == CDDP_OK);
        CHECK(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, memory[i], host, count * sizeof(float)) ==
              CDDP_OK);
        CHECK(cuda->ops->finish(cuda, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    }
    for (int i = 0; i < RUNS; i++) {
        CHECK(cuda->kernels->linear(cuda, &shape, memory[0], memory[1], NULL, memory[3], NULL) ==
              CDDP_OK);
        CHECK(cuda->kernels->linear_weight(cuda, &shape, memory[2], memory[0], false, memory[4],
                                           NULL) == CDDP_OK);
    }
    for (int i = 3; i < 5; i++) {
        CHECK(cuda->ops->copy(cuda, CDDPI_STREAM_COMPUTE, out + (size_t)(i - 3) * MOST, memory[i],
                              count_of(layer, i == 4 ? 1 : 2, process->more) * sizeof(float)) ==
              CDDP_OK);
    }
    CHECK(cuda->ops->finish(cuda, SUPPORT_TIMEOUT_MS) == CDDP_OK);
    for (int i = 0; i < 5; i++) {
        cuda->ops->release(cuda, memory[i]);
    }
    return 0;
}

/* The bits go into the file bits-RANK. */
static int compute(int rank, int world_size, void *argument)
{
    const struct tuning_process *process = argument;
    void *module;
    uint64_t (*asked)(void);
    struct cddpi_device *cuda = NULL;
    static float bits[LAYERS][2 * MOST];
    char name[32];
    FILE *file;

    (void)world_size;
    CHECK(cddpi_device_open("cuda", -1, 1, 0, 1, true, &cuda) == CDDP_OK);
    module = dlopen(getenv("CDDP_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(module != NULL);
    *(void **)&asked = dlsym(module, "fake_cublaslt_asked");
    for (size_t layer = 0; layer < LAYERS; layer++) {
        CHECK(run_layer(cuda, process, layer, bits[layer]) == 0);
    }
    if (process->warm) {
        CHECK(asked() == 0);
        CHECK(started_in_all(module) == 2 * LAYERS * RUNS);
    } else {
        CHECK(asked() > 0);
    }
    snprintf(name, sizeof name, "bits-%d", rank);
    file = fopen(in_folder(name), "we");
    CHECK(file != NULL && fwrite(bits, sizeof bits, 1, file) == 1 && fclose(file) == 0);
    if (process->dies) {
        raise(SIGKILL);
    }
    cddpi_device_close(cuda);
    return 0;
}

static bool start_cold(const struct tuning_process *like)
{
    struct tuning_process process = *like;

    process.warm = false;
    return run_ranks(1, compute, &process) == 0;
}

static bool start_warm(const struct tuning_process *like)
{
    struct tuning_process process = *like;

    process.warm = true;
    return run_ranks(1, compute, &process) == 0;
}

static void load_bits(const char *name, float (*out)[2 * MOST])
{
    FILE *file = fopen(in_folder(name), "re");

    assert_non_null(file);
    assert_int_equal(fread(out, sizeof(float[LAYERS][2 * MOST]), 1, file), 1);
    fclose(file);
}

/* --- cases --- */

static const struct tuning_process same = {.fast = false};
static const struct tuning_process fast = {.fast = true};

static int with_cache(void **state)
{
    make_folder(state);
    setenv("CDDP_CACHE", in_folder("cache"), 1);
    setenv("CDDP_FAKE_CUDA_NAME", "a card", 1);
    return 0;
}

static int without_cache(void **state)
{
    static const char *const variables[] = {"CDDP_FAKE_CUDA_NAME",
                                            "NVIDIA_TF32_OVERRIDE",
                                            "CUBLAS_EMULATE_SINGLE_PRECISION",
                                            "CDDP_FAKE_CUDA_DRIVER",
                                            "CDDP_FAKE_CUBLASLT",
                                            "CDDP_PRODUCTS",
                                            "CDDP_FAKE_CUBLASLT_VERSION",
                                            "CDDP_TF32",
                                            "CDDP_FAKE_CUDA_MULTIPROCESSORS"};

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        unsetenv(variables[i]);
    }
    setenv("CDDP_CACHE", "off", 1);
    return remove_folder(state);
}

static char *path_of_file(void)
{
    static char path[4096];
    DIR *stream = opendir(in_folder("cache"));
    int found = 0;

    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (strncmp(entry->d_name, "products-", 9) == 0) {
            snprintf(path, sizeof path, "%s/%s", in_folder("cache"), entry->d_name);
            found++;
        }
    }
    closedir(stream);
    assert_int_equal(found, 1);
    return path;
}

static void the_second_start_measures_nothing_and_has_the_same_bits(void **state)
{
    static float off[LAYERS][2 * MOST];
    static float bits[LAYERS][2 * MOST];

    (void)state;
    setenv("CDDP_FAKE_CUBLASLT", "slow", 1); /* so the choice is not the first */
    setenv("CDDP_CACHE", "off", 1);
    assert_true(start_cold(&same));
    load_bits("bits-0", off);
    assert_int_equal(access(in_folder("cache"), F_OK), -1);
    setenv("CDDP_CACHE", in_folder("cache"), 1);
    assert_true(start_cold(&same));
    load_bits("bits-0", bits);
    assert_memory_equal(bits, off, sizeof bits);
    for (int i = 0; i < 2; i++) {
        assert_true(start_warm(&same));
        load_bits("bits-0", bits);
        assert_memory_equal(bits, off, sizeof bits);
    }
}

static void in_any_order_the_second_start_has_the_first_ones_choices(void **state)
{
    static float first[LAYERS][2 * MOST];
    static float bits[LAYERS][2 * MOST];

    (void)state;
    setenv("CDDP_FAKE_CUBLASLT", "slow", 1);
    assert_true(start_cold(&fast));
    load_bits("bits-0", first);
    for (int i = 0; i < 2; i++) {
        assert_true(start_warm(&fast));
        load_bits("bits-0", bits);
        assert_memory_equal(bits, first, sizeof bits);
    }
    assert_true(start_cold(&same)); /* for which those are no choices */
}

static void a_restart_after_a_failure_measures_nothing(void **state)
{
    struct tuning_process dies = {.dies = true};

    (void)state;
    assert_int_equal(run_ranks(1, compute, &dies), 1);
    assert_true(start_warm(&same));
}

static void other_cards_versions_and_settings_measure_again(void **state)
{
    static const char *const changes[][2] = {{"CDDP_FAKE_CUDA_NAME", "another card"},
                                             {"CDDP_FAKE_CUDA_MULTIPROCESSORS", "114"},
                                             {"CDDP_FAKE_CUDA_DRIVER", "13010"},
                                             {"CDDP_FAKE_CUBLASLT_VERSION", "130300"},
                                             {"CDDP_TF32", "1"},
                                             {"NVIDIA_TF32_OVERRIDE", "0"},
                                             {"CUBLAS_EMULATE_SINGLE_PRECISION", "1"},
                                             {"CDDP_PRODUCTS", "fast"}};

    (void)state;
    assert_true(start_cold(&same));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char *was = getenv(changes[i][0]);

        was = was != NULL ? strdup(was) : NULL;
        setenv(changes[i][0], changes[i][1], 1);
        assert_true(start_cold(&same));
        assert_true(start_warm(&same));
        if (was != NULL) {
            setenv(changes[i][0], was, 1);
        } else {
            unsetenv(changes[i][0]);
        }
        free(was);
        assert_true(start_warm(&same));
    }
}

static void other_shapes_are_measured_and_kept_too(void **state)
{
    struct tuning_process longer = {.more = 8};

    (void)state;
    assert_true(start_cold(&same));
    assert_true(start_cold(&longer));
    assert_true(start_warm(&longer));
    assert_true(start_warm(&same));
}

static void what_cublaslt_refuses_is_measured_again(void **state)
{
    (void)state;
    assert_true(start_cold(&same));
    setenv("CDDP_FAKE_CUBLASLT", "refuses", 1);
    assert_true(start_cold(&same));
    unsetenv("CDDP_FAKE_CUBLASLT");
    assert_true(start_warm(&same));
}

static void what_cannot_start_is_measured_again(void **state)
{
    static const struct tuning_process *const both[] = {&same, &fast};
    static float first[LAYERS][2 * MOST];
    static float bits[LAYERS][2 * MOST];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(start_cold(both[i]));
        load_bits("bits-0", first);
        setenv("CDDP_FAKE_CUBLASLT", "stale", 1);
        for (int k = 0; k < 2; k++) {
            assert_true(start_cold(both[i]));
            load_bits("bits-0", bits);
            if (both[i] == &same) {
                assert_memory_equal(bits, first, sizeof bits);
            }
        }
        unsetenv("CDDP_FAKE_CUBLASLT");
        assert_true(start_warm(both[i]));
    }
}

static void a_damaged_file_is_measured_again(void **state)
{
    struct stat info;

    (void)state;
    assert_true(start_cold(&same));
    support_change_byte(path_of_file(), -2);
    assert_true(start_cold(&same));
    assert_true(start_warm(&same));
    assert_int_equal(stat(path_of_file(), &info), 0);
    assert_int_equal(truncate(path_of_file(), info.st_size / 2), 0);
    assert_true(start_cold(&same));
    assert_true(start_warm(&same));
}

static void another_users_file_is_measured_again(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    assert_true(start_cold(&same));
    assert_int_equal(chown(path_of_file(), 12345, 12345), 0);
    assert_true(start_cold(&same));
    assert_true(start_warm(&same));
    assert_int_equal(chown(in_folder("cache"), 12345, 12345), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(start_cold(&same));
    }
}

static void a_place_that_cannot_be_written_measures_each_time(void **state)
{
    (void)state;
    support_write_file(in_folder("cache"), "", 0); /* a file, where a folder should be */
    for (int i = 0; i < 2; i++) {
        assert_true(start_cold(&same));
    }
}

static void processes_at_once_measure_for_the_next_ones(void **state)
{
    struct tuning_process cold = {.fast = true};
    struct tuning_process warm = {.fast = true, .warm = true};
    static float bits[2][LAYERS][2 * MOST];

    (void)state;
    setenv("CDDP_FAKE_CUBLASLT", "slow", 1);
    assert_int_equal(run_ranks(3, compute, &cold), 0);
    assert_int_equal(run_ranks(2, compute, &warm), 0);
    load_bits("bits-0", bits[0]); /* all have the same choices now */
    load_bits("bits-1", bits[1]);
    assert_memory_equal(bits[0], bits[1], sizeof bits[0]);
}

#define CACHED(test) cmocka_unit_test_setup_teardown(test, with_cache, without_cache)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CACHED(the_second_start_measures_nothing_and_has_the_same_bits),
        CACHED(in_any_order_the_second_start_has_the_first_ones_choices),
        CACHED(a_restart_after_a_failure_measures_nothing),
        CACHED(other_cards_versions_and_settings_measure_again),
        CACHED(other_shapes_are_measured_and_kept_too),
        CACHED(what_cublaslt_refuses_is_measured_again),
        CACHED(what_cannot_start_is_measured_again),
        CACHED(a_damaged_file_is_measured_again),
        CACHED(another_users_file_is_measured_again),
        CACHED(a_place_that_cannot_be_written_measures_each_time),
        CACHED(processes_at_once_measure_for_the_next_ones),
    };

    if (getenv("CDDP_CUDA_MODULE") == NULL) {
        print_message("skipped: this is for the emulated module\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
