/* value.c - converts one libconfig setting into a member of struct cddpi_config: checks its type
 * and range, and makes the error text. */
#include "train/config/value.h"

#include "base/alloc.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/folder.h"
#include "nn/model.h"

#include <stdarg.h>
#include <string.h>

void cddpi_config_place(const struct cddpi_config_source *source, const config_setting_t *setting,
                        char out[CDDPI_WHERE_BYTES])
{
    if (source->file == NULL) {
        snprintf(out, CDDPI_WHERE_BYTES, "%s%s", source->argument != NULL ? "argument " : "default",
                 source->argument != NULL ? source->argument : "");
        return;
    }
    snprintf(out, CDDPI_WHERE_BYTES, "%s:%u",
             config_setting_source_file(setting) != NULL ? config_setting_source_file(setting)
                                                         : source->file,
             config_setting_source_line(setting));
}

cddp_status cddpi_config_fail_at(const struct cddpi_config_source *source,
                                 const config_setting_t *setting, const char *format, ...)
{
    char where[CDDPI_WHERE_BYTES];
    char text[2048];
    va_list arguments;

    cddpi_config_place(source, setting, where);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(CDDP_ERR_CONFIG, "%s: %s", where, text);
}

const char *cddpi_config_kind(const config_setting_t *setting)
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

/* What is read: the setting, and the key that it is of. */
struct value_at {
    const struct cddpi_config_source *source;
    const config_setting_t *setting;
    const struct cddpi_key *key;
};

static cddp_status fail_type(const struct value_at *at)
{
    return cddpi_config_fail_at(at->source, at->setting, "%s expects %s, not %s", at->key->path,
                                cddpi_key_expects(at->key), cddpi_config_kind(at->setting));
}

static cddp_status fail_memory(const struct value_at *at)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "configuration: no memory for %s", at->key->path);
}

static cddp_status read_integer(const struct value_at *at, int64_t *out)
{
    int type = config_setting_type(at->setting);
    int64_t value;

    if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64) {
        return fail_type(at);
    }
    value = config_setting_get_int64(at->setting);
    if ((double)value < at->key->low || (double)value > at->key->high) {
        return cddpi_config_fail_at(at->source, at->setting, "%s: %lld is outside %.0f to %.0f",
                                    at->key->path, (long long)value, at->key->low, at->key->high);
    }
    *out = value;
    return CDDP_OK;
}

static cddp_status read_integer_or_auto(const struct value_at *at, int64_t *out)
{
    const char *text = config_setting_get_string(at->setting);

    if (config_setting_type(at->setting) != CONFIG_TYPE_STRING) {
        return read_integer(at, out);
    }
    if (strcmp(text, "auto") != 0) {
        return cddpi_config_fail_at(at->source, at->setting, "%s expects %s, not \"%s\"",
                                    at->key->path, cddpi_key_expects(at->key), text);
    }
    *out = CDDPI_AUTO;
    return CDDP_OK;
}

static cddp_status read_real(const struct value_at *at, double *out)
{
    int type = config_setting_type(at->setting);
    double value;

    if (type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64) {
        value = (double)config_setting_get_int64(at->setting);
    } else if (type == CONFIG_TYPE_FLOAT) {
        value = config_setting_get_float(at->setting);
    } else {
        return fail_type(at);
    }
    if (!(value >= at->key->low && value <= at->key->high)) {
        return cddpi_config_fail_at(at->source, at->setting, "%s: %g is outside %g to %g",
                                    at->key->path, value, at->key->low, at->key->high);
    }
    *out = value;
    return CDDP_OK;
}

/* The word; NULL: another type. Without quotes, true and false are words of keys that have them. */
static const char *choice_text(const struct value_at *at)
{
    const char *text = config_setting_get_bool(at->setting) != 0 ? "true" : "false";

    if (config_setting_type(at->setting) != CONFIG_TYPE_BOOL) {
        return config_setting_get_string(at->setting);
    }
    for (const struct cddpi_choice *choice = at->key->choices; choice->word != NULL; choice++) {
        if (strcmp(choice->word, text) == 0) {
            return text;
        }
    }
    return NULL;
}

