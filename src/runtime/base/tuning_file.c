/* tuning_file.c - reads, checks, merges and replaces a file of choices. */
#include "base/tuning_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    HASH_DIGITS = 16,
    LINE_BYTES = 2 * (CDDPI_TUNING_KEY_BYTES + CDDPI_TUNING_VALUE_BYTES) + HASH_DIGITS + 4,
    FILE_BYTES = CDDPI_TUNING_ENTRIES * LINE_BYTES, /* of a file that is read, at most */
    LOCK_TRIES = 1000,                              /* of 5 ms */
    LOCK_NS = 5000000
};

static const char first_line[] = "cddp choices 1";

/* --- entries --- */

struct tuning_entry *cddpi_tuning_entry(const struct tuning_table *table, const void *key,
                                        size_t key_bytes)
{
    for (size_t i = 0; i < table->count; i++) {
        struct tuning_entry *entry = &table->entries[i];

        if (entry->key_bytes == key_bytes && memcmp(entry->key, key, key_bytes) == 0) {
            return entry;
        }
    }
    return NULL;
}

struct tuning_entry *cddpi_tuning_add(struct tuning_table *table, const void *key, size_t key_bytes)
{
    struct tuning_entry *entry = cddpi_tuning_entry(table, key, key_bytes);
    struct tuning_entry *grown;

    if (entry != NULL) {
        return entry;
    }
    if (table->count == CDDPI_TUNING_ENTRIES) {
        memmove(table->entries, table->entries + 1, --table->count * sizeof *entry);
    }
    grown = cddpi_grow(table->entries, &table->room, table->count + 1, sizeof *entry);
    if (grown == NULL) {
        return NULL;
    }
    table->entries = grown;
    entry = &table->entries[table->count++];
    *entry = (struct tuning_entry){.key_bytes = (uint16_t)key_bytes};
    memcpy(entry->key, key, key_bytes);
    return entry;
}

/* Distinguishes entries that were damaged, or copied from another device's file. */
static uint64_t hash_of(const char *identity, const struct tuning_entry *entry)
{
    uint64_t hash = cddpi_hash_add(cddpi_hash_text(cddpi_hash_start, identity), entry->key_bytes);

    for (size_t i = 0; i < entry->key_bytes; i++) {
        hash = cddpi_hash_add(hash, entry->key[i]);
    }
    for (size_t i = 0; i < entry->value_bytes; i++) {
        hash = cddpi_hash_add(hash, entry->value[i]);
    }
    return hash;
}

/* --- lines --- */

static void put_hex(char **at, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count; i++) {
        *(*at)++ = digits[bytes[i] >> 4];
        *(*at)++ = digits[bytes[i] & 15];
    }
    *(*at)++ = ' ';
}

static int digit_of(char letter)
{
    return letter >= '0' && letter <= '9'   ? letter - '0'
           : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                            : -1;
}

/* Read a word of hexadecimal digits of 1 to @p room bytes, and what ends it. Gives 0 if it is
 * something else. */
static size_t take_hex(const char **at, const char *end, char last, unsigned char *out, size_t room)
{
    size_t count = 0;

    while (end - *at >= 2 && digit_of((*at)[0]) >= 0 && digit_of((*at)[1]) >= 0 && count < room) {
        out[count++] = (unsigned char)(digit_of((*at)[0]) << 4 | digit_of((*at)[1]));
        *at += 2;
    }
    if (*at == end || **at != last) {
        return 0;
    }
    (*at)++;
    return count;
}

/* @p end: behind the line's newline. */
static bool parse_line(const char *line, const char *end, const char *identity,
                       struct tuning_entry *out)
{
    unsigned char hash[HASH_DIGITS / 2];
    uint64_t given = 0;

    *out = (struct tuning_entry){0};
    out->key_bytes = (uint16_t)take_hex(&line, end, ' ', out->key, sizeof out->key);
    out->value_bytes = (uint16_t)take_hex(&line, end, ' ', out->value, sizeof out->value);
    if (out->key_bytes == 0 || out->value_bytes == 0 ||
        take_hex(&line, end, '\n', hash, sizeof hash) != sizeof hash || line != end) {
        return false;
    }
    for (size_t i = 0; i < sizeof hash; i++) {
        given = given << 8 | hash[i];
    }
    return given == hash_of(identity, out);
}

/* --- reading --- */

static void log_unused(const struct tuning_place *place, const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&said)) {
        cddpi_log(CDDPI_LOG_INFO, "%s/%s: %s: what it should hold is measured again", place->folder,
                  place->name, why);
    }
}

/* The file's contents, ended by a zero; NULL: there is none, or none to trust. */
static char *load(const struct tuning_place *place)
{
    int fd = cddpi_file_open_read_at(place->dir, place->name);
    struct stat info;
    char *text = NULL;
    size_t bytes = 0;

    if (fd < 0) {
        if (errno != ENOENT) {
            log_unused(place, errno == ELOOP ? "it is a symbolic link" : strerror(errno));
        }
        return NULL;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        log_unused(place, "it is not a regular file");
    } else if (info.st_uid != geteuid()) {
        log_unused(place, "it is another user's");
    } else if (cddpi_others_write(&info)) {
        log_unused(place, "others can write it");
    } else if (info.st_size > FILE_BYTES) {
        log_unused(place, "it is too large");
    } else {
        text = cddpi_zalloc((size_t)info.st_size + 1);
    }
    while (text != NULL && bytes < (size_t)info.st_size) {
        ssize_t got = read(fd, text + bytes, (size_t)info.st_size - bytes);

        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            break;
        }
        bytes += got > 0 ? (size_t)got : 0;
    }
    cddpi_fd_close(&fd);
    return text;
}

