/* module_loader.c - finds and opens modules, and owns the table of functions that they may call. */
#include "base/module_loader.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/launcher_report.h"
#include "base/log.h"

#include "cddp_config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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
    .report_card = cddpi_launcher_report_card,
    .alloc = cddpi_zalloc,
    .free = cddpi_free,
    .type_bytes = cddp_type_bytes,
    .type_name = cddp_type_name,
    .op_name = cddp_op_name,
    .tuning_open = cddpi_tuning_open,
    .tuning_close = cddpi_tuning_close,
    .tuning_find = cddpi_tuning_find,
    .tuning_keep = cddpi_tuning_keep,
    .tuning_reject = cddpi_tuning_reject,
};

struct cddpi_module_file cddpi_mpi_module_file = {
    .title = "MPI",
    .file = "libcddp-mpi.so",
    .at = CDDPI_ENV_MPI_MODULE,
    .symbol = "cddpi_mpi_module",
    .built_in = "runtime/group/net/mpi/",
    .build_with = "-Dmpi=enabled",
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

const struct cddpi_module_host *cddpi_module_host(void)
{
    return &host;
}

/* Get the table of an opened module, if the file is one of our modules and fits this version. */
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

/* The file that contains this code: the library, or the program that links it. NULL: unknown. */
static const char *own_file(void)
{
    Dl_info library;

    return dladdr((const void *)&host, &library) != 0 ? library.dli_fname : NULL;
}

static bool is_trusted(const char *path, char real[PATH_MAX], char *why, size_t why_bytes)
{
    return cddpi_file_is_trusted(path, own_file(), real, why, why_bytes);
}

static cddp_status fail_untrusted(const struct cddpi_module_file *module, const char *path,
                                  const char *why)
{
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "the %s module %s is not opened, because somebody else could have put it "
                      "there: %s",
                      module->title, path, why);
}

/* Whether the dynamic loader's reason is only that it found no file of the module's name, which
 * would say again that the module is not there. */
static bool is_absent(const struct cddpi_module_file *module, const char *path, const char *reason)
{
    static const char words[] = ": cannot open shared object file: No such file or directory";
    size_t length = strlen(module->file);

    return strcmp(path, module->file) == 0 && reason != NULL &&
           strncmp(reason, module->file, length) == 0 && strcmp(reason + length, words) == 0;
}

static cddp_status open_file(const struct cddpi_module_file *module, const char *path,
                             const void **out)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cddp_status status;

    if (handle == NULL) {
        const char *reason = dlerror();

        if (is_absent(module, path, reason)) {
            return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                              "there is no %s beside this program or library: build cddp with %s, "
                              "or set %s to the file",
                              module->file, module->build_with, cddpi_env_rows[module->at].name);
        }
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the %s module cannot be opened: %s", module->title,
                          reason != NULL ? reason : path);
    }
    status = take_table(module, handle, path, out);
    if (status != CDDP_OK) {
        dlclose(handle);
    }
    return status;
}

/* Look beside the file that contains this code: the library, or the program that links it. In an
 * installation, modules are in a folder beside the library; in a build folder, they are one or two
 * folders away. */
static bool beside(const struct cddpi_module_file *module, const char *of, const char *folder,
                   const char *built_in, char *path, size_t bytes)
{
    const char *slash = strrchr(of, '/');
    int length = slash == NULL ? -1
                               : snprintf(path, bytes, "%.*s/%s%s%s", (int)(slash - of), of, folder,
                                          built_in, module->file);

    return length > 0 && (size_t)length < bytes && access(path, R_OK) == 0;
}

/* A place where a module may be; and, in @p refused, why a module that exists is not used. */
struct module_loader_search {
    char path[PATH_MAX + 128];
    char real[PATH_MAX]; /* the path of the module to open */
    char refused[2 * PATH_MAX];
};

/* Whether the file at search->path can be trusted. If it cannot, log a warning. */
static bool is_taken(const struct cddpi_module_file *module, struct module_loader_search *search)
{
    char why[PATH_MAX + 64];

    if (is_trusted(search->path, search->real, why, sizeof why)) {
        return true;
    }
    (void)fail_untrusted(module, search->path, why);
    snprintf(search->refused, sizeof search->refused, "%s", cddp_last_error());
    cddpi_log(CDDPI_LOG_WARN, "%s", search->refused);
    return false;
}

static bool find_beside(const struct cddpi_module_file *module, struct module_loader_search *search)
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    const char *places[2] = {own_file(), NULL};
    const struct {
        const char *folder;
        const char *built_in;
    } folders[] = {{"", ""},
                   {"cddp/", ""},
                   {CDDP_BIN_TO_LIB "/cddp/", ""},
                   {"../src/", module->built_in},
                   {"", module->built_in}};

    if (length > 0) {
        program[length] = '\0';
        places[1] = program;
    }
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; places[i] != NULL && k < sizeof folders / sizeof *folders; k++) {
            if (beside(module, places[i], folders[k].folder, folders[k].built_in, search->path,
                       sizeof search->path) &&
                is_taken(module, search)) {
                return true;
            }
        }
    }
    return false;
}

/* Search LD_LIBRARY_PATH, where the dynamic loader looks first. Its other folders belong to the
 * system. */
static bool find_by_variable(const struct cddpi_module_file *module,
                             struct module_loader_search *search)
{
    const char *list = getenv("LD_LIBRARY_PATH");

    while (list != NULL && *list != '\0') {
        size_t bytes = strcspn(list, ":;");

        if (bytes > 0 &&
            (size_t)snprintf(search->path, sizeof search->path, "%.*s/%s", (int)bytes, list,
                             module->file) < sizeof search->path &&
            access(search->path, R_OK) == 0) {
            return true;
        }
        list += bytes;
        list += *list != '\0';
    }
    return false;
}

static cddp_status open_given(const struct cddpi_module_file *module, const char *path,
                              const void **out)
{
    char real[PATH_MAX];
    char why[PATH_MAX + 64];
    cddp_status status;

    if (is_trusted(path, real, why, sizeof why)) {
        status = open_file(module, real, out);
    } else if (access(path, F_OK) == 0) {
        status = fail_untrusted(module, path, why);
    } else {
        status = open_file(module, path, out); /* a name that the dynamic loader may find */
    }
    return status == CDDP_OK ? status
                             : cddpi_fail_prefix(status, "$%s", cddpi_env_rows[module->at].name);
}

static cddp_status open_found(const struct cddpi_module_file *module,
                              struct module_loader_search *search, const void **out)
{
    if (find_beside(module, search)) {
        return open_file(module, search->real, out);
    }
    snprintf(search->path, sizeof search->path, CDDP_LIBDIR "/cddp/%s", module->file);
    if (access(search->path, R_OK) == 0 && is_taken(module, search)) { /* the installation folder */
        return open_file(module, search->real, out);
    }
    if (find_by_variable(module, search)) {
        if (is_taken(module, search)) {
            return open_file(module, search->real, out);
        }
    } else if (search->refused[0] == '\0') {
        return open_file(module, module->file, out);
    }
    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s", search->refused);
}

static cddp_status find_and_open(const struct cddpi_module_file *module, const void **out)
{
    const char *given = cddpi_env(module->at);
    struct module_loader_search *search;
    cddp_status status;

    if (given != NULL) {
        return open_given(module, given, out);
    }
    search = cddpi_zalloc(sizeof *search);
    CDDPI_TRY_MEMORY(search != NULL, "no memory to look for %s", module->file);
    status = open_found(module, search, out);
    cddpi_free(search);
    return status;
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
