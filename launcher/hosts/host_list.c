/* host_list.c - parses --hosts and host files, in the syntax of Open MPI and Horovod. */
#include "launcher/hosts/host_list.h"

#include "launcher/run_options.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES = 1 << 20, WORD_BYTES = CDDPI_HOST_BYTES + 32 };

/* A part of a string, without a NUL. */
struct host_list_span {
    const char *at;
    size_t bytes;
};

void cddpi_hosts_fini(struct cddpi_hosts *hosts)
{
    cddpi_free(hosts->hosts);
    *hosts = (struct cddpi_hosts){NULL, 0, 0};
}

static cddp_status grow_hosts(struct cddpi_hosts *hosts)
{
    int capacity = hosts->capacity > 0 ? 2 * hosts->capacity : 16;
    struct cddpi_host *grown = cddpi_realloc(hosts->hosts, (size_t)capacity * sizeof *grown);

    CDDPI_TRY_MEMORY(grown != NULL, "no memory for %d hosts", capacity);
    hosts->hosts = grown;
    hosts->capacity = capacity;
    return CDDP_OK;
}

static cddp_status check_host(const struct cddpi_host *host)
{
    if (host->slots > CDDPI_MAX_RANKS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s has %d ranks in all, more than %d", host->name,
                          host->slots, CDDPI_MAX_RANKS);
    }
    if (host->max_slots > 0 && host->slots > host->max_slots) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s has %d slots in all, more than its max_slots=%d",
                          host->name, host->slots, host->max_slots);
    }
    return CDDP_OK;
}

/* Add @p host, or add its ranks to those of the same host. Batch systems list a host once for each
 * of its slots, so of a host that is named again, each mention without a number is one rank. */
static cddp_status add_host(struct cddpi_hosts *hosts, const struct cddpi_host *host)
{
    struct cddpi_host *known = NULL;

    for (int i = 0; i < hosts->count && known == NULL; i++) {
        known = strcmp(hosts->hosts[i].name, host->name) == 0 ? &hosts->hosts[i] : NULL;
    }
    if (known != NULL) {
        known->slots = (known->slots > 0 ? known->slots : 1) + (host->slots > 0 ? host->slots : 1);
        known->max_slots = host->max_slots > 0 ? host->max_slots : known->max_slots;
        return check_host(known);
    }
    if (hosts->count == CDDPI_MAX_NODES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "more than %d hosts", CDDPI_MAX_NODES);
    }
    if (hosts->count == hosts->capacity) {
        CDDPI_TRY(grow_hosts(hosts));
    }
    hosts->hosts[hosts->count++] = *host;
    return check_host(host);
}

/* Whether @p text is a host name that is safe in ssh's command line: it must not be an option or
 * more than one word. */
static bool is_name(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                ".-_@:%";

    return text[0] != '\0' && text[0] != '-' && strspn(text, plain) == strlen(text);
}

/* Parse "name", "name:4" or "[address]:4". An address with several colons and no brackets has no
 * number. */
static cddp_status parse_word(struct host_list_span word, struct cddpi_host *out)
{
    char text[WORD_BYTES];
    char *name = text;
    char *number = NULL;
    char *colon;
    int64_t slots = 0;

    if (word.bytes >= sizeof text) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "a host of %zu characters, more than %d", word.bytes,
                          CDDPI_HOST_BYTES - 1);
    }
    memcpy(text, word.at, word.bytes);
    text[word.bytes] = '\0';
    colon = strrchr(text, ':');
    if (text[0] == '[' && strchr(text, ']') != NULL) {
        char *end = strchr(text, ']');

        name++;
        number = end[1] == ':' ? end + 2 : end[1] == '\0' ? NULL : text; /* text: not a number */
        *end = '\0';
    } else if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) == NULL) {
        *colon = '\0';
        number = colon + 1;
    }
    if (!is_name(name) || strlen(name) >= sizeof out->name ||
        (number != NULL && !cddpi_parse_integer(number, 1, CDDPI_MAX_RANKS, &slots))) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "\"%.*s\" is neither a host nor host:N with N from 1 to %d",
                          (int)(word.bytes < 200 ? word.bytes : 200), word.at, CDDPI_MAX_RANKS);
    }
    *out = (struct cddpi_host){.slots = (int)slots};
    memcpy(out->name, name, strlen(name) + 1);
    return CDDP_OK;
}

cddp_status cddpi_hosts_parse_list(const char *text, struct cddpi_hosts *out)
{
    struct cddpi_hosts hosts = {NULL, 0, 0};
    cddp_status status;

    for (;;) {
        struct host_list_span word = {text, strcspn(text, ",")};
        struct cddpi_host host;

        CDDPI_TRY_GOTO(fail, status, parse_word(word, &host));
        CDDPI_TRY_GOTO(fail, status, add_host(&hosts, &host));
        if (text[word.bytes] == '\0') {
            break;
        }
        text += word.bytes + 1;
    }
    *out = hosts;
    return CDDP_OK;

fail:
    cddpi_hosts_fini(&hosts);
    return status;
}

