/* at_exit.c - owns the list of this process's groups. If the program calls exit() without
 * destroying them, peers learn that it left and did not die. */
#include "group/watch/at_exit.h"

#include "group/device/group_device.h"
#include "group/group.h"

/* Held only briefly. A forked child may find it held, and then does not wait for it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cddp_group *groups;

void cddpi_group_note_open(cddp_group *group)
{
    pthread_mutex_lock(&mutex);
    group->next_open = groups;
    groups = group;
    pthread_mutex_unlock(&mutex);
}

void cddpi_group_note_closed(cddp_group *group)
{
    struct cddp_group **link;

    pthread_mutex_lock(&mutex);
    for (link = &groups; *link != NULL && *link != group; link = &(*link)->next_open) {
    }
    if (*link != NULL) {
        *link = group->next_open;
    }
    pthread_mutex_unlock(&mutex);
}

/* Other threads may still run, so no lock is waited for: a rank sets flags in shared memory, and
 * waits for a moment until its TCP thread has said goodbye. */
__attribute__((destructor)) static void say_that_we_left(void)
{
    if (pthread_mutex_trylock(&mutex) != 0) {
        return;
    }
    for (cddp_group *group = groups; group != NULL; group = group->next_open) {
        if (!cddpi_handle_is_own(&group->handle)) {
            continue;
        }
        if (cddpi_group_has_device(group)) {
            cddpi_calls_exit(group->device);
        }
        if (group->backend->ops->exits != NULL) {
            group->backend->ops->exits(group->backend);
        }
    }
    pthread_mutex_unlock(&mutex);
}
