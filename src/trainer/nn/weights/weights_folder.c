/* weights_folder.c - finds the file with a model's weights in a folder, words the error if there is
 * none that can be read, and reads the JSON files beside weights: config.json, an index. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/foreign.h"
#include "base/json.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/snapshot.h"
#include "nn/weights/weights_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static size_t kind_of(const char *name)
{
    size_t kind = 0;

    while (kind < KINDS && !cddpi_name_ends_with(name, kinds[kind].end)) {
        kind++;
    }
    return kind;
}

bool cddpi_name_ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);

    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
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

        CDDPI_TRY_MEMORY(path != NULL, "%s: no memory for a name", folder);
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

char *cddpi_weights_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return cddpi_format("%.*s%s", slash != NULL ? (int)(slash + 1 - path) : 0, path, name);
}

static cddp_status read_bytes(int fd, const char *path, char *text, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = read(fd, text + done, bytes - done);

        if (got == 0) {
            return cddpi_fail(CDDP_ERR_IO, "%s: it became shorter while it was read", path);
        }
        if (got < 0 && errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", path);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return CDDP_OK;
}

/* The error for a file that is not JSON: where parsing fails, or what the file is if it does not
 * even begin as an object. */
static cddp_status json_fail(const char *path, const char *text, size_t bytes,
                             const json_error_t *error)
{
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    char shown[JSON_ERROR_TEXT_LENGTH];

    if (json_error_code(error) == json_error_out_of_memory) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to read it", path);
    }
    if (bytes == 0 || text[strspn(text, " \t\r\n\xEF\xBB\xBF")] != '{') {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: not a JSON object%s", path,
                          cddpi_foreign_words(text, bytes, words));
    }
    return cddpi_fail(CDDP_ERR_FORMAT, "%s: line %d, column %d: %s", path, error->line,
                      error->column, cddpi_printable(error->text, shown, sizeof shown));
}

static cddp_status parse(int fd, const char *path, size_t bytes, json_t **out_root)
{
    char *text = cddpi_zalloc(bytes + 1);
    json_error_t error;
    cddp_status status;

    CDDPI_TRY_MEMORY(text != NULL, "%s: no memory for %zu bytes", path, bytes);
    status = read_bytes(fd, path, text, bytes);
    if (status == CDDP_OK) {
        *out_root = cddpi_json_load(text, bytes, JSON_REJECT_DUPLICATES, &error);
        status = *out_root != NULL ? CDDP_OK : json_fail(path, text, bytes, &error);
    }
    cddpi_free(text);
    return status;
}

cddp_status cddpi_weights_read_json(const char *path, size_t most, json_t **out_root)
{
    struct stat info;
    int fd;
    cddp_status status = cddpi_file_open_regular(path, O_RDONLY | O_CLOEXEC, 0, &fd);

    *out_root = NULL;
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s", path);
    }
    if (fstat(fd, &info) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "stat %s", path);
    } else if ((uint64_t)info.st_size > most) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %lld bytes are more than the %zu that are read",
                            path, (long long)info.st_size, most);
    } else {
        status = parse(fd, path, (size_t)info.st_size, out_root);
    }
    close(fd);
    return status;
}
