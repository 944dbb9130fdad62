/* process.h - this process's id, and what the system knows about other processes on this machine;
 * this process and its ancestors as /proc shows them. Any thread. */
#ifndef CDDPI_BASE_PROCESS_H
#define CDDPI_BASE_PROCESS_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/** Like getpid(), without a system call. Correct in a fork, too. */
int cddpi_process_id(void);

enum { CDDPI_PROCESS_PLACE_BYTES = 160 };
/** Write where this process runs, "MACHINE|NAMESPACE": equal for processes that see each other in
 *  /proc. */
void cddpi_process_place(char out[CDDPI_PROCESS_PLACE_BYTES]);

/* What the kernel says about a process. */
struct cddpi_process {
    char name[20]; /* of its program; the kernel cuts it off after 15 characters */
    char state;    /* 'R', 'Z' ... */
    long parent;
    uint64_t start_time; /* in clock ticks */
};

/** Read it. False: there is no such process, or /proc is not mounted. */
bool cddpi_process_read(long pid, struct cddpi_process *out);

/** When this process started, in clock ticks. The process id and the start time together identify a
 *  process, since ids are reused. 0: /proc is not mounted. */
uint64_t cddpi_process_start_time(void);

/** Whether the process @p pid that started at @p start_time is still running. A zombie is not
 *  running. */
bool cddpi_process_is_alive(int pid, uint64_t start_time);

/** Whether @p pid is stopped by a signal or a debugger. False also if there is no such process. */
bool cddpi_process_is_stopped(int pid);

/** Check that /proc is mounted; without it, processes cannot look at each other.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE: the text says so. */
CDDP_CHECKED cddp_status cddpi_process_check_proc(void);

/** Create an unnamed file in memory (memfd) of @p bytes bytes that other processes of this user can
 *  map. Its size is sealed, so that no mapping can become longer than the file. @p name is what
 *  /proc shows. */
cddp_status cddpi_process_share(const char *name, size_t bytes, int *out_fd);

/** A descriptor that is readable once child @p pid has ended, close-on-exec; -1: this kernel has
 *  none. */
int cddpi_process_pidfd(int pid);

/** Open memory that process @p pid, which started at @p start_time, created with
 *  cddpi_process_share() as its descriptor @p fd. Any other file with that number is refused,
 *  because the numbers came from another process.
 *  @param bytes   The least size that the memory must have.
 *  @param out_fd  Owned by the caller, close-on-exec.
 *  @return CDDP_OK, CDDP_ERR_PEER (the process is gone), CDDP_ERR_UNAVAILABLE. */
cddp_status cddpi_process_open_fd(int pid, uint64_t start_time, int fd, size_t bytes, int *out_fd);

enum { CDDPI_ANCESTORS = 24 };

/* This process or one of its ancestors. */
struct cddpi_ancestor {
    long pid;
    struct cddpi_process process;
    char *words;       /* its command line: each word ends with a NUL */
    size_t word_bytes; /* of all words together */
    /* "NAME=value" entries as they were at its exec, each ending with a NUL. NULL: not readable,
     * for instance because the process belongs to another user. */
    char *environment;
    size_t environment_bytes;
};

struct cddpi_ancestors {
    struct cddpi_ancestor list[CDDPI_ANCESTORS]; /* this process first, then its parent ... */
    int count;                                   /* 0: /proc is not mounted */
};

/** Read this process and its ancestors. A process or file that cannot be read is left out. Release
 *  with cddpi_ancestors_fini(). */
void cddpi_ancestors_read(struct cddpi_ancestors *out);
void cddpi_ancestors_fini(struct cddpi_ancestors *ancestors);

/** Whether @p ancestor's environment sets @p name to @p value. */
bool cddpi_ancestor_has(const struct cddpi_ancestor *ancestor, const char *name, const char *value);

/** Whether a word of @p ancestor's command line contains @p text. */
bool cddpi_ancestor_says(const struct cddpi_ancestor *ancestor, const char *text);

#endif
