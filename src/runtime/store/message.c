/* message.c - encodes and decodes the messages of message.h. */
#include "store/message.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

#define MAGIC UINT64_C(0x316e757270646463) /* "cddprun1" */

static bool is_list(const struct cddpi_field *field)
{
    return field->type == CDDPI_FIELD_LIST || field->type == CDDPI_FIELD_ROWS;
}

/* The number of @p field in @p object; for a list, its length. */
static int64_t number_of(const struct cddpi_field *field, const void *object)
{
    const char *member = (const char *)object + (is_list(field) ? field->length_at : field->at);

    return is_list(field) || field->bytes == sizeof(int) ? *(const int *)(const void *)member
           : field->bytes == sizeof(bool)                ? *(const bool *)(const void *)member
                                                         : *(const int64_t *)(const void *)member;
}

static void set_number(const struct cddpi_field *field, int64_t number, void *object)
{
    char *member = (char *)object + (is_list(field) ? field->length_at : field->at);

    if (is_list(field) || field->bytes == sizeof(int)) {
        *(int *)(void *)member = (int)number;
    } else if (field->bytes == sizeof(bool)) {
        *(bool *)(void *)member = number == 1;
    } else {
        *(int64_t *)(void *)member = number;
    }
}

/* Element @p i of a list. */
static void *element_of(const struct cddpi_field *field, const void *object, int64_t i)
{
    const char *member = (const char *)object + field->at;
    char *list = field->type == CDDPI_FIELD_LIST ? *(char *const *)(const void *)member
                                                 : (char *)member;

    return list + (size_t)i * field->bytes;
}

/* A body that is written or read. */
struct message_body {
    struct cddpi_wire_buffer *out; /* NULL: it is read */
    const uint8_t *at;             /* the unread part */
    size_t left;
};

static cddp_status fail_format(void)
{
    return cddpi_fail(CDDP_ERR_FORMAT, "it is damaged, or not from cddp 0.2 or later");
}

/* Write @p bytes bytes of @p data, or read them into it. */
static cddp_status pass_bytes(struct message_body *body, void *data, size_t bytes)
{
    if (body->out == NULL) {
        if (body->left < bytes) {
            return fail_format();
        }
        memcpy(data, body->at, bytes);
        body->at += bytes;
        body->left -= bytes;
        return CDDP_OK;
    }
    if (!cddpi_buffer_reserve(body->out, bytes)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a message");
    }
    cddpi_buffer_append(body->out, data, bytes);
    return CDDP_OK;
}

static cddp_status pass_number(struct message_body *body, int64_t low, int64_t high,
                               int64_t *number)
{
    uint8_t bytes[8];

    cddpi_put_u64(bytes, (uint64_t)*number);
    CDDPI_TRY(pass_bytes(body, bytes, sizeof bytes));
    *number = (int64_t)cddpi_get_u64(bytes);
    if (*number >= low && *number <= high) {
        return CDDP_OK;
    }
    return body->out == NULL ? fail_format()
                             : cddpi_fail(CDDP_ERR_ARGUMENT,
                                          "a number, or the length of a text, is %lld, and may be "
                                          "from %lld to %lld",
                                          (long long)*number, (long long)low, (long long)high);
}

static cddp_status pass_text(const struct cddpi_field *field, struct message_body *body,
                             void *object)
{
    char *text = (char *)object + field->at;
    char **string = field->type == CDDPI_FIELD_STRING ? (char **)(void *)text : NULL;
    int64_t length = 0;

    if (body->out != NULL) {
        text = string != NULL ? *string : text;
        length = (int64_t)strlen(text);
    }
    CDDPI_TRY(pass_number(body, 0, (int64_t)field->bytes - 1, &length));
    if (body->out == NULL && string != NULL) {
        text = *string = cddpi_zalloc((size_t)length + 1);
        CDDPI_TRY_MEMORY(text != NULL, "no memory for %lld bytes", (long long)length);
    }
    CDDPI_TRY(pass_bytes(body, text, (size_t)length)); /* zeroed before, so it ends with a NUL */
    return memchr(text, '\0', (size_t)length) == NULL ? CDDP_OK : fail_format();
}

/* Allocate a list of @p length elements, each of which has a number or a text. */
static cddp_status make_list(const struct cddpi_field *field, int64_t length,
                             const struct message_body *body, void *object)
{
    void *list = NULL;

    if ((size_t)length > body->left / 8) {
        return fail_format();
    }
    if (field->type == CDDPI_FIELD_LIST && length > 0) {
        list = cddpi_zalloc_array((size_t)length, field->bytes);
        CDDPI_TRY_MEMORY(list != NULL, "no memory for a list of %lld", (long long)length);
        *(void **)(void *)((char *)object + field->at) = list;
    }
    return CDDP_OK;
}

