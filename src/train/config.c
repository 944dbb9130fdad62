/* config.c - reads train.conf and overrides into struct cddpi_config, by the table of schema.c. */
#include "train/config.h"
#include "train/config_file.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/nearest.h"

#include <assert.h>
#include <libconfig.h>
#include <stdarg.h>
#include <string.h>

enum { WHERE_BYTES = 1024 };

/* Where a value comes from, for messages: a file (settings know their lines) or an argument. */
struct source {
    const char *file;     /* NULL: an argument or a default */
    const char *argument; /* NULL with file NULL: a default of the table */
};

static void describe_place(const struct source *source, const config_setting_t *setting,
                           char out[WHERE_BYTES])
{
    if (source->file == NULL) {
        snprintf(out, WHERE_BYTES, "%s%s", source->argument != NULL ? "argument " : "default",
                 source->argument != NULL ? source->argument : "");
        return;
    }
    snprintf(out, WHERE_BYTES, "%s:%u",
             config_setting_source_file(setting) != NULL ? config_setting_source_file(setting)
                                                         : source->file,
             config_setting_source_line(setting));
}

static cddp_status fail_at(const struct source *source, const config_setting_t *setting,
                           const char *format, ...) __attribute__((format(printf, 3, 4)));

static cddp_status fail_at(const struct source *source, const config_setting_t *setting,
                           const char *format, ...)
{
    char where[WHERE_BYTES];
    char text[2048];
    va_list arguments;

    describe_place(source, setting, where);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(CDDP_ERR_CONFIG, "%s: %s", where, text);
}

static const char *kind_of(const config_setting_t *setting)
{
    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_GROUP:
        return "a group";
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        return "a whole number";
    case CONFIG_TYPE_FLOAT:
        return "a number with a fraction";
    case CONFIG_TYPE_STRING:
        return "a string";
    case CONFIG_TYPE_BOOL:
        return "true or false";
    default:
        return "a list";
    }
}

static cddp_status fail_type(const struct source *source, const config_setting_t *setting,
                             const struct cddpi_key *key)
{
    return fail_at(source, setting, "%s expects %s, not %s", key->path, cddpi_key_expects(key),
                   kind_of(setting));
}

static cddp_status read_integer(const struct source *source, const config_setting_t *setting,
                                const struct cddpi_key *key, int64_t *out)
{
    int type = config_setting_type(setting);
    int64_t value;

    if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64) {
        return fail_type(source, setting, key);
    }
    value = config_setting_get_int64(setting);
    if ((double)value < key->low || (double)value > key->high) {
        return fail_at(source, setting, "%s: %lld is outside %.0f to %.0f", key->path,
                       (long long)value, key->low, key->high);
    }
    *out = value;
    return CDDP_OK;
}

static cddp_status read_real(const struct source *source, const config_setting_t *setting,
                             const struct cddpi_key *key, double *out)
{
    int type = config_setting_type(setting);
    double value;

    if (type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64) {
        value = (double)config_setting_get_int64(setting);
    } else if (type == CONFIG_TYPE_FLOAT) {
        value = config_setting_get_float(setting);
    } else {
        return fail_type(source, setting, key);
    }
    if (!(value >= key->low && value <= key->high)) {
        return fail_at(source, setting, "%s: %g is outside %g to %g", key->path, value, key->low,
                       key->high);
    }
    *out = value;
    return CDDP_OK;
}

static cddp_status read_choice(const struct source *source, const config_setting_t *setting,
                               const struct cddpi_key *key, int *out)
{
    const char *text = config_setting_get_string(setting);
    char choice[64];
    char nearest[64] = "";
    char all[512] = "";
    unsigned least = ~0u;

    if (config_setting_type(setting) != CONFIG_TYPE_STRING) {
        return fail_type(source, setting, key);
    }
    for (int i = 0; cddpi_key_choice(key->choices, i, choice, sizeof choice); i++) {
        unsigned distance = cddpi_edit_distance(choice, text);
        size_t used = strlen(all);

        if (strcmp(choice, text) == 0) {
            *out = i;
            return CDDP_OK;
        }
        if (distance < least) {
            least = distance;
            memcpy(nearest, choice, sizeof nearest);
        }
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", choice);
    }
    return fail_at(source, setting, "%s: \"%s\" is none of: %s; the nearest is \"%s\"", key->path,
                   text, all, nearest);
}

