/* rendezvous.h - owns how ranks that join a group find each other through the store, for their
 * transport.
 *
 * Rank R writes "member/R"; its transport chooses the value. cddp-run writes "failure", which
 * describes the rank that failed first, and "ended/R" once rank R has ended without a failure, so
 * that no rank waits for it in vain. "who/R" is the process that joins as rank R. A second such
 * process is refused and says so in "failure". If its host cannot tell whether the first process is
 * alive, it leaves a note in "failure/R" for the first process to find. All other keys belong to
 * the transport. The store is closed once all ranks have joined. */
#ifndef CDDPI_GROUP_RENDEZVOUS_H
#define CDDPI_GROUP_RENDEZVOUS_H

#include "base/process.h"
#include "group/launch/launch_env.h"
#include "store/message.h"

enum {
    CDDPI_MEMBER_KEY_BYTES = 32,
    CDDPI_PREFIX_BYTES = 320,
    /* after starting to join, before a rank logs which ranks are missing */
    CDDPI_FIRST_NEWS_MS = 10000
};

struct cddpi_store_pair;
struct cddpi_store_server;

/* A process. Processes with equal places see each other in /proc. */
struct cddpi_who {
    int pid;
    uint64_t start;
    char host[80];
    char place[CDDPI_PROCESS_PLACE_BYTES];
};
extern const struct cddpi_message_form cddpi_who_form;

struct cddpi_rendezvous {
    const struct cddpi_launch_env *env;
    cddp_store *store;
    struct cddpi_store_server *server; /* on rank 0 if there is no launcher; else NULL */
    int64_t deadline_ns;
    int64_t news_ns;      /* when to log which ranks are missing */
    int news_ms;          /* interval until the next such log line */
    struct cddpi_who who; /* this process, as in "who/R"; pid 0: not written yet */
};

/** Connect to the store that @p env names, or serve it. @p env must outlive the rendezvous. If it
 * has no token, it gets one that only the ranks know. */
CDDP_CHECKED cddp_status cddpi_rendezvous_open(struct cddpi_launch_env *env,
                                               struct cddpi_rendezvous *out);
/** Close the store and remove what only the rendezvous needed. @p complete: all ranks have joined,
 *  so this rank's key is no longer needed. Otherwise the thread's error text is kept. */
void cddpi_rendezvous_close(struct cddpi_rendezvous *rendezvous, bool complete);

/** Called once all ranks have joined. If the store is a file that the user named, it stays open and
 * the group closes it: while a rank of the group is alive, no other process can join through the
 * same file as a rank that the group has.
 * @return NULL for other places. */
cddp_store *cddpi_rendezvous_keep(struct cddpi_rendezvous *rendezvous);

/** The prefix of all keys of @p env's job and generation. */
void cddpi_rendezvous_prefix(const struct cddpi_launch_env *env, char out[CDDPI_PREFIX_BYTES]);
/** The key that @p rank writes: "member/R". */
void cddpi_rendezvous_member(int rank, char out[CDDPI_MEMBER_KEY_BYTES]);
/** Set @p key, or log that this failed: for keys whose loss other ranks notice by themselves. */
void cddpi_rendezvous_set(struct cddpi_rendezvous *rendezvous, const char *key, const char *text);
void cddpi_rendezvous_delete(struct cddpi_rendezvous *rendezvous, const char *key);

/** Wait for @p key, which @p rank writes.
 *  @param out  Release with cddp_free().
 *  @return CDDP_OK; CDDP_ERR_TIMEOUT once the deadline has passed; CDDP_ERR_PEER as soon as the
 *          launcher reports that the rank will not come; an error of the store. */
CDDP_CHECKED cddp_status cddpi_rendezvous_await(struct cddpi_rendezvous *rendezvous,
                                                const char *key, int rank, int64_t deadline_ns,
                                                void **out, size_t *out_bytes);
struct cddpi_member_values {
    const struct cddpi_store_pair **of; /* by rank; NULL: it has not joined yet */
    int count;                          /* number of ranks that have joined */
    struct cddpi_store_pair *pairs;
};

/** Get what members have written so far, with one message.
 *  @param out  Release with cddpi_rendezvous_members_fini(). */
