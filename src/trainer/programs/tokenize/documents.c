/* documents.c - reads files one after the other and finds where their documents end. */
#include "programs/tokenize/documents.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM_MIN = 1 << 20, LOOK_MS = 100 };

struct cddpi_documents {
    struct cddpi_documents_options options;
    size_t separator_bytes;
    uint64_t total; /* of all files; 0: unknown */
    uint64_t cut;   /* offset in all bytes: validation begins with the next line */
    bool is_val;
    int next_path;
    int fd; /* -1: no file is open */
    bool at_file_begin;
    bool at_file_end;
    char *buffer;
    size_t room;
    size_t start, end; /* the part of the buffer that is not used yet */
    uint64_t base;     /* offset of the buffer in all bytes */
    size_t scanned;    /* no document ends between start and here */
    bool in_line;      /* scanned is inside a line that is not a separator */
    bool has_text;     /* earlier pieces of this document were used */
    bool is_over;      /* the document ends at scanned */
    bool is_cut;       /* there the part for validation begins, in the middle of a document */
    bool goes_on;      /* this document is the rest of such a one */
    size_t skip;       /* bytes between this document and the next */
};

static const char *path_of(const struct cddpi_documents *documents, int index)
{
    const char *path = documents->options.paths[index];

    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Add up the sizes, and refuse files that cannot be read before any work is done. */
static cddp_status measure_files(struct cddpi_documents *documents)
{
    uint64_t total = 0;

    for (int i = 0; i < documents->options.path_count; i++) {
        const char *path = documents->options.paths[i];
        bool is_input = strcmp(path, "-") == 0;
        struct stat info;

        if (is_input ? fstat(STDIN_FILENO, &info) != 0 : stat(path, &info) != 0) {
            return cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno, "%s",
                                    path_of(documents, i));
        }
        if (S_ISDIR(info.st_mode)) {
            return cddpi_fail(CDDP_ERR_IO, "%s: it is a folder; name the files in it",
                              path_of(documents, i));
        }
        if (!is_input && access(path, R_OK) != 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", path);
        }
        if (is_input || !S_ISREG(info.st_mode)) {
            if (documents->options.val_fraction > 0) {
                return cddpi_fail(CDDP_ERR_ARGUMENT,
                                  "%s: its length is not known before its end, so that no part of "
                                  "it can be kept for validation: give --val-fraction 0",
                                  path_of(documents, i));
            }
            return CDDP_OK; /* so the total is unknown */
        }
        total += (uint64_t)info.st_size;
    }
    documents->total = total;
    documents->cut = total - (uint64_t)((double)total * documents->options.val_fraction);
    return CDDP_OK;
}

cddp_status cddpi_documents_open(const struct cddpi_documents_options *options,
                                 struct cddpi_documents **out)
{
    struct cddpi_documents *documents = cddpi_zalloc(sizeof *documents);
    cddp_status status;

    CDDPI_TRY_MEMORY(documents != NULL, "no memory for %zu bytes", sizeof *documents);
    documents->fd = -1;
    documents->options = *options;
    documents->separator_bytes = options->separator != NULL ? strlen(options->separator) : 0;
    documents->room = ROOM_MIN;
    documents->buffer = cddpi_realloc(NULL, ROOM_MIN);
    status = documents->buffer != NULL
                 ? measure_files(documents)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d bytes", ROOM_MIN);
    if (status != CDDP_OK) {
        cddpi_documents_close(documents);
        return status;
    }
    *out = documents;
    return CDDP_OK;
}

static void close_file(struct cddpi_documents *documents)
{
    if (documents->fd > STDIN_FILENO) {
        close(documents->fd);
    }
    documents->fd = -1;
}

void cddpi_documents_close(struct cddpi_documents *documents)
{
    if (documents == NULL) {
        return;
    }
    close_file(documents);
    cddpi_free(documents->buffer);
    cddpi_free(documents);
}

static cddp_status open_next(struct cddpi_documents *documents)
{
    const char *path = documents->options.paths[documents->next_path];

    documents->fd = strcmp(path, "-") == 0 ? STDIN_FILENO
                                           : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (documents->fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open %s", path);
    }
    documents->next_path++;
    documents->at_file_begin = true;
    documents->at_file_end = false;
    documents->in_line = false;
    return CDDP_OK;
}

/* Wait until there is something to read. Polling is needed because a signal just before a read()
 * would not interrupt it, and the other end of a pipe may stay silent for ever. */
static cddp_status await_input(const struct cddpi_documents *documents)
{
    struct pollfd input = {.fd = documents->fd, .events = POLLIN};

    do {
        if (documents->options.is_stopped()) {
            return cddpi_fail(CDDP_ERR_CLOSED, "stopped by a signal");
        }
    } while (poll(&input, 1, LOOK_MS) <= 0);
    return CDDP_OK;
}

/* Move the rest of the buffer to its beginning, and fill it up. If the rest is more than half of
 * the buffer (a long word), double the buffer. */
