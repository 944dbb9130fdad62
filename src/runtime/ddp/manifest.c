/* manifest.c - owns the canonical text of a registered model, and the difference of two such texts.
 *
 * One line for each item: "<section> <index> <title>\t<value>\n", in ascending (section, index), so
 * that two texts are compared by walking both at once. */
#include "ddp/ddp_create.h"

#include "base/alloc.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum section { COUNTS, OPTIONS, CONFIG, PARAMS, BUFFERS };

/* Growing text. `text` is NULL after memory ran out. */
struct manifest_page {
    char *text;
    size_t length;
    size_t capacity;
};

static void reserve(struct manifest_page *page, size_t more)
{
    size_t capacity = page->capacity;
    char *text;

    if (page->text == NULL || page->length + more < capacity) {
        return;
    }
    while (capacity <= page->length + more) {
        capacity *= 2;
    }
    text = cddpi_realloc(page->text, capacity);
    if (text == NULL) {
        cddpi_free(page->text);
    }
    page->text = text;
    page->capacity = capacity;
}

__attribute__((format(printf, 2, 3))) static void add(struct manifest_page *page,
                                                      const char *format, ...)
{
    va_list arguments;
    char piece[256];
    int length;

    va_start(arguments, format);
    length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    reserve(page, (size_t)length);
    if (page->text != NULL) {
        memcpy(page->text + page->length, piece, (size_t)length + 1);
        page->length += (size_t)length;
    }
}

/* Add text of the caller's, of any length. Escape characters that would break the line. */
static void add_escaped(struct manifest_page *page, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c < ' ' || c == 127 || c == '\\') {
            add(page, "\\x%02x", c);
        } else {
            add(page, "%c", c);
        }
    }
}

static void add_tensor(struct manifest_page *page, enum section section, size_t index,
                       const cddp_param *param, const struct cddpi_device *device)
{
    add(page, "%d %zu %s %zu\t", (int)section, index, section == PARAMS ? "parameter" : "buffer",
        index);
    add_escaped(page, param->name, strlen(param->name));
    add(page, " %s [", cddp_type_name(param->type));
    for (int d = 0; d < param->dims; d++) {
        add(page, "%s%lld", d > 0 ? ", " : "", (long long)param->shape[d]);
    }
    add(page, "]%s%s\n",
        section == PARAMS && (param->flags & CDDP_PARAM_FROZEN) != 0 ? " frozen" : "",
        device->ops->owns(device, param->data) ? " on the device" : "");
}

static void add_order(struct manifest_page *page, const struct cddpi_manifest *manifest)
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    char hex[2 * sizeof hash + 1];
    size_t count = 0;

    if (manifest->options->ready_order == NULL) {
        add(page, "%d 6 ready_order\tnone\n", (int)OPTIONS);
        return;
    }
    for (size_t i = 0; i < manifest->param_count; i++) {
        count += (manifest->params[i].flags & CDDP_PARAM_FROZEN) == 0;
    }
    crypto_generichash(hash, sizeof hash, (const unsigned char *)manifest->options->ready_order,
                       count * sizeof(size_t), NULL, 0);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    add(page, "%d 6 ready_order\tone with the hash %s\n", (int)OPTIONS, hex);
}

static void add_options(struct manifest_page *page, const struct cddpi_manifest *manifest)
{
    const cddp_ddp_options *options = manifest->options;

    add(page, "%d 0 version of cddp\t%s\n", (int)OPTIONS, cddp_version());
    add(page, "%d 1 first_bucket_bytes\t%zu\n", (int)OPTIONS, options->first_bucket_bytes);
    add(page, "%d 2 bucket_bytes\t%zu\n", (int)OPTIONS, options->bucket_bytes);
    add(page, "%d 2 part_bytes\t%zu\n", (int)OPTIONS, options->part_bytes);
    add(page, "%d 3 allow_unused\t%s\n", (int)OPTIONS, options->allow_unused ? "true" : "false");
    add(page, "%d 4 flat_grads\t%s\n", (int)OPTIONS,
        options->flat_grads != NULL ? "a block" : "none");
    add(page, "%d 5 hook\t%s\n", (int)OPTIONS, manifest->hook_name);
    add_order(page, manifest);
    add(page, "%d 7 shard\t%s\n", (int)OPTIONS, options->shard ? "true" : "false");
    add(page, "%d 8 may_move_grads\t%s\n", (int)OPTIONS,
        options->may_move_grads ? "true" : "false");
    add(page, "%d 9 share_flat_grads\t%s\n", (int)OPTIONS,
        options->share_flat_grads ? "true" : "false");
}

static void add_config(struct manifest_page *page, const char *config)
{
    size_t line = 1;

    while (config != NULL && *config != '\0') {
        size_t length = strcspn(config, "\n");

        add(page, "%d %zu config line %zu\t", (int)CONFIG, line, line);
        add_escaped(page, config, length);
        add(page, "\n");
        config += length + (config[length] == '\n');
        line++;
    }
}

