/* resume_named.c - owns the meaning of train.resume, and the error text if a file or folder there
 * is something else. */
#include "train/resume.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/snapshot.h"
#include "nn/weights/weights.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { LOOKED_AT = 10000, SHOWN_BYTES = 64 };

/* Whether @p folder is, or was, a run folder. */
static bool is_run(const char *folder)
{
    return cddpi_folder_holds(folder, "checkpoints") ||
           (cddpi_folder_holds(folder, "train.conf") &&
            cddpi_folder_holds(folder, "metrics.jsonl"));
}

static cddp_status explain_file_of(const char *path, const char *name, const char *folder)
{
    if (cddpi_folder_holds(folder, "state.json")) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "%s is a file of a checkpoint: name the checkpoint's folder, %s", path,
                          folder);
    }
    if (is_run(folder) || strcmp(name, "latest") == 0) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "%s is a file of a run: name its folder, %s", path,
                          folder);
    }
    if (cddpi_weights_are_called(name)) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "%s is a file of weights, not a checkpoint, so a run cannot continue "
                          "from it. To begin a new run with these weights, set model.weights",
                          path);
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND,
                      "%s is a file, but must be the folder of a checkpoint or of a run", path);
}

static cddp_status explain_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char *folder = slash == NULL
                       ? cddpi_strdup(".")
                       : cddpi_format("%.*s", (int)(slash - path + (slash == path)), path);
    cddp_status status = folder != NULL ? explain_file_of(path, name, folder)
                                        : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a name");

    cddpi_free(folder);
    return status;
}

/* The contents of a folder that is not recognised. */
struct resume_contents {
    size_t count;
    size_t runs;
    char name[SHOWN_BYTES]; /* the first run by name; without runs, the first entry */
};

static void count_name(struct resume_contents *contents, const char *path, const char *name)
{
    char shown[SHOWN_BYTES];
    char *inside = cddpi_format("%s/%s", path, name);
    bool is_one = inside != NULL && is_run(inside);
    bool is_better = is_one && contents->runs == 0;

    cddpi_free(inside);
    (void)cddpi_printable(name, shown, sizeof shown);
    if (is_one == (contents->runs > 0)) {
        is_better = contents->count == 0 || strcmp(shown, contents->name) < 0;
    }
    if (is_better) {
        memcpy(contents->name, shown, sizeof shown);
    }
    contents->runs += is_one;
    contents->count++;
}

static cddp_status look_into(const char *path, struct resume_contents *out)
{
    const char *name = "";
    DIR *dir;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_folder_open(path, &dir));
    while (out->count < LOOKED_AT && (status = cddpi_folder_next(dir, path, &name)) == CDDP_OK &&
           name != NULL) {
        count_name(out, path, name);
    }
    closedir(dir);
    return status;
}

static cddp_status explain_contents(const char *path)
{
    struct resume_contents contents = {.count = 0};

    CDDPI_TRY(look_into(path, &contents));
    if (contents.runs > 0) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "%s has no checkpoint, but holds the folder%s of %zu run%s: name the run "
                          "to continue, such as %s/%s",
                          path, contents.runs > 1 ? "s" : "", contents.runs,
                          contents.runs > 1 ? "s" : "", path, contents.name);
    }
    if (contents.count == 0) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "the folder %s is empty: it has no checkpoint", path);
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND,
                      "%s is neither a checkpoint nor the folder of a run: it holds %s%s", path,
                      contents.name, contents.count > 1 ? " and others" : " only");
}

static cddp_status explain_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char weights[SHOWN_BYTES];

    if (strncmp(name, "step-", 5) == 0 || (cddpi_folder_holds(path, "model.safetensors") &&
                                           cddpi_folder_holds(path, "optimizer.safetensors"))) {
        return cddpi_fail(
            CDDP_ERR_NOT_FOUND,
            "the checkpoint %s is incomplete: it lacks state.json, which is written last", path);
    }
    if (is_run(path)) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "the run in %s has no checkpoint yet, so there is nothing to continue",
                          path);
    }
    if (cddpi_weights_name_in(path, weights, sizeof weights)) {
        return cddpi_fail(
            CDDP_ERR_NOT_FOUND,
            "%s holds the weights of a model (%s), but no checkpoint, so a run cannot continue "
            "from it. To begin a new run with these weights, set model.weights",
            path, weights);
    }
    return explain_contents(path);
}

/* Check that @p path is a folder with a checkpoint's state; otherwise, the error text says what it
 * is. */
static cddp_status check_checkpoint(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno, "%s",
                                path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return explain_file(path);
    }
    return cddpi_folder_holds(path, "state.json") ? CDDP_OK : explain_folder(path);
}

/* @p named may be a run folder, a folder of checkpoints, or a checkpoint. */
static cddp_status find_in(struct cddpi_trainer *trainer, const char *named, bool to_train,
                           char **out)
{
    char *inside = cddpi_format("%s/checkpoints", named);
    cddp_status status;

    CDDPI_TRY_MEMORY(inside != NULL, "train.resume: no memory");
    status = cddpi_trainer_find_newest_in(trainer, inside, to_train, out);
    cddpi_free(inside);
    CDDPI_TRY(status);
    if (*out == NULL) {
        CDDPI_TRY(cddpi_trainer_find_newest_in(trainer, named, to_train, out));
    }
    if (*out != NULL) {
        return CDDP_OK;
    }
    status = check_checkpoint(named);
    if (status == CDDP_OK && !to_train) { /* who trains checks all files when it loads them */
        status = cddpi_snapshot_verify_model(named);
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "train.resume");
    }
    *out = cddpi_strdup(named);
    return *out != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "train.resume: no memory");
}

cddp_status cddpi_trainer_find_named(struct cddpi_trainer *trainer, bool to_train, char **out)
{
    char *named = cddpi_strdup(trainer->config->train.resume);
    cddp_status status = CDDP_OK;
    size_t length;

    *out = NULL;
    CDDPI_TRY_MEMORY(named != NULL, "train.resume: no memory");
    length = strlen(named);
    while (length > 1 && named[length - 1] == '/') { /* a shell's completion appends these */
        named[--length] = '\0';
    }
    if (length == 0) {
        status = cddpi_config_fail(
            trainer->config, "train.resume",
            "is empty, but must be none, auto, or the folder of a checkpoint or run");
    } else {
        status = find_in(trainer, named, to_train, out);
    }
    cddpi_free(named);
    return status;
}
