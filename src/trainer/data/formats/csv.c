/* csv.c - owns datasets in CSV files: lets the ranks of a machine read the files only once, into a
 * table of numbers that all of them map. */
#include "data/formats/csv.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_left.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "data/formats/csv_rows.h"
#include "data/rounds.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <stdlib.h>
#include <string.h>

enum { TRAIN, TEST, PARTS };

enum { TEXT_BYTES_MAX = 32 << 20 }; /* indented, with all else, state.json may have 64 MiB */

#define MAGIC UINT64_C(0x7673632d70646463) /* "cddp-csv" */

/* The beginning of a table in memory. Offsets are from there. */
struct csv_table {
    uint64_t magic;
    uint64_t rows[PARTS];
    uint64_t width, target_count;
    uint64_t classes; /* 0: targets are real */
    uint64_t text_bytes;
    uint64_t inputs_at, targets_at;
    uint64_t means_at; /* 0: nothing may be missing */
    uint64_t bytes;
    /* then the description of the columns, with a NUL; inputs; targets or classes; means */
};

/* What one rank reads files with. */
struct csv_job {
    const struct cddpi_csv_options *options;
    struct cddpi_paths paths[PARTS];
    struct cddpi_csv_schema schema;
    char *text;
    int part;                    /* whose files are looked at */
    struct cddpi_rounds *rounds; /* of the ranks that wait for this one; NULL: none */
};

/* Word a failure before ranks agree on it. */
static cddp_status blame(const struct csv_job *job, cddp_status status)
{
    return cddpi_data_blame(&job->options->blame, job->part == TEST ? "data.test" : "data.train",
                            status);
}

enum csv_pass { LOOK, COUNT, READ };

static cddp_status read_file(struct csv_job *job, const char *path, enum csv_pass pass,
                             struct cddpi_csv_rows *rows, uint64_t *test_rows)
{
    const struct cddpi_csv_meaning *meaning = &job->options->meaning;
    struct cddpi_data_file file = CDDPI_DATA_FILE_CLOSED;
    struct cddpi_csv csv = {.text = NULL};
    uint64_t count = 0;
    cddp_status status;

    CDDPI_TRY(cddpi_data_file_open(path, false, NULL, &file));
    CDDPI_TRY_GOTO(done, status,
                   cddpi_csv_init(path, file.data, file.bytes, meaning->delimiter, &csv));
    csv.rounds = job->rounds;
    if (pass == LOOK) {
        status = cddpi_csv_schema_look(&csv, meaning, &job->schema);
    } else if (pass == COUNT) {
        status = cddpi_csv_rows_count(&csv, &job->schema, &count);
        *test_rows += count;
    } else {
        status = cddpi_csv_rows_read(&csv, &job->schema, rows);
    }

done:
    cddpi_csv_fini(&csv);
    return cddpi_data_file_finish(&file, status);
}

static cddp_status read_files(struct csv_job *job, int part, enum csv_pass pass,
                              struct cddpi_csv_rows *rows, uint64_t *test_rows)
{
    job->part = part;
    for (size_t i = 0; i < job->paths[part].count; i++) {
        CDDPI_TRY(read_file(job, job->paths[part].names[i], pass, rows, test_rows));
    }
    return CDDP_OK;
}

/* First pass: what the columns are, and how many rows there are. */
static cddp_status look(struct csv_job *job, struct csv_table *out)
{
    const char *path = job->paths[TRAIN].names[0];
    const struct cddpi_csv_schema *schema = &job->schema;

    *out = (struct csv_table){.magic = MAGIC};
    CDDPI_TRY(read_files(job, TRAIN, LOOK, NULL, NULL));
    CDDPI_TRY(cddpi_csv_schema_finish(path, &job->schema));
    CDDPI_TRY(read_files(job, TEST, COUNT, NULL, &out->rows[TEST]));
    if (job->paths[TEST].count > 0 && out->rows[TEST] == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: there is no row after the header",
                          job->paths[TEST].names[0]);
    }
    job->part = TRAIN;
    if (schema->columns[0].name[0] == '\0') {
        cddpi_log(CDDPI_LOG_WARN,
                  "%s: the first column has no name and is left out: pandas writes its index so",
                  path);
    }
    job->text = cddpi_csv_schema_text(schema);
    CDDPI_TRY_MEMORY(job->text != NULL, "%s: no memory", path);
    if (strlen(job->text) > TEXT_BYTES_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the names, categories and classes of the columns take %zu bytes, "
                          "but a checkpoint has room for %d: name columns of long texts in "
                          "data.ignore",
                          path, strlen(job->text), TEXT_BYTES_MAX);
    }
    out->rows[TRAIN] = schema->rows;
    out->width = schema->width;
    out->target_count = schema->classes > 0 ? 0 : schema->target_count;
    out->classes = schema->classes;
    out->text_bytes = strlen(job->text) + 1;
    return CDDP_OK;
}

