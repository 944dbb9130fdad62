/* info.c - prints the table of --env, and the libraries and GPUs that --check finds. */
#include "launcher/info.h"

#include "cddp_config.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/module_loader.h"
#include "base/streams.h"
#include "device/device.h"
#include "group/launch/launch_node.h"
#include "store/auth.h"
#include "store/cipher.h"

#include <cddp/status.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#if CDDP_HAVE_HWLOC
#include <hwloc.h>
#endif

void cddpi_info_env(void)
{
    for (int i = 0; i < CDDPI_ENV_COUNT; i++) {
        const struct cddpi_env_row *row = &cddpi_env_rows[i];
        const char *value = getenv(row->name);

        if (i == CDDPI_ENV_TOKEN && value != NULL) {
            value = "(set, and not shown)";
        }

        cddpi_say(stdout, "%s\n    %s\n    default: %s; now: %s\n", row->name, row->text,
                  row->fallback[0] != '\0' ? row->fallback : "(unset)",
                  value != NULL ? value : "(unset)");
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
    cddpi_check_processors();
    print_topology();
    printf("memory\n");
    cddpi_check_memory();
    printf("limits\n");
    cddpi_check_limits();
    printf("processes\n");
    cddpi_check_processes();
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