static cddp_status read_choice(const struct value_at *at, int *out)
{
    const char *text = choice_text(at);
    const char *nearest = "";
    char all[512] = "";
    unsigned least = ~0u;

    if (text == NULL) {
        return fail_type(at);
    }
    for (const struct cddpi_choice *choice = at->key->choices; choice->word != NULL; choice++) {
        unsigned distance = cddpi_edit_distance(choice->word, text);
        size_t used = strlen(all);

        if (strcmp(choice->word, text) == 0) {
            *out = choice->value;
            return CDDP_OK;
        }
        if (distance < least) {
            least = distance;
            nearest = choice->word;
        }
        snprintf(all + used, sizeof all - used, "%s%s", used > 0 ? ", " : "", choice->word);
    }
    return cddpi_config_fail_at(at->source, at->setting,
                                "%s: \"%s\" is not one of: %s; the nearest is \"%s\"",
                                at->key->path, text, all, nearest);
}

/* Copy @p text. In a path, a leading ~/ becomes $HOME. */
static cddp_status copy_text(const struct value_at *at, const char *text, char **out)
{
    char reason[1024];
    cddp_status status;

    if (!at->key->is_path) {
        *out = cddpi_strdup(text);
        return *out != NULL ? CDDP_OK : fail_memory(at);
    }
    status = cddpi_user_path(text, out);
    if (status == CDDP_ERR_ARGUMENT) {
        snprintf(reason, sizeof reason, "%s", cddp_last_error());
        status = cddpi_config_fail_at(at->source, at->setting, "%s: %s", at->key->path, reason);
    }
    return status;
}

static cddp_status read_text(const struct value_at *at, char **out)
{
    char *copy = NULL;

    if (config_setting_type(at->setting) != CONFIG_TYPE_STRING) {
        return fail_type(at);
    }
    CDDPI_TRY(copy_text(at, config_setting_get_string(at->setting), &copy));
    cddpi_free(*out);
    *out = copy;
    return CDDP_OK;
}

static bool is_list(const config_setting_t *setting)
{
    return config_setting_type(setting) == CONFIG_TYPE_ARRAY ||
           config_setting_type(setting) == CONFIG_TYPE_LIST;
}

static struct value_at element_of(const struct value_at *at, int index)
{
    return (struct value_at){at->source, config_setting_get_elem(at->setting, (unsigned)index),
                             at->key};
}

