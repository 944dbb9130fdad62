/* test_libraries.c - where NVIDIA's libraries are loaded from: all from one place, unless a mix is
 * requested. The libraries are empty ones. Each case opens them in its own process, because the
 * loader reads LD_LIBRARY_PATH when a process starts. */
#include "base/error.h"
#include "kernels/cuda/library.h"
#include "support/folder.h"

#include <stdio.h>

#if CUDART_VERSION >= 13000
#define LT "libcublasLt.so.13"
#else
#define LT "libcublasLt.so.12"
#endif
#define CUDNN "libcudnn.so.9"
#define NCCL "libnccl.so.2"
#define WHEELS "venv/lib/python3.12/site-packages/nvidia"

/* In the process of a case: cuDNN first, as a model with convolutions would. */
static int open_all(void)
{
    static const enum cuda_library order[] = {CUDA_LIBRARY_CUDNN, CUDA_LIBRARY_CUBLASLT,
                                              CUDA_LIBRARY_NCCL};
    char text[8192];

    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        void *library = NULL;
        cddp_status status = cuda_library_open(order[i], &library);

        printf("%d %s\n", status, status == CDDP_OK ? "" : cddp_last_error());
    }
    cuda_libraries_describe(text, sizeof text);
    printf("%s\n", text);
    return 0;
}

static const char *program;

static void put(const char *dir, const char *name)
{
    char command[16384];

    snprintf(command, sizeof command, "mkdir -p '%s/%s' && cp '%s' '%s/%s/%s'", folder, dir,
             getenv("CDDP_TEST_LIBRARY"), folder, dir, name);
    assert_int_equal(system(command), 0);
}

/* What such a process says with these folders (below `folder`, each with a colon behind it). */
static const char *said(const char *folders, const char *setting)
{
    static char text[32768];
    char command[16384];
    FILE *pipe;
    size_t length;

    snprintf(command, sizeof command,
             "cd '%s' && env LD_LIBRARY_PATH='%s'\"$LD_LIBRARY_PATH\" %s '%s' open", folder,
             folders, setting, program);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    length = fread(text, 1, sizeof text - 1, pipe);
    text[length] = '\0';
    assert_int_equal(pclose(pipe), 0);
    return text;
}

static int make_folders(void **state)
{
    if (getenv("CDDP_TEST_LIBRARY") == NULL || make_folder(state) != 0) {
        return 1;
    }
    put("system", LT);
    put("system", CUDNN);
    put("system", NCCL);
    put("half", LT);
    put(WHEELS "/cublas/lib", LT);
    put(WHEELS "/cudnn/lib", CUDNN);
    put(WHEELS "/nccl/lib", NCCL);
    return 0;
}

#define ALL_WHEELS WHEELS "/cublas/lib:" WHEELS "/cudnn/lib:" WHEELS "/nccl/lib:"

static void libraries_of_one_place_are_opened(void **state)
{
    (void)state;
    assert_string_equal(said("system:", ""), "0 \n0 \n0 \nfrom the system\n");
    assert_string_equal(said("half:system:", ""), "0 \n0 \n0 \nfrom the system\n");
    assert_string_equal(said(ALL_WHEELS "system:", ""), "0 \n0 \n0 \nfrom " WHEELS "\n");
}

static void a_mix_is_refused_with_both_places(void **state)
{
    (void)state;
    assert_string_equal(
        said("half:" ALL_WHEELS, ""),
        "0 \n"
        "-8 " LT " (products) is from the system, but " CUDNN " from " WHEELS
        ": NVIDIA's libraries "
        "are tested as they come together; let LD_LIBRARY_PATH name one place with all of them, or "
        "set CDDP_MIXED_LIBRARIES=1\n"
        "0 \n"
        "from " WHEELS "\n");
}

static void a_mix_is_taken_where_it_is_asked_for(void **state)
{
    (void)state;
    assert_string_equal(said("half:" ALL_WHEELS, "CDDP_MIXED_LIBRARIES=1"),
                        "0 \n0 \n0 \nfrom several places, as CDDP_MIXED_LIBRARIES allows\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libraries_of_one_place_are_opened),
        cmocka_unit_test(a_mix_is_refused_with_both_places),
        cmocka_unit_test(a_mix_is_taken_where_it_is_asked_for),
    };

    program = argv[0];
    return argc > 1 ? open_all() : cmocka_run_group_tests(tests, make_folders, remove_folder);
}