static cddp_status read_text(const struct source *source, const config_setting_t *setting,
                             const struct cddpi_key *key, char **out)
{
    char *copy;

    if (config_setting_type(setting) != CONFIG_TYPE_STRING) {
        return fail_type(source, setting, key);
    }
    copy = cddpi_strdup(config_setting_get_string(setting));
    if (copy == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
    }
    cddpi_free(*out);
    *out = copy;
    return CDDP_OK;
}

static bool is_list(const config_setting_t *setting)
{
    return config_setting_type(setting) == CONFIG_TYPE_ARRAY ||
           config_setting_type(setting) == CONFIG_TYPE_LIST;
}

static cddp_status read_integers(const struct source *source, const config_setting_t *setting,
                                 const struct cddpi_key *key, struct cddpi_int_list *out)
{
    int count = config_setting_length(setting);
    int *values;

    if (!is_list(setting)) {
        return fail_type(source, setting, key);
    }
    values = cddpi_zalloc_array((size_t)count, sizeof *values);
    if (values == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
    }
    for (int i = 0; i < count; i++) {
        const config_setting_t *element = config_setting_get_elem(setting, (unsigned)i);
        int64_t value = 0;
        cddp_status status = read_integer(source, element, key, &value);

        if (status != CDDP_OK) {
            cddpi_free(values);
            return status;
        }
        values[i] = (int)value;
    }
    cddpi_free(out->values);
    out->values = values;
    out->count = count;
    return CDDP_OK;
}

static cddp_status read_reals(const struct source *source, const config_setting_t *setting,
                              const struct cddpi_key *key, struct cddpi_real_list *out)
{
    struct cddpi_real_list list = {.count = 1};
    cddp_status status;

    if (!is_list(setting)) {
        status = read_real(source, setting, key, &list.values[0]);
        if (status == CDDP_OK) {
            *out = list;
        }
        return status;
    }
    list.count = config_setting_length(setting);
    if (list.count < 1 || list.count > 4) {
        return fail_at(source, setting, "%s: 1 to 4 numbers are expected, not %d", key->path,
                       list.count);
    }
    for (int i = 0; i < list.count; i++) {
        status = read_real(source, config_setting_get_elem(setting, (unsigned)i), key,
                           &list.values[i]);
        if (status != CDDP_OK) {
            return status;
        }
    }
    *out = list;
    return CDDP_OK;
}

static cddp_status read_layers(const struct source *source, const config_setting_t *setting,
                               const struct cddpi_key *key, struct cddpi_config_layers *out);

/* Read @p setting as @p key's value into the struct at @p base. */
static cddp_status read_value(const struct source *source, const config_setting_t *setting,
                              const struct cddpi_key *key, void *base)
{
    void *member = (char *)base + key->offset;
    int64_t integer = 0;
    cddp_status status = CDDP_OK;

    switch (key->type) {
    case CDDPI_KEY_BOOL:
        if (config_setting_type(setting) != CONFIG_TYPE_BOOL) {
            return fail_type(source, setting, key);
        }
        *(bool *)member = (config_setting_get_bool(setting) != 0) != key->negated;
        return CDDP_OK;
    case CDDPI_KEY_INT:
        status = read_integer(source, setting, key, &integer);
        if (status == CDDP_OK) {
            *(int *)member = (int)integer;
        }
        return status;
    case CDDPI_KEY_LONG:
        return read_integer(source, setting, key, member);
    case CDDPI_KEY_REAL:
        return read_real(source, setting, key, member);
    case CDDPI_KEY_TEXT:
        return read_text(source, setting, key, member);
    case CDDPI_KEY_ENUM:
        return read_choice(source, setting, key, member);
    case CDDPI_KEY_INTS:
        return read_integers(source, setting, key, member);
    case CDDPI_KEY_REALS:
        return read_reals(source, setting, key, member);
    case CDDPI_KEY_LAYERS:
        return read_layers(source, setting, key, member);
    }
    return CDDP_ERR_CONFIG;
}

