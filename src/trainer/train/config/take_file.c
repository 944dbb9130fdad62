/* take_file.c - puts the settings of a configuration file, and of those that it includes, into
 * struct cddpi_config, the included ones first.
 *
 * Each included file is parsed by itself, so that a key may be in both: libconfig refuses a second
 * one. Within ( ), where the file may be any part of a list, libconfig includes it. */
#include "train/config/take_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/config/config_file.h"

#include <ctype.h>
#include <string.h>

enum { NESTED_MAX = 100, PREFIX_BYTES = 256 };

/* --- settings of one parsed text --- */

bool cddpi_config_is_group(const char *path)
{
    size_t length = strlen(path);

    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        if (strncmp(cddpi_config_keys[i].path, path, length) == 0 &&
            cddpi_config_keys[i].path[length] == '.') {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_config_store(const struct cddpi_config_source *source,
                               const config_setting_t *setting, const struct cddpi_key *key,
                               struct cddpi_config *config)
{
    char where[CDDPI_WHERE_BYTES];
    char *copy;

    CDDPI_TRY(cddpi_config_read_value(source, setting, key, config));
    if (source->file == NULL && source->argument == NULL) {
        return CDDP_OK; /* defaults have no place */
    }
    cddpi_config_place(source, setting, where);
    copy = cddpi_strdup(where);
    CDDPI_TRY_MEMORY(copy != NULL, "configuration: no memory for %s", key->path);
    cddpi_free(config->where[key - cddpi_config_keys]);
    config->where[key - cddpi_config_keys] = copy;
    config->level[key - cddpi_config_keys] = source->level;
    return CDDP_OK;
}

cddp_status cddpi_config_fail_unknown(const struct cddpi_config_source *source,
                                      const config_setting_t *setting, const char *path)
{
    char nearest[CDDPI_KEY_BYTES];

    cddpi_key_nearest(cddpi_config_keys, cddpi_config_key_count, path, nearest);
    return cddpi_config_fail_at(source, setting, "unknown key %s; the nearest known key is %s",
                                path, nearest);
}

/* Take every setting below @p group, whose keys begin with @p prefix ("" or "model."). */
static cddp_status take_group(const struct cddpi_config_source *source,
                              const config_setting_t *group, const char *prefix,
                              struct cddpi_config *config)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const struct cddpi_key *key;
        char path[PREFIX_BYTES];

        snprintf(path, sizeof path - 1, "%s%s", prefix, config_setting_name(setting));
        key = cddpi_key_find(cddpi_config_keys, cddpi_config_key_count, path);
        if (key != NULL) {
            CDDPI_TRY(cddpi_config_store(source, setting, key, config));
        } else if (!cddpi_config_is_group(path)) {
            return cddpi_config_fail_unknown(source, setting, path);
        } else if (config_setting_type(setting) != CONFIG_TYPE_GROUP) {
            return cddpi_config_fail_at(source, setting,
                                        "%s is a group of keys, as in %s = { ... }, not %s", path,
                                        config_setting_name(setting), cddpi_config_kind(setting));
        } else {
            strcat(path, ".");
            CDDPI_TRY(take_group(source, setting, path, config));
        }
    }
    return CDDP_OK;
}

/* --- finding the includes of a text --- */

/* A scan of a text for the @include lines that are not within ( ) or [ ]. */
struct include_scan {
    const char *at;
    int line;
    size_t word_bytes; /* the last name, and where it begins */
    const char *word;
    int depth;                    /* open brackets */
    int lists;                    /* of them ( and [, and { without a name */
    size_t prefix_at[NESTED_MAX]; /* for each bracket the length of the prefix outside of it */
    bool is_list[NESTED_MAX];
    char prefix[PREFIX_BYTES]; /* of the keys at this place: "optimizer.schedule." */
    const char *name;          /* what was found: the file's name */
    int name_bytes;
};

