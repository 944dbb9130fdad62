/* tokenize.c - runs the real cddp-tokenize in its own folder and reads the files that it writes. */
#include "support/tokenize.h"

const char *program(void)
{
    return launcher_path("src/cddp-tokenize");
}

const char *small_vocabulary(void)
{
    static char path[4200];
    const char *source = getenv("CDDP_TEST_SOURCE");

    snprintf(path, sizeof path, "%s/tests/vectors/tokenizer_small.json",
             source != NULL ? source : ".");
    return path;
}

void forget_output(struct launched *job)
{
    free(job->out);
    free(job->err);
    job->out = NULL;
    job->err = NULL;
}

char *tokenize_path(const struct launched *job, const char *name)
{
    static char path[4300];

    snprintf(path, sizeof path, "%s/%s", job->dir, name);
    return path;
}

void tokenize_folder(struct launched *job)
{
    *job = (struct launched){.dir = support_mkdtemp()};
}

void tokenize_put(const struct launched *job, const char *name, const void *data, size_t bytes)
{
    support_write_file(tokenize_path(job, name), data, bytes);
}

void tokenize_put_text(const struct launched *job, const char *name, const char *text)
{
    tokenize_put(job, name, text, strlen(text));
}

/* The contents of a file in the folder. */
static char *get(const struct launched *job, const char *name, size_t *out_bytes)
{
    FILE *file = fopen(tokenize_path(job, name), "re");
    struct stat info;
    char *data;

    if (file == NULL || fstat(fileno(file), &info) != 0) {
        fail_msg("there is no %s", name);
    }
    data = malloc((size_t)info.st_size + 1);
    *out_bytes = fread(data, 1, (size_t)info.st_size + 1, file);
    fclose(file);
    return data;
}

void file_is(const struct launched *job, const char *name, const void *wanted, size_t bytes)
{
    size_t got;
    char *data = get(job, name, &got);

    assert_int_equal(got, bytes);
    assert_memory_equal(data, wanted, bytes);
    free(data);
}

bool tokenize_has(const struct launched *job, const char *name)
{
    return access(tokenize_path(job, name), F_OK) == 0;
}

size_t get_tokens(const struct launched *job, const char *name, int width, int32_t *tokens,
                  size_t room)
{
    size_t bytes;
    char *data = get(job, name, &bytes);
    int32_t header[256];

    assert_true(bytes >= sizeof header);
    memcpy(header, data, sizeof header);
    assert_int_equal(header[0], width == 2 ? 20240520 : 20240801);
    assert_int_equal(header[1], width == 2 ? 1 : 7);
    assert_in_range(header[2], 0, room);
    for (int i = 3; i < 256; i++) {
        assert_int_equal(header[i], 0);
    }
    assert_int_equal(bytes, 1024 + (size_t)header[2] * (size_t)width);
    for (int32_t i = 0; i < header[2]; i++) {
        uint16_t narrow;

        memcpy(&narrow, data + 1024 + i * 2, 2);
        tokens[i] = narrow;
        if (width == 4) {
            memcpy(&tokens[i], data + 1024 + i * 4, 4);
        }
    }
    free(data);
    return (size_t)header[2];
}

void nothing_is_half(const struct launched *job)
{
    DIR *folder = opendir(job->dir);

    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        assert_null(strstr(entry->d_name, ".tmp-"));
    }
    closedir(folder);
}

char *long_text(size_t *out_bytes)
{
    static const char *const parts[] = {"All human beings ",
                                        "are born free\n",
                                        "\r\n",
                                        "  \t",
                                        "0123",
                                        "\xc3\xa9\xff\xf0\x9f\x98",
                                        "\xf0\x9f\x98\x80",
                                        "'s",
                                        "<end",
                                        "<end>x\n",
                                        "\n<end>\n",
                                        "\n"};
    size_t room = 3 << 20;
    char *text = malloc(room + 64);
    uint32_t random = 5;
    size_t bytes = 0;

    while (bytes < room) {
        const char *part;

        random = random * 1664525 + 1013904223;
        part = parts[(random >> 20) % 12];
        strcpy(text + bytes, part);
        bytes += strlen(part);
    }
    memset(text + (1 << 20), 'a', 1 << 19); /* half a megabyte without the end of a word */
    *out_bytes = bytes;
    return text;
}