/* Skip the line @p wanted. Returns NULL if there is another. */
static const char *skip_line(const char *at, const char *wanted)
{
    size_t length = strlen(wanted);

    return at != NULL && strncmp(at, wanted, length) == 0 && at[length] == '\n' ? at + length + 1
                                                                                : NULL;
}

/* Of two values for a key, the file's is kept, unless it was rejected here. New keys of this
 * process drive out its oldest ones, which the file may still have: those are not taken again. */
static void take_entry(struct tuning_table *table, const struct tuning_entry *read)
{
    struct tuning_entry *entry = cddpi_tuning_entry(table, read->key, read->key_bytes);

    if (entry == NULL && table->count < CDDPI_TUNING_ENTRIES) {
        entry = cddpi_tuning_add(table, read->key, read->key_bytes);
    }
    if (entry == NULL) {
        return;
    }
    if (entry->rejected && entry->value_bytes == read->value_bytes &&
        memcmp(entry->value, read->value, read->value_bytes) == 0) {
        entry->fresh = true; /* the file is to lose it */
    } else {
        *entry = *read;
    }
}

void cddpi_tuning_read(const struct tuning_place *place, struct tuning_table *table)
{
    char *text = load(place);
    const char *at = skip_line(skip_line(text, first_line), place->identity);
    bool whole = at != NULL;

    for (const char *end; at != NULL && *at != '\0'; at = end) {
        size_t length = strcspn(at, "\n");
        struct tuning_entry entry;

        end = at + length + (at[length] == '\n');
        if (parse_line(at, end, place->identity, &entry)) {
            take_entry(table, &entry);
        } else {
            whole = false;
        }
    }
    if (text != NULL && !whole) {
        log_unused(place, "it is damaged");
    }
    cddpi_free(text);
}

/* --- writing --- */

struct tuning_page {
    const struct tuning_place *place;
    const struct tuning_table *table;
};

static cddp_status put_page(void *context, struct cddpi_writer *writer)
{
    const struct tuning_page *page = context;

    if (fchmod(writer->fd, 0600) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "set the mode of %s", writer->shown);
    }
    CDDPI_TRY(cddpi_writer_put_line(writer, first_line));
    CDDPI_TRY(cddpi_writer_put_line(writer, page->place->identity));
    for (size_t i = 0; i < page->table->count; i++) {
        const struct tuning_entry *entry = &page->table->entries[i];
        char line[LINE_BYTES];
        char *at = line;

        if (!entry->rejected) {
            put_hex(&at, entry->key, entry->key_bytes);
            put_hex(&at, entry->value, entry->value_bytes);
            snprintf(at, HASH_DIGITS + 1, "%016llx",
                     (unsigned long long)hash_of(page->place->identity, entry));
            CDDPI_TRY(cddpi_writer_put_line(writer, line));
        }
    }
    return CDDP_OK;
}

/* Keep other processes from writing, so that none overwrites what another adds. A file system
 * without locks, or a process that was stopped meanwhile, must not hold up training: then the file
 * may lack a choice, but is whole. Closing what this returns unlocks. */
static int lock_folder(int dir, bool *impatient)
{
    const struct timespec pause = {0, LOCK_NS};
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

    for (int i = 0; fd >= 0 && !locked && !*impatient && i < LOCK_TRIES; i++) {
        nanosleep(&pause, NULL);
        locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    }
    *impatient = !locked;
    return fd;
}

static cddp_status replace_file(const struct tuning_place *place, struct tuning_table *table)
{
    struct tuning_page page = {place, table};
    char *path = cddpi_format("%s/%s", place->folder, place->name);
    cddp_status status = path != NULL
                             ? cddpi_file_replace_quickly_at(place->dir, path, put_page, &page)
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory");

    cddpi_free(path);
    return status;
}

bool cddpi_tuning_write(const struct tuning_place *place, struct tuning_table *table)
{
    int lock = lock_folder(place->dir, &table->impatient);
    cddp_status status = CDDP_OK;
    bool fresh = false;

    cddpi_tuning_read(place, table);
    for (size_t i = 0; i < table->count; i++) {
        fresh = fresh || table->entries[i].fresh;
    }
    if (fresh) {
        status = replace_file(place, table);
    }
    cddpi_fd_close(&lock);
    for (size_t i = 0; i < table->count && status == CDDP_OK; i++) {
        table->entries[i].fresh = false;
    }
    if (status != CDDP_OK) {
        cddpi_log(CDDPI_LOG_INFO, "%s: choices that are measured are not kept", cddp_last_error());
    }
    return status == CDDP_OK;
}
