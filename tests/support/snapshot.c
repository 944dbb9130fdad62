/* snapshot.c - a small trainer, for the tests of snapshots, whose values show whether a snapshot
 * mixes several steps. */
#include "support/snapshot.h"

void set_trainer(struct trainer *trainer, uint64_t step, float mark)
{
    for (int i = 0; i < WEIGHTS; i++) {
        trainer->weights[i] = mark + (float)i;
        trainer->momentum[i] = -mark - (float)i;
    }
    trainer->step = (int64_t)mark;
    trainer->params[0] = (cddp_param){
        .name = "w", .dims = 1, .shape = {WEIGHTS}, .data = trainer->weights};
    trainer->params[1] = (cddp_param){.name = "step", .type = CDDP_I64, .data = &trainer->step};
    trainer->params[2] = (cddp_param){
        .name = "momentum.w", .dims = 1, .shape = {WEIGHTS}, .data = trainer->momentum};
    assert_int_equal(cddp_tensors_of(trainer->params, 3, trainer->tensors), CDDP_OK);
    snprintf(trainer->state, sizeof trainer->state, "{\"mark\": %d, \"lr\": 0.1}", (int)mark);
    trainer->snapshot = (cddp_snapshot){sizeof(cddp_snapshot), step, trainer->tensors, 1,
                                        trainer->tensors + 1,  2,    trainer->state};
}

cddp_status load_trainer(const char *path, struct trainer *trainer)
{
    return cddp_snapshot_load(path, trainer->params, 1, trainer->params + 1, 2);
}

cddp_status write_step(uint64_t step, float mark, unsigned keep)
{
    const cddp_snapshot_options options = {CDDP_SIZED(cddp_snapshot_options), .keep = keep};
    struct trainer trainer;

    set_trainer(&trainer, step, mark);
    return cddp_snapshot_write(folder, &trainer.snapshot, &options, NULL);
}

int found_mark(uint64_t *out_step, char **out_skipped)
{
    struct trainer expected;
    struct trainer loaded;
    char text[64];
    char *path;
    char *json;
    uint64_t step;
    int mark = 0;

    *out_skipped = NULL;
    if (cddp_snapshot_find(folder, &path, out_skipped) != CDDP_OK) {
        return 0;
    }
    assert_int_equal(cddp_snapshot_read_state(path, &json, &step), CDDP_OK);
    assert_int_equal(sscanf(json, "{\"mark\":%d", &mark), 1);
    snprintf(text, sizeof text, "{\"mark\":%d,\"lr\":0.10000000000000001}", mark);
    assert_string_equal(json, text);
    set_trainer(&loaded, 0, 0);
    set_trainer(&expected, 0, (float)mark);
    assert_int_equal(load_trainer(path, &loaded), CDDP_OK);
    assert_memory_equal(loaded.weights, expected.weights, sizeof loaded.weights);
    assert_memory_equal(loaded.momentum, expected.momentum, sizeof loaded.momentum);
    assert_int_equal(loaded.step, mark);
    cddpi_free(path);
    cddpi_free(json);
    *out_step = step;
    return mark;
}

void assert_found(uint64_t step, int mark)
{
    uint64_t present = 0;
    char *skipped;

    assert_int_equal(found_mark(&present, &skipped), mark);
    assert_int_equal(present, step);
    if (skipped != NULL) {
        fail_msg("skipped: %s", skipped);
    }
}

bool exists(const char *name)
{
    char path[5000];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &info) == 0;
}

int count_hidden(void)
{
    DIR *stream = opendir(folder);
    const struct dirent *row;
    int count = -2; /* . and .. */

    while ((row = readdir(stream)) != NULL) {
        count += row->d_name[0] == '.';
    }
    closedir(stream);
    return count;
}

void assert_latest_is(const char *name)
{
    char path[5000];
    char text[64] = "";
    FILE *file;

    snprintf(path, sizeof path, "%s/latest", folder);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), strlen(name) + 1);
    fclose(file);
    assert_int_equal(strncmp(text, name, strlen(name)), 0);
    assert_int_equal(text[strlen(name)], '\n');
}
