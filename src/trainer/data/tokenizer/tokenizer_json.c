/* tokenizer_json.c - reads Hugging Face's tokenizer.json, if it is of GPT-2's kind (for words, see
 * word_level.c). Settings that would split or join texts differently are refused, not ignored. */
#include "data/tokenizer/tokenizer_impl.h"

#include "base/error.h"

#include <string.h>

/* Whether @p value is one of the ways to say "nothing" in such files. */
static bool is_nothing(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

static const char *type_of(const json_t *object, char buffer[CDDPI_SHOWN_BYTES])
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type != NULL ? cddpi_tokenizer_shown(type, strlen(type), buffer) : "nothing";
}

static cddp_status check_model(const json_t *model)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    const json_t *type = json_object_get(model, "type");
    char buffer[CDDPI_SHOWN_BYTES];

    /* Older files do not state the type. */
    if (type != NULL && strcmp(type_of(model, buffer), "BPE") != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "model.type is %s: only BPE and WordLevel can be used",
                          type_of(model, buffer));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!is_nothing(json_object_get(model, refused[i]))) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "model.%s is set, but only GPT-2's BPE can be used, which has none",
                              refused[i]);
        }
    }
    if (!json_is_object(json_object_get(model, "vocab"))) {
        return cddpi_fail(CDDP_ERR_FORMAT, "model.vocab is not an object");
    }
    if (!json_is_array(json_object_get(model, "merges"))) {
        return cddpi_fail(CDDP_ERR_FORMAT, "model.merges is not an array");
    }
    return CDDP_OK;
}

/* Whether a part of a template, such as {"Sequence": ...} or {"SpecialToken": ...}, adds tokens to
 * the text's own. A template for pairs of texts does not matter, because pairs are not used. */
static bool adds_tokens(const json_t *post)
{
    const char *type = json_string_value(json_object_get(post, "type"));
    const json_t *parts = json_object_get(post, "processors");
    const json_t *single = json_object_get(post, "single");

    if (type != NULL && strcmp(type, "ByteLevel") == 0) { /* it changes offsets, not tokens */
        return false;
    }
    for (size_t i = 0; i < json_array_size(parts); i++) {
        if (adds_tokens(json_array_get(parts, i))) {
            return true;
        }
    }
    if (type != NULL && strcmp(type, "Sequence") == 0) {
        return !json_is_array(parts);
    }
    return type == NULL || strcmp(type, "TemplateProcessing") != 0 ||
           json_array_size(single) != 1 ||
           !json_is_object(json_object_get(json_array_get(single, 0), "Sequence"));
}

static cddp_status check_ends(const json_t *root)
{
    static const char *const limits[] = {"truncation", "padding"};
    const json_t *post = json_object_get(root, "post_processor");
    char buffer[CDDPI_SHOWN_BYTES];

    if (!is_nothing(post) && adds_tokens(post)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "post_processor is %s, which adds tokens that are not in the text: "
                          "set post_processor to null if they are not wanted",
                          type_of(post, buffer));
    }
    for (int i = 0; i < 2; i++) {
        if (!is_nothing(json_object_get(root, limits[i]))) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s is set, but texts are read whole and as they are: set %s to "
                              "null",
                              limits[i], limits[i]);
        }
    }
    return CDDP_OK;
}

static cddp_status check_root(const json_t *root)
{
    const json_t *words = json_object_get(root, "pre_tokenizer");
    const json_t *pattern = json_object_get(words, "use_regex");
    const json_t *added = json_object_get(root, "added_tokens");
    char buffer[CDDPI_SHOWN_BYTES];

    if (strcmp(type_of(words, buffer), "ByteLevel") != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "pre_tokenizer.type is %s: only ByteLevel, GPT-2's, can be used",
                          type_of(words, buffer));
    }
    if (pattern != NULL && !json_is_true(pattern)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "pre_tokenizer.use_regex is not true: only GPT-2's pattern can be "
                          "used");
    }
    /* The library's default is true. */
    if (!json_is_false(json_object_get(words, "add_prefix_space"))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "pre_tokenizer.add_prefix_space is not false: texts would not come "
                          "back as they were");
    }
    if (!is_nothing(json_object_get(root, "normalizer"))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "normalizer is %s: texts would not come back as they were",
                          type_of(json_object_get(root, "normalizer"), buffer));
    }
    if (!is_nothing(added) && !json_is_array(added)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "added_tokens is not an array");
    }
    return check_model(json_object_get(root, "model"));
}

static cddp_status read_merge(struct cddpi_tokenizer_build *build, const json_t *merge,
                              size_t index)
{
    const json_t *left = json_array_get(merge, 0);
    const json_t *right = json_array_get(merge, 1);
    char where[48];

    snprintf(where, sizeof where, "model.merges[%zu]", index);
    if (json_is_string(merge)) {
        return cddpi_tokenizer_build_merge_text(build, build->path, where, json_string_value(merge),
                                                json_string_length(merge));
    }
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %s: a merge must be two tokens", build->path,
                          where);
    }
    return cddpi_tokenizer_build_merge(build, build->path, where, json_string_value(left),
                                       json_string_length(left), json_string_value(right),
                                       json_string_length(right));
}

cddp_status cddpi_tokenizer_load_json(struct cddpi_tokenizer *tokenizer, const char *path,
                                      const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    const json_t *added = json_object_get(root, "added_tokens");
    struct cddpi_tokenizer_build build = {.tokenizer = tokenizer,
                                          .path = path,
                                          .vocab = json_object_get(model, "vocab"),
                                          .added = json_is_array(added) ? added : NULL};
    const char *type = json_string_value(json_object_get(model, "type"));
    cddp_status status;

    status = check_ends(root);
    if (status == CDDP_OK && type != NULL && strcmp(type, "WordLevel") == 0) {
        return cddpi_word_level_load(tokenizer, path, root);
    }
    status = status == CDDP_OK ? check_root(root) : status;
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s", path);
    }
    CDDPI_TRY_GOTO(done, status, cddpi_tokenizer_build_tokens(&build));
    CDDPI_TRY_GOTO(done, status, cddpi_merges_reserve(tokenizer, json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        CDDPI_TRY_GOTO(done, status, read_merge(&build, json_array_get(merges, i), i));
    }
done:
    cddpi_tokenizer_build_fini(&build);
    return status;
}