static void open_bracket(struct include_scan *scan)
{
    size_t used = strlen(scan->prefix);
    bool is_list = *scan->at != '{' || scan->word == NULL ||
                   used + scan->word_bytes + 2 > sizeof scan->prefix;

    if (scan->depth == NESTED_MAX) {
        scan->at += strlen(scan->at); /* the parser refuses it */
        return;
    }
    scan->prefix_at[scan->depth] = used;
    scan->is_list[scan->depth] = is_list;
    scan->depth++;
    scan->lists += is_list;
    if (!is_list) {
        memcpy(scan->prefix + used, scan->word, scan->word_bytes);
        memcpy(scan->prefix + used + scan->word_bytes, ".", 2);
    }
    scan->word = NULL;
    scan->at++;
}

static void close_bracket(struct include_scan *scan)
{
    if (scan->depth > 0) {
        scan->depth--;
        scan->lists -= scan->is_list[scan->depth];
        scan->prefix[scan->prefix_at[scan->depth]] = '\0';
    }
    scan->word = NULL;
    scan->at++;
}

static void skip_word(struct include_scan *scan)
{
    scan->word = scan->at;
    while (cddpi_config_is_name(*scan->at)) {
        scan->at++;
    }
    scan->word_bytes = (size_t)(scan->at - scan->word);
}

/* Move to the next included file. Returns false at the end of the text. */
static bool next_include(struct include_scan *scan, const char *text)
{
    while (*scan->at != '\0') {
        size_t opaque = cddpi_config_opaque_length(scan->at, NULL);

        if (opaque > 0) {
            for (; opaque > 0; opaque--) {
                scan->line += *scan->at++ == '\n';
            }
        } else if (*scan->at == '@' && scan->lists == 0 &&
                   (scan->name = cddpi_config_included_name(scan->at, &scan->name_bytes)) != NULL) {
            const char *begin = scan->at;

            scan->at = scan->name + scan->name_bytes + 1;
            while (begin > text && (begin[-1] == ' ' || begin[-1] == '\t')) {
                begin--;
            }
            if ((begin == text || begin[-1] == '\n') &&
                !memchr(scan->name, '\n', (size_t)scan->name_bytes)) {
                return true;
            }
        } else if (strchr("{([", *scan->at) != NULL) {
            open_bracket(scan);
        } else if (strchr("})]", *scan->at) != NULL) {
            close_bracket(scan);
        } else if (cddpi_config_is_name(*scan->at)) {
            skip_word(scan);
        } else {
            scan->word = strchr(";,", *scan->at) != NULL ? NULL : scan->word;
            scan->line += *scan->at++ == '\n';
        }
    }
    return false;
}

/* A copy of @p text with blanks in the place of what next_include() finds. */
static char *without_includes(const char *text)
{
    struct include_scan scan = {.at = text, .line = 1};
    char *copy = cddpi_strdup(text);

    while (copy != NULL && next_include(&scan, text)) {
        const char *begin = scan.name;
        const char *end = scan.at + strspn(scan.at, " \t");

        while (*begin != '@') {
            begin--;
        }
        end = *end == ';' || *end == ',' ? end + 1 : scan.at;
        memset(copy + (begin - text), ' ', (size_t)(end - begin));
    }
    return copy;
}

/* --- files --- */

/* The reading of one file that a user named, and of all that it includes. */
struct reading {
    struct cddpi_config *config;
    const char *root; /* its path, to whose folder the others are relative */
    int level;        /* of the last file whose settings were taken */
};

static cddp_status take(struct reading *reading, const char *path, const char *text,
                        const char *prefix, int depth);

/* Refuse a key that stands above the @include of a file that has it, too: which of the two is meant
 * cannot be known. @p parsed: the file's own settings, whose keys begin with @p prefix. @p level:
 * the last one before that file. */
