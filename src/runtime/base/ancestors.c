/* ancestors.c - reads /proc/PID/stat, cmdline and environ of this process and its ancestors. */
#include "base/ancestors.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20, STEP_BYTES = 16384 };

/* The contents of /proc/PID/@p file with a NUL appended. NULL: not readable, or too long. */
static char *read_all(long pid, const char *file, size_t *out_bytes)
{
    char path[64];
    char *text = NULL;
    size_t used = 0;
    ssize_t got = 1;
    int fd;

    snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && used < MOST_BYTES) {
        char *longer = cddpi_realloc(text, used + STEP_BYTES + 1);

        if (longer == NULL) {
            break;
        }
        text = longer;
        got = read(fd, text + used, STEP_BYTES);
        used += got > 0 ? (size_t)got : 0;
        text[used] = '\0';
    }
    if (fd >= 0) {
        close(fd);
    }
    if (got != 0) {
        cddpi_free(text);
        return NULL;
    }
    *out_bytes = used;
    return text;
}

/* Read name and start of process out->pid and return its parent's pid; -1: no such process. */
static long read_parent(struct cddpi_ancestor *out)
{
    size_t length = 0;
    char *text = read_all(out->pid, "stat", &length);
    const char *begin = text != NULL ? strchr(text, '(') : NULL;
    const char *end = begin != NULL ? strrchr(begin, ')') : NULL; /* a name may contain ')' */
    long parent = -1;

    if (end != NULL &&
        sscanf(end + 1,
               " %*c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %23s",
               &parent, out->start) == 2) {
        snprintf(out->name, sizeof out->name, "%.*s", (int)(end - begin - 1), begin + 1);
    } else {
        parent = -1;
    }
    cddpi_free(text);
    return parent;
}

void cddpi_ancestors_read(struct cddpi_ancestors *out)
{
    long pid = (long)getpid();

    *out = (struct cddpi_ancestors){.count = 0};
    while (pid > 0 && out->count < CDDPI_ANCESTORS) {
        struct cddpi_ancestor *ancestor = &out->list[out->count];
        long parent;

        ancestor->pid = pid;
        parent = read_parent(ancestor);
        if (parent < 0) {
            return;
        }
        ancestor->words = read_all(pid, "cmdline", &ancestor->word_bytes);
        ancestor->environment = read_all(pid, "environ", &ancestor->environment_bytes);
        out->count++;
        pid = parent;
    }
}

void cddpi_ancestors_fini(struct cddpi_ancestors *ancestors)
{
    for (int i = 0; i < ancestors->count; i++) {
        cddpi_free(ancestors->list[i].words);
        cddpi_free(ancestors->list[i].environment);
    }
    ancestors->count = 0;
}

bool cddpi_ancestor_has(const struct cddpi_ancestor *ancestor, const char *name, const char *value)
{
    size_t length = strlen(name);
    size_t at = 0;

    while (ancestor->environment != NULL && at < ancestor->environment_bytes) {
        const char *entry = ancestor->environment + at;

        if (strncmp(entry, name, length) == 0 && entry[length] == '=') {
            return strcmp(entry + length + 1, value) == 0;
        }
        at += strlen(entry) + 1;
    }
    return false;
}

bool cddpi_ancestor_says(const struct cddpi_ancestor *ancestor, const char *text)
{
    size_t at = 0;

    while (ancestor->words != NULL && at < ancestor->word_bytes) {
        const char *word = ancestor->words + at;

        if (strstr(word, text) != NULL) {
            return true;
        }
        at += strlen(word) + 1;
    }
    return false;
}
