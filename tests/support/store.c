/* store.c - a store of either kind (server or file) to test, and handles on it. */
#include "support/store.h"

cddp_status open_store(const char *url, const char *token, const char *prefix, uint32_t timeout_ms,
                       cddp_store **out)
{
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;

    options.url = url;
    options.token = token;
    options.prefix = prefix;
    options.timeout_ms = timeout_ms;
    return cddp_store_open(&options, out);
}

cddp_status start_server(uint16_t port, const char *token, struct cddpi_store_server **out)
{
    struct cddpi_store_server_options options = {
        .port = port, .token = token, .auth_timeout_ms = 2 * SUPPORT_TIMEOUT_MS};

    return cddpi_store_server_create(&options, out);
}

int place_set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);

    place->is_file = strcmp(*state, "file") == 0;
    if (place->is_file) {
        place->folder = support_mkdtemp();
        snprintf(place->url, sizeof place->url, "file://%s/store", place->folder);
    } else {
        if (start_server(0, TOKEN, &place->server) != CDDP_OK) {
            return -1;
        }
        snprintf(place->url, sizeof place->url, "tcp://127.0.0.1:%u",
                 cddpi_store_server_port(place->server));
    }
    *state = place;
    return open_store(place->url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &place->store) == CDDP_OK
               ? 0
               : -1;
}

int place_tear_down(void **state)
{
    struct place *place = *state;

    cddp_store_close(place->store);
    cddpi_store_server_destroy(place->server);
    if (place->folder != NULL) {
        support_rmdir(place->folder);
    }
    free(place);
    return 0;
}

cddp_store *open_place(const struct place *place)
{
    cddp_store *store = NULL;

    if (open_store(place->url, TOKEN, "job/0/", SUPPORT_TIMEOUT_MS, &store) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
    }
    return store;
}

bool waits_in_vain(cddp_store *store, const char *const *keys, size_t count, uint32_t timeout_ms,
                   const char *text)
{
    for (int tries = 0; tries < 100; tries++) {
        if (cddp_store_wait(store, keys, count, timeout_ms) != CDDP_ERR_TIMEOUT) {
            fprintf(stderr, "the wait ended otherwise: %s\n", cddp_last_error());
            return false;
        }
        if (strstr(cddp_last_error(), "the server did not answer") == NULL) {
            break;
        }
    }
    return last_error_has(text);
}

bool opens_in_vain(const char *url, const char *text)
{
    cddp_store *store = NULL;

    for (uint32_t timeout_ms = 400; timeout_ms < SUPPORT_TIMEOUT_MS; timeout_ms *= 4) {
        if (open_store(url, TOKEN, NULL, timeout_ms, &store) != CDDP_ERR_TIMEOUT) {
            fprintf(stderr, "opening %s ended otherwise: %s\n", url, cddp_last_error());
            return false;
        }
        if (strstr(cddp_last_error(), text) != NULL) {
            return true;
        }
    }
    return last_error_has(text);
}

bool is_refused(const char *url, const char *token, cddp_status status, const char *text)
{
    cddp_store *store = NULL;
    cddp_status got = CDDP_OK;

    for (uint32_t timeout_ms = 200; timeout_ms < SUPPORT_TIMEOUT_MS; timeout_ms *= 4) {
        got = open_store(url, token, "job/0/", timeout_ms, &store);
        if (got == CDDP_OK || (got == status && last_error_has(text))) {
            break;
        }
    }
    if (got == CDDP_OK) {
        cddp_store_close(store);
    }
    if (got != status || !last_error_has(text)) {
        fprintf(stderr, "opening %s ended otherwise: %s\n", url, cddp_last_error());
        return false;
    }
    return true;
}
