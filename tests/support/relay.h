/* relay.h - a man in the middle between a client and a server: records all bytes that pass, and can
 * change them. A thread of the test's process. */
#ifndef CDDP_TESTS_SUPPORT_RELAY_H
#define CDDP_TESTS_SUPPORT_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay;

enum relay_way { RELAY_UP, RELAY_DOWN }; /* from the client to the server, and back */

/** Create a relay to @p port of loopback, for one connection after the other. Release with
 *  relay_free(). */
struct relay *relay_create(uint16_t port);
void relay_free(struct relay *relay);
uint16_t relay_port(const struct relay *relay);

/** From now on, change the byte at offset @p at of each connection. */
void relay_change(struct relay *relay, enum relay_way way, size_t at);
/** Insert @p bytes between what has passed and what comes next. */
void relay_inject(struct relay *relay, enum relay_way way, const void *data, size_t bytes);
/** How many bytes have passed since relay_create(). */
size_t relay_passed(struct relay *relay, enum relay_way way);
/** Whether @p data was among the bytes that passed. */
bool relay_saw(struct relay *relay, const void *data, size_t bytes);
/** Copy at most @p bytes of what has passed, from byte @p at on. Returns how many were copied. */
size_t relay_copy(struct relay *relay, enum relay_way way, size_t at, void *out, size_t bytes);

#endif
