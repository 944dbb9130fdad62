/* info.c - prints the table of --env and, for --check, what was found on this machine. */
#include "launcher/info.h"

#include "launcher/supervise/rank_cores.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/env.h"
#include "base/file.h"
#include "base/interface.h"
#include "base/memory_left.h"
#include "base/module_loader.h"
#include "base/options.h"
#include "base/process.h"
#include "base/streams.h"
#include "cddp_config.h"
#include "device/device.h"
#include "group/launch/launch_node.h"
#include "store/auth.h"
#include "store/cipher.h"

#include <cddp/status.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHECK_SECONDS = 30 }; /* timeout of checks that should take no time */

/* Instruction sets by which kernels, OpenBLAS or oneDNN choose code, named as in /proc/cpuinfo. */
static const char *const simd_names[] = {
    "sse4_2",   "avx",      "avx2",        "fma",         "f16c",        "avx512f",
    "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16",
    "amx_int8", "asimd",    "asimdhp",     "bf16",        "sve",         "sve2"};

/* Copy what follows the colon in the first line of @p path that starts with @p start. Returns false
 * if there is no such line. */
static bool find_line(const char *path, const char *start, char *out, size_t bytes)
{
    char line[8192];
    bool is_found = false;
    FILE *file = fopen(path, "re");

    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, start, strlen(start)) == 0) {
            const char *colon = strchr(line, ':');
            const char *value = colon != NULL ? colon + 1 : line;

            value += strspn(value, " \t");
            snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
            is_found = true;
        }
    }
    cddpi_stream_close(file);
    return is_found;
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static void print_simd(void)
{
    char flags[8192];

    if (!find_line("/proc/cpuinfo", "flags", flags, sizeof flags) &&
        !find_line("/proc/cpuinfo", "Features", flags, sizeof flags)) {
        printf("  SIMD: /proc/cpuinfo does not say\n");
        return;
    }
    printf("  SIMD:");
    for (size_t i = 0; i < sizeof simd_names / sizeof simd_names[0]; i++) {
        if (has_word(flags, simd_names[i])) {
            printf(" %s", simd_names[i]);
        }
    }
    putchar('\n');
}

static void check_processors(void)
{
    struct cddpi_rank_cores cores;
    struct cddpi_core_share all;
    char text[512];
    char usable[640];

    if (find_line("/proc/cpuinfo", "model name", text, sizeof text)) {
        printf("  %s\n", text);
    }
    print_simd();
    if (cddpi_cores_read("/sys/devices/system", &cores) != CDDP_OK) {
        printf("  affinity: %s\n", cddp_last_error());
        return;
    }
    cddpi_cores_limit(&cores);
    all = cddpi_cores_share(&cores, 0, 1, true);
    cddpi_cores_text(&cores, &all, text, sizeof text);
    cddpi_cores_print_usable(&cores, usable, sizeof usable);
    printf("  this process may use %s, %d hardware threads on %d NUMA node%s: %s\n", usable,
           cores.cpu_count, cores.node_count, cores.node_count == 1 ? "" : "s", text);
    cddpi_cores_fini(&cores);
}

static void check_memory(void)
{
    struct cddpi_memory_left left;
    struct statvfs shm;
    char text[128];

    if (find_line("/proc/meminfo", "MemTotal", text, sizeof text)) {
        printf("  total     %.1f GiB\n", atof(text) / (1 << 20));
    }
    if (find_line("/proc/meminfo", "MemAvailable", text, sizeof text)) {
        printf("  available %.1f GiB\n", atof(text) / (1 << 20));
    }
    cddpi_memory_left(&left);
    if (left.bytes != UINT64_MAX) {
        printf("  a job here can take %s (%s)\n", cddpi_print_size(left.bytes, text), left.limit);
    }
    if (statvfs("/dev/shm", &shm) == 0) {
        printf("  /dev/shm  %.1f GiB, %.1f GiB of it free\n",
               (double)shm.f_blocks * (double)shm.f_frsize / (1 << 30),
               (double)shm.f_bavail * (double)shm.f_frsize / (1 << 30));
    } else {
        printf("  /dev/shm: %s\n", strerror(errno));
    }
}

