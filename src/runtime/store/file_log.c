/* file_log.c - owns reading and writing the header and the entries of a file store, and the locks
 * on its file. The kernel's own wait for a lock has no deadline, so this file tries again and
 * again, with growing pauses. */
#include "store/file_log.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/auth.h"
#include "store/store_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAGIC UINT64_C(0x31656c6966706463) /* "cdpfile1" */

enum {
    FILE_VERSION = 1,
    RUN_BYTES = CDDPI_NONCE_BYTES,
    HEADER_BYTES = 16 + RUN_BYTES + CDDPI_AUTH_BYTES,
    ENTRY_HEAD_BYTES = 24, /* an entry's bytes before its body */
    HASHED_BYTES = 8,      /* the first bytes of the head, which the hash covers */
    HASH_BYTES = 16,
    CHUNK_BYTES = 4096 /* read at once; most entries fit */
};

struct file_log_entry {
    uint8_t kind; /* of struct cddpi_effect */
    size_t key_bytes;
    size_t body_bytes;
    const uint8_t *head;
    const uint8_t *body;
};

/* Read @p bytes bytes, or fewer at the end of the file. */
static cddp_status read_at(int fd, void *to, size_t bytes, uint64_t offset, size_t *out_bytes)
{
    size_t have = 0;

    while (have < bytes) {
        ssize_t got = pread(fd, (uint8_t *)to + have, bytes - have, (off_t)(offset + have));

        if (got == 0) {
            break;
        }
        if (got > 0) {
            have += (size_t)got;
        } else if (errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "read");
        }
    }
    *out_bytes = have;
    return CDDP_OK;
}

static cddp_status write_at(int fd, const void *from, size_t bytes, uint64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t put = pwrite(fd, (const uint8_t *)from + done, bytes - done,
                             (off_t)(offset + done));

        if (put >= 0) {
            done += (size_t)put;
        } else if (errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "write");
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_file_kind(int fd, enum cddpi_file_kind *out)
{
    uint8_t header[HEADER_BYTES];
    size_t bytes = 0;

    CDDPI_TRY(read_at(fd, header, sizeof header, 0, &bytes));
    /* a process was killed while it wrote a shorter header */
    *out = bytes == HEADER_BYTES ? CDDPI_FILE_STORE : CDDPI_FILE_EMPTY;
    if (cddpi_greeting_check(FILE_MAGIC, FILE_VERSION, header, bytes) == CDDPI_GREETING_STRANGE) {
        *out = CDDPI_FILE_FOREIGN;
    }
    return CDDP_OK;
}

static void make_auth(const struct cddpi_file_log *log, const char *what,
                      const uint8_t run[RUN_BYTES], uint8_t out[CDDPI_AUTH_BYTES])
{
    static const uint8_t nobody[CDDPI_NONCE_BYTES];

    cddpi_auth_make(log->key, what, run, nobody, out);
}

cddp_status cddpi_file_begin(struct cddpi_file_log *log)
{
    uint8_t header[HEADER_BYTES];
    uint8_t *run = header + 16;

    cddpi_greeting_put(FILE_MAGIC, FILE_VERSION, header);
    cddpi_put_u32(header + 12, HEADER_BYTES);
    cddpi_random_bytes(run, RUN_BYTES);
    make_auth(log, "file", run, run + RUN_BYTES);
    if (ftruncate(log->fd, 0) != 0 || fchmod(log->fd, S_IRUSR | S_IWUSR) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "begin anew");
    }
    CDDPI_TRY(write_at(log->fd, header, sizeof header, 0));
    make_auth(log, "record", run, log->entry_key);
    log->end = HEADER_BYTES;
    return CDDP_OK;
}

cddp_status cddpi_file_join(struct cddpi_file_log *log)
{
    uint8_t header[HEADER_BYTES];
    const uint8_t *run = header + 16;
    uint8_t auth[CDDPI_AUTH_BYTES];
    size_t bytes = 0;

    CDDPI_TRY(read_at(log->fd, header, sizeof header, 0, &bytes));
    if (bytes < sizeof header || cddpi_get_u32(header + 8) != FILE_VERSION ||
        cddpi_get_u32(header + 12) != HEADER_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "in use, but its header is not that of a store of "
                          "version %d",
                          FILE_VERSION);
    }
    make_auth(log, "file", run, auth);
    if (!cddpi_auth_equal(auth, run + RUN_BYTES, sizeof auth)) {
        return cddpi_fail(CDDP_ERR_AUTH, "the file is in use by a job with another token; is "
                                         "CDDP_TOKEN that of this job?");
    }
    make_auth(log, "record", run, log->entry_key);
    log->end = HEADER_BYTES;
    return CDDP_OK;
}

