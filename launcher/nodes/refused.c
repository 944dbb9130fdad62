/* refused.c - owns the key JOB/0/refused: whom the job's store has refused, as a text. */
#include "launcher/nodes/refused.h"

#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 64, ROW_BYTES = 192 };

static void make_key(const char *job, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s/0/refused", job);
}

/* Append @p row to the list, unless it is in it or there is no room. */
static bool add(char list[CDDPI_REFUSED_BYTES], const char *row)
{
    size_t used = strlen(list);

    for (const char *at = strstr(list, row); at != NULL; at = strstr(at + 1, row)) {
        if (at == list || at[-1] == ' ') {
            return false; /* it tries again */
        }
    }
    if (used + strlen(row) + 3 > CDDPI_REFUSED_BYTES) {
        return false;
    }
    snprintf(list + used, CDDPI_REFUSED_BYTES - used, "%s%s", used > 0 ? ", " : "", row);
    return true;
}

void cddpi_refused_publish(const struct cddpi_job_rendezvous *rendezvous,
                           char known[CDDPI_REFUSED_BYTES])
{
    struct cddpi_store_refusal rows[CDDPI_STORE_REFUSALS];
    char key[KEY_BYTES];
    bool is_news = false;
    int count = rendezvous->server != NULL ? cddpi_store_server_refusals(rendezvous->server, rows)
                                           : 0;

    for (int i = count - 1; i >= 0; i--) { /* the newest is the first */
        char row[ROW_BYTES];

        snprintf(row, sizeof row, "%s (%s)", rows[i].address, cddpi_refused_text(rows[i].why));
        is_news = add(known, row) || is_news;
    }
    make_key(rendezvous->job, key);
    if (is_news &&
        cddpi_store_server_set(rendezvous->server, key, known, strlen(known)) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "telling the nodes who was refused: %s", cddp_last_error());
    }
}

bool cddpi_refused_read(cddp_store *store, const char *job, char known[CDDPI_REFUSED_BYTES])
{
    char key[KEY_BYTES];
    void *text = NULL;
    bool is_news;

    make_key(job, key);
    if (cddp_store_try_get(store, key, &text, NULL) != CDDP_OK) {
        return false;
    }
    is_news = strncmp(known, text, CDDPI_REFUSED_BYTES - 1) != 0;
    snprintf(known, CDDPI_REFUSED_BYTES, "%s", (const char *)text);
    cddp_free(text);
    return is_news;
}
