/* test_headers.c - each public header compiles alone, as C11 and as C++17, and so do its
 * initialisers. Skipped without a compiler. */
#include "support/test.h"

#include <glob.h>
#include <stdbool.h>

static const char *const use_all =
    "#include <cddp/cddp.h>\n"
    "int main(void) {\n"
    "    cddp_group_options group = CDDP_GROUP_OPTIONS_INIT;\n"
    "    cddp_store_options store = CDDP_STORE_OPTIONS_INIT;\n"
    "    cddp_ddp_options ddp = CDDP_DDP_OPTIONS_INIT;\n"
    "    cddp_step step = CDDP_STEP_INIT;\n"
    "    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;\n"
    "    cddp_spawn_options spawn = CDDP_SPAWN_OPTIONS_INIT;\n"
    "    ddp.hook = cddp_hook_bf16;\n"
    "    return (int)(group.struct_size + store.struct_size + ddp.struct_size\n"
    "                 + step.struct_size + stats.struct_size + spawn.struct_size) == 0;\n"
    "}\n";

static int run(const char *format, const char *compiler, const char *file)
{
    char command[8192];

    snprintf(command, sizeof command, format, compiler, getenv("CDDP_TEST_SOURCE"), file);
    return system(command);
}

/* Its own header needs MPI's, which are the system's and may warn. */
static const char mpi_flags[] =
    " -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(pkg-config --cflags mpi | sed 's/-I/-isystem /g')";

/* Whether @p header can be compiled here; @p out: what that takes besides. */
static bool find_flags(const char *header, const char **out)
{
    *out = "";
    if (strcmp(header, "mpi.h") != 0) {
        return true;
    }
    if (system("pkg-config --exists mpi 2>/dev/null") != 0) {
        fprintf(stderr, "there is no MPI here: cddp/mpi.h is left out\n");
        return false;
    }
    *out = mpi_flags;
    return true;
}

static void compile_all(const char *compiler, const char *language, const char *warnings)
{
    char format[1024];
    char format_of[1400];
    char pattern[4096];
    char *folder = support_mkdtemp();
    char file[4200];
    glob_t headers;
    FILE *source;

    if (getenv("CDDP_TEST_SOURCE") == NULL || run("%s --version >/dev/null 2>&1", compiler, "")) {
        support_rmdir(folder);
        skip();
    }
    snprintf(format, sizeof format,
             "%%s %s %s -pedantic -Wall -Wextra -Werror -fsyntax-only -I%%s/include '%%s'",
             language, warnings);
    snprintf(pattern, sizeof pattern, "%s/include/cddp/*.h", getenv("CDDP_TEST_SOURCE"));
    assert_int_equal(glob(pattern, 0, NULL, &headers), 0);
    snprintf(file, sizeof file, "%s/use.c", folder);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        const char *header = strrchr(headers.gl_pathv[i], '/') + 1;
        const char *flags;

        if (!find_flags(header, &flags)) {
            continue;
        }
        source = fopen(file, "w");
        fprintf(source, "#include <cddp/%s>\nextern int nothing;\n", header);
        fclose(source);
        snprintf(format_of, sizeof format_of, "%s%s", format, flags);
        assert_int_equal(run(format_of, compiler, file), 0);
    }
    assert_true(headers.gl_pathc >= 8);
    globfree(&headers);
    source = fopen(file, "w");
    fputs(use_all, source);
    fclose(source);
    assert_int_equal(run(format, compiler, file), 0);
    support_rmdir(folder);
}

static void public_headers_compile_as_c11(void **state)
{
    (void)state;
    compile_all("cc", "-x c -std=c11", "-Wstrict-prototypes -Wmissing-prototypes");
}

static void public_headers_compile_as_cxx17(void **state)
{
    (void)state;
    compile_all("c++", "-x c++ -std=c++17", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_headers_compile_as_c11),
        cmocka_unit_test(public_headers_compile_as_cxx17),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