static cddp_status fill_buffer(struct cddpi_documents *documents)
{
    size_t left = documents->end - documents->start;

    memmove(documents->buffer, documents->buffer + documents->start, left);
    documents->base += documents->start;
    documents->scanned -= documents->start;
    documents->start = 0;
    documents->end = left;
    if (left > documents->room / 2) {
        char *larger = cddpi_realloc(documents->buffer, documents->room * 2);

        CDDPI_TRY_MEMORY(larger != NULL, "%s: no memory for %zu bytes",
                         path_of(documents, documents->next_path - 1), documents->room * 2);
        documents->buffer = larger;
        documents->room *= 2;
    }
    while (documents->end < documents->room && !documents->at_file_end) {
        ssize_t got;

        CDDPI_TRY(await_input(documents));
        got = read(documents->fd, documents->buffer + documents->end,
                   documents->room - documents->end);
        if (got < 0) { /* EINTR is an error, too: only a signal that stops us interrupts */
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s at byte %llu of all",
                                    path_of(documents, documents->next_path - 1),
                                    (unsigned long long)(documents->base + documents->end));
        }
        documents->at_file_end = got == 0;
        documents->end += (size_t)got;
    }
    return CDDP_OK;
}

/* Check a file's first bytes: skip a byte order mark, and refuse contents that are not text. */
static cddp_status look_at_begin(struct cddpi_documents *documents)
{
    const char *begin = documents->buffer + documents->start;
    size_t bytes = documents->end - documents->start;
    const char *kind = cddpi_foreign_to_text(begin, bytes);

    documents->at_file_begin = false;
    if (kind != NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: not text: it is %s",
                          path_of(documents, documents->next_path - 1), kind);
    }
    documents->start += cddpi_utf8_mark(begin, bytes);
    documents->scanned = documents->start;
    return CDDP_OK;
}

static void end_document(struct cddpi_documents *documents, size_t skip)
{
    documents->is_over = true;
    documents->skip = skip;
}

/* Check the line that begins at scanned. Returns false if more of it must be read first. */
static bool look_at_line(struct cddpi_documents *documents)
{
    const char *line = documents->buffer + documents->scanned;
    size_t bytes = documents->end - documents->scanned;
    size_t most = documents->separator_bytes + 2; /* with "\r\n" */
    const char *newline = memchr(line, '\n', bytes < most ? bytes : most);
    size_t length = newline != NULL ? (size_t)(newline - line) : bytes;

    if (newline == NULL && bytes < most && !documents->at_file_end) {
        return false;
    }
    length -= length > 0 && line[length - 1] == '\r';
    if (length == documents->separator_bytes &&
        memcmp(line, documents->options.separator, length) == 0) {
        end_document(documents, newline != NULL ? (size_t)(newline - line) + 1 : bytes);
    } else {
        documents->in_line = true;
    }
    return true;
}

/* Search for the document's end in what has been read. */
static void scan_buffer(struct cddpi_documents *documents)
{
    while (!documents->is_over && documents->scanned < documents->end) {
        if (documents->in_line) {
            const char *newline = memchr(documents->buffer + documents->scanned, '\n',
                                         documents->end - documents->scanned);

            documents->in_line = newline == NULL;
            documents->scanned = newline != NULL ? (size_t)(newline - documents->buffer) + 1
                                                 : documents->end;
            continue;
        }
        if (documents->options.val_fraction > 0 && !documents->is_val &&
            documents->base + documents->scanned >= documents->cut) {
            end_document(documents, 0);
            documents->is_cut = true;
        } else if (documents->options.separator == NULL) {
            documents->in_line = true;
        } else if (!look_at_line(documents)) {
            return;
        }
    }
    if (!documents->is_over && documents->at_file_end) {
        end_document(documents, 0);
    }
}

/* After the end of a document, begin the next one, which may be for validation. */
static void begin_document(struct cddpi_documents *documents)
{
    documents->start += documents->skip;
    documents->scanned = documents->start;
    documents->goes_on = documents->is_cut && documents->has_text;
    documents->is_cut = false;
    documents->is_over = false;
    documents->has_text = false;
    documents->in_line = false;
    documents->is_val = documents->options.val_fraction > 0 &&
                        documents->base + documents->start >= documents->cut;
    if (documents->at_file_end && documents->start == documents->end) {
        close_file(documents);
    }
}

cddp_status cddpi_documents_next(struct cddpi_documents *documents, size_t used,
                                 struct cddpi_piece *out, bool *out_end)
{
    documents->start += used;
    documents->has_text = documents->has_text || used > 0;
    for (;;) {
        if (documents->is_over) { /* and its last piece has been used */
            begin_document(documents);
        }
        if (documents->fd < 0 && documents->next_path == documents->options.path_count) {
            *out_end = true;
            return CDDP_OK;
        }
        if (documents->fd < 0) {
            CDDPI_TRY(open_next(documents));
        }
        if (!documents->at_file_end) {
            CDDPI_TRY(fill_buffer(documents));
        }
        if (documents->at_file_begin) {
            CDDPI_TRY(look_at_begin(documents));
        }
        scan_buffer(documents);
        if (documents->scanned > documents->start || (documents->is_over && documents->has_text)) {
            *out = (struct cddpi_piece){.text = documents->buffer + documents->start,
                                        .bytes = documents->scanned - documents->start,
                                        .last = documents->is_over,
                                        .is_val = documents->is_val,
                                        .goes_on = documents->goes_on};
            *out_end = false;
            return CDDP_OK;
        }
    }
}

uint64_t cddpi_documents_bytes(const struct cddpi_documents *documents)
{
    return documents->total;
}

uint64_t cddpi_documents_read(const struct cddpi_documents *documents)
{
    return documents->base + documents->start;
}
