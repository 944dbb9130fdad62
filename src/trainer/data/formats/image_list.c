/* image_list.c - owns the search for images below a folder. The order depends only on their
 * names. */
#include "data/formats/image_list.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/images/image_decode.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum {
    MOST_DEPTH = 32,
    MOST_WAYS = 16, /* paths through links to one folder of a class, at most */
    FIRST_BYTES = 1 << 16,
    SHOWN_LEFT_OUT = 160
};

/* Paths relative to the root or to a folder. */
struct image_list_names {
    char **values;
    size_t count, room;
};

/* The list so far. */
struct image_list {
    const char *root;
    struct cddpi_growable_mapping mapping;
    size_t used;
    bool checked_jpeg, checked_png;    /* this build can decode them */
    struct cddpi_folder_visits visits; /* of the current class */
    size_t left_out;                   /* files left between the images by other programs */
    char left_out_names[SHOWN_LEFT_OUT];
};

static cddp_status no_memory(const char *root)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the names of its files", root);
}

static void free_names(struct image_list_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        cddpi_free(names->values[i]);
    }
    cddpi_free(names->values);
}

/* The list takes ownership of @p name. NULL: it could not be allocated. */
static cddp_status add_name(const char *root, struct image_list_names *names, char *name)
{
    char **values = cddpi_grow(names->values, &names->room, names->count + 1, sizeof *values);

    names->values = values != NULL ? values : names->values;
    if (name == NULL || values == NULL) {
        cddpi_free(name);
        return no_memory(root);
    }
    names->values[names->count++] = name;
    return CDDP_OK;
}

static bool ends_with(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');

    for (; dot != NULL && *endings != NULL; endings++) {
        if (strcasecmp(dot, *endings) == 0) {
            return true;
        }
    }
    return false;
}

/* Find out whether the file @p path, named @p name, is an image. An image that this build cannot
 * decode is an error. */
static cddp_status check_name(struct image_list *list, const char *path, const char *name,
                              bool *out)
{
    static const char *const jpeg[] = {".jpg", ".jpeg", NULL};
    static const char *const png[] = {".png", NULL};
    static const char *const others[] = {".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", NULL};
    bool is_jpeg = ends_with(name, jpeg);
    bool is_png = ends_with(name, png);
    cddp_status status = CDDP_OK;

    if (ends_with(name, others)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/%s: only JPEG and PNG images can be read: convert it, or move it out "
                          "of the folder",
                          list->root, path);
    }
    if (is_jpeg && !list->checked_jpeg) {
        status = cddpi_image_jpeg_available(path);
        list->checked_jpeg = true;
    }
    if (is_png && !list->checked_png) {
        status = cddpi_image_png_available(path);
        list->checked_png = true;
    }
    *out = is_jpeg || is_png;
    return status;
}

/* Whether other programs leave folders (or files) called @p name between a user's files: hidden
 * ones, or names that only those programs use. */
static bool is_left_over(const char *name, bool is_folder)
{
    static const char *const names[] = {
        "__MACOSX",  "__pycache__", "@eaDir",        "@Recycle",     "#recycle",
        "#snapshot", "~snapshot",   "lost+found",    "$RECYCLE.BIN", "RECYCLER",
        "Thumbs",    "Thumbs.db",   "thumbnails.db", "desktop.ini",  "System Volume Information"};

    if (!is_folder) { /* macOS's resource file of an image has the image's name, but is no image */
        return strncmp(name, "._", 2) == 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcasecmp(name, names[i]) == 0) {
            return true;
        }
    }
    return name[0] == '.';
}

static void leave_out(struct image_list *list, const char *path)
{
    size_t used = strlen(list->left_out_names);
    char *shown = cddpi_utf8_clean(path, strlen(path));
    size_t bytes = shown != NULL ? strlen(shown) : 0;

    list->left_out++;
    if (bytes > 0 && used + bytes + 3 <= sizeof list->left_out_names) {
        snprintf(list->left_out_names + used, sizeof list->left_out_names - used, "%s%s",
                 used > 0 ? ", " : "", shown);
    }
    cddpi_free(shown);
}

