/* embed.c - runs the examples that embed cddp in a trainer, on 1 to 11 processes, and reads what
 * each process prints. */
#include "support/embed.h"

int run_rank(int rank, int world_size, void *argument)
{
    const struct place *place = argument;
    char text[4400];
    int file;

    support_setenv_number("CDDP_RANK", rank);
    support_setenv_number("CDDP_WORLD_SIZE", world_size);
    support_setenv_number("CDDP_LOCAL_RANK", rank);
    support_setenv_number("CDDP_LOCAL_WORLD_SIZE", world_size);
    snprintf(text, sizeof text, "test-embed-%d-%d", (int)getppid(), world_size);
    setenv("CDDP_JOB", text, 1);
    snprintf(text, sizeof text, "file://%s/store-%d", place->folder, world_size);
    setenv("CDDP_STORE", text, 1);
    setenv("CDDP_TOKEN", SUPPORT_TOKEN, 1);
    support_setenv_number("CDDP_TIMEOUT_MS", SUPPORT_TIMEOUT_MS);
    snprintf(text, sizeof text, "%s/out-%d-%d", place->folder, world_size, rank);
    file = open(text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, STDOUT_FILENO) < 0) {
        perror(text);
        return 1;
    }
    execl(place->program, place->program, (char *)NULL);
    perror(place->program);
    return 1;
}

void read_output(const char *path, struct run *run)
{
    FILE *file = fopen(path, "r");
    char line[256];

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long weights;
        double loss;
        int number;

        if (sscanf(line, "step %d loss %lf", &number, &loss) == 2 && run->count < MOST_LOSSES) {
            run->steps[run->count] = number;
            run->losses[run->count++] = loss;
        } else if (sscanf(line, "rank %d weights %llx", &number, &weights) == 2) {
            assert_in_range(number, 0, MOST_RANKS - 1);
            run->weights[number] = weights;
        } else if (sscanf(line, "weights %llx", &weights) == 1) { /* printed by a program without
                                                                     ranks */
            run->weights[0] = weights;
        }
    }
    fclose(file);
}

void run_trainer(struct place *place, int world_size, struct run *run)
{
    memset(run, 0, sizeof *run);
    assert_int_equal(run_ranks(world_size, run_rank, place), 0);
    for (int rank = 0; rank < world_size; rank++) {
        char path[4400];

        snprintf(path, sizeof path, "%s/out-%d-%d", place->folder, world_size, rank);
        read_output(path, run);
    }
    assert_int_equal(run->count, 11);
    for (int rank = 0; rank < world_size; rank++) {
        assert_true(run->weights[rank] != 0);
        assert_true(run->weights[rank] == run->weights[0]);
    }
}

void assert_same_losses(const struct run *a, const struct run *b, double tolerance)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        assert_int_equal(a->steps[i], b->steps[i]);
        if (fabs(a->losses[i] - b->losses[i]) > tolerance * fabs(a->losses[i])) {
            fail_msg("step %d: loss %.9g and %.9g", a->steps[i], a->losses[i], b->losses[i]);
        }
    }
}

int set_up_place(void **state, const char *built)
{
    struct place *place = calloc(1, sizeof *place);
    char *folder = support_mkdtemp();
    static char program[4200];

    if (place == NULL || folder == NULL || getenv("CDDP_TEST_BUILD") == NULL) {
        fprintf(stderr, "CDDP_TEST_BUILD is not set\n");
        return 1;
    }
    snprintf(place->folder, sizeof place->folder, "%s", folder);
    snprintf(program, sizeof program, "%s/%s", getenv("CDDP_TEST_BUILD"), built);
    place->program = program;
    free(folder);
    *state = place;
    return 0;
}

int tear_down(void **state)
{
    struct place *place = *state;

    support_rmdir(strdup(place->folder));
    free(place);
    return 0;
}

void need_programs(const char *alone, const char *patched)
{
    if (access(alone, X_OK) != 0 || access(patched, X_OK) != 0) {
        printf("%s was not built: its compiler or the program patch is missing\n", patched);
        skip();
    }
}

void assert_short_patch(const char *folder, int most)
{
    char path[4200];
    char line[1024];
    int added = 0;
    FILE *patch;

    snprintf(path, sizeof path, "%s/examples/%s/cddp.patch", getenv("CDDP_TEST_SOURCE"), folder);
    patch = fopen(path, "r");
    assert_non_null(patch);
    while (fgets(line, sizeof line, patch) != NULL) {
        added += line[0] == '+' && strncmp(line, "+++ ", 4) != 0 && line[1] != '\n';
    }
    fclose(patch);
    assert_in_range(added, 1, most);
}
