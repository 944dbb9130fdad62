/* weights_folder.c - finds the file with a model's weights in a folder, and words the error if
 * there is none that can be read. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/snapshot.h"
#include "nn/weights/weights_file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { LOOKED_AT = 10000, SHOWN_BYTES = 64 };

/* Files that hold weights, by the ends of their names. If a folder has several kinds, the first in
 * this list is reported. */
static const struct {
    const char *end, *words;
} kinds[] = {
    {".safetensors", "which is not called model.safetensors: name that file"},
    {".bin",
     "PyTorch's own format, which can run programs when it is read: from_pretrained(FOLDER) "
     "and save_pretrained(OTHER) in Python make safetensors of it"},
    {".pt", "PyTorch's own format, which can run programs when it is read: in Python, "
            "safetensors.torch.save_file(torch.load(FILE), OTHER) makes safetensors of it"},
    {".pth", "PyTorch's own format, which can run programs when it is read: in Python, "
             "safetensors.torch.save_file(torch.load(FILE), OTHER) makes safetensors of it"},
    {".ckpt", "PyTorch's own format, which can run programs when it is read: in Python, "
              "safetensors.torch.save_file(torch.load(FILE), OTHER) makes safetensors of it"},
    {".gguf", "llama.cpp's format: take the model's safetensors"},
    {".h5", "Keras's format: take the model's safetensors"},
    {".msgpack", "Flax's format: take the model's safetensors"},
    {".onnx", "ONNX: take the model's safetensors"},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* What a folder holds. */
struct contents {
    size_t count;
    size_t kind;            /* KINDS: no known weights */
    size_t same_kind;       /* number of files of that kind */
    char name[SHOWN_BYTES]; /* the first file of that kind, or of all files, in byte order of names
                             */
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);

    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

static size_t kind_of(const char *name)
{
    size_t kind = 0;

    while (kind < KINDS && !ends_with(name, kinds[kind].end)) {
        kind++;
    }
    return kind;
}

static void count_name(struct contents *contents, const char *name)
{
    size_t kind = kind_of(name);

    contents->count++;
    if (kind > contents->kind) {
        return;
    }
    contents->same_kind = kind < contents->kind ? 1 : contents->same_kind + 1;
    if (kind < contents->kind || contents->same_kind == 1 || strcmp(name, contents->name) < 0) {
        (void)cddpi_printable(name, contents->name, sizeof contents->name);
    }
    contents->kind = kind;
}

static cddp_status look_into(const char *folder, struct contents *out)
{
    struct contents contents = {.kind = KINDS};
    struct dirent *entry;
    DIR *dir;

    CDDPI_TRY(cddpi_folder_open(folder, &dir));
    while (contents.count < LOOKED_AT && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count_name(&contents, entry->d_name);
        }
    }
    closedir(dir);
    *out = contents;
    return CDDP_OK;
}

bool cddpi_weights_are_called(const char *name)
{
    return kind_of(name) < KINDS;
}

/* Whether @p folder contains checkpoints, or is the folder of a run, which has them one level
 * deeper. */
static bool has_checkpoints(const char *folder, const char *deeper)
{
    char *path = cddpi_format("%s%s", folder, deeper);
    bool any = false;

    if (path != NULL) {
        (void)!cddpi_snapshot_any(path, &any);
    }
    cddpi_free(path);
    return any;
}

static cddp_status fail_without(const char *folder)
{
    static const char none[] =
        "there is no model.safetensors and no model.safetensors.index.json in "
        "it";
    struct contents contents;

    CDDPI_TRY(look_into(folder, &contents));
    bool is_run = has_checkpoints(folder, "/checkpoints");

    if (is_run || has_checkpoints(folder, "")) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "%s: it holds checkpoints: name one of them, %s%s/step-...", folder,
                          folder, is_run ? "/checkpoints" : "");
    }
    if (contents.count == 0) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: %s: the folder is empty", folder, none);
    }
    if (contents.kind == KINDS) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: %s, nor other weights: it holds %s%s", folder,
                          none, contents.name, contents.count > 1 ? " and others" : " only");
    }
    if (contents.kind == 0 && contents.same_kind > 1) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "%s: %s, but %zu other files of safetensors, the first of them %s: if "
                          "they are shards, fetch their index, too; else name one of them",
                          folder, none, contents.same_kind, contents.name);
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: %s, but %s, %s", folder, none, contents.name,
                      kinds[contents.kind].words);
}

cddp_status cddpi_weights_find_in_folder(const char *folder, char **out)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};

    for (int i = 0; i < 2; i++) {
        char *path = cddpi_format("%s/%s", folder, names[i]);
        struct stat info;

        if (path == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", folder);
        }
        if (lstat(path, &info) == 0) { /* a broken link counts: opening it gives the error */
            *out = path;
            return CDDP_OK;
        }
        cddpi_free(path);
    }
    return fail_without(folder);
}

bool cddpi_weights_name_in(const char *folder, char *out, size_t bytes)
{
    struct contents contents;
    char *path = NULL;

    if (cddpi_weights_find_in_folder(folder, &path) == CDDP_OK) {
        (void)snprintf(out, bytes, "%s", strrchr(path, '/') + 1);
        cddpi_free(path);
        return true;
    }
    if (look_into(folder, &contents) != CDDP_OK || contents.kind == KINDS) {
        return false;
    }
    (void)snprintf(out, bytes, "%s", contents.name);
    return true;
}
