/* misuse_mpirun.c - runs the ranks of a case of wrong use as processes of the real mpirun, so that
 * MPI carries their data. mpirun starts this program again, and each process runs the case's body
 * instead of main(). */
#include "support/misuse_mpirun.h"

#include "support/mpirun.h"

#include <errno.h>
#include <inttypes.h>

enum { MOST_RANKS = 3 };

/* The status that rank R has left in @p folder/@p job.R; -1: none yet. */
static int status_left(const char *folder, const char *job, int rank)
{
    char name[80];
    char *text;
    int status;

    snprintf(name, sizeof name, "%s.%d", job, rank);
    text = launcher_read(folder, name);
    status = text != NULL && text[0] != '\0' ? atoi(text) : -1;
    free(text);
    return status;
}

int misuse_mpirun(struct misuse *misuse, int size, rank_fn body, int *statuses)
{
    struct launched job = {0};
    char path[4096] = {0};
    char number[128];
    int failed = 0;

    NEED_MPIRUN();
    assert_in_range(size, 2, MOST_RANKS);
    assert_true(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    /* The program is the same, but may be at another address, so the offset is passed. */
    snprintf(number, sizeof number, "%" PRIdPTR " %d %" PRIu32,
             (intptr_t)body - (intptr_t)misuse_mpirun, misuse->which, misuse->timeout_ms);
    setenv("TEST_MISUSE_BODY", number, 1);
    setenv("TEST_MISUSE_FOLDER", misuse->folder, 1);
    setenv("TEST_MISUSE_JOB", misuse->job, 1);
    MPIRUN(&job, size, NULL, path, "as a rank");
    unsetenv("TEST_MISUSE_BODY");
    for (int rank = 0; rank < size; rank++) {
        int status = status_left(misuse->folder, misuse->job, rank);

        failed += status != 0;
        if (statuses != NULL) {
            statuses[rank] = status;
        }
    }
    if (failed > 0) {
        fprintf(stderr, "%s%s", job.out, job.err);
    }
    launcher_end(
        &job); /* after a failed group, MPI is not finalized properly, which mpirun reports */
    return failed;
}

/* Write the status atomically. */
static int leave_status(const struct misuse *misuse, int rank, int status)
{
    char text[16];
    char fresh[4300];
    char path[4300];

    snprintf(fresh, sizeof fresh, "%s/%s.%d.new", misuse->folder, misuse->job, rank);
    snprintf(path, sizeof path, "%s/%s.%d", misuse->folder, misuse->job, rank);
    snprintf(text, sizeof text, "%d\n", status);
    launcher_write(misuse->folder, strrchr(fresh, '/') + 1, text);
    return rename(fresh, path);
}

/* Open the pipe of all ranks. They cannot inherit it, since they have no parent of ours in
 * common. */
static int open_signal(struct misuse *misuse)
{
    char path[4300];

    snprintf(path, sizeof path, "%s/%s.signal", misuse->folder, misuse->job);
    if (mkfifo(path, 0600) != 0 && errno != EEXIST) {
        return -1;
    }
    misuse->signal[0] = open(path, O_RDWR | O_CLOEXEC);
    misuse->signal[1] = misuse->signal[0];
    return misuse->signal[0];
}

/* Runs in each process that mpirun has started, before main(). */
static __attribute__((constructor)) void be_a_rank(void)
{
    const char *number = getenv("TEST_MISUSE_BODY");
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    const char *all = getenv("OMPI_COMM_WORLD_SIZE");
    struct misuse misuse = {0};
    intptr_t body;
    int rank;
    int size;

    if (number == NULL || own == NULL || all == NULL) {
        return;
    }
    rank = atoi(own);
    size = atoi(all);
    snprintf(misuse.folder, sizeof misuse.folder, "%s", getenv("TEST_MISUSE_FOLDER"));
    snprintf(misuse.job, sizeof misuse.job, "%s", getenv("TEST_MISUSE_JOB"));
    if (sscanf(number, "%" SCNdPTR " %d %" SCNu32, &body, &misuse.which, &misuse.timeout_ms) != 3 ||
        open_signal(&misuse) < 0) {
        fprintf(stderr, "rank %d does not know what to do\n", rank);
        exit(1);
    }
    leave_status(&misuse, rank, ((rank_fn)(body + (intptr_t)misuse_mpirun))(rank, size, &misuse));
    /* Wait for all ranks, because mpirun kills the others once one has ended without finalizing
     * MPI. */
    for (int peer = 0, waits = 0; peer < size && waits < SUPPORT_TIMEOUT_MS; waits++) {
        if (status_left(misuse.folder, misuse.job, peer) >= 0) {
            peer++;
        } else {
            support_sleep_ms(1);
        }
    }
    fflush(NULL);
    _exit(0);
}