static void hash_entry(const struct cddpi_file_log *log, uint64_t offset,
                       const struct file_log_entry *entry, uint8_t out[HASH_BYTES])
{
    crypto_generichash_state state;
    uint8_t place[8];

    cddpi_put_u64(place, offset);
    crypto_generichash_init(&state, log->entry_key, sizeof log->entry_key, HASH_BYTES);
    crypto_generichash_update(&state, place, sizeof place);
    crypto_generichash_update(&state, entry->head, HASHED_BYTES);
    crypto_generichash_update(&state, entry->body, entry->body_bytes);
    crypto_generichash_final(&state, out, HASH_BYTES);
}

static bool is_possible(const struct file_log_entry *entry)
{
    return (entry->kind == CDDPI_EFFECT_SET || entry->kind == CDDPI_EFFECT_DELETE) &&
           entry->key_bytes > 0 && entry->key_bytes <= CDDPI_STORE_FULL_KEY_BYTES &&
           entry->key_bytes <= entry->body_bytes &&
           entry->body_bytes - entry->key_bytes <= CDDP_STORE_VALUE_BYTES;
}

static cddp_status damaged(const struct cddpi_file_log *log)
{
    return cddpi_fail(CDDP_ERR_FORMAT, "the file is damaged at byte %llu",
                      (unsigned long long)log->end);
}

static cddp_status apply(const struct file_log_entry *entry, struct cddpi_table *table)
{
    struct cddpi_effect effect = {.kind = entry->kind, .key = {entry->body, entry->key_bytes}};
    bool done = true;

    if (entry->kind == CDDPI_EFFECT_SET) {
        effect.value = cddpi_value_create(entry->body + entry->key_bytes,
                                          entry->body_bytes - entry->key_bytes);
        done = effect.value != NULL;
    }
    done = done && cddpi_table_commit(table, &effect, NULL);
    cddpi_effect_fini(&effect);
    return done ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a record");
}

/* Read the entry at log->end and apply it to @p table. *out_torn becomes true if there is no
 * complete entry, only what a killed writer left. */
static cddp_status follow_one(struct cddpi_file_log *log, struct cddpi_table *table, uint64_t size,
                              bool *out_torn)
{
    uint8_t chunk[CHUNK_BYTES];
    uint8_t hash[HASH_BYTES];
    uint8_t *large = NULL;
    struct file_log_entry entry = {.head = chunk, .body = chunk + ENTRY_HEAD_BYTES};
    uint64_t rest = size - log->end;
    size_t bytes = 0;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(read_at(log->fd, chunk, sizeof chunk, log->end, &bytes));
    bytes = bytes < rest ? bytes : (size_t)rest;
    entry.body_bytes = bytes >= ENTRY_HEAD_BYTES ? cddpi_get_u32(chunk) : 0;
    if (bytes < ENTRY_HEAD_BYTES || entry.body_bytes > rest - ENTRY_HEAD_BYTES) {
        *out_torn = true;
        return CDDP_OK;
    }
    entry.kind = chunk[4];
    entry.key_bytes = cddpi_get_u16(chunk + 6);
    if (!is_possible(&entry)) {
        return damaged(log);
    }
    if (entry.body_bytes > bytes - ENTRY_HEAD_BYTES) {
        large = cddpi_realloc(NULL, entry.body_bytes);
        CDDPI_TRY_MEMORY(large != NULL, "no memory for a record");
        status = read_at(log->fd, large, entry.body_bytes, log->end + ENTRY_HEAD_BYTES, &bytes);
        if (status != CDDP_OK || bytes < entry.body_bytes) {
            status = status != CDDP_OK ? status : damaged(log);
            goto end;
        }
        entry.body = large;
    }
    hash_entry(log, log->end, &entry, hash);
    if (cddpi_auth_equal(hash, entry.head + HASHED_BYTES, sizeof hash)) {
        status = apply(&entry, table);
        if (status == CDDP_OK) {
            log->end += ENTRY_HEAD_BYTES + entry.body_bytes;
        }
    } else if (rest == ENTRY_HEAD_BYTES + entry.body_bytes) {
        *out_torn = true;
    } else {
        status = damaged(log);
    }

end:
    cddpi_free(large);
    return status;
}

