/* node_address.c - finds this machine's addresses, and parses and prints lists of addresses. */
#include "launcher/nodes/node_address.h"

#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

cddp_status cddpi_address_next(const char **text, struct cddpi_address *out)
{
    char word[CDDPI_ADDRESS_BYTES];
    size_t bytes = strcspn(*text, ",");

    snprintf(word, sizeof word, "%.*s", (int)(bytes < sizeof word ? bytes : 0), *text);
    if (cddpi_address_parse(word, out) != CDDP_OK) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "\"%.*s\" is not host:port with a port from 1 to 65535 (an IPv6 address "
                          "stands in brackets)",
                          (int)(bytes < 200 ? bytes : 200), *text);
    }
    *text += bytes + ((*text)[bytes] == ',' ? 1 : 0);
    return CDDP_OK;
}

/* A socket can only be bound to an address of this machine. */
static bool can_bind(const struct addrinfo *info)
{
    int fd = socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_own = fd >= 0 && bind(fd, info->ai_addr, info->ai_addrlen) == 0;

    cddpi_fd_close(&fd);
    return is_own;
}

/* Whether @p host is this machine's own name, with or without its domain. @p any_domain also
 * accepts another domain: a pod named "name-0" is known to others as "name-0.service". */
static bool is_own_name(const char *host, bool any_domain)
{
    char own[256] = "";
    size_t label;

    (void)gethostname(own, sizeof own - 1);
    label = strcspn(own, ".");
    return strcmp(host, own) == 0 || (strncmp(host, own, label) == 0 && label > 0 &&
                                      (host[label] == '\0' || (any_domain && host[label] == '.')));
}

enum cddpi_locality cddpi_address_locality(const char *host, bool resolves)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = resolves ? 0 : AI_NUMERICHOST};
    struct addrinfo *infos = NULL;
    enum cddpi_locality locality = is_own_name(host, false) ? CDDPI_LOCAL_LOOPBACK
                                                            : CDDPI_LOCAL_NOT;

    if (strcmp(host, "localhost") == 0) {
        return CDDPI_LOCAL_LOOPBACK;
    }
    if (getaddrinfo(host, NULL, &hints, &infos) != 0) {
        return is_own_name(host, resolves) ? CDDPI_LOCAL_LOOPBACK : CDDPI_LOCAL_UNKNOWN;
    }
    for (const struct addrinfo *info = infos; info != NULL; info = info->ai_next) {
        if (cddpi_address_is_loopback(info->ai_addr)) {
            locality = locality == CDDPI_LOCAL_NOT ? CDDPI_LOCAL_LOOPBACK : locality;
        } else if (can_bind(info)) {
            locality = CDDPI_LOCAL_REACHABLE;
        }
    }
    freeaddrinfo(infos);
    return locality;
}

bool cddpi_address_is_local(const char *host, bool resolves)
{
    return cddpi_address_locality(host, resolves) >= CDDPI_LOCAL_LOOPBACK;
}

/* Append the address to @p out, if it fits. */
static void append_address(const struct sockaddr *address, uint16_t port, char out[CDDPI_URL_BYTES])
{
    socklen_t bytes = address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                    : sizeof(struct sockaddr_in6);
    size_t used = strlen(out);
    char host[NI_MAXHOST];
    int more;

    if (getnameinfo(address, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0 ||
        strchr(host, '%') != NULL) { /* a link-local address, valid on one link only */
        return;
    }
    more = snprintf(out + used, CDDPI_URL_BYTES - used,
                    strchr(host, ':') != NULL ? "%s[%s]:%u" : "%s%s:%u", used == 0 ? "tcp://" : ",",
                    host, port);
    if (more < 0 || (size_t)more >= CDDPI_URL_BYTES - used) {
        out[used] = '\0';
    }
}

void cddpi_address_own(const char *interfaces, uint16_t port, char out[CDDPI_URL_BYTES])
{
    struct sockaddr_in loopback = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct ifaddrs *list = NULL;

    out[0] = '\0';
    interfaces = interfaces != NULL ? interfaces : cddpi_env(CDDPI_ENV_SOCKET_IFNAME);
    if (getifaddrs(&list) == 0) {
        for (const struct ifaddrs *a = list; a != NULL; a = a->ifa_next) {
            if (a->ifa_addr == NULL || (a->ifa_flags & IFF_UP) == 0 ||
                (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6) ||
                cddpi_address_is_loopback(a->ifa_addr) ||
                !cddpi_interface_matches(interfaces, a->ifa_name)) {
                continue;
            }
            append_address(a->ifa_addr, port, out);
        }
        freeifaddrs(list);
    }
    append_address((const struct sockaddr *)(const void *)&loopback, port, out);
}

void cddpi_address_towards(const struct cddpi_address *to, char *out, size_t bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *infos = NULL;
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof own;
    char port[8];
    int fd = -1;

    snprintf(out, bytes, "127.0.0.1");
    snprintf(port, sizeof port, "%u", to->port);
    if (getaddrinfo(to->host, port, &hints, &infos) != 0) {
        return;
    }
    fd = socket(infos->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* connecting a datagram socket sends nothing, but chooses a route */
    if (fd >= 0 && connect(fd, infos->ai_addr, infos->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0) {
        char host[NI_MAXHOST];

        if (getnameinfo((struct sockaddr *)&own, own_bytes, host, sizeof host, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            snprintf(out, bytes, "%.*s", (int)bytes - 1, host);
        }
    }
    cddpi_fd_close(&fd);
    freeaddrinfo(infos);
}