static cddp_status read_integers(const struct value_at *at, struct cddpi_int_list *out)
{
    int count = config_setting_length(at->setting);
    int *values;

    if (!is_list(at->setting)) {
        return fail_type(at);
    }
    values = cddpi_zalloc_array((size_t)count, sizeof *values);
    if (values == NULL) {
        return fail_memory(at);
    }
    for (int i = 0; i < count; i++) {
        struct value_at element = element_of(at, i);
        int64_t value = 0;
        cddp_status status = read_integer(&element, &value);

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

static cddp_status read_reals(const struct value_at *at, struct cddpi_real_list *out)
{
    struct cddpi_real_list list = {.count = 1};

    if (!is_list(at->setting)) {
        CDDPI_TRY(read_real(at, &list.values[0]));
        *out = list;
        return CDDP_OK;
    }
    list.count = config_setting_length(at->setting);
    if (list.count < 1 || list.count > 4) {
        return cddpi_config_fail_at(at->source, at->setting,
                                    "%s: 1 to 4 numbers are expected, not %d", at->key->path,
                                    list.count);
    }
    for (int i = 0; i < list.count; i++) {
        struct value_at element = element_of(at, i);

        CDDPI_TRY(read_real(&element, &list.values[i]));
    }
    *out = list;
    return CDDP_OK;
}

void cddpi_config_texts_fini(struct cddpi_text_list *list)
{
    for (int i = 0; i < list->count; i++) {
        cddpi_free(list->values[i]);
    }
    cddpi_free(list->values);
    *list = (struct cddpi_text_list){NULL, 0};
}

/* A single string is a list of one; an empty string is an empty list. */
static cddp_status read_texts(const struct value_at *at, struct cddpi_text_list *out)
{
    bool several = is_list(at->setting);
    struct cddpi_text_list list = {NULL, 0};
    const char *alone = several ? NULL : config_setting_get_string(at->setting);
    int count = several ? config_setting_length(at->setting) : alone != NULL && alone[0] != '\0';
    cddp_status status;

    if (!several && alone == NULL) {
        return fail_type(at);
    }
    if (count > 0) {
        list.values = cddpi_zalloc_array((size_t)count, sizeof *list.values);
        if (list.values == NULL) {
            return fail_memory(at);
        }
        list.count = count;
    }
    for (int i = 0; i < count; i++) {
        struct value_at element = several ? element_of(at, i) : *at;

        CDDPI_TRY_GOTO(fail, status, read_text(&element, &list.values[i]));
    }
    cddpi_config_texts_fini(out);
    *out = list;
    return CDDP_OK;

fail:
    cddpi_config_texts_fini(&list);
    return status;
}

/* Append the first and the last layer's name of one stage to @p list, which has room for them. */
static cddp_status read_pair(const struct value_at *at, struct cddpi_stage_names *list)
{
    int length = is_list(at->setting) ? config_setting_length(at->setting) : 0;

    if (length < 1 || length > 2) {
        return cddpi_config_fail_at(at->source, at->setting,
                                    "%s: each stage is the names of its first and its last layer, "
                                    "as in ( [\"input\", \"layer2\"], [\"layer3\", \"fc\"] )",
                                    at->key->path);
    }
    for (int end = 0; end < 2; end++) {
        struct value_at element = element_of(at, end == 1 && length == 2);

        CDDPI_TRY(read_text(&element, &list->values[list->count]));
        list->count++;
    }
    return CDDP_OK;
}

/* Read a list of names, or a list of stages with one or two names each. */
static cddp_status read_stages(const struct value_at *at, struct cddpi_stage_names *out)
{
    struct cddpi_stage_names list = {NULL, 0, true};
    int stages = is_list(at->setting) ? config_setting_length(at->setting) : 0;
    cddp_status status;

    if (stages == 0 || !is_list(config_setting_get_elem(at->setting, 0))) {
        struct cddpi_text_list names = {NULL, 0};

        CDDPI_TRY(read_texts(at, &names));
        list = (struct cddpi_stage_names){names.values, names.count, false};
    } else {
        list.values = cddpi_zalloc_array(2 * (size_t)stages, sizeof *list.values);
        if (list.values == NULL) {
            return fail_memory(at);
        }
        for (int i = 0; i < stages; i++) {
            struct value_at pair = element_of(at, i);

            CDDPI_TRY_GOTO(fail, status, read_pair(&pair, &list));
        }
    }
    cddpi_config_stages_fini(out);
    *out = list;
    return CDDP_OK;

fail:
    cddpi_config_stages_fini(&list);
    return status;
}

void cddpi_config_stages_fini(struct cddpi_stage_names *list)
{
    struct cddpi_text_list texts = {list->values, list->count};

    cddpi_config_texts_fini(&texts);
    *list = (struct cddpi_stage_names){NULL, 0, false};
}

void cddpi_config_layers_fini(struct cddpi_config_layers *list)
{
    for (int i = 0; i < list->count; i++) {
        cddpi_free((void *)(uintptr_t)list->values[i].name);
        cddpi_free((void *)(uintptr_t)list->values[i].input);
        cddpi_free((void *)(uintptr_t)list->values[i].input2);
        cddpi_free((void *)(uintptr_t)list->values[i].tied);
        cddpi_free((void *)(uintptr_t)list->values[i].positions);
    }
    cddpi_free(list->values);
    list->values = NULL;
    list->count = 0;
}

static cddp_status read_layer(const struct cddpi_config_source *source,
                              const config_setting_t *group, struct cddpi_layer *out)
{
    char nearest[CDDPI_KEY_BYTES];
    bool typed = false;

    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);
        const char *name = config_setting_name(setting);
        const struct cddpi_key *key = cddpi_key_find(cddpi_layer_keys, cddpi_layer_key_count, name);

        if (key == NULL) {
            cddpi_key_nearest(cddpi_layer_keys, cddpi_layer_key_count, name, nearest);
            return cddpi_config_fail_at(source, setting,
                                        "unknown key %s of a layer; the nearest known key is %s",
                                        name, nearest);
        }
        CDDPI_TRY(cddpi_config_read_value(source, setting, key, out));
        typed = typed || strcmp(name, "type") == 0;
    }
    return typed ? CDDP_OK : cddpi_config_fail_at(source, group, "a layer has no type");
}

