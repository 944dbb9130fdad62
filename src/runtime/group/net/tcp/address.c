/* address.c - see address.h. A host may have many addresses, some of which are useless (a container
 * bridge has the same address on every host). So all are offered, and the proof of the token shows
 * which host answers. */
#include "group/net/tcp/address.h"

#include "base/env.h"
#include "base/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t bits_of(const uint8_t *mask, size_t bytes)
{
    uint8_t bits = 0;

    for (size_t i = 0; i < bytes; i++) {
        for (unsigned m = mask[i]; (m & 0x80) != 0; m = (m << 1) & 0xff) {
            bits++;
        }
    }
    return bits;
}

/* Mbit/s as reported by the kernel; virtual interfaces may report a wrong value or none. */
static uint32_t speed_of(const char *interface)
{
    char path[64];
    FILE *file;
    int speed = 0;

    snprintf(path, sizeof path, "/sys/class/net/%.15s/speed", interface);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%d", &speed) != 1 || speed < 0) {
        speed = 0;
    }
    fclose(file);
    return (uint32_t)speed;
}

static bool get_address(const struct ifaddrs *entry, struct tcp_address *out)
{
    memset(out, 0, sizeof *out);
    if (entry->ifa_addr == NULL || entry->ifa_netmask == NULL || (entry->ifa_flags & IFF_UP) == 0) {
        return false;
    }
    if (entry->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)entry->ifa_addr;
        const struct sockaddr_in *mask = (const void *)entry->ifa_netmask;

        out->family = 4;
        memcpy(out->bytes, &in->sin_addr, 4);
        out->prefix_bits = bits_of((const void *)&mask->sin_addr, 4);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)entry->ifa_addr;
        const struct sockaddr_in6 *mask = (const void *)entry->ifa_netmask;

        if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr)) {
            return false; /* meaningless without the name of the peer's own interface */
        }
        out->family = 6;
        memcpy(out->bytes, &in->sin6_addr, 16);
        out->prefix_bits = bits_of((const void *)&mask->sin6_addr, 16);
    } else {
        return false;
    }
    out->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    snprintf(out->interface, sizeof out->interface, "%.15s", entry->ifa_name);
    return true;
}

static void append_name(char *names, size_t bytes, const char *name)
{
    size_t length = strlen(names);

    if (strstr(names, name) == NULL) {
        snprintf(names + length, bytes - length, "%s%s", length > 0 ? ", " : "", name);
    }
}

static cddp_status get_addresses(struct tcp_offer *out)
{
    const char *pattern = cddpi_env(CDDPI_ENV_SOCKET_IFNAME);
    struct ifaddrs *all = NULL;
    char names[256] = "";

    if (getifaddrs(&all) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "tcp: ask for this host's addresses");
    }
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        struct tcp_address address;

        if (!get_address(entry, &address)) {
            continue;
        }
        append_name(names, sizeof names, address.interface);
        if (out->count < TCP_MAX_ADDRESSES && cddpi_interface_matches(pattern, address.interface)) {
            address.speed = speed_of(address.interface);
            out->addresses[out->count++] = address;
        }
    }
    freeifaddrs(all);
    if (out->count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "tcp: host %s: CDDP_SOCKET_IFNAME=%s leaves no interface that is up; "
                          "there are: %s",
                          out->host, pattern != NULL ? pattern : "", names);
    }
    return CDDP_OK;
}

cddp_status cddpi_tcp_offer_make(struct tcp_offer *out)
{
    char machine[CDDPI_MACHINE_BYTES];
    struct stat namespace = {0};

    if (gethostname(out->host, sizeof out->host - 1) != 0) {
        snprintf(out->host, sizeof out->host, "unnamed");
    }
    cddpi_machine(machine);
    (void)stat("/proc/self/ns/net", &namespace);
    snprintf(out->network, sizeof out->network, "%s %llx", machine,
             (unsigned long long)namespace.st_ino);
    return get_addresses(out);
}

bool cddpi_tcp_offer_is_valid(const struct tcp_offer *offer)
{
    if (offer->count > TCP_MAX_ADDRESSES || memchr(offer->host, '\0', sizeof offer->host) == NULL ||
        memchr(offer->network, '\0', sizeof offer->network) == NULL) {
        return false;
    }
    for (int i = 0; i < offer->count; i++) {
        const struct tcp_address *address = &offer->addresses[i];

        if ((address->family != 4 && address->family != 6) ||
            address->prefix_bits > (address->family == 4 ? 32 : 128) ||
            memchr(address->interface, '\0', sizeof address->interface) == NULL) {
            return false;
        }
    }
    return true;
}

