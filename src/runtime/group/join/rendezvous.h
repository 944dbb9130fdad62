/* rendezvous.h - how ranks that join a group find each other in the store, for their transport.
 *
 * Every rank writes "member/R", whose value its transport chooses. cddp-run writes "failure", which
 * describes the rank that failed first, and "ended/R" once rank R has ended without a failure: then
 * waiting for it is in vain. "who/R" is the process that comes as rank R: a second one is refused,
 * and says so in "failure"; one whose host cannot tell whether the first still lives leaves word in
 * "failure/R", for the first to find. All other keys are the transport's. The store is closed once
 * all ranks have come. */
#ifndef CDDPI_GROUP_RENDEZVOUS_H
#define CDDPI_GROUP_RENDEZVOUS_H

#include "group/launch/launch_env.h"

enum {
    CDDPI_MEMBER_KEY_BYTES = 32,
    CDDPI_PREFIX_BYTES = 320,
    CDDPI_WHO_BYTES = 640,
    CDDPI_FIRST_NEWS_MS = 10000 /* of joining, before a rank logs which ranks are missing */
};

struct cddpi_store_pair;
struct cddpi_store_server;

struct cddpi_rendezvous {
    const struct cddpi_launch_env *env;
    cddp_store *store;
    struct cddpi_store_server *server; /* rank 0's, where there is no launcher; else NULL */
    int64_t deadline_ns;
    int64_t news_ns;           /* when to log which ranks are missing */
    int news_ms;               /* how long after that to log it again */
    char who[CDDPI_WHO_BYTES]; /* this process, as in "who/R"; "": not told yet */
};

/** Connect to the store that @p env names, or be it. @p env outlives the rendezvous; where it has
 * no token it gets one that all ranks have, and nobody else. */
CDDP_CHECKED cddp_status cddpi_rendezvous_open(struct cddpi_launch_env *env,
                                               struct cddpi_rendezvous *out);
/** Close the store and remove what was needed only for the rendezvous. @p complete: all ranks have
 *  come, so this one's key is needed no more. Else the thread's error text stays. */
void cddpi_rendezvous_close(struct cddpi_rendezvous *rendezvous, bool complete);

/** All have come. Of a file that the user named the store stays open, for the group to close: as
 * long as one of its ranks lives, nobody else comes to the same file as a rank that it has.
 *  @return NULL for other places. */
cddp_store *cddpi_rendezvous_keep(struct cddpi_rendezvous *rendezvous);

/** What the keys of @p env's job and generation begin with. */
void cddpi_rendezvous_prefix(const struct cddpi_launch_env *env, char out[CDDPI_PREFIX_BYTES]);
/** The key that @p rank writes: "member/R". */
void cddpi_rendezvous_member(int rank, char out[CDDPI_MEMBER_KEY_BYTES]);
/** Set @p key, or log that it could not be: for keys whose loss others notice by themselves. */
void cddpi_rendezvous_set(struct cddpi_rendezvous *rendezvous, const char *key, const char *text);
void cddpi_rendezvous_delete(struct cddpi_rendezvous *rendezvous, const char *key);

/** Say in the store that this process is its rank.
 *  @return CDDP_OK; CDDP_ERR_MISMATCH with a text that names both processes, if another one is that
 *          rank already: all ranks that wait are told, too. */
CDDP_CHECKED cddp_status cddpi_rendezvous_be_rank(struct cddpi_rendezvous *rendezvous);

/** Wait for @p key, which @p rank writes.
 *  @param out  Release with cddp_free().
 *  @return CDDP_OK; CDDP_ERR_TIMEOUT once the deadline has passed; CDDP_ERR_PEER as soon as the
 *          launcher says that waiting is in vain; an error of the store. */
CDDP_CHECKED cddp_status cddpi_rendezvous_await(struct cddpi_rendezvous *rendezvous,
                                                const char *key, int rank, int64_t deadline_ns,
                                                char **out);
/* What members have written. */
struct cddpi_member_values {
    const char **of; /* by rank; NULL: it has not come */
    int count;       /* of those that have */
    struct cddpi_store_pair *pairs;
};

/** What members have written so far: one message.
 *  @param out  Release with cddpi_rendezvous_members_fini(). */
CDDP_CHECKED cddp_status cddpi_rendezvous_members(struct cddpi_rendezvous *rendezvous,
                                                  struct cddpi_member_values *out);
void cddpi_rendezvous_members_fini(struct cddpi_member_values *values);

/* Looks at what members have written whenever more of it is known; what it returns ends the wait.
 */
struct cddpi_member_check {
    cddp_status (*look)(void *context, const struct cddpi_member_values *values);
    void *context;
};

/** Wait for all members' keys: a few messages, however many they are.
 *  @param out  Release with cddpi_rendezvous_members_fini().
 *  @return As cddpi_rendezvous_await(), and what @p check returns. */
CDDP_CHECKED cddp_status cddpi_rendezvous_await_members(struct cddpi_rendezvous *rendezvous,
                                                        struct cddpi_member_check check,
                                                        int64_t deadline_ns,
                                                        struct cddpi_member_values *out);

/** CDDP_ERR_TIMEOUT that names the ranks which have not come. */
cddp_status cddpi_rendezvous_missing(struct cddpi_rendezvous *rendezvous);

#endif