static cddp_status read_layers(const struct value_at *at, struct cddpi_config_layers *out)
{
    struct cddpi_config_layers list = {NULL, 0};
    int count = config_setting_length(at->setting);
    cddp_status status;

    if (!is_list(at->setting)) {
        return fail_type(at);
    }
    list.values = cddpi_zalloc_array((size_t)count, sizeof *list.values);
    if (list.values == NULL) {
        return fail_memory(at);
    }
    list.count = count;
    for (int i = 0; i < count; i++) {
        const config_setting_t *layer = element_of(at, i).setting;

        if (config_setting_type(layer) != CONFIG_TYPE_GROUP) {
            status = cddpi_config_fail_at(at->source, layer,
                                          "%s: each layer is a group in { }, not %s", at->key->path,
                                          cddpi_config_kind(layer));
            goto fail;
        }
        CDDPI_TRY_GOTO(fail, status, read_layer(at->source, layer, &list.values[i]));
    }
    cddpi_config_layers_fini(out);
    *out = list;
    return CDDP_OK;

fail:
    cddpi_config_layers_fini(&list);
    return status;
}

cddp_status cddpi_config_read_value(const struct cddpi_config_source *source,
                                    const config_setting_t *setting, const struct cddpi_key *key,
                                    void *base)
{
    const struct value_at at = {source, setting, key};
    void *member = (char *)base + key->offset;
    int64_t integer = 0;

    switch (key->type) {
    case CDDPI_KEY_BOOL:
        if (config_setting_type(setting) != CONFIG_TYPE_BOOL) {
            return fail_type(&at);
        }
        *(bool *)member = (config_setting_get_bool(setting) != 0) != key->negated;
        return CDDP_OK;
    case CDDPI_KEY_INT:
        CDDPI_TRY(read_integer(&at, &integer));
        *(int *)member = (int)integer;
        return CDDP_OK;
    case CDDPI_KEY_LONG:
        return read_integer(&at, member);
    case CDDPI_KEY_AUTO:
        return read_integer_or_auto(&at, member);
    case CDDPI_KEY_REAL:
        return read_real(&at, member);
    case CDDPI_KEY_TEXT:
        return read_text(&at, member);
    case CDDPI_KEY_ENUM:
        return read_choice(&at, member);
    case CDDPI_KEY_INTS:
        return read_integers(&at, member);
    case CDDPI_KEY_TEXTS:
        return read_texts(&at, member);
    case CDDPI_KEY_REALS:
        return read_reals(&at, member);
    case CDDPI_KEY_STAGES:
        return read_stages(&at, member);
    case CDDPI_KEY_LAYERS:
        return read_layers(&at, member);
    }
    return CDDP_ERR_CONFIG;
}