cddp_status cddpi_file_follow(struct cddpi_file_log *log, struct cddpi_table *table)
{
    struct stat file;
    bool torn = false;
    cddp_status status = CDDP_OK;

    if (fstat(log->fd, &file) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "fstat");
    }
    if (file.st_nlink == 0) {
        return cddpi_fail(CDDP_ERR_IO, "somebody removed the file");
    }
    if ((uint64_t)file.st_size < log->end) {
        return cddpi_fail(CDDP_ERR_IO, "somebody cut the file off at byte %lld",
                          (long long)file.st_size);
    }
    while (status == CDDP_OK && !torn && log->end < (uint64_t)file.st_size) {
        status = follow_one(log, table, (uint64_t)file.st_size, &torn);
    }
    return status;
}

cddp_status cddpi_file_append(struct cddpi_file_log *log, const struct cddpi_effect *effect,
                              uint64_t *out_end)
{
    size_t value_bytes = effect->value != NULL ? effect->value->bytes : 0;
    size_t bytes = ENTRY_HEAD_BYTES + effect->key.bytes + value_bytes;
    uint8_t *whole = cddpi_zalloc(bytes);
    struct file_log_entry entry = {.kind = (uint8_t)effect->kind, .head = whole};
    cddp_status status;

    CDDPI_TRY_MEMORY(whole != NULL, "no memory for a record of %zu bytes", bytes);
    entry.body_bytes = bytes - ENTRY_HEAD_BYTES;
    entry.body = whole + ENTRY_HEAD_BYTES;
    cddpi_put_u32(whole, (uint32_t)entry.body_bytes);
    whole[4] = entry.kind;
    cddpi_put_u16(whole + 6, (uint16_t)effect->key.bytes);
    memcpy(whole + ENTRY_HEAD_BYTES, effect->key.data, effect->key.bytes);
    if (value_bytes > 0) {
        memcpy(whole + ENTRY_HEAD_BYTES + effect->key.bytes, effect->value->data, value_bytes);
    }
    hash_entry(log, log->end, &entry, whole + HASHED_BYTES);
    if (ftruncate(log->fd, (off_t)log->end) != 0) { /* remove what a killed writer left */
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "cut off at byte %llu",
                                  (unsigned long long)log->end);
    } else {
        status = write_at(log->fd, whole, bytes, log->end);
    }
    if (status == CDDP_OK) {
        *out_end = log->end + bytes;
    } else {
        (void)!ftruncate(log->fd, (off_t)log->end); /* e.g. disk full: leave no torn entry */
    }
    cddpi_free(whole);
    return status;
}

enum { FIRST_PAUSE_US = 20, LONGEST_PAUSE_US = 2000 };

static int change(int fd, enum cddpi_file_lock lock, short type)
{
    struct flock range = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = ((off_t)1 << 62) + lock, .l_len = 1};
    int result;

    do {
        result = fcntl(fd, F_OFD_SETLK, &range);
    } while (result != 0 && errno == EINTR);
    return result;
}

cddp_status cddpi_file_lock_try(int fd, enum cddpi_file_lock lock, bool exclusive, bool *out_locked)
{
    if (change(fd, lock, exclusive ? F_WRLCK : F_RDLCK) == 0) {
        *out_locked = true;
        return CDDP_OK;
    }
    if (errno == EAGAIN || errno == EACCES) {
        *out_locked = false;
        return CDDP_OK;
    }
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "lock (does its file system know locks?)");
}

cddp_status cddpi_file_lock_wait(int fd, enum cddpi_file_lock lock, bool exclusive,
                                 int64_t deadline_ns)
{
    uint32_t pause_us = FIRST_PAUSE_US;

    for (;;) {
        bool locked;
        cddp_status status = cddpi_file_lock_try(fd, lock, exclusive, &locked);

        if (status != CDDP_OK || locked) {
            return status;
        }
        if (cddpi_left_ms(deadline_ns) == 0) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "another process kept the file locked until the "
                                                "deadline");
        }
        cddpi_pause(pause_us, deadline_ns);
        pause_us = pause_us * 2 < LONGEST_PAUSE_US ? pause_us * 2 : LONGEST_PAUSE_US;
    }
}

void cddpi_file_unlock(int fd, enum cddpi_file_lock lock)
{
    (void)change(fd, lock, F_UNLCK);
}
