/* module_loader.c - owns the CUDA module's handle: finds and opens the module, and gives it the
 * table of what it may call. */
#include "device/module_loader.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"

#include "cddp_config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MODULE_FILE "libcddp-cuda.so"

static cddp_status host_fail(cddp_status status, const char *format, va_list arguments)
{
    char text[4096];

    vsnprintf(text, sizeof text, format, arguments);
    return cddpi_fail(status, "%s", text);
}

static cddp_status host_fail_prefix(cddp_status status, const char *format, va_list arguments)
{
    char text[4096];

    vsnprintf(text, sizeof text, format, arguments);
    return cddpi_fail_prefix(status, "%s", text);
}

static void host_warn(const char *text)
{
    cddpi_log(CDDPI_LOG_WARN, "%s", text);
}

const struct cddpi_module_host *cddpi_module_host(void)
{
    static const struct cddpi_module_host host = {
        .abi = CDDPI_MODULE_ABI,
        .fail = host_fail,
        .fail_prefix = host_fail_prefix,
        .last_error = cddp_last_error,
        .last_failure = cddpi_last_failure,
        .fail_name = cddpi_fail_name,
        .fail_again = cddpi_fail_again,
        .blame = cddpi_error_blame,
        .warn = host_warn,
        .alloc = cddpi_zalloc,
        .free = cddpi_free,
        .type_bytes = cddp_type_bytes,
        .type_name = cddp_type_name,
        .op_name = cddp_op_name,
    };

    return &host;
}

/* Written once, under the lock. */
static struct {
    pthread_mutex_t lock;
    const struct cddpi_module *module;
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Take the table of an opened file, if it is one of ours. */
static cddp_status take_table(void *handle, const char *path, const struct cddpi_module **out)
{
    cddpi_module_fn table_of;
    const struct cddpi_module *module;

    /* ISO C cannot convert the object pointer of dlsym() to a function pointer */
    *(void **)&table_of = dlsym(handle, CDDPI_MODULE_SYMBOL);
    if (table_of == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s is not cddp's CUDA module: it has no %s", path,
                          CDDPI_MODULE_SYMBOL);
    }
    module = table_of();
    if (module->abi != CDDPI_MODULE_ABI || strcmp(module->version, CDDP_VERSION) != 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "%s belongs to cddp %s (tables %u), but this is cddp %s (tables %u): "
                          "install both from one build",
                          path, module->version, module->abi, CDDP_VERSION, CDDPI_MODULE_ABI);
    }
    *out = module;
    return CDDP_OK;
}

static cddp_status open_file(const char *path, const struct cddpi_module **out)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cddp_status status;

    if (handle == NULL) {
        const char *reason = dlerror();

        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the CUDA module cannot be opened: %s",
                          reason != NULL ? reason : path);
    }
    status = take_table(handle, path, out);
    if (status != CDDP_OK) {
        dlclose(handle);
    }
    return status;
}

/* Look beside the file that this code is in: the library, or a program that it is linked into. In a
 * build folder and in an installation (bin beside lib) the module is one or two folders away. */
static bool beside(const char *of, const char *folder, char *path, size_t bytes)
{
    const char *slash = strrchr(of, '/');
    int length = slash == NULL
                     ? -1
                     : snprintf(path, bytes, "%.*s/%s" MODULE_FILE, (int)(slash - of), of, folder);

    return length > 0 && (size_t)length < bytes && access(path, R_OK) == 0;
}

static bool find_beside(char *path, size_t bytes)
{
    static const char *const folders[] = {"", "../lib/", "../src/device/cuda/", "device/cuda/"};
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    Dl_info library;
    const char *places[2] = {NULL, NULL};

    if (dladdr((const void *)&opened, &library) != 0) {
        places[0] = library.dli_fname;
    }
    if (length > 0) {
        program[length] = '\0';
        places[1] = program;
    }
    for (int place = 0; place < 2; place++) {
        for (size_t i = 0; places[place] != NULL && i < sizeof folders / sizeof folders[0]; i++) {
            if (beside(places[place], folders[i], path, bytes)) {
                return true;
            }
        }
    }
    return false;
}

static cddp_status find_and_open(const struct cddpi_module **out)
{
    const char *given = cddpi_env(CDDPI_ENV_CUDA_MODULE);
    char path[4096 + 64];
    cddp_status status;

    if (given != NULL) {
        status = open_file(given, out);
        return status == CDDP_OK ? status : cddpi_fail_prefix(status, "$CDDP_CUDA_MODULE");
    }
    if (find_beside(path, sizeof path)) {
        return open_file(path, out);
    }
    if (access(CDDP_LIBDIR "/" MODULE_FILE, R_OK) == 0) { /* where it is installed */
        return open_file(CDDP_LIBDIR "/" MODULE_FILE, out);
    }
    status = open_file(MODULE_FILE, out);
    return status == CDDP_OK
               ? status
               : cddpi_fail_prefix(status,
                                   "there is no " MODULE_FILE
                                   " beside this program or library: build cddp with -Dcuda=enabled"
                                   ", or set CDDP_CUDA_MODULE to the file");
}

cddp_status cddpi_module_open(const struct cddpi_module **out)
{
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&opened.lock);
    if (opened.module == NULL) {
        status = find_and_open(&opened.module);
    }
    if (status == CDDP_OK) {
        *out = opened.module;
    }
    pthread_mutex_unlock(&opened.lock);
    return status;
}