/* Place the arrays, and check that they fit into memory. */
static cddp_status lay_out(const char *path, bool fill, struct csv_table *table)
{
    uint64_t rows = table->rows[TRAIN] + table->rows[TEST]; /* fewer than bytes of files */
    uint64_t targets = table->target_count > 0 ? table->target_count : 1;
    uint64_t inputs = 0;

    table->inputs_at = cddpi_align(sizeof *table + table->text_bytes);
    if (__builtin_mul_overflow(rows, 4 * table->width, &inputs) || inputs > CDDPI_BYTES_MAX ||
        __builtin_mul_overflow(rows, 4 * targets, &table->bytes) ||
        table->bytes > CDDPI_BYTES_MAX) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: too many rows: %llu of %llu numbers", path,
                          (unsigned long long)rows, (unsigned long long)table->width);
    }
    table->targets_at = cddpi_align(table->inputs_at + inputs);
    table->bytes += table->targets_at;
    if (fill) {
        table->means_at = cddpi_align(table->bytes);
        table->bytes = table->means_at + 4 * table->width;
    }
    return cddpi_memory_need(table->bytes, "%s: %llu rows, of which each makes %llu numbers", path,
                             (unsigned long long)rows, (unsigned long long)table->width);
}

/* Which rows are trained on, when a part of them is held back. */
static cddp_status choose_rows(const struct csv_job *job, const struct csv_table *table,
                               uint64_t **out, uint64_t *out_count)
{
    const char *path = job->paths[TRAIN].names[0];
    cddp_sampler *order = NULL;
    uint64_t count = 0;
    uint64_t *rows;

    CDDPI_TRY(
        cddpi_numbers_order(path, table->rows[TRAIN], job->options->test_fraction, &order, &count));
    rows = cddpi_zalloc_array(count, sizeof *rows);
    for (uint64_t i = 0; rows != NULL && i < count; i++) {
        rows[i] = cddp_sampler_at(order, i);
    }
    cddp_sampler_destroy(order);
    CDDPI_TRY_MEMORY(rows != NULL, "%s: no memory", path);
    *out = rows;
    *out_count = count;
    return CDDP_OK;
}

static cddp_status fill(const struct csv_job *job, const struct csv_table *table,
                        struct cddpi_csv_rows *rows)
{
    uint64_t count = table->rows[TRAIN];
    uint64_t *of = NULL;
    cddp_status status;

    if (!job->options->meaning.fill) {
        return CDDP_OK;
    }
    if (table->rows[TEST] == 0) {
        CDDPI_TRY(choose_rows(job, table, &of, &count));
    }
    status = cddpi_csv_rows_fill(job->paths[TRAIN].names[0], &job->schema, of, count, rows);
    cddpi_free(of);
    return status;
}

/* Second pass: the numbers. */
static cddp_status read_table(struct csv_job *job, const struct csv_table *table,
                              struct cddpi_rounding *rounding, uint8_t *data)
{
    float *targets = (float *)(void *)(data + table->targets_at);
    struct cddpi_csv_rows rows = {
        .inputs = (float *)(void *)(data + table->inputs_at),
        .targets = table->target_count > 0 ? targets : NULL,
        .classes = (int32_t *)(void *)targets,
        .means = table->means_at > 0 ? (float *)(void *)(data + table->means_at) : NULL,
        .rounding = rounding,
        .rounds = job->rounds,
        .room = table->rows[TRAIN]};

    memcpy(data, table, sizeof *table);
    memcpy(data + sizeof *table, job->text, table->text_bytes);
    for (int part = TRAIN; part < PARTS; part++) {
        CDDPI_TRY(read_files(job, part, READ, &rows, NULL));
        if (rows.count != rows.room) {
            return cddpi_fail(CDDP_ERR_IO, "%s: the file changed while it was read",
                              job->paths[part].names[0]);
        }
        rows.room += table->rows[TEST];
    }
    job->part = TRAIN;
    return fill(job, table, &rows);
}

