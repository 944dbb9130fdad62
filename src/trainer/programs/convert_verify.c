/* convert_verify.c - owns what a whole checkpoint is beyond what snapshots check (checksums, JSON,
 * tensors that cover their file): shapes of the optimizer's tensors, and no NaN or Inf. */
#include "programs/convert_verify.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/streams.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bits of a number's exponent. All of them are set in NaN and Inf, and in no other number. */
static uint64_t exponent_of(cddp_type type)
{
    switch (type) {
    case CDDP_F32:
        return 0x7f800000;
    case CDDP_F64:
        return 0x7ff0000000000000;
    case CDDP_F16:
        return 0x7c00;
    case CDDP_BF16:
        return 0x7f80;
    default:
        return 0;
    }
}

static uint64_t load(const unsigned char *data, size_t bytes)
{
    uint64_t wide;
    uint32_t word;
    uint16_t half;

    switch (bytes) {
    case sizeof wide:
        memcpy(&wide, data, sizeof wide);
        return wide;
    case sizeof word:
        memcpy(&word, data, sizeof word);
        return word;
    default:
        memcpy(&half, data, sizeof half);
        return half;
    }
}

/* Fail if @p tensor has a NaN or Inf. The data of a file may be at any address. */
static cddp_status check_finite(const char *path, const cddp_tensor *tensor)
{
    const uint64_t exponent = exponent_of(tensor->type);
    size_t count = exponent != 0 ? cddpi_elements(tensor->dims, tensor->shape) : 0;
    size_t bytes = cddp_type_bytes(tensor->type);
    const unsigned char *data = tensor->data;
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];
    size_t i = 0;

    while (i < count && (load(data + i * bytes, bytes) & exponent) != exponent) {
        i++;
    }
    return i == count ? CDDP_OK
                      : cddpi_fail(CDDP_ERR_FORMAT,
                                   "%s: element %zu of %zu of tensor \"%s\" is NaN or Inf", path, i,
                                   count, cddpi_printable(tensor->name, shown, sizeof shown));
}

static cddp_status check_values(const char *path, const cddp_safetensors *file)
{
    cddp_status status = CDDP_OK;
    cddp_status looked;

    for (size_t i = 0; status == CDDP_OK && i < cddp_safetensors_count(file); i++) {
        status = check_finite(path, cddp_safetensors_at(file, i));
    }
    looked = cddpi_safetensors_look(file);
    return looked != CDDP_OK ? looked : status; /* what was cut off reads as other values */
}

/* The optimizer's tensor "exp_avg.NAME" belongs to the model's tensor NAME. */
static cddp_status check_shapes(const char *path, const cddp_safetensors *model,
                                const cddp_safetensors *optimizer)
{
    for (size_t i = 0; i < cddp_safetensors_count(optimizer); i++) {
        const cddp_tensor *moment = cddp_safetensors_at(optimizer, i);
        const char *point = strchr(moment->name, '.');
        const cddp_tensor *param = point != NULL ? cddp_safetensors_find(model, point + 1) : NULL;

        if (param != NULL && (param->dims != moment->dims ||
                              memcmp(param->shape, moment->shape,
                                     (size_t)param->dims * sizeof *param->shape) != 0)) {
            char name[CDDPI_SAFETENSORS_NAME_SHOWN];
            char kinds[2][CDDPI_TENSOR_KIND_BYTES];

            return cddpi_fail(
                CDDP_ERR_FORMAT,
                "%s: tensor \"%s\" of the optimizer is %s, but its parameter is %s", path,
                cddpi_printable(moment->name, name, sizeof name),
                cddpi_shape_describe(moment->type, moment->dims, moment->shape, kinds[0]),
                cddpi_shape_describe(param->type, param->dims, param->shape, kinds[1]));
        }
    }
    return CDDP_OK;
}

static uint64_t bytes_of(const cddp_safetensors *file)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < cddp_safetensors_count(file); i++) {
        bytes += cddpi_tensor_size(cddp_safetensors_at(file, i));
    }
    return bytes;
}

/* Check the contents of both data files, whose checksums are right. */
static cddp_status check_contents(const char *path, uint64_t step)
{
    cddp_safetensors *files[CDDPI_SNAPSHOT_DATA_FILES] = {NULL};
    char *names[CDDPI_SNAPSHOT_DATA_FILES] = {NULL};
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        names[i] = cddpi_format("%s/%s", path, cddpi_snapshot_files[i]);
        status = names[i] != NULL
                     ? cddp_safetensors_open(names[i], &files[i])
                     : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", path);
    }
    if (status == CDDP_OK) {
        status = check_shapes(path, files[CDDPI_SNAPSHOT_MODEL], files[CDDPI_SNAPSHOT_OPTIMIZER]);
    }
    for (int i = 0; status == CDDP_OK && i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        status = check_values(names[i], files[i]);
    }
    if (status == CDDP_OK) {
        cddpi_say(stdout,
                  "%s: whole: step %" PRIu64 ", model %zu tensors (%" PRIu64
                  " bytes), optimizer %zu tensors (%" PRIu64 " bytes)\n",
                  path, step, cddp_safetensors_count(files[CDDPI_SNAPSHOT_MODEL]),
                  bytes_of(files[CDDPI_SNAPSHOT_MODEL]),
                  cddp_safetensors_count(files[CDDPI_SNAPSHOT_OPTIMIZER]),
                  bytes_of(files[CDDPI_SNAPSHOT_OPTIMIZER]));
    }
    for (int i = 0; i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        cddp_safetensors_close(files[i]);
        cddpi_free(names[i]);
    }
    return status;
}

/* Check the checkpoint at @p path.
 * @param step  The step that it has to be of; NULL: any. */
