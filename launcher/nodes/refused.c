/* refused.c - owns the key JOB/0/refused: the clients that the job's store has refused. */
#include "launcher/nodes/refused.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 64, ROW_BYTES = 192 };

static const struct cddpi_field row_fields[] = {
    CDDPI_TEXT(struct cddpi_refused_row, address),
    CDDPI_NUMBER(struct cddpi_refused_row, why, CDDPI_REFUSED_TOKEN, CDDPI_REFUSED_VERSION),
    {.type = CDDPI_FIELD_END},
};

CDDPI_MESSAGE_FORM(cddpi_refused_form, REFUSED, struct cddpi_refused_list,
                   CDDPI_REFUSED_ROWS *(sizeof(struct cddpi_refused_row) + 16) + 8,
                   CDDPI_ROWS(struct cddpi_refused_list, rows, count, row_fields));

static void make_key(const char *job, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s/0/refused", job);
}

/* Append a row, unless the list has it or is full. */
static bool add_row(struct cddpi_refused_list *list, const struct cddpi_store_refusal *refusal)
{
    struct cddpi_refused_row *row = &list->rows[list->count];

    for (int i = 0; i < list->count; i++) {
        if (list->rows[i].why == (int)refusal->why &&
            strcmp(list->rows[i].address, refusal->address) == 0) {
            return false; /* the same client tried again */
        }
    }
    if (list->count == CDDPI_REFUSED_ROWS) {
        return false;
    }
    snprintf(row->address, sizeof row->address, "%s", refusal->address);
    row->why = (int)refusal->why;
    list->count++;
    return true;
}

static cddp_status put_list(const struct cddpi_job_rendezvous *rendezvous,
                            const struct cddpi_refused_list *list)
{
    struct cddpi_wire_buffer message = {NULL, 0, 0};
    char key[KEY_BYTES];
    cddp_status status = cddpi_message_encode(&cddpi_refused_form, list, &message);

    make_key(rendezvous->job, key);
    if (status == CDDP_OK) {
        status = cddpi_store_server_set(rendezvous->server, key, message.data, message.bytes);
    }
    cddpi_buffer_fini(&message);
    return status;
}

void cddpi_refused_publish(const struct cddpi_job_rendezvous *rendezvous,
                           struct cddpi_refused_list *known)
{
    struct cddpi_store_refusal rows[CDDPI_STORE_REFUSALS];
    bool is_news = false;
    int count = rendezvous->server != NULL ? cddpi_store_server_refusals(rendezvous->server, rows)
                                           : 0;

    for (int i = count - 1; i >= 0; i--) { /* `rows` starts with the newest */
        is_news = add_row(known, &rows[i]) || is_news;
    }
    if (is_news && put_list(rendezvous, known) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "telling the nodes who was refused: %s", cddp_last_error());
    }
}

bool cddpi_refused_read(cddp_store *store, const char *job, struct cddpi_refused_list *known)
{
    struct cddpi_refused_list list;
    char key[KEY_BYTES];
    void *value = NULL;
    size_t bytes = 0;
    cddp_status status;

    make_key(job, key);
    if (cddp_store_try_get(store, key, &value, &bytes) != CDDP_OK) {
        return false;
    }
    status = cddpi_message_decode(&cddpi_refused_form, value, bytes, &list);
    cddp_free(value);
    if (status != CDDP_OK || memcmp(&list, known, sizeof list) == 0) {
        return false;
    }
    *known = list;
    return true;
}

void cddpi_refused_say(const struct cddpi_refused_list *list, char out[CDDPI_REFUSED_BYTES])
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < list->count; i++) {
        char row[ROW_BYTES];
        size_t bytes = (size_t)snprintf(row, sizeof row, "%s%s (%s)", i == 0 ? "" : ", ",
                                        list->rows[i].address,
                                        cddpi_refused_text((enum cddpi_refused)list->rows[i].why));

        if (used + bytes < CDDPI_REFUSED_BYTES) {
            memcpy(out + used, row, bytes + 1);
            used += bytes;
        }
    }
}