/* The same, and note what rounding does to the numbers. */
static cddp_status read_and_doubt(struct csv_job *job, const struct csv_table *table, uint8_t *data)
{
    const char *path = job->paths[TRAIN].names[0];
    struct cddpi_rounding *rounding = cddpi_zalloc_array(job->schema.count, sizeof *rounding);
    cddp_status status;

    CDDPI_TRY_MEMORY(rounding != NULL, "%s: no memory", path);
    for (size_t i = 0; i < job->schema.count; i++) {
        rounding[i] = CDDPI_ROUNDING_INIT;
    }
    status = read_table(job, table, rounding, data);
    if (status == CDDP_OK) {
        cddpi_csv_rows_doubt(path, &job->schema, rounding);
    }
    cddpi_free(rounding);
    return status;
}

static cddp_status make_table(struct csv_job *job, bool shareable, struct cddpi_data_file *out)
{
    const char *path = job->paths[TRAIN].names[0];
    struct cddpi_growable_mapping mapping = {NULL, 0, -1};
    struct csv_table table;
    cddp_status status;

    CDDPI_TRY(look(job, &table));
    CDDPI_TRY(lay_out(path, job->options->meaning.fill, &table));
    CDDPI_TRY(cddpi_growable_mapping_create(path, table.bytes, shareable, &mapping));
    CDDPI_TRY_GOTO(fail, status, read_and_doubt(job, &table, mapping.data));
    CDDPI_TRY_GOTO(fail, status, cddpi_data_file_freeze(path, &mapping, out));
    return CDDP_OK;

fail:
    cddpi_growable_mapping_free(&mapping);
    return status;
}

/* Describe one part of the table in the first file of @p memory. */
static cddp_status describe_part(const struct csv_table *table, int part,
                                 struct cddpi_dataset_memory *memory, struct cddpi_dataset *out)
{
    const uint8_t *data = memory->files[0].data;
    uint64_t before = part == TEST ? table->rows[TRAIN] : 0;
    uint64_t targets = table->target_count > 0 ? table->target_count : 1;
    struct cddpi_number_shard *shard = &memory->number_shards[part];

    *shard = (struct cddpi_number_shard){
        .path = memory->labels[part],
        .target_path = memory->labels[part],
        .inputs = {data + table->inputs_at + 4 * before * table->width, CDDPI_NUMBER_F32},
        .targets = {data + table->targets_at + 4 * before * targets,
                    table->target_count > 0 ? CDDPI_NUMBER_F32 : CDDPI_NUMBER_I32},
        .count = table->rows[part]};
    *out = (struct cddpi_dataset){
        .channels = 1,
        .height = 1,
        .width = (int)table->width,
        .target_count = (int)table->target_count,
        .columns = (const char *)data + sizeof *table,
        .missing = table->means_at > 0 ? (const float *)(const void *)(data + table->means_at)
                                       : NULL,
        .memory = memory};
    return cddpi_numbers_lay_out(shard, 1, (int)table->classes, out);
}

static cddp_status describe(const struct csv_job *job, struct cddpi_dataset_memory *memory,
                            struct cddpi_dataset out[PARTS])
{
    const struct cddpi_data_file *file = &memory->files[0];
    const struct csv_table *table = (const struct csv_table *)(const void *)file->data;

    if (file->bytes < sizeof *table || table->magic != MAGIC || table->bytes > file->bytes) {
        return cddpi_fail(CDDP_ERR_STATE, "%s: what another rank made of it is not a table",
                          job->paths[TRAIN].names[0]);
    }
    for (int part = TRAIN; part < PARTS; part++) {
        const struct cddpi_paths *paths = &job->paths[part];

        memory->labels[part] = cddpi_format(
            "%s%s", paths->count > 0 ? paths->names[0] : job->paths[TRAIN].names[0],
            paths->count > 1 ? " and the files after it" : "");
        CDDPI_TRY_MEMORY(memory->labels[part] != NULL, "%s: no memory", job->paths[TRAIN].names[0]);
    }
    memory->number_shards = cddpi_zalloc_array(PARTS, sizeof *memory->number_shards);
    CDDPI_TRY_MEMORY(memory->number_shards != NULL, "%s: no memory", job->paths[TRAIN].names[0]);
    CDDPI_TRY(describe_part(table, TRAIN, memory, &out[TRAIN]));
    if (table->rows[TEST] == 0) {
        return cddpi_numbers_split(&out[TRAIN], job->options->test_fraction, &out[TEST]);
    }
    CDDPI_TRY(describe_part(table, TEST, memory, &out[TEST]));
    memory->datasets++;
    return CDDP_OK;
}