static void print_limit(const char *name, int resource, double unit, const char *unit_name)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) != 0) {
        return;
    }
    printf("  %-10s", name);
    if (limit.rlim_cur == RLIM_INFINITY) {
        printf(" unlimited\n");
    } else {
        printf(" %.0f%s", (double)limit.rlim_cur / unit, unit_name);
        if (limit.rlim_max == limit.rlim_cur) {
            putchar('\n');
        } else if (limit.rlim_max == RLIM_INFINITY) {
            printf(" (may be raised without limit)\n");
        } else {
            printf(" (may be raised to %.0f%s)\n", (double)limit.rlim_max / unit, unit_name);
        }
    }
}

static void print_setting(const char *name, const char *path)
{
    char text[128];

    if (find_line(path, "", text, sizeof text)) {
        printf("  %-10s %s\n", name, text);
    } else {
        printf("  %-10s this kernel has no %s\n", name, path);
    }
}

static void check_limits(void)
{
    print_limit("memlock", RLIMIT_MEMLOCK, 1024, " KiB");
    print_limit("nofile", RLIMIT_NOFILE, 1, " files");
    print_limit("nproc", RLIMIT_NPROC, 1, " processes");
    print_limit("addresses", RLIMIT_AS, 1024, " KiB");
    print_limit("file size", RLIMIT_FSIZE, 1024, " KiB");
    print_setting("somaxconn", "/proc/sys/net/core/somaxconn");
}

/* Open descriptor @p fd of process @p pid. Returns 0, or the errno of the failure. */
static int open_of_sibling(pid_t pid, int fd)
{
    char path[64];
    int copy;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    copy = open(path, O_RDWR | O_CLOEXEC);
    if (copy < 0) {
        return errno;
    }
    close(copy);
    return 0;
}

/* Let two children act as two ranks: one holds shared memory, the other opens it. Returns 0 or an
 * errno. */
static int try_shared_memory(void)
{
    int fd = memfd_create("cddp-check", MFD_CLOEXEC);
    int status = 0;
    pid_t self = getpid();
    pid_t holder;
    pid_t opener;

    if (fd < 0) {
        return errno;
    }
    fflush(NULL);
    holder = fork();
    if (holder == 0) {
        if (cddpi_child_begin(self, CHECK_SECONDS)) {
            pause();
        }
        _exit(0);
    }
    close(fd);
    opener = holder > 0 ? fork() : -1;
    if (opener == 0) {
        _exit(cddpi_child_begin(self, CHECK_SECONDS) ? open_of_sibling(holder, fd) : EAGAIN);
    }
    if (opener > 0) {
        waitpid(opener, &status, 0);
    }
    if (holder > 0) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
    }
    return opener > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
}

static void check_processes(void)
{
    int error = try_shared_memory();

    if (cddpi_process_check_proc() != CDDP_OK) {
        printf("  %s\n", cddp_last_error());
    }
    if (cddpi_interface_check_loopback("127.0.0.1") != CDDP_OK) {
        printf("  %s\n", cddp_last_error());
    }
    printf("  ranks can open each other's memory through /proc/PID/fd: %s%s\n",
           error == 0 ? "yes" : "no: ", error == 0 ? "" : strerror(error));
    print_setting("ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope");
}

#if CDDP_HAVE_HWLOC
#include <hwloc.h>
#endif

/* The subject that begins with row @p id; NULL: none does. */
static const char *subject_at(int id)
{
#define SUBJECT(first, name) [CDDPI_ENV_##first] = (name),
    static const char *const names[CDDPI_ENV_COUNT] = {CDDPI_ENV_SUBJECT_MAP(SUBJECT)};

    return names[id];
}

void cddpi_info_env(void)
{
    enum { INDENT = 4, WIDTH = 80 };

    for (int i = 0; i < CDDPI_ENV_COUNT; i++) {
        const struct cddpi_env_row *row = &cddpi_env_rows[i];
        const char *value = getenv(row->name);
        bool has_default = row->fallback[0] != '\0';

        if (subject_at(i) != NULL) {
            printf("%s%s\n\n", i > 0 ? "\n" : "", subject_at(i));
        }
        if (value != NULL) {
            value = i == CDDPI_ENV_TOKEN ? "(set, and not shown)" : value;
            cddpi_say(stdout, "%s = %s%s%s%s\n", row->name, value, has_default ? " (default " : "",
                      row->fallback, has_default ? ")" : "");
        } else if (has_default) {
            printf("%s = %s (default)\n", row->name, row->fallback);
        } else {
            printf("%s (not set)\n", row->name);
        }
        printf("%*s", INDENT, "");
        cddpi_print_wrapped(stdout, row->text, INDENT, WIDTH);
    }
}