static bool is_same(const struct tcp_address *a, const struct tcp_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, a->family == 4 ? 4 : 16) == 0;
}

static bool is_in_network(const struct tcp_address *a, const struct tcp_address *network)
{
    unsigned whole = network->prefix_bits / 8;
    unsigned rest = network->prefix_bits % 8;
    uint8_t mask = (uint8_t)(0xff00u >> rest);

    return a->family == network->family && memcmp(a->bytes, network->bytes, whole) == 0 &&
           (rest == 0 || ((a->bytes[whole] ^ network->bytes[whole]) & mask) == 0);
}

/* Rate an address of the peer; a higher value is better; negative: do not try the address. */
static int64_t rate(const struct tcp_offer *own, const struct tcp_address *address, bool shared)
{
    int64_t value = address->speed;

    if (address->is_loopback) {
        return shared ? 0 : -1;
    }
    for (int i = 0; i < own->count; i++) {
        if (!shared && is_same(&own->addresses[i], address)) {
            return -1; /* it would lead back to this host */
        }
        if (is_in_network(address, &own->addresses[i])) {
            value |= INT64_C(1) << 40;
        }
    }
    return value + 1;
}

int cddpi_tcp_offer_order(const struct tcp_offer *own, const struct tcp_offer *peer,
                          int out_order[TCP_MAX_ADDRESSES])
{
    bool shared = strcmp(own->network, peer->network) == 0;
    int64_t values[TCP_MAX_ADDRESSES];
    int count = 0;

    for (int i = 0; i < peer->count; i++) {
        int64_t value = rate(own, &peer->addresses[i], shared);
        int at = count;

        if (value < 0) {
            continue;
        }
        for (; at > 0 && values[at - 1] < value; at--) {
            values[at] = values[at - 1];
            out_order[at] = out_order[at - 1];
        }
        values[at] = value;
        out_order[at] = i;
        count++;
    }
    return count;
}

bool cddpi_tcp_offer_is_near(const struct tcp_offer *peer, const struct tcp_address *own)
{
    bool near = false;

    for (int i = 0; i < peer->count; i++) {
        const struct tcp_address *address = &peer->addresses[i];

        if (is_same(address, own)) {
            return false; /* a bridge that every host has */
        }
        near = near || (!address->is_loopback && is_in_network(address, own));
    }
    return near && !own->is_loopback;
}

const struct tcp_address *cddpi_tcp_offer_find(const struct tcp_offer *own,
                                               const struct sockaddr_storage *local)
{
    struct tcp_address address = {.family = 4};

    if (local->ss_family == AF_INET) {
        memcpy(address.bytes, &((const struct sockaddr_in *)(const void *)local)->sin_addr, 4);
    } else if (local->ss_family == AF_INET6) {
        const struct in6_addr *in = &((const struct sockaddr_in6 *)(const void *)local)->sin6_addr;

        if (IN6_IS_ADDR_V4MAPPED(in)) {
            memcpy(address.bytes, (const uint8_t *)in + 12, 4);
        } else {
            address.family = 6;
            memcpy(address.bytes, in, 16);
        }
    }
    for (int i = 0; i < own->count; i++) {
        if (is_same(&own->addresses[i], &address)) {
            return &own->addresses[i];
        }
    }
    return NULL;
}

socklen_t cddpi_tcp_sockaddr(const struct tcp_address *address, uint16_t port,
                             struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        struct sockaddr_in *in = (void *)out;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address->bytes, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (void *)out;

    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    memcpy(&in->sin6_addr, address->bytes, 16);
    return sizeof *in;
}

void cddpi_tcp_address_text(const struct sockaddr_storage *address,
                            char out[TCP_ADDRESS_TEXT_BYTES])
{
    char text[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;

        (void)inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(out, TCP_ADDRESS_TEXT_BYTES, "%s port %u", text, ntohs(in->sin_port));
    } else {
        const struct sockaddr_in6 *in = (const void *)address;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr);

        (void)inet_ntop(mapped ? AF_INET : AF_INET6,
                        (const uint8_t *)&in->sin6_addr + (mapped ? 12 : 0), text, sizeof text);
        snprintf(out, TCP_ADDRESS_TEXT_BYTES, mapped ? "%s port %u" : "[%s] port %u", text,
                 ntohs(in->sin6_port));
    }
}
