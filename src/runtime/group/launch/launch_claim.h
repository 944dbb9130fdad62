/* launch_claim.h - every launcher whose ranks cddp can be, its variables, and what those that are
 * set say about this process: the one table of them, for ranks and for cddp-run. */
#ifndef CDDPI_GROUP_LAUNCH_CLAIM_H
#define CDDPI_GROUP_LAUNCH_CLAIM_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where several agree, the first of them says where the ranks meet. */
enum cddpi_launcher {
    CDDPI_BY_CDDP_RUN,
    CDDPI_BY_TORCHRUN, /* and whatever else sets RANK and WORLD_SIZE */
    CDDPI_BY_OPEN_MPI,
    CDDPI_BY_HYDRA, /* MPICH's and Intel MPI's mpirun */
    CDDPI_BY_MVAPICH,
    CDDPI_BY_JSM,  /* IBM's jsrun */
    CDDPI_BY_PALS, /* HPE Cray's mpiexec and aprun */
    CDDPI_BY_FLUX,
    CDDPI_BY_SLURM,
    CDDPI_BY_INDEXED_JOB, /* of Kubernetes, alone or in a JobSet */
    CDDPI_BY_KUBEFLOW,    /* PyTorchJob, of its first Trainer, and TrainJob, of the second */
    CDDPI_LAUNCHERS
};

enum { CDDPI_SAYS_BYTES = 320, CDDPI_WRONG_BYTES = 640 };

/* What one launcher's variables say. */
struct cddpi_claim {
    enum cddpi_launcher by;
    const char *rank_name; /* the variables from which rank and size are; NULL: from none */
    const char *size_name;
    int rank; /* -1: they do not say */
    int size; /* 0: they do not say */
    int local_rank;
    int local_size;
    int node;
    int nodes;
    int nproc;       /* processes wanted on each node, where those are still to be started; 0 */
    bool is_pod;     /* the launcher starts one process a node: a pod */
    bool is_echo;    /* another launcher sets these variables, too, and more of its own */
    bool is_script;  /* the script of a job, or its shell, and no rank */
    bool is_alive;   /* its daemon answers */
    bool is_stale;   /* its daemon is gone */
    bool is_partial; /* only one of rank and size is there */
    char says[CDDPI_SAYS_BYTES];   /* "RANK=0, WORLD_SIZE=2" */
    char unset[CDDPI_SAYS_BYTES];  /* "RANK WORLD_SIZE" */
    char wrong[CDDPI_WRONG_BYTES]; /* what is wrong with them; "": nothing */
    char alone[CDDPI_WRONG_BYTES]; /* why this may be no rank of its own; "": it may */
};

const char *cddpi_launcher_name(enum cddpi_launcher by);

/** The variable for the size of @p by's jobs that is set; NULL: none is. */
const char *cddpi_launcher_size_name(enum cddpi_launcher by);

/** Read what @p by's variables say. False: they are not set. */
bool cddpi_claim_read(enum cddpi_launcher by, struct cddpi_claim *out);

/* For those that read one launcher's. Add @p name, NULL or not set: nothing, to what is said. */
void cddpi_claim_mention(struct cddpi_claim *claim, const char *name);
/** Read @p name, if it is not NULL and nothing is wrong yet, as a whole number; else, or if it is
 *  none in [@p low, @p high], which goes to `wrong`: false, and @p out stays. */
bool cddpi_claim_number(struct cddpi_claim *claim, const char *name, int64_t low, int64_t high,
                        int *out);

/** Processes by which @p by starts ranks begin with one of these names; a NULL ends the list. */
const char *const *cddpi_launcher_starters(enum cddpi_launcher by);

/** A digest of @p by's variables, without those that cddp-run sets itself; 0: none is set. */
unsigned long long cddpi_launcher_digest(enum cddpi_launcher by);

/** What cddp-run tells its ranks in CDDP_INHERITED: "Slurm:1a2b..." for each launcher whose
 *  variables they inherit through it, so that they say nothing about them, and "store:3c4d..." for
 *  @p store, its own, which is not that of what ranks start. */
void cddpi_launchers_inherited(const char *store, char *out, size_t bytes);
/** Whether @p text, such a list, has @p by's variables as they are now. */
bool cddpi_launcher_is_inherited(enum cddpi_launcher by, const char *text);

/** CDDP_STORE, for ranks that cddp-run has not started: where the user says that they meet. NULL:
 * it is not set, or is that of a cddp-run in one of whose ranks all this happens. */
const char *cddpi_launch_given_store(void);

#endif