static const struct cddpi_key *find_key(const struct cddpi_key *keys, size_t count,
                                        const char *path)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].path, path) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

static bool is_group_path(const char *path)
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

static void free_layers(struct cddpi_config_layers *list)
{
    for (int i = 0; i < list->count; i++) {
        cddpi_free((void *)(uintptr_t)list->values[i].name);
        cddpi_free((void *)(uintptr_t)list->values[i].input);
        cddpi_free((void *)(uintptr_t)list->values[i].input2);
    }
    cddpi_free(list->values);
    list->values = NULL;
    list->count = 0;
}

static cddp_status read_layer(const struct source *source, const config_setting_t *group,
                              struct cddpi_layer *out)
{
    char nearest[CDDPI_KEY_BYTES];
    bool typed = false;

    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const char *name = config_setting_name(setting);
        const struct cddpi_key *key = find_key(cddpi_layer_keys, cddpi_layer_key_count, name);
        cddp_status status;

        if (key == NULL) {
            cddpi_key_nearest(cddpi_layer_keys, cddpi_layer_key_count, name, nearest);
            return fail_at(source, setting,
                           "unknown key %s of a layer; the nearest known key is %s", name, nearest);
        }
        status = read_value(source, setting, key, out);
        if (status != CDDP_OK) {
            return status;
        }
        typed = typed || strcmp(name, "type") == 0;
    }
    return typed ? CDDP_OK : fail_at(source, group, "a layer without type");
}

static cddp_status read_layers(const struct source *source, const config_setting_t *setting,
                               const struct cddpi_key *key, struct cddpi_config_layers *out)
{
    struct cddpi_config_layers list = {NULL, 0};
    cddp_status status = CDDP_OK;
    int count = config_setting_length(setting);

    if (!is_list(setting)) {
        return fail_type(source, setting, key);
    }
    list.values = cddpi_zalloc_array((size_t)count, sizeof *list.values);
    if (list.values == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
    }
    while (status == CDDP_OK && list.count < count) {
        const config_setting_t *layer = config_setting_get_elem(setting, (unsigned)list.count);

        if (config_setting_type(layer) != CONFIG_TYPE_GROUP) {
            status = fail_at(source, layer, "%s: each layer is a group in { }, not %s", key->path,
                             kind_of(layer));
        } else {
            status = read_layer(source, layer, &list.values[list.count]);
            list.count++;
        }
    }
    if (status != CDDP_OK) {
        free_layers(&list);
        return status;
    }
    free_layers(out);
    *out = list;
    return CDDP_OK;
}

static cddp_status store_key(const struct source *source, const config_setting_t *setting,
                             const struct cddpi_key *key, struct cddpi_config *config)
{
    char where[WHERE_BYTES];
    char *copy;
    cddp_status status = read_value(source, setting, key, config);

    if (status != CDDP_OK || (source->file == NULL && source->argument == NULL)) {
        return status;
    }
    describe_place(source, setting, where);
    copy = cddpi_strdup(where);
    if (copy == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
    }
    cddpi_free(config->where[key - cddpi_config_keys]);
    config->where[key - cddpi_config_keys] = copy;
    return CDDP_OK;
}

static cddp_status fail_unknown(const struct source *source, const config_setting_t *setting,
                                const char *path)
{
    char nearest[CDDPI_KEY_BYTES];

    cddpi_key_nearest(cddpi_config_keys, cddpi_config_key_count, path, nearest);
    return fail_at(source, setting, "unknown key %s; the nearest known key is %s", path, nearest);
}