CDDP_CHECKED cddp_status cddpi_rendezvous_members(struct cddpi_rendezvous *rendezvous,
                                                  struct cddpi_member_values *out);
void cddpi_rendezvous_members_fini(struct cddpi_member_values *values);

/* Called with what members have written whenever there is more of it. A failure that it returns
 * ends the wait.
 */
struct cddpi_member_check {
    cddp_status (*look)(void *context, const struct cddpi_member_values *values);
    void *context;
};

/** Wait for all members' keys, with a few messages for any number of ranks.
 *  @param out  Release with cddpi_rendezvous_members_fini().
 *  @return Like cddpi_rendezvous_await(), or what @p check returns. */
CDDP_CHECKED cddp_status cddpi_rendezvous_await_members(struct cddpi_rendezvous *rendezvous,
                                                        struct cddpi_member_check check,
                                                        int64_t deadline_ns,
                                                        struct cddpi_member_values *out);

/* rendezvous_rank.c: which process is which rank */

/** Register in the store that this process is its rank.
 *  @return CDDP_OK; CDDP_ERR_MISMATCH with a text that names both processes, if another process is
 *          already that rank. All waiting ranks get the failure, too. */
CDDP_CHECKED cddp_status cddpi_rendezvous_be_rank(struct cddpi_rendezvous *rendezvous);

/** Check a pair whose key begins with "failure/". CDDP_ERR_MISMATCH: another process joined as this
 *  rank. */
CDDP_CHECKED cddp_status cddpi_rendezvous_contest(struct cddpi_rendezvous *rendezvous,
                                                  const struct cddpi_store_pair *pair);

/** Remove this rank's registration, once all ranks have joined, so that another process may join as
 *  this rank later. */
void cddpi_rendezvous_forget_rank(struct cddpi_rendezvous *rendezvous);

/** Name the process that has the store's port. Rank 0 could not serve the store, with status @p
 *  failed, since the port is in use.
 *  @param env  The environment of the rendezvous. If it has no token, the one in this machine's
 *              file is used. */
cddp_status cddpi_rendezvous_name_rival(struct cddpi_rendezvous *rendezvous,
                                        struct cddpi_launch_env *env, cddp_status failed);

/* rendezvous_news.c: what ranks that wait learn about the others */

/** While rank 0 waits: log at growing intervals which ranks are missing. */
void cddpi_rendezvous_tell_missing(struct cddpi_rendezvous *rendezvous,
                                   const struct cddpi_member_values *values);

/** The same on a rank that waits for rank 0. Once rank 0 has joined, only rank 0 logs; until then,
 * the first rank to ask does. */
void cddpi_rendezvous_tell_for_0(struct cddpi_rendezvous *rendezvous);

/** Fail with CDDP_ERR_TIMEOUT and a text that names the missing ranks. */
cddp_status cddpi_rendezvous_missing(struct cddpi_rendezvous *rendezvous);

/* A rank that cannot join notifies the ranks that wait for it by a refusal: its failure as a value
 * in the rendezvous. */
struct cddpi_refusal {
    int status;
    int rank; /* which the failure names; -1: none */
    char text[1101];
};
extern const struct cddpi_message_form cddpi_refusal_form;

/** Store this thread's last failure, with @p status, under @p key. Keeps the failure; returns @p
 *  status. */
cddp_status cddpi_refusal_set(struct cddpi_rendezvous *rendezvous, const char *key,
                              cddp_status status);

/** Wait for a value that @p rank stores under @p key.
 *  @param out  Release with cddp_free().
 *  @return CDDP_OK; the refusal's status and text if the value is one; an error of the rendezvous,
 *          which names the missing ranks if @p deadline_ns passes. */
CDDP_CHECKED cddp_status cddpi_refusal_await(struct cddpi_rendezvous *rendezvous, const char *key,
                                             int rank, int64_t deadline_ns, void **out,
                                             size_t *out_bytes);

/** CDDP_ERR_PEER, with the text and the culprit, if a rank has stored a refusal under @p key.
 */
cddp_status cddpi_refusal_look(struct cddpi_rendezvous *rendezvous, const char *key);

#endif
