/* store.h - a store of either kind (server or file) to test, and handles on it. */
#ifndef CDDP_TESTS_SUPPORT_STORE_H
#define CDDP_TESTS_SUPPORT_STORE_H

#include "base/clock.h"
#include "store/server.h"
#include "support/failure.h"
#include "support/test.h"

#include <cddp/store.h>

#define TOKEN "the token of the tests"

/* A server or a file, and the parent's own handle, which keeps the file alive. */
struct place {
    bool is_file;
    struct cddpi_store_server *server;
    char *folder;
    char url[512];
    cddp_store *store;
};

cddp_status open_store(const char *url, const char *token, const char *prefix, uint32_t timeout_ms,
                       cddp_store **out);
cddp_status start_server(uint16_t port, const char *token, struct cddpi_store_server **out);

/* On entry *state is "tcp" or "file"; on return, a struct place. */
int place_set_up(void **state);
int place_tear_down(void **state);

/* Open a handle for a rank. */
cddp_store *open_place(const struct place *place);

/* Check that waiting for @p keys times out with a message that contains @p text. On a stalled
 * machine, the server may be too slow to report what is missing; then it waits again. */
bool waits_in_vain(cddp_store *store, const char *const *keys, size_t count, uint32_t timeout_ms,
                   const char *text);

/* Check that opening a store times out with a message that contains @p text. Repeats with longer
 * timeouts, the last one long enough for any machine. */
bool opens_in_vain(const char *url, const char *text);

/* Check that opening a store fails with @p status and a message that contains @p text. The reason
 * is not final, so opening retries until its deadline; repeats with longer timeouts. */
bool is_refused(const char *url, const char *token, cddp_status status, const char *text);

#define PLACE_TEST(form, test)                                                                     \
    {                                                                                              \
        form ": " #test, test, place_set_up, place_tear_down, (char[])                             \
        {                                                                                          \
            form                                                                                   \
        }                                                                                          \
    }

#endif
