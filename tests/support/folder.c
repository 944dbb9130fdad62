/* folder.c - a folder for each test, removed after it. */
#include "support/folder.h"

char *folder;

int make_folder(void **state)
{
    (void)state;
    folder = support_mkdtemp();
    return folder == NULL;
}

int remove_folder(void **state)
{
    (void)state;
    support_rmdir(folder);
    return 0;
}

char *in_folder(const char *name)
{
    static char buffers[8][4400];
    static int next;
    char *out = buffers[next++ % 8];

    snprintf(out, sizeof buffers[0], "%s/%s", folder, name);
    return out;
}

void put_in_folder(const char *path, const char *text)
{
    char *full = in_folder(path + 1);

    for (char *slash = strchr(full + strlen(folder) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    support_write_file(full, text, strlen(text));
}