static cddp_status check_above(const struct reading *reading, const char *path, config_t *parsed,
                               const char *prefix, int line, int level)
{
    const struct cddpi_config *config = reading->config;
    size_t prefix_bytes = strlen(prefix);

    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        const char *key = cddpi_config_keys[i].path;
        const config_setting_t *own;

        if (config->level[i] <= level || strncmp(key, prefix, prefix_bytes) != 0) {
            continue;
        }
        own = config_lookup(parsed, key + prefix_bytes);
        if (own != NULL && config_setting_source_file(own) == NULL &&
            config_setting_source_line(own) < (unsigned)line) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "%s:%u: %s is set here, and again by the file that line %d includes "
                              "(%s): move the @include above it to replace what that file says, "
                              "or take the key out of one of them",
                              path, config_setting_source_line(own), key, line, config->where[i]);
        }
    }
    return CDDP_OK;
}

static cddp_status take_included(struct reading *reading, const struct include_scan *found,
                                 const char *from, const char *prefix, int depth)
{
    char inner[2 * PREFIX_BYTES];
    char *path;
    char *text = NULL;
    cddp_status status;

    snprintf(inner, sizeof inner, "%s%s", prefix, found->prefix);
    if (depth > CDDPI_INCLUDE_DEPTH || strlen(inner) >= PREFIX_BYTES) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "%s:%d: files include each other too deep: at most %d may", from,
                          found->line, CDDPI_INCLUDE_DEPTH);
    }
    path = cddpi_config_include_path(reading->root, found->name, found->name_bytes);
    CDDPI_TRY_MEMORY(path != NULL, "%s: no memory", from);
    status = cddpi_config_read_included(path, &text);
    if (status == CDDP_OK) {
        status = take(reading, path, text, inner, depth);
    }
    cddpi_free(text);
    cddpi_free(path);
    return status;
}

static cddp_status take_all_included(struct reading *reading, const char *path, const char *text,
                                     config_t *parsed, const char *prefix, int depth)
{
    struct include_scan scan = {.at = text, .line = 1};

    while (next_include(&scan, text)) {
        int level = reading->level;

        CDDPI_TRY(take_included(reading, &scan, path, prefix, depth + 1));
        CDDPI_TRY(check_above(reading, path, parsed, prefix, scan.line, level));
    }
    return CDDP_OK;
}

/* For files that lists include. */
static void set_include_dir(config_t *parsed, const char *root)
{
    const char *slash = strrchr(root, '/');
    char folder[4096];

    if (slash != NULL && (size_t)(slash - root) + 1 < sizeof folder) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - root) + 1, root);
        config_set_include_dir(parsed, folder);
    }
}

/* Take the settings of @p text, the contents of @p path, as if they stood in a group whose keys
 * begin with @p prefix. */
static cddp_status take(struct reading *reading, const char *path, const char *text,
                        const char *prefix, int depth)
{
    struct cddpi_config_source source = {.file = path};
    char *own = without_includes(text);
    config_t parsed;
    cddp_status status;

    CDDPI_TRY_MEMORY(own != NULL, "%s: no memory", path);
    config_init(&parsed);
    set_include_dir(&parsed, reading->root);
    if (cddpi_config_parse(&parsed, own) != CONFIG_TRUE) {
        status = cddpi_config_fail_syntax(&parsed, path, text);
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, take_all_included(reading, path, text, &parsed, prefix, depth));
    source.level = ++reading->level;
    status = take_group(&source, config_root_setting(&parsed), prefix, reading->config);
out:
    config_destroy(&parsed);
    cddpi_free(own);
    return status;
}

cddp_status cddpi_config_take_text(const char *path, const char *text, struct cddpi_config *config)
{
    struct reading reading = {config, path, 0};

    for (size_t i = 0; i < cddpi_config_key_count; i++) { /* a text may follow a file */
        reading.level = config->level[i] > reading.level ? config->level[i] : reading.level;
    }
    CDDPI_TRY(cddpi_config_check_includes(path, text));
    return take(&reading, path, text, "", 0);
}

cddp_status cddpi_config_take_file(const char *path, struct cddpi_config *config)
{
    char *text = NULL;
    cddp_status status;

    CDDPI_TRY(cddpi_config_read_text(path, &text));
    status = cddpi_config_take_text(path, text, config);
    cddpi_free(text);
    return status;
}