/* Write the members of @p object, or read them into it. */
static cddp_status pass_fields(const struct cddpi_field *fields, struct message_body *body,
                               void *object)
{
    for (const struct cddpi_field *field = fields; field->type != CDDPI_FIELD_END; field++) {
        int64_t number;

        if (field->type == CDDPI_FIELD_TEXT || field->type == CDDPI_FIELD_STRING) {
            CDDPI_TRY(pass_text(field, body, object));
            continue;
        }
        if (field->type == CDDPI_FIELD_BYTES) {
            CDDPI_TRY(pass_bytes(body, (char *)object + field->at, field->bytes));
            continue;
        }
        number = number_of(field, object);
        CDDPI_TRY(pass_number(body, field->low, field->high, &number));
        if (body->out == NULL) {
            CDDPI_TRY(is_list(field) ? make_list(field, number, body, object) : CDDP_OK);
            set_number(field, number, object);
        }
        for (int64_t i = 0; is_list(field) && i < number; i++) {
            CDDPI_TRY(pass_fields(field->element, body, element_of(field, object, i)));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_message_encode(const struct cddpi_message_form *form, const void *object,
                                 struct cddpi_wire_buffer *out)
{
    uint8_t head[CDDPI_MESSAGE_HEAD_BYTES] = {0};
    struct message_body body = {.out = out};
    size_t begin = out->bytes + sizeof head;

    cddpi_greeting_put(MAGIC, CDDPI_MESSAGE_VERSION, head);
    cddpi_put_u32(head + 12, form->kind);
    CDDPI_TRY(pass_bytes(&body, head, sizeof head));
    CDDPI_TRY(pass_fields(form->fields, &body, (void *)(uintptr_t)object));
    if (out->bytes - begin > form->most_bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "they have more than %zu bytes", form->most_bytes);
    }
    cddpi_put_u64(out->data + begin - 8, out->bytes - begin);
    return CDDP_OK;
}

cddp_status cddpi_message_read_head(const struct cddpi_message_form *form,
                                    const uint8_t head[CDDPI_MESSAGE_HEAD_BYTES],
                                    size_t *out_body_bytes)
{
    uint32_t version = cddpi_get_u32(head + 8);
    uint64_t body_bytes = cddpi_get_u64(head + 16);

    if (cddpi_get_u64(head) != MAGIC) {
        return fail_format();
    }
    if (version != CDDPI_MESSAGE_VERSION) {
        return cddpi_fail(
            CDDP_ERR_MISMATCH,
            "it is from another version of cddp, whose messages have version %u; those "
            "of this one have version %d",
            version, CDDPI_MESSAGE_VERSION);
    }
    if (cddpi_get_u32(head + 12) != form->kind || body_bytes > form->most_bytes) {
        return fail_format();
    }
    *out_body_bytes = (size_t)body_bytes;
    return CDDP_OK;
}

bool cddpi_message_is(const struct cddpi_message_form *form, const uint8_t *data, size_t bytes)
{
    return bytes >= CDDPI_MESSAGE_HEAD_BYTES && cddpi_get_u64(data) == MAGIC &&
           cddpi_get_u32(data + 12) == form->kind;
}

cddp_status cddpi_message_set_first(cddp_store *store, const char *key,
                                    const struct cddpi_message_form *form, const void *object,
                                    bool *out_is_first, void **out_value, size_t *out_bytes)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, cddpi_message_encode(form, object, &message));
    status = out_is_first == NULL
                 ? cddp_store_set(store, key, message.data, message.bytes)
                 : cddp_store_compare_set(store, key, NULL, 0, message.data, message.bytes,
                                          out_is_first, out_value, out_bytes);

out:
    cddpi_buffer_fini(&message);
    return status;
}

cddp_status cddpi_message_set(cddp_store *store, const char *key,
                              const struct cddpi_message_form *form, const void *object)
{
    return cddpi_message_set_first(store, key, form, object, NULL, NULL, NULL);
}

cddp_status cddpi_message_decode(const struct cddpi_message_form *form, const uint8_t *data,
                                 size_t bytes, void *out)
{
    struct message_body body = {NULL, data + CDDPI_MESSAGE_HEAD_BYTES, 0};

    memset(out, 0, form->bytes);
    if (bytes < CDDPI_MESSAGE_HEAD_BYTES) {
        return fail_format();
    }
    CDDPI_TRY(cddpi_message_read_head(form, data, &body.left));
    if (body.left != bytes - CDDPI_MESSAGE_HEAD_BYTES) {
        return fail_format();
    }
    CDDPI_TRY(pass_fields(form->fields, &body, out));
    return body.left == 0 ? CDDP_OK : fail_format();
}

cddp_status cddpi_message_pack(const struct cddpi_message_form *form, const void *object,
                               void *block, size_t bytes)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    cddp_status status = cddpi_message_encode(form, object, &message);

    if (status == CDDP_OK && message.bytes > bytes) {
        status = cddpi_fail(CDDP_ERR_ARGUMENT, "a message has more than %zu bytes", bytes);
    }
    if (status == CDDP_OK) {
        memset(block, 0, bytes);
        memcpy(block, message.data, message.bytes);
    }
    cddpi_buffer_fini(&message);
    return status;
}

cddp_status cddpi_message_unpack(const struct cddpi_message_form *form, const void *block,
                                 size_t bytes, void *out)
{
    size_t body_bytes = 0;

    memset(out, 0, form->bytes);
    CDDPI_TRY(cddpi_message_read_head(form, block, &body_bytes));
    return body_bytes <= bytes - CDDPI_MESSAGE_HEAD_BYTES
               ? cddpi_message_decode(form, block, CDDPI_MESSAGE_HEAD_BYTES + body_bytes, out)
               : fail_format();
}

static void release_fields(const struct cddpi_field *fields, void *object)
{
    for (const struct cddpi_field *field = fields; field->type != CDDPI_FIELD_END; field++) {
        char **pointer = (char **)(void *)((char *)object + field->at);

        if (field->type == CDDPI_FIELD_LIST && *pointer != NULL) {
            for (int64_t i = 0; i < number_of(field, object); i++) {
                release_fields(field->element, element_of(field, object, i));
            }
            set_number(field, 0, object);
        }
        if (field->type == CDDPI_FIELD_LIST || field->type == CDDPI_FIELD_STRING) {
            cddpi_free(*pointer);
            *pointer = NULL;
        }
    }
}

void cddpi_message_fini(const struct cddpi_message_form *form, void *object)
{
    release_fields(form->fields, object);
}