char *cddpi_manifest_text(const struct cddpi_manifest *manifest)
{
    struct manifest_page page = {cddpi_zalloc(1024), 0, 1024};

    add(&page, "%d 0 parameters\t%zu\n", (int)COUNTS, manifest->param_count);
    add(&page, "%d 1 buffers\t%zu\n", (int)COUNTS, manifest->buffer_count);
    add_options(&page, manifest);
    add_config(&page, manifest->options->config);
    for (size_t i = 0; i < manifest->param_count; i++) {
        add_tensor(&page, PARAMS, i, &manifest->params[i], manifest->device);
    }
    for (size_t i = 0; i < manifest->buffer_count; i++) {
        add_tensor(&page, BUFFERS, i, &manifest->buffers[i], manifest->device);
    }
    return page.text;
}

/* A parsed line; title and value point into the text. */
struct manifest_line {
    unsigned long section;
    unsigned long long index;
    const char *title;
    int title_length;
    const char *value;
    int value_length;
};

enum { SHOWN_VALUE = 160, SHOWN_TITLE = 60 };

static int bounded(size_t length, int most)
{
    return length > (size_t)most ? most : (int)length;
}

/* Read the line at *text and move *text past it. Returns false at the end, or if it is not a line
 * of a manifest. */
static bool next_line(const char **text, struct manifest_line *line)
{
    size_t length = strcspn(*text, "\n");
    const char *end = *text + length;
    char *rest;
    const char *tab;

    if (length == 0) {
        return false;
    }
    line->section = strtoul(*text, &rest, 10);
    line->index = strtoull(rest, &rest, 10);
    tab = rest < end ? memchr(rest, '\t', (size_t)(end - rest)) : NULL;
    if (*rest != ' ' || tab == NULL) {
        return false;
    }
    line->title = rest + 1;
    line->title_length = bounded((size_t)(tab - line->title), SHOWN_TITLE);
    line->value = tab + 1;
    line->value_length = (int)(end - line->value);
    *text = end + (*end == '\n');
    return true;
}

/* A difference while it is written. */
struct diff {
    char *out;
    size_t bytes;
    size_t length;
    size_t lines;
    size_t max_lines;
    int a_rank;
    int b_rank;
};

__attribute__((format(printf, 2, 3))) static void append(struct diff *diff, const char *format, ...)
{
    va_list arguments;
    int length;

    if (diff->length + 1 >= diff->bytes) {
        return;
    }
    va_start(arguments, format);
    length = vsnprintf(diff->out + diff->length, diff->bytes - diff->length, format, arguments);
    va_end(arguments);
    diff->length += (size_t)length;
    if (diff->length >= diff->bytes) {
        diff->length = diff->bytes - 1;
    }
}

static void append_value(struct diff *diff, int rank, const struct manifest_line *line)
{
    const char *value = line != NULL ? line->value : NULL;
    int length = line != NULL ? line->value_length : 0;

    if (line == NULL) {
        append(diff, "rank %d has none", rank);
        return;
    }
    while (length > 0 && *value == ' ') { /* lines of a configuration may be indented */
        value++;
        length--;
    }
    append(diff, "rank %d has %.*s%s", rank, bounded((size_t)length, SHOWN_VALUE), value,
           length > SHOWN_VALUE ? "..." : "");
}

static void report(struct diff *diff, const struct manifest_line *a, const struct manifest_line *b)
{
    const struct manifest_line *any = a != NULL ? a : b;

    if (diff->lines++ >= diff->max_lines) {
        return;
    }
    append(diff, "\n  %.*s: ", any->title_length, any->title);
    append_value(diff, diff->a_rank, a);
    append(diff, ", ");
    append_value(diff, diff->b_rank, b);
}

static int compare_keys(const struct manifest_line *a, const struct manifest_line *b)
{
    if (a->section != b->section) {
        return a->section < b->section ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index;
}

void cddpi_manifest_diff(const char *a, int a_rank, const char *b, int b_rank, size_t max_lines,
                         char *out, size_t out_bytes)
{
    struct diff diff = {out, out_bytes, 0, 0, max_lines, a_rank, b_rank};
    struct manifest_line x;
    struct manifest_line y;
    bool has_x = next_line(&a, &x);
    bool has_y = next_line(&b, &y);

    out[0] = '\0';
    while (has_x || has_y) {
        int side = !has_x ? 1 : !has_y ? -1 : compare_keys(&x, &y);

        if (side < 0) {
            report(&diff, &x, NULL);
        } else if (side > 0) {
            report(&diff, NULL, &y);
        } else if (x.value_length != y.value_length ||
                   memcmp(x.value, y.value, (size_t)x.value_length) != 0) {
            report(&diff, &x, &y);
        }
        has_x = side <= 0 ? next_line(&a, &x) : has_x;
        has_y = side >= 0 ? next_line(&b, &y) : has_y;
    }
    if (diff.lines > max_lines) {
        append(&diff, "\n  and %zu more differences", diff.lines - max_lines);
    }
}
