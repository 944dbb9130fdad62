/* launch_claim.h - owns the table of supported launchers and their environment variables, and reads
 * what the set variables say about this process; for ranks and for cddp-run. */
#ifndef CDDPI_GROUP_LAUNCH_CLAIM_H
#define CDDPI_GROUP_LAUNCH_CLAIM_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* If several agree, the first of them in this order defines where the ranks meet. */
enum cddpi_launcher {
    CDDPI_BY_CDDP_RUN,
    CDDPI_BY_TORCHRUN, /* and any other launcher that sets RANK and WORLD_SIZE */
    CDDPI_BY_OPEN_MPI,
    CDDPI_BY_HYDRA, /* MPICH's and Intel MPI's mpirun */
    CDDPI_BY_MVAPICH,
    CDDPI_BY_JSM,  /* IBM's jsrun */
    CDDPI_BY_PALS, /* HPE Cray's mpiexec and aprun */
    CDDPI_BY_FLUX,
    CDDPI_BY_SLURM,
    CDDPI_BY_INDEXED_JOB, /* of Kubernetes, alone or in a JobSet */
    CDDPI_BY_KUBEFLOW,    /* PyTorchJob of Kubeflow Trainer v1, and TrainJob of v2 */
    CDDPI_LAUNCHERS
};

enum { CDDPI_SAYS_BYTES = 320, CDDPI_WRONG_BYTES = 640 };

/* What one launcher's variables say about this process. */
struct cddpi_claim {
    enum cddpi_launcher by;
    const char *rank_name; /* the variables that gave rank and size; NULL: no variable did */
    const char *size_name;
    int rank;  /* -1: not given */
    int size;  /* 0: not given */
    int least; /* pods come and go, and at least so many train; 0: their number is fixed */
    int local_rank;
    int local_size;
    int node;
    int nodes;
    int nproc;      /* processes to start on each node, if they are not started yet; 0: not given */
    bool is_pod;    /* the launcher starts one process per node: a pod */
    bool is_echo;   /* another launcher sets these variables, too, in addition to its own */
    bool is_script; /* a job's script or shell, not a rank */
    bool is_alive;  /* its daemon answers */
    bool is_stale;  /* its daemon is gone */
    bool is_partial;               /* only one of rank and size is set */
    char says[CDDPI_SAYS_BYTES];   /* "RANK=0, WORLD_SIZE=2" */
    char unset[CDDPI_SAYS_BYTES];  /* "RANK WORLD_SIZE" */
    char wrong[CDDPI_WRONG_BYTES]; /* an error in the variables; "": no error */
    char alone[CDDPI_WRONG_BYTES]; /* why this process must not run as a single rank; "": it may */
};

const char *cddpi_launcher_name(enum cddpi_launcher by);

/** The name of @p by's variable for the job size that is set; NULL: no such variable is set. */
const char *cddpi_launcher_size_name(enum cddpi_launcher by);

/** Read @p by's variables. False: they are not set. */
bool cddpi_claim_read(enum cddpi_launcher by, struct cddpi_claim *out);

/* For readers of one launcher's variables: add @p name to the list of variables that were used.
 * Does nothing if @p name is NULL or not set. */
void cddpi_claim_mention(struct cddpi_claim *claim, const char *name);
/** Read variable @p name as a whole number in [@p low, @p high]. False, with @p out unchanged: @p
 *  name is NULL, `wrong` is already set, or the value is invalid, which is then stored in
 *  `wrong`. */
bool cddpi_claim_number(struct cddpi_claim *claim, const char *name, int64_t low, int64_t high,
                        int *out);

/** The names of processes through which @p by starts ranks; process names begin with one of these.
 *  A NULL ends the list. */
const char *const *cddpi_launcher_starters(enum cddpi_launcher by);

/** Write the value of CDDP_INHERITED, which cddp-run sets for its ranks: "Slurm:1a2b..." for each
 *  launcher whose variables the ranks only inherit through cddp-run, so that these do not describe
 *  the ranks; and "store:3c4d..." for @p store, which is cddp-run's own and not for programs that
 *  the ranks start. */
void cddpi_launchers_inherited(const char *store, char *out, size_t bytes);
/** Whether @p text, a value of CDDP_INHERITED, lists @p by's variables with their present
 *  values. */
bool cddpi_launcher_is_inherited(enum cddpi_launcher by, const char *text);

/** CDDP_STORE as the user set it, for ranks that cddp-run did not start: where they meet. NULL: it
 * is not set, or it comes from a cddp-run in one of whose ranks this process runs. */
const char *cddpi_launch_given_store(void);

struct cddpi_launch_env;
/** Let the ranks meet at that store, which rank 0 serves if it is a TCP store. False: there is
 * none, and @p env is unchanged. */
bool cddpi_launch_use_given_store(struct cddpi_launch_env *env);

#endif
