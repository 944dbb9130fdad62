/* store_tcp.h - clients that talk to a TCP store byte by byte, and servers in their own
 * processes. */
#ifndef CDDP_TESTS_SUPPORT_STORE_TCP_H
#define CDDP_TESTS_SUPPORT_STORE_TCP_H

#include "store/store_stream.h"
#include "store/store_wire.h"
#include "support/store.h"

#include <sys/prctl.h>
#include <sys/resource.h>

/* A client that has proved that it knows the token. */
struct cddpi_store_stream friend(const struct place *place);
void friend_leaves(struct cddpi_store_stream *stream);
void works(const struct place *place);
void say(int fd, const void *bytes, size_t count);
/* As say(), but encrypted. */
void say_secretly(struct cddpi_store_stream *stream, const void *bytes, size_t count);
/* Receive @p count bytes; fails the test if they do not arrive. */
void hear(struct cddpi_store_stream *stream, void *bytes, size_t count);

/* Fork a server, which reports its port through a pipe. */
pid_t fork_server(int descriptors, uint16_t *out_port);

#define WITH_SERVER(test) PLACE_TEST("tcp", test)

#endif
