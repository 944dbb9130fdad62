/* tuning.c - shared by the tests of choices that processes keep for each other. */
#include "support/tuning.h"

const char tuning_card[] = "a card, driver 1, a library 2";

int make_cache(void **state)
{
    make_folder(state);
    setenv("CDDP_CACHE", in_folder("cache"), 1);
    return 0;
}

int remove_cache(void **state)
{
    setenv("CDDP_CACHE", "off", 1);
    return remove_folder(state);
}

struct cddpi_tuning *open_card(void)
{
    struct cddpi_tuning *tuning = cddpi_tuning_open("products", tuning_card);

    assert_non_null(tuning);
    return tuning;
}

void assert_choice(const char *identity, uint64_t key, uint64_t value)
{
    struct cddpi_tuning *tuning = cddpi_tuning_open("products", identity);
    uint64_t found = 0;

    cddpi_tuning_find(tuning, &key, sizeof key, &found, sizeof found);
    assert_int_equal(found, value);
    cddpi_tuning_close(tuning);
}

void keep_choice(uint64_t key, uint64_t value)
{
    struct cddpi_tuning *tuning = open_card();

    cddpi_tuning_keep(tuning, &key, sizeof key, &value, sizeof value);
    cddpi_tuning_close(tuning);
}

char *file_of_choices(void)
{
    static char path[4096];
    DIR *stream = opendir(in_folder("cache"));
    int found = 0;

    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "lock") != 0) {
            snprintf(path, sizeof path, "%s/%s", in_folder("cache"), entry->d_name);
            found++;
        }
        assert_true(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                    entry->d_name[0] != '.'); /* no temporary files */
    }
    closedir(stream);
    assert_int_equal(found, 1);
    return path;
}

size_t read_choices(char *out, size_t room)
{
    FILE *file = fopen(file_of_choices(), "re");
    size_t bytes = file != NULL ? fread(out, 1, room, file) : 0;

    assert_non_null(file);
    fclose(file);
    assert_true(bytes < room);
    return bytes;
}