enum image_list_kind { FOLDER, REGULAR, OTHER };

/* The kind of @p entry in the folder @p dir; for a link, the kind of its target. */
static enum image_list_kind kind_of(DIR *dir, const struct dirent *entry)
{
    struct stat info;

    if (entry->d_type == DT_DIR) {
        return FOLDER;
    }
    if (entry->d_type == DT_REG) {
        return REGULAR;
    }
    if (fstatat(dirfd(dir), entry->d_name, &info, 0) != 0) {
        return entry->d_type == DT_LNK ? REGULAR
                                       : OTHER; /* a broken link fails later, when it is read */
    }
    return S_ISDIR(info.st_mode) ? FOLDER : S_ISREG(info.st_mode) ? REGULAR : OTHER;
}

/* Find out the kind of @p entry in the folder @p dir, and whether it is wanted (@p out). @p name is
 * its path relative to the root. */
static cddp_status look_at_entry(struct image_list *list, DIR *dir, const struct dirent *entry,
                                 const char *name, bool with_images, enum image_list_kind *out_kind,
                                 bool *out)
{
    *out_kind = kind_of(dir, entry);
    *out = *out_kind == FOLDER;
    if (*out_kind == OTHER || (*out_kind == REGULAR && !with_images)) {
        return CDDP_OK;
    }
    if (is_left_over(entry->d_name, *out_kind == FOLDER)) {
        *out = false;
        leave_out(list, name);
        return CDDP_OK;
    }
    return *out_kind == REGULAR ? check_name(list, name, entry->d_name, out) : CDDP_OK;
}

/* Limit the visits of each folder in a class. A folder that is visited again leads to its
 * subfolders again, so with links between folders the number of paths would double with each
 * folder. */
static cddp_status count_visit(struct image_list *list, DIR *dir, const char *path)
{
    struct stat info;
    unsigned times = 0;
    cddp_status status;

    if (fstat(dirfd(dir), &info) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", path);
    }
    status = cddpi_folder_visits_add(&list->visits, &info, &times);
    if (status != CDDP_OK) {
        return no_memory(list->root);
    }
    if (times > MOST_WAYS) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: links lead to this folder in more than %d ways: does a link lead to a folder "
            "above it?",
            path, MOST_WAYS);
    }
    return CDDP_OK;
}

/* Read the names of the subfolders and images in @p below ("": the root itself), as paths relative
 * to the root. */
static cddp_status read_folder(struct image_list *list, const char *below,
                               struct image_list_names *folders, struct image_list_names *images)
{
    const char *slash = below[0] != '\0' ? "/" : "";
    char *path = cddpi_format("%s%s%s", list->root, slash, below);
    DIR *dir = path != NULL ? opendir(path) : NULL;
    struct dirent *entry = NULL;
    cddp_status status;

    if (path == NULL) {
        return no_memory(list->root);
    }
    status = dir == NULL ? cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO,
                                            errno, "%s", path)
                         : count_visit(list, dir, path);
    while (status == CDDP_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        enum image_list_kind kind = OTHER;
        bool wanted = false;
        char *name = NULL;

        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            name = cddpi_format("%s%s%s", below, slash, entry->d_name);
            status = name != NULL
                         ? look_at_entry(list, dir, entry, name, images != NULL, &kind, &wanted)
                         : no_memory(list->root);
        }
        if (status == CDDP_OK && wanted) {
            status = add_name(list->root, kind == FOLDER ? folders : images, name);
        } else {
            cddpi_free(name);
        }
    }
    if (status == CDDP_OK && errno != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "%s: reading the folder", path);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    cddpi_free(path);
    return status;
}

/* Collect all images below the folder @p below, unsorted. */
static cddp_status walk(struct image_list *list, const char *below, int depth,
                        struct image_list_names *images)
{
    struct image_list_names folders = {NULL, 0, 0};
    cddp_status status;