/* Read every setting below @p group, whose keys begin with @p prefix ("" or "model."). */
static cddp_status read_group(const struct source *source, const config_setting_t *group,
                              const char *prefix, struct cddpi_config *config)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const struct cddpi_key *key;
        char path[256];
        cddp_status status;

        snprintf(path, sizeof path - 1, "%s%s", prefix, config_setting_name(setting));
        key = find_key(cddpi_config_keys, cddpi_config_key_count, path);
        if (key != NULL) {
            status = store_key(source, setting, key, config);
        } else if (!is_group_path(path)) {
            status = fail_unknown(source, setting, path);
        } else if (config_setting_type(setting) != CONFIG_TYPE_GROUP) {
            status = fail_at(source, setting, "%s is a group of keys, as in %s = { ... }, not %s",
                             path, config_setting_name(setting), kind_of(setting));
        } else {
            strcat(path, ".");
            status = read_group(source, setting, path, config);
        }
        if (status != CDDP_OK) {
            return status;
        }
    }
    return CDDP_OK;
}

static void set_include_dir(config_t *parsed, const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096];

    if (slash != NULL && (size_t)(slash - path) + 1 < sizeof folder) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
        config_set_include_dir(parsed, folder);
    }
}

static cddp_status read_file(const char *path, struct cddpi_config *config)
{
    struct source source = {path, NULL};
    config_t parsed;
    char *text = NULL;
    cddp_status status = cddpi_config_read_text(path, &text);

    if (status != CDDP_OK) {
        return status;
    }
    config_init(&parsed);
    set_include_dir(&parsed, path);
    if (cddpi_config_parse(&parsed, text) != CONFIG_TRUE) {
        status = cddpi_fail(CDDP_ERR_CONFIG, "%s:%d: %s",
                            config_error_file(&parsed) != NULL ? config_error_file(&parsed) : path,
                            config_error_line(&parsed), config_error_text(&parsed));
    } else {
        status = read_group(&source, config_root_setting(&parsed), "", config);
    }
    config_destroy(&parsed);
    cddpi_free(text);
    return status;
}

/* Parse @p value as the file's syntax would have it behind "key =", and store it. */
static cddp_status read_scalar(const struct source *source, const struct cddpi_key *key,
                               const char *value, struct cddpi_config *config)
{
    bool bare = (key->type == CDDPI_KEY_TEXT || key->type == CDDPI_KEY_ENUM) && value[0] != '"';
    char *text = bare ? cddpi_strdup("value = \"\";") : cddpi_format("value = %s;", value);
    cddp_status status = CDDP_OK;
    config_t parsed;
    config_setting_t *setting;

    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
    }
    config_init(&parsed);
    if (cddpi_config_parse(&parsed, text) != CONFIG_TRUE ||
        config_setting_length(config_root_setting(&parsed)) != 1) {
        status = fail_at(source, NULL, "%s expects %s", key->path, cddpi_key_expects(key));
    } else {
        setting = config_setting_get_elem(config_root_setting(&parsed), 0);
        if (bare && config_setting_set_string(setting, value) != CONFIG_TRUE) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", key->path);
        } else {
            status = store_key(source, setting, key, config);
        }
    }
    config_destroy(&parsed);
    cddpi_free(text);
    return status;
}

static cddp_status read_override(const char *argument, struct cddpi_config *config)
{
    struct source source = {NULL, argument};
    const char *equals = strchr(argument, '=');
    const struct cddpi_key *key;
    char path[256];

    if (equals == NULL || equals == argument || (size_t)(equals - argument) >= sizeof path) {
        return cddpi_fail(CDDP_ERR_CONFIG, "argument %s: expected key=value", argument);
    }
    snprintf(path, sizeof path, "%.*s", (int)(equals - argument), argument);
    key = find_key(cddpi_config_keys, cddpi_config_key_count, path);
    if (key == NULL && is_group_path(path)) {
        return fail_at(&source, NULL, "%s is a group of keys: name one of its keys", path);
    }
    if (key == NULL) {
        return fail_unknown(&source, NULL, path);
    }
    return read_scalar(&source, key, equals + 1, config);
}

static cddp_status read_defaults(struct cddpi_config *config)
{
    struct source source = {NULL, NULL};

    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        const struct cddpi_key *key = &cddpi_config_keys[i];
        cddp_status status;

        if (key->fallback != NULL) {
            status = read_scalar(&source, key, key->fallback, config);
            if (status != CDDP_OK) {
                return status;
            }
        }
    }
    return CDDP_OK;
}

