/* tfevents.c - writes TensorBoard's event files. A record is a length, its checksum, data and its
 * checksum; the data is a protocol buffer Event, which is encoded here by hand. */
#include "report/tfevents.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct cddpi_tfevents {
    int fd;
    char *path;
};

/* A message that grows. If it does not fit, it is marked and not written. */
struct message {
    uint8_t data[4096];
    size_t used;
    bool overflow;
};

uint32_t cddpi_crc32c(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint32_t crc = ~0u;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
        }
    }
    return ~crc;
}

uint32_t cddpi_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = cddpi_crc32c(data, bytes);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put_bytes(struct message *message, const void *data, size_t bytes)
{
    if (bytes > sizeof message->data - message->used) {
        message->overflow = true;
        return;
    }
    memcpy(message->data + message->used, data, bytes);
    message->used += bytes;
}

static void put_little(struct message *message, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));

        put_bytes(message, &byte, 1);
    }
}

static void put_varint(struct message *message, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        put_bytes(message, &byte, 1);
        value >>= 7;
    } while (value != 0);
}

/* protocol buffers' wire types */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_tag(struct message *message, unsigned field, unsigned wire)
{
    put_varint(message, field << 3 | wire);
}

static void put_field(struct message *message, unsigned field, const void *data, size_t bytes)
{
    put_tag(message, field, BYTES);
    put_varint(message, bytes);
    put_bytes(message, data, bytes);
}

static void put_time(struct message *event)
{
    struct timespec now;
    double seconds;
    uint64_t bits;

    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof bits);
    put_tag(event, 1, FIXED64);
    put_little(event, bits, 8);
}

static cddp_status write_record(struct cddpi_tfevents *events, const struct message *event)
{
    struct message record = {.used = 0};
    size_t done = 0;

    put_little(&record, event->used, 8);
    put_little(&record, cddpi_crc32c_masked(record.data, 8), 4);
    put_bytes(&record, event->data, event->used);
    put_little(&record, cddpi_crc32c_masked(event->data, event->used), 4);
    if (record.overflow || event->overflow) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: an event is larger than 4 KiB", events->path);
    }
    while (done < record.used) {
        ssize_t wrote = write(events->fd, record.data + done, record.used - done);

        if (wrote < 0 && errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", events->path);
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return CDDP_OK;
}

static cddp_status write_head(struct cddpi_tfevents *events, uint64_t first_step)
{
    static const char version[] = "brain.Event:2";
    static const uint8_t start[] = {1 << 3 | VARINT, 1}; /* SessionLog.status = START */
    struct message event = {.used = 0};

    put_time(&event);
    put_field(&event, 3, version, sizeof version - 1);
    CDDPI_TRY(write_record(events, &event));
    if (first_step == 0) {
        return CDDP_OK;
    }
    event.used = 0;
    put_time(&event);
    put_tag(&event, 2, VARINT);
    put_varint(&event, first_step);
    put_field(&event, 7, start, sizeof start);
    return write_record(events, &event);
}

cddp_status cddpi_tfevents_open(const char *dir, uint64_t first_step, struct cddpi_tfevents **out)
{
    struct cddpi_tfevents *events = cddpi_zalloc(sizeof *events);
    char host[256] = "";
    cddp_status status;

    CDDPI_TRY_MEMORY(events != NULL, "tfevents: no memory");
    events->fd = -1;
    (void)gethostname(host, sizeof host - 1);
    events->path = cddpi_format("%s/events.out.tfevents.%lld.%s.%ld", dir, (long long)time(NULL),
                                host[0] != '\0' ? host : "localhost", (long)getpid());
    if (events->path == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "tfevents: no memory");
        goto fail;
    }
    status = cddpi_file_open_regular(events->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666,
                                     &events->fd);
    if (status != CDDP_OK) {
        (void)cddpi_fail_prefix(status, "%s", events->path);
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, write_head(events, first_step));
    *out = events;
    return CDDP_OK;

fail:
    cddpi_tfevents_close(events);
    return status;
}

void cddpi_tfevents_close(struct cddpi_tfevents *events)
{
    if (events == NULL) {
        return;
    }
    cddpi_fd_close(&events->fd);
    cddpi_free(events->path);
    cddpi_free(events);
}

cddp_status cddpi_tfevents_add(struct cddpi_tfevents *events, uint64_t step, const char *prefix,
                               const char *const *names, const double *values, size_t count)
{
    struct message event = {.used = 0};
    struct message summary = {.used = 0};

    for (size_t i = 0; i < count; i++) {
        struct message value = {.used = 0};
        float number = (float)values[i];
        uint32_t bits;
        char tag[128];

        snprintf(tag, sizeof tag, "%s/%s", prefix, names[i]);
        memcpy(&bits, &number, sizeof bits);
        put_field(&value, 1, tag, strlen(tag));
        put_tag(&value, 2, FIXED32);
        put_little(&value, bits, 4);
        put_field(&summary, 1, value.data, value.used);
    }
    put_time(&event);
    put_tag(&event, 2, VARINT);
    put_varint(&event, step);
    put_field(&event, 5, summary.data, summary.used);
    event.overflow = event.overflow || summary.overflow;
    return write_record(events, &event);
}
