/* replay.c - runs a harness once for each file of the given folders, in the order of their names:
 * for builds without libFuzzer, and to reproduce an input. Usage: fuzz_NAME FILE_OR_FOLDER... */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int files;

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "re");
    struct stat info = {0};
    uint8_t *data;

    fuzz_check(file != NULL && fstat(fileno(file), &info) == 0, path);
    data = malloc(info.st_size > 0 ? (size_t)info.st_size : 1); /* a sanitizer sees its end */
    fuzz_check(data != NULL && fread(data, 1, (size_t)info.st_size, file) == (size_t)info.st_size,
               path);
    fclose(file);
    (void)LLVMFuzzerTestOneInput(data, (size_t)info.st_size);
    free(data);
    files++;
}

static void replay(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);

    if (count < 0) {
        replay_file(path);
        return;
    }
    for (int i = 0; i < count; i++) {
        char below[4400];

        snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            replay(below);
        }
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        replay(argv[i]);
    }
    printf("%d inputs\n", files);
    return files > 0 ? 0 : 1;
}