/* $CDDP_RUN_DIR, else what the configuration says, else runs/NAME. */
static cddp_status resolve_run_dir(struct cddpi_config *config)
{
    const char *forced = cddpi_env(CDDPI_ENV_RUN_DIR);
    const char *slash = strrchr(config->path, '/');
    const char *name = slash != NULL ? slash + 1 : config->path;
    const char *dot = strrchr(name, '.');
    char *folder;

    if (forced == NULL && config->train.run_dir[0] != '\0') {
        return CDDP_OK;
    }
    folder = forced != NULL
                 ? cddpi_strdup(forced)
                 : cddpi_format("runs/%.*s",
                                dot != NULL && dot > name ? (int)(dot - name) : (int)strlen(name),
                                name);
    if (folder == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory");
    }
    cddpi_free(config->train.run_dir);
    config->train.run_dir = folder;
    return CDDP_OK;
}

static cddp_status check_together(const struct cddpi_config *config)
{
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        if (cddpi_config_keys[i].fallback == NULL && config->where[i] == NULL) {
            return cddpi_fail(CDDP_ERR_CONFIG, "%s: the key %s is missing", config->path,
                              cddpi_config_keys[i].path);
        }
    }
    if (config->model.type == CDDPI_MODEL_LAYERS && config->model.layers.count == 0) {
        return cddpi_config_fail(config, "model.type", "\"layers\" needs model.layers");
    }
    if (config->model.type != CDDPI_MODEL_LAYERS && config->model.layers.count > 0) {
        return cddpi_config_fail(config, "model.layers",
                                 "is used only with model.type = "
                                 "\"layers\"");
    }
    if (config->optimizer.nesterov && config->optimizer.momentum == 0.0) {
        return cddpi_config_fail(config, "optimizer.nesterov", "needs optimizer.momentum");
    }
    return CDDP_OK;
}

cddp_status cddpi_config_load(const char *path, char *const *overrides, int override_count,
                              struct cddpi_config *out)
{
    struct cddpi_config config = {0};
    cddp_status status = CDDP_OK;

    config.path = cddpi_strdup(path);
    if (config.path == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory");
    }
    status = read_defaults(&config);
    if (status == CDDP_OK) {
        status = read_file(path, &config);
    }
    for (int i = 0; status == CDDP_OK && i < override_count; i++) {
        status = read_override(overrides[i], &config);
    }
    if (status == CDDP_OK) {
        status = check_together(&config);
    }
    if (status == CDDP_OK) {
        status = resolve_run_dir(&config);
    }
    if (status != CDDP_OK) {
        cddpi_config_fini(&config);
        return status;
    }
    *out = config;
    return CDDP_OK;
}

void cddpi_config_fini(struct cddpi_config *config)
{
    for (size_t i = 0; i < cddpi_config_key_count; i++) {
        void *member = (char *)config + cddpi_config_keys[i].offset;

        if (cddpi_config_keys[i].type == CDDPI_KEY_TEXT) {
            cddpi_free(*(char **)member);
        } else if (cddpi_config_keys[i].type == CDDPI_KEY_INTS) {
            cddpi_free(((struct cddpi_int_list *)member)->values);
        } else if (cddpi_config_keys[i].type == CDDPI_KEY_LAYERS) {
            free_layers(member);
        }
        cddpi_free(config->where[i]);
    }
    cddpi_free(config->path);
    memset(config, 0, sizeof *config);
}

cddp_status cddpi_config_fail(const struct cddpi_config *config, const char *key,
                              const char *format, ...)
{
    const struct cddpi_key *row = find_key(cddpi_config_keys, cddpi_config_key_count, key);
    const char *where = row != NULL ? config->where[row - cddpi_config_keys] : NULL;
    char text[2048];
    va_list arguments;

    assert(format != NULL); /* gcc 12 with -fsanitize=undefined fears it */
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(CDDP_ERR_CONFIG, "%s: %s%s: %s", where != NULL ? where : config->path, key,
                      where != NULL ? "" : " (its default)", text);
}