/* Libraries that parts of cddp can use, with the file names that distributions use. */
static const struct library {
    const char *text;
    const char *names[4];
} libraries[] = {
    {"oneDNN (products, convolutions)", {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}},
    {"Open MPI", {"libmpi.so.40", "libmpi.so"}},
    {"OpenSSL (encrypted data)", {"libcrypto.so.3", "libcrypto.so.1.1"}},
};

/* Try each name of the library. Print which name worked, or why the first did not. */
static void print_library(const struct library *library)
{
    char reason[512] = "";

    for (int i = 0; i < 4 && library->names[i] != NULL; i++) {
        void *handle = dlopen(library->names[i], RTLD_LAZY | RTLD_LOCAL);
        const char *error;

        if (handle != NULL) {
            printf("  %-34s yes: %s\n", library->text, library->names[i]);
            return; /* not closed: some libraries crash if they are closed */
        }
        error = dlerror();
        if (reason[0] == '\0' && error != NULL) {
            snprintf(reason, sizeof reason, "%s", error);
        }
    }
    cddpi_say(stdout, "  %-34s no: %s\n", library->text, reason);
}

/* Print, indented, what the CUDA module finds, or why there is no module. */
static void print_gpus(void)
{
    char *text = cddpi_device_describe();

    for (const char *line = text; line != NULL && *line != '\0';) {
        int length = (int)strcspn(line, "\n");

        printf("  %.*s\n", length, line);
        line += length + (line[length] != '\0');
    }
    cddpi_free(text);
}

/* Print whether the MPI module loads, and which MPI library it found. */
static void print_mpi(void)
{
    const void *table;
    char library[256];

    if (cddpi_module_file_open(&cddpi_mpi_module_file, &table) != CDDP_OK) {
        printf("  %-14s no: %s\n", "module", cddp_last_error());
        return;
    }
    ((const struct cddpi_mpi_module_start *)table)->library(library, sizeof library);
    printf("  %-14s yes, of cddp %s: %s\n", "module",
           ((const struct cddpi_module_start *)table)->version, library);
}

static void print_topology(void)
{
#if CDDP_HAVE_HWLOC
    hwloc_topology_t topology;

    if (hwloc_topology_init(&topology) != 0) {
        return;
    }
    if (hwloc_topology_load(topology) == 0) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0);

        printf("  packages %d, NUMA nodes %d, cores %d, processors %d",
               hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
               hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
               hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
               hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
        if (cache != NULL && cache->attr != NULL) {
            printf(", L3 caches %d of %.1f MiB",
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_L3CACHE),
                   (double)cache->attr->cache.size / (1 << 20));
        }
        printf(" (hwloc %s)\n", HWLOC_VERSION);
    }
    hwloc_topology_destroy(topology);
#else
    printf("  built without hwloc: no topology beyond what /sys says\n");
#endif
}

/* Print what CDDP_ENCRYPT and CDDP_CIPHER ask for, and which cipher would be used. */
static void print_encryption(void)
{
    uint32_t ciphers;
    bool encrypts;

    if (cddpi_encryption_wanted(&encrypts) != CDDP_OK || cddpi_ciphers(&ciphers) != CDDP_OK) {
        printf("  no: %s\n", cddp_last_error());
        return;
    }
    printf("  control always, data %s\n",
           encrypts ? "too (CDDP_ENCRYPT=1)" : "not (CDDP_ENCRYPT=0)");
    printf("  cipher    %s\n", (ciphers & CDDPI_CIPHER_AES256GCM) != 0
                                   ? "AES-256-GCM, if the other side has it, too"
                                   : "ChaCha20-Poly1305");
}

int cddpi_info_check(void)
{
    struct utsname system;

    printf("cddp %s\n", cddp_version());
    if (uname(&system) == 0) {
        printf("  %s %s %s\n", system.sysname, system.release, system.machine);
    }
    printf("processors\n");
    check_processors();
    print_topology();
    printf("memory\n");
    check_memory();
    printf("limits\n");
    check_limits();
    printf("processes\n");
    check_processes();
    printf("launcher\n");
    cddpi_launch_describe(stdout);
    printf("encryption between hosts\n");
    print_encryption();
    printf("libraries\n");
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        print_library(&libraries[i]);
    }
    printf("MPI\n");
    print_mpi();
    printf("CUDA\n");
    fflush(stdout); /* so that the child that asks for GPUs does not print it again */
    print_gpus();
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : 1;
}
