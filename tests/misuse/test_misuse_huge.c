/* test_misuse_huge.c - counts beyond 2^31: no 32-bit arithmetic between the caller's buffer and the
 * other rank's. Skipped on machines with little memory. */
#include "support/misuse.h"

#include <inttypes.h>
#include <sys/mman.h>

#define GIB ((size_t)1 << 30)
#define COUNT (2 * GIB + 3)

enum { NEEDED_GIB = 12, SAID = 5 };

/* Where bytes are looked at: at both ends, and around what does not fit into 31 bits. */
static const size_t places[SAID] = {0, 1, 2 * GIB - 1, 2 * GIB, COUNT - 1};

enum call { ALL_REDUCE, BROADCAST, MESSAGE, CALLS };

/* A number in @p file, which may say "max"; otherwise or without it UINT64_MAX. */
static uint64_t read_number(const char *file, const char *format)
{
    FILE *stream = fopen(file, "re");
    uint64_t number;
    char line[256];
    uint64_t found = UINT64_MAX;

    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        if (sscanf(line, format, &number) == 1) {
            found = number;
        }
    }
    if (stream != NULL) {
        fclose(stream);
    }
    return found;
}

/* Memory that there is, of the machine and of the control group. */
static bool is_there_room(void)
{
    uint64_t machine = read_number("/proc/meminfo", "MemAvailable: %" SCNu64);
    uint64_t most = read_number("/sys/fs/cgroup/memory.max", "%" SCNu64);
    uint64_t used = read_number("/sys/fs/cgroup/memory.current", "%" SCNu64);

    return machine != UINT64_MAX && machine >= NEEDED_GIB * GIB / 1024 &&
           (most == UINT64_MAX || used == UINT64_MAX || most - used >= NEEDED_GIB * GIB);
}

static bool is_slowed_down(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
}

/* What @p rank has at places[i]. */
static unsigned char said(int rank, int i)
{
    return (unsigned char)(10 * i + (i % 2 == rank % 2 ? 7 : 3));
}

static cddp_status call(cddp_group *group, enum call which, int rank, int size, unsigned char *data)
{
    switch (which) {
    case ALL_REDUCE:
        return cddp_all_reduce(group, data, data, COUNT, CDDP_U8, CDDP_OP_MAX, NULL);
    case BROADCAST:
        return cddp_broadcast(group, data, COUNT, CDDP_U8, size - 1, NULL);
    default:
        if (size == 1) {
            return CDDP_OK;
        }
        return rank == 1 ? cddp_send(group, data, COUNT, CDDP_U8, 0, NULL)
                         : cddp_recv(group, data, COUNT, CDDP_U8, 1, NULL);
    }
}

static int huge_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    enum call which = (enum call)misuse->which;
    unsigned char *data = mmap(NULL, COUNT, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cddp_group *group;

    CHECK(data != MAP_FAILED);
    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    for (int i = 0; i < SAID; i++) {
        data[places[i]] = said(rank, i);
    }
    CHECK(call(group, which, rank, size, data) == CDDP_OK);
    for (int i = 0; i < SAID; i++) {
        unsigned char most = size > 1 ? (unsigned char)(10 * i + 7) : said(0, i);

        CHECK(data[places[i]] == (which == ALL_REDUCE ? most : said(size - 1, i)));
    }
    CHECK(data[2] == 0 && data[GIB] == 0 && data[2 * GIB + 1] == 0); /* what nobody has set */
    cddp_group_destroy(group);
    munmap(data, COUNT);
    return 0;
}

static void more_than_2_to_the_31_elements_arrive_whole(void **state)
{
    if (is_slowed_down()) {
        print_message("skipped: a sanitizer takes too long for 2 GiB\n");
        skip();
    }
    if (!is_there_room()) {
        print_message("skipped: less than %d GiB of memory are free\n", NEEDED_GIB);
        skip();
    }
    for (int which = 0; which < CALLS; which++) {
        assert_int_equal(misuse_run(*state, 1, huge_rank, which, NULL), 0);
        assert_int_equal(misuse_run(*state, 2, huge_rank, which, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(more_than_2_to_the_31_elements_arrive_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
