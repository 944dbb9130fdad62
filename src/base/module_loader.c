/* module_loader.c - finds and opens modules, and owns the table of what they may call. */
#include "base/module_loader.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"

#include "cddp_config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

struct cddpi_module_file cddpi_mpi_module_file = {
    .title = "MPI",
    .file = "libcddp-mpi.so",
    .at = CDDPI_ENV_MPI_MODULE,
    .symbol = "cddpi_mpi_module",
    .built_in = "group/net/mpi/",
    .build_with = "-Dmpi=enabled",
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

const struct cddpi_module_host *cddpi_module_host(void)
{
    return &host;
}

/* Take the table of an opened file, if it is one of ours. */
static cddp_status take_table(const struct cddpi_module_file *module, void *handle,
                              const char *path, const void **out)
{
    const void *(*table_of)(void);
    const struct cddpi_module_start *start;

    /* ISO C cannot convert the object pointer of dlsym() to a function pointer */
    *(void **)&table_of = dlsym(handle, module->symbol);
    if (table_of == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s is not cddp's %s module: it has no %s", path,
                          module->title, module->symbol);
    }
    start = table_of();
    if (start->abi != CDDPI_MODULE_ABI || strcmp(start->version, CDDP_VERSION) != 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "%s belongs to cddp %s (tables %u), but this is cddp %s (tables %u): "
                          "install both from one build",
                          path, start->version, start->abi, CDDP_VERSION, CDDPI_MODULE_ABI);
    }
    *out = start;
    return CDDP_OK;
}

static cddp_status open_file(const struct cddpi_module_file *module, const char *path,
                             const void **out)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cddp_status status;

    if (handle == NULL) {
        const char *reason = dlerror();

        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the %s module cannot be opened: %s", module->title,
                          reason != NULL ? reason : path);
    }
    status = take_table(module, handle, path, out);
    if (status != CDDP_OK) {
        dlclose(handle);
    }
    return status;
}

/* Look beside the file that this code is in: the library, or a program that it is linked into. In
 * an installation modules lie in a folder of their own beside the library, in a build folder one or
 * two folders away. */
static bool beside(const struct cddpi_module_file *module, const char *of, const char *folder,
                   const char *built_in, char *path, size_t bytes)
{
    const char *slash = strrchr(of, '/');
    int length = slash == NULL ? -1
                               : snprintf(path, bytes, "%.*s/%s%s%s", (int)(slash - of), of, folder,
                                          built_in, module->file);

    return length > 0 && (size_t)length < bytes && access(path, R_OK) == 0;
}

static bool find_beside(const struct cddpi_module_file *module, char *path, size_t bytes)
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    Dl_info library;
    const char *places[2] = {NULL, NULL};

    if (dladdr((const void *)&host, &library) != 0) {
        places[0] = library.dli_fname;
    }
    if (length > 0) {
        program[length] = '\0';
        places[1] = program;
    }
    for (int i = 0; i < 2; i++) {
        if (places[i] != NULL &&
            (beside(module, places[i], "", "", path, bytes) ||
             beside(module, places[i], "cddp/", "", path, bytes) ||
             beside(module, places[i], CDDP_BIN_TO_LIB "/cddp/", "", path, bytes) ||
             beside(module, places[i], "../src/", module->built_in, path, bytes) ||
             beside(module, places[i], "", module->built_in, path, bytes))) {
            return true;
        }
    }
    return false;
}

static cddp_status find_and_open(const struct cddpi_module_file *module, const void **out)
{
    const char *given = cddpi_env(module->at);
    char path[4096 + 128];
    cddp_status status;

    if (given != NULL) {
        status = open_file(module, given, out);
        return status == CDDP_OK
                   ? status
                   : cddpi_fail_prefix(status, "$%s", cddpi_env_rows[module->at].name);
    }
    if (find_beside(module, path, sizeof path)) {
        return open_file(module, path, out);
    }
    snprintf(path, sizeof path, CDDP_LIBDIR "/cddp/%s", module->file);
    if (access(path, R_OK) == 0) { /* where it is installed */
        return open_file(module, path, out);
    }
    status = open_file(module, module->file, out);
    return status == CDDP_OK
               ? status
               : cddpi_fail_prefix(status,
                                   "there is no %s beside this program or library: build cddp with "
                                   "%s, or set %s to the file",
                                   module->file, module->build_with,
                                   cddpi_env_rows[module->at].name);
}

cddp_status cddpi_module_file_open(struct cddpi_module_file *module, const void **out)
{
    cddp_status status = CDDP_OK;

    pthread_mutex_lock(&module->lock);
    if (module->table == NULL) {
        status = find_and_open(module, &module->table);
    }
    if (status == CDDP_OK) {
        *out = module->table;
    }
    pthread_mutex_unlock(&module->lock);
    return status;
}