/* Take the next word of @p line, which advances. At the end of the line, the word is empty. */
static struct host_list_span next_word(struct host_list_span *line)
{
    struct host_list_span word;

    while (line->bytes > 0 && strchr(" \t\r", *line->at) != NULL) {
        line->at++;
        line->bytes--;
    }
    word = (struct host_list_span){line->at, 0};
    while (word.bytes < line->bytes && strchr(" \t\r", word.at[word.bytes]) == NULL) {
        word.bytes++;
    }
    line->at += word.bytes;
    line->bytes -= word.bytes;
    return word;
}

/* Parse "slots=4", "max_slots=8" or "max-slots=8". */
static cddp_status parse_key(struct host_list_span word, struct cddpi_host *host)
{
    static const char *const keys[] = {"slots", "max_slots", "max-slots"};
    char text[WORD_BYTES] = "";
    int64_t number;
    char *value;

    if (word.bytes < sizeof text) {
        memcpy(text, word.at, word.bytes);
    }
    value = strchr(text, '=');
    if (value != NULL) {
        *value++ = '\0';
    }
    for (int i = 0; i < 3; i++) {
        int *to = i == 0 ? &host->slots : &host->max_slots;

        if (strcmp(text, keys[i]) != 0) {
            continue;
        }
        if (value == NULL || !cddpi_parse_integer(value, 1, CDDPI_MAX_RANKS, &number)) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s needs a number from 1 to %d: %s=4", keys[i],
                              CDDPI_MAX_RANKS, keys[i]);
        }
        if (*to != 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "the number of %s of %s is said twice", keys[i],
                              host->name);
        }
        *to = (int)number;
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "\"%.*s\" is not known: a line is host, host:N, or host slots=N max_slots=N",
                      (int)(word.bytes < 200 ? word.bytes : 200), word.at);
}

static cddp_status parse_line(struct host_list_span line, struct cddpi_hosts *hosts)
{
    const char *comment = memchr(line.at, '#', line.bytes);
    struct cddpi_host host;
    struct host_list_span word;

    if (memchr(line.at, '\0', line.bytes) != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "a NUL byte: this is not text");
    }
    line.bytes = comment != NULL ? (size_t)(comment - line.at) : line.bytes;
    word = next_word(&line);
    if (word.bytes == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(parse_word(word, &host));
    for (word = next_word(&line); word.bytes > 0; word = next_word(&line)) {
        CDDPI_TRY(parse_key(word, &host));
    }
    return add_host(hosts, &host);
}

cddp_status cddpi_hosts_parse_text(const char *text, size_t bytes, const char *shown,
                                   struct cddpi_hosts *out)
{
    struct cddpi_hosts hosts = {NULL, 0, 0};
    size_t mark = cddpi_utf8_mark(text, bytes);
    struct host_list_span rest = {text + mark, bytes - mark};

    for (int number = 1; rest.bytes > 0; number++) {
        const char *newline = memchr(rest.at, '\n', rest.bytes);
        struct host_list_span line = {rest.at,
                                      newline != NULL ? (size_t)(newline - rest.at) : rest.bytes};
        size_t used = line.bytes + (newline != NULL ? 1 : 0);
        cddp_status status = parse_line(line, &hosts);

        if (status != CDDP_OK) {
            cddpi_hosts_fini(&hosts);
            return cddpi_fail_prefix(status, "%s:%d", shown, number);
        }
        rest.at += used;
        rest.bytes -= used;
    }
    if (hosts.count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s names no host", shown);
    }
    *out = hosts;
    return CDDP_OK;
}

cddp_status cddpi_hosts_read(const char *path, struct cddpi_hosts *out)
{
    FILE *file = fopen(path, "re");
    char *text = cddpi_zalloc(FILE_BYTES + 1);
    size_t bytes = file != NULL && text != NULL ? fread(text, 1, FILE_BYTES + 1, file) : 0;
    cddp_status status;

    if (file == NULL || ferror(file)) {
        status = cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    } else if (text == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", path);
    } else if (bytes > FILE_BYTES) {
        status = cddpi_fail(CDDP_ERR_CONFIG, "%s: more than %d bytes: is this a list of hosts?",
                            path, FILE_BYTES);
    } else {
        status = cddpi_hosts_parse_text(text, bytes, path, out);
    }
    cddpi_stream_close(file);
    cddpi_free(text);
    return status;
}
