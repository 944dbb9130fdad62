/* net_cost.c - answers scripts/scale_model's questions with the library's own formulas. Each line
 * of stdin: hosts, ranks per host, latency in seconds, bytes per second, bytes reduced per second,
 * bytes of the data, bytes of its partial sums. Each line of stdout: the algorithm, bytes per
 * piece, seconds of the all-reduce. Ranks are placed host by host. */
#include "group/net/net_schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_RANKS = 1 << 20 };

struct question {
    int hosts, ranks_each;
    struct cddpi_link link;
    double bytes, sum_bytes;
};

static bool is_amount(double value, double most)
{
    return value > 0 && value <= most; /* not a NaN */
}

static bool parse(const char *line, struct question *out)
{
    int used = 0;

    return sscanf(line, "%d %d %lf %lf %lf %lf %lf %n", &out->hosts, &out->ranks_each,
                  &out->link.latency_s, &out->link.bytes_per_s, &out->link.reduce_bytes_per_s,
                  &out->bytes, &out->sum_bytes, &used) == 7 &&
           line[used] == '\0' && out->hosts >= 1 && out->ranks_each >= 1 &&
           out->hosts <= MAX_RANKS / out->ranks_each && out->link.latency_s >= 0 &&
           is_amount(out->link.latency_s + 1, 1e6) && is_amount(out->link.bytes_per_s, 1e15) &&
           is_amount(out->link.reduce_bytes_per_s, 1e15) && is_amount(out->bytes, 1e15) &&
           is_amount(out->sum_bytes, 1e15);
}

static bool equal_hosts(const struct question *question, struct cddpi_tree *out)
{
    size_t ranks = (size_t)question->hosts * (size_t)question->ranks_each;
    int *host_of = malloc(ranks * sizeof *host_of);
    bool is_made = false;

    if (host_of != NULL) {
        for (size_t r = 0; r < ranks; r++) {
            host_of[r] = (int)(r / (size_t)question->ranks_each);
        }
        is_made = cddpi_tree_init((int)ranks, host_of, question->hosts, out);
    }
    free(host_of);
    return is_made;
}

int main(void)
{
    char line[512];
    struct cddpi_tree tree = {0};

    for (int number = 1; fgets(line, sizeof line, stdin) != NULL; number++) {
        struct question question;
        enum cddpi_algorithm algorithm;
        double seconds;

        if (!parse(line, &question)) {
            fprintf(stderr, "net_cost: line %d is not seven numbers in their ranges\n", number);
            return 2;
        }
        if (tree.hosts != question.hosts || tree.ranks != question.hosts * question.ranks_each) {
            cddpi_tree_fini(&tree);
            if (!equal_hosts(&question, &tree)) {
                fprintf(stderr, "net_cost: line %d: no memory for the tree\n", number);
                return 1;
            }
        }
        algorithm = cddpi_algorithm_choose(&tree, &question.link, (size_t)question.bytes,
                                           (size_t)question.sum_bytes, &seconds);
        printf("%s %zu %.9g\n", cddpi_algorithm_names[algorithm],
               cddpi_piece_bytes(&question.link, question.hosts, (size_t)question.bytes), seconds);
    }
    cddpi_tree_fini(&tree);
    return fflush(stdout) == 0 ? 0 : 1;
}
