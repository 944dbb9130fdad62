/* reached.h - jobs of cddp-run --hosts with --nnodes MIN:MAX. All hosts are this machine: the
 * command of --ssh runs the given words in a shell. Who is silent for less than a day is not lost,
 * and a host stays away for as long as a file says so. */
#ifndef CDDP_TESTS_SUPPORT_REACHED_H
#define CDDP_TESTS_SUPPORT_REACHED_H

#include "support/launcher.h"

enum { REACHED_HOSTS = 3 };

extern const char *const reached_hosts[REACHED_HOSTS]; /* alpha, beta and gamma */

/* As cddp-train: asked to end, it saves and ends with 3. A rank of generation G writes upG.RANK. */
#define REACHED_TRAINS                                                                             \
    "trap 'exit 3' INT TERM USR1; echo $PPID >parent$RANK; echo $$ >pid$RANK; "                    \
    "echo $RANK/$WORLD_SIZE on $GROUP_WORLD_SIZE >up$CDDP_GENERATION.$RANK; "                      \
    "while [ ! -e go ]; do sleep 0.02; done"

/* A folder with the command in it, in which the job then runs. It begins with all hosts, however
 * late one comes on a busy machine, unless launcher_settle() follows. */
void reached_prepare(struct launched *job);

#define START(job, list, nnodes, ...)                                                              \
    launcher_start((job), (const char *const[]){"--hosts", (list), "--nnodes", (nnodes), "--ssh",  \
                                                "./reach", __VA_ARGS__, NULL})
#define TRAIN(job, list, nnodes, timeout)                                                          \
    START(job, list, nnodes, "--timeout", timeout, "--", "bash", "-c", REACHED_TRAINS)

/* From now on, or no more, @p host is "away" (the command fails), the command "hang"s, or what it
 * starts has "other" words. The file tries-HOST has a line for each try. */
void reached_mark(const struct launched *job, const char *what, const char *host, bool is_set);

/* Wait until rank @p rank of generation @p generation says @p text. */
void reached_await(const struct launched *job, int generation, int rank, const char *text);

/* Prepare and start a job on alpha, beta and gamma, with 1, 2 and 1 ranks, which run afterwards. */
void reached_begin(struct launched *job, const char *nnodes, const char *timeout);

/* Kill what leads to @p host, and all that it has started there. It stays away. */
void reached_kill(const struct launched *job, const char *host);

/* Let the ranks end, and wait for the job's end with @p exit_status. */
void reached_finish(struct launched *job, int exit_status);
void reached_end(struct launched *job);

#endif