static cddp_status verify_checkpoint(const char *path, const uint64_t *step)
{
    uint64_t own = 0;

    if (step == NULL) {
        CDDPI_TRY(cddp_snapshot_read_state(path, NULL, &own));
    } else {
        own = *step;
    }
    CDDPI_TRY(cddpi_snapshot_verify(path, own));
    return check_contents(path, own);
}

static cddp_status verify_file(const char *path)
{
    cddp_safetensors *file;
    cddp_status status;

    CDDPI_TRY(cddp_safetensors_open(path, &file));
    status = check_values(path, file);
    if (status == CDDP_OK) {
        cddpi_say(stdout, "%s: whole, but without a checksum: %zu tensors (%" PRIu64 " bytes)\n",
                  path, cddp_safetensors_count(file), bytes_of(file));
    }
    cddp_safetensors_close(file);
    return status;
}

/* What is known about the checkpoints of a folder. */
struct verified {
    int whole, damaged;
    bool newest_is_damaged;
    /* The newest one with right checksums, which a run goes on from; "": there is none. */
    char taken[CDDPI_SNAPSHOT_NAME_BYTES];
    bool taken_is_damaged; /* its numbers or shapes are wrong */
};

/* Whether @p path is gone: a run that goes on deletes its old checkpoints. */
static bool is_gone(const char *path)
{
    struct stat info;

    return lstat(path, &info) != 0 && errno == ENOENT;
}

static cddp_status verify_entry(const char *dir, const struct cddpi_snapshot_entry *entry,
                                struct verified *found)
{
    char *path = cddpi_format("%s/%s", dir, entry->name);
    bool is_taken;
    cddp_status status;

    CDDPI_TRY_MEMORY(path != NULL, "%s: no memory for a name", dir);
    status = cddpi_snapshot_verify(path, entry->step);
    is_taken = status == CDDP_OK && found->taken[0] == '\0';
    status = status == CDDP_OK ? check_contents(path, entry->step) : status;
    if (status != CDDP_OK && is_gone(path)) {
        cddpi_say(stdout, "%s: was deleted meanwhile\n", path);
        cddpi_free(path);
        return CDDP_OK;
    }
    if (is_taken) {
        snprintf(found->taken, sizeof found->taken, "%s", entry->name);
        found->taken_is_damaged = status != CDDP_OK;
    }
    if (status == CDDP_OK) {
        found->whole++;
    } else if (!cddpi_snapshot_is_broken(status)) { /* it may be right */
        cddpi_free(path);
        return status;
    } else {
        cddpi_say(stdout, "%s: DAMAGED: %s\n", path, cddp_last_error());
        found->newest_is_damaged = found->newest_is_damaged || found->whole == 0;
        found->damaged++;
    }
    cddpi_free(path);
    return CDDP_OK;
}

static cddp_status verify_entries(const char *dir, const struct cddpi_snapshot_entry *entries,
                                  size_t count)
{
    struct verified found = {.whole = 0};

    for (size_t i = 0; i < count; i++) {
        if (entries[i].kind == CDDPI_SNAPSHOT_TEMPORARY) {
            cddpi_say(stdout, "%s/%s: not looked at: it is being written, or a crash left it\n",
                      dir, entries[i].name);
        } else if (entries[i].kind != CDDPI_SNAPSHOT_POINTER) {
            CDDPI_TRY(verify_entry(dir, &entries[i], &found));
        }
    }
    if (found.damaged > 0 && found.taken[0] == '\0') {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: no checkpoint is whole: a run cannot go on", dir);
    }
    if (found.damaged > 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: %d of %d checkpoints %s damaged%s; a run goes on "
                          "from %s%s",
                          dir, found.damaged, found.damaged + found.whole,
                          found.damaged == 1 ? "is" : "are",
                          found.newest_is_damaged ? ", the newest, too" : "", found.taken,
                          found.taken_is_damaged ? ", although it is damaged, since its checksums "
                                                   "are right: move it away for an older one"
                                                 : "");
    }
    return found.whole > 0 ? CDDP_OK
                           : cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: there are no checkpoints", dir);
}

static cddp_status verify_folder(const char *dir)
{
    struct cddpi_snapshot_entry *entries = NULL;
    size_t count = 0;
    cddp_status status;
    int fd = cddpi_folder_open_fd(AT_FDCWD, dir, true);

    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder %s", dir);
    }
    status = cddpi_snapshot_list(fd, dir, &entries, &count);
    close(fd);
    status = status == CDDP_OK ? verify_entries(dir, entries, count) : status;
    cddpi_free(entries);
    return status;
}

static bool holds(const char *path, int file)
{
    return cddpi_folder_holds(path, cddpi_snapshot_files[file]);
}

cddp_status cddpi_convert_verify(const char *path)
{
    struct stat info;
    char *below;
    bool is_model;
    cddp_status status;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return verify_file(path);
    }
    if (holds(path, CDDPI_SNAPSHOT_STATE) || holds(path, CDDPI_SNAPSHOT_OPTIMIZER)) {
        return verify_checkpoint(path, NULL);
    }
    is_model = holds(path, CDDPI_SNAPSHOT_MODEL); /* of others, perhaps */
    if (!is_model && !cddpi_folder_holds(path, "checkpoints")) {
        return verify_folder(path);
    }
    below = cddpi_format("%s/%s", path,
                         is_model ? cddpi_snapshot_files[CDDPI_SNAPSHOT_MODEL] : "checkpoints");
    CDDPI_TRY_MEMORY(below != NULL, "%s: no memory for a name", path);
    status = is_model ? verify_file(below) : verify_folder(below);
    cddpi_free(below);
    return status;
}