    if (depth > MOST_DEPTH) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/%s: folders lie in each other more than %d deep: does a link lead to "
                          "a folder above it?",
                          list->root, below, MOST_DEPTH);
    }
    status = read_folder(list, below, &folders, images);
    for (size_t i = 0; status == CDDP_OK && i < folders.count; i++) {
        status = walk(list, folders.values[i], depth + 1, images);
    }
    free_names(&folders);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Order by folder, then by name, as Python's sorted(os.walk()) with sorted() file names. */
static int compare_images(const void *a, const void *b)
{
    const char *one = *(char *const *)a;
    const char *other = *(char *const *)b;
    size_t folder = (size_t)(strrchr(one, '/') - one); /* each image is in a class folder */
    size_t other_folder = (size_t)(strrchr(other, '/') - other);
    int order = memcmp(one, other, folder < other_folder ? folder : other_folder);

    if (order == 0 && folder != other_folder) {
        return folder < other_folder ? -1 : 1;
    }
    return order != 0 ? order : strcmp(one + folder, other + folder);
}

static cddp_status append_name(struct image_list *list, const char *name)
{
    size_t bytes = strlen(name) + 1;

    while (list->mapping.bytes - list->used < bytes) {
        CDDPI_TRY(
            cddpi_growable_mapping_resize(list->root, 2 * list->mapping.bytes, &list->mapping));
    }
    memcpy(list->mapping.data + list->used, name, bytes);
    list->used += bytes;
    return CDDP_OK;
}

static cddp_status append_class(struct image_list *list, const char *name)
{
    struct image_list_names images = {NULL, 0, 0};
    cddp_status status;

    CDDPI_TRY_GOTO(done, status, walk(list, name, 1, &images));
    if (images.count == 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT,
                            "%s/%s: a class without an image: no file below it is named .jpg, "
                            ".jpeg or .png",
                            list->root, name);
        goto done;
    }
    qsort(images.values, images.count, sizeof *images.values, compare_images);
    for (size_t i = 0; i < images.count; i++) {
        CDDPI_TRY_GOTO(done, status, append_name(list, images.values[i]));
    }

done:
    cddpi_folder_visits_clear(&list->visits);
    free_names(&images);
    return status;
}

static cddp_status append_classes(struct image_list *list)
{
    struct image_list_names classes = {NULL, 0, 0};
    cddp_status status = read_folder(list, "", &classes, NULL);

    cddpi_folder_visits_clear(&list->visits); /* each class counts its own */
    if (status == CDDP_OK && classes.count == 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT,
                            "%s: there is no folder in it%s%s, but each class of images is one",
                            list->root, list->left_out > 0 ? " but those of other programs, " : "",
                            list->left_out_names);
    }
    if (status == CDDP_OK) {
        qsort(classes.values, classes.count, sizeof *classes.values, compare_names);
    }
    for (size_t i = 0; status == CDDP_OK && i < classes.count; i++) {
        status = append_class(list, classes.values[i]);
    }
    free_names(&classes);
    return status;
}

cddp_status cddpi_image_list_make(const char *root, bool shareable, struct cddpi_data_file *out)
{
    struct image_list list = {.root = root};
    cddp_status status;

    CDDPI_TRY(cddpi_growable_mapping_create(root, FIRST_BYTES, shareable, &list.mapping));
    CDDPI_TRY_GOTO(fail, status, append_classes(&list));
    if (list.left_out > 0) {
        cddpi_log(
            CDDPI_LOG_WARN,
            "%s: left out, since other programs make such folders and files beside images: %s%s "
            "(%zu in all; torchvision's ImageFolder would take them)",
            root, list.left_out_names, list.left_out > 1 ? ", for example" : "", list.left_out);
    }
    CDDPI_TRY_GOTO(fail, status, cddpi_growable_mapping_resize(root, list.used, &list.mapping));
    CDDPI_TRY_GOTO(fail, status, cddpi_data_file_freeze(root, &list.mapping, out));
    return CDDP_OK;

fail:
    cddpi_growable_mapping_free(&list.mapping);
    return status;
}