/* Let the ranks that make the table do so while the others wait, and agree on the outcome. What
 * another rank failed with is blamed already. */
static cddp_status make_together(struct csv_job *job, cddp_group *group, bool makes, bool shareable,
                                 struct cddpi_data_file *out)
{
    struct cddpi_rounds rounds = {.group = group};
    cddp_status status = CDDP_OK;

    if (makes) {
        job->rounds = &rounds;
        status = make_table(job, shareable, out);
        job->rounds = NULL;
    }
    return cddpi_rounds_end(&rounds, rounds.failed ? status : blame(job, status));
}

/* Make the table collectively. After each step, all ranks agree on the outcome. */
static cddp_status open_together(struct csv_job *job, cddp_group *group,
                                 struct cddpi_dataset_memory *memory,
                                 struct cddpi_dataset out[PARTS])
{
    struct cddpi_data_file *table = &memory->files[0];
    bool reads = cddpi_group_local_rank(group) == 0;
    bool shareable = cddpi_group_local_world_size(group) > 1;
    const char *path = job->paths[TRAIN].names[0];
    struct cddpi_data_file_address address;
    struct cddpi_content content = {.path = path};
    bool found = false;
    bool alone;

    CDDPI_TRY(make_together(job, group, reads, shareable, table));
    CDDPI_TRY(cddpi_exchange_data_files(group, reads ? table : NULL, 1, &found, &address));
    alone = !reads && !cddpi_map_exchanged(found, &address, &path, 1, table);
    CDDPI_TRY(make_together(job, group, alone, false, table)); /* by now all ranks have mapped */
    CDDPI_TRY(cddpi_agree(group, blame(job, describe(job, memory, out))));
    CDDPI_TRY(cddpi_numbers_agree(group, &out[TRAIN]));
    content.data = table->data;
    content.bytes = table->bytes;
    return cddpi_agree_on_contents(group, &content, 1, true);
}

static cddp_status find_files(struct csv_job *job)
{
    const struct cddpi_csv_list *lists[PARTS] = {&job->options->train, &job->options->test};

    for (int part = TRAIN; part < PARTS; part++) {
        job->part = part;
        if (lists[part]->count > 0) {
            CDDPI_TRY(cddpi_paths_find(lists[part]->values, lists[part]->count, &job->paths[part]));
        }
    }
    job->part = TRAIN;
    return CDDP_OK;
}

static cddp_status open_alone(struct csv_job *job, struct cddpi_dataset_memory *memory,
                              struct cddpi_dataset out[PARTS])
{
    CDDPI_TRY(make_table(job, false, &memory->files[0]));
    return describe(job, memory, out);
}

cddp_status cddpi_dataset_open_csv(const struct cddpi_csv_options *options, cddp_group *group,
                                   struct cddpi_dataset *out, struct cddpi_dataset *out_test)
{
    struct cddpi_dataset_memory *memory = cddpi_dataset_memory_create(1, 0, group);
    struct csv_job job = {.options = options};
    struct cddpi_dataset parts[PARTS];
    bool together = group != NULL && cddp_group_world_size(group) > 1;
    cddp_status status;

    if (memory == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    status = blame(&job, find_files(&job));
    CDDPI_TRY_GOTO(done, status, together ? cddpi_agree(group, status) : status);
    CDDPI_TRY_GOTO(done, status,
                   together ? open_together(&job, group, memory, parts)
                            : blame(&job, open_alone(&job, memory, parts)));
    *out = parts[TRAIN];
    *out_test = parts[TEST];

done:
    cddpi_data_file_close_fd(&memory->files[0]);
    if (status != CDDP_OK) {
        memory->datasets = 1; /* neither part was handed out */
        cddpi_dataset_memory_release(memory);
    }
    cddpi_csv_schema_fini(&job.schema);
    cddpi_paths_fini(&job.paths[TRAIN]);
    cddpi_paths_fini(&job.paths[TEST]);
    free(job.text);
    return status;
}
