/* test_keep_histories.c - invented histories of ranks that keep their state: launchers with ranks,
 * of which any may end between any two of its acts, or in the middle of a copy. The real functions
 * then choose from what they have left. One number is one history. The rules (recovery/keep.h):
 *
 *     A step is kept when every part of it is whole.
 *     The job goes on from the greatest step that is kept.
 *
 * Whatever the history: what is chosen is one state of one step. And it is not older than the
 * newest copy before the last step that any rank has completed, unless parts were lost with
 * launchers. */
#include "recovery/keep_choose.h"
#include "support/test.h"

#include <sys/mman.h>

enum {
    LAUNCHERS = 4,
    LOCAL = 3, /* ranks of a launcher, at most */
    RANKS = LAUNCHERS * LOCAL,
    HISTORIES = 1000,
    GENERATIONS = 6,
    FILES_READ = CDDPI_KEEP_STAMPS / CDDPI_KEPT_SLOTS
};

/* What a rank does next. */
enum act { SENDS_GRADIENTS, UPDATES, COPIES, ENDS_COPY, SENDS_COPY, GETS_COPY, ENDS_OTHER };

/* The whole of a part: no two states have the same. */
struct state {
    uint64_t step, writer, part;
};

struct rank {
    int launcher, local;
    bool is_alive;
    enum act act;
    uint64_t step;      /* that it computes */
    uint64_t gradients; /* the last step whose gradients it has sent */
    uint64_t sent;      /* the last step of which it has sent a copy */
    int slot;           /* that it writes */
};

struct launcher {
    bool is_lost;
    int ranks, files; /* now, and the most so far */
    struct cddpi_kept_memory memory[LOCAL];
};

struct world {
    uint64_t random;
    struct launcher launchers[LAUNCHERS];
    struct rank ranks[RANKS];
    int count;
    int shift; /* to the rank that gets a copy; 0: none does */
    uint64_t writer, begun;
    unsigned every;     /* which steps are kept: one of so many */
    uint64_t updated;   /* the last step that a rank of this generation has updated */
    int lost_launchers; /* in this generation */
    bool is_even;       /* launchers have equally many ranks */
};

static unsigned draw(struct world *world, unsigned below)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((world->random >> 33) % below);
}

static bool is_kept(const struct world *world, uint64_t step)
{
    return (step * UINT64_C(2654435761) >> 7) % world->every == 0;
}

static void open_memory(struct launcher *launcher, int ranks)
{
    for (; launcher->files < ranks; launcher->files++) {
        assert_int_equal(
            cddpi_kept_open(memfd_create("kept", MFD_CLOEXEC), &launcher->memory[launcher->files]),
            CDDP_OK);
    }
}

static void lose_memory(struct launcher *launcher)
{
    for (int i = 0; i < launcher->files; i++) {
        cddpi_kept_close(&launcher->memory[i]);
        close(launcher->memory[i].fd);
    }
    launcher->files = 0;
}

static struct cddpi_kept_memory *memory_of(struct world *world, const struct rank *rank)
{
    return &world->launchers[rank->launcher].memory[rank->local];
}

/* A generation of launchers with some ranks each, from @p begun on. */
static void begin_generation(struct world *world, uint64_t begun)
{
    int launchers = 1 + (int)draw(world, LAUNCHERS);
    int equal = 1 + (int)draw(world, LOCAL);
    int most = 0;

    world->count = 0;
    world->is_even = draw(world, 3) > 0;
    world->begun = begun;
    world->updated = begun;
    world->writer++;
    world->every = 1 + draw(world, 3);
    world->lost_launchers = 0;
    for (int l = 0; l < LAUNCHERS; l++) {
        struct launcher *launcher = &world->launchers[l];

        if (l >= launchers) { /* it has left the job */
            lose_memory(launcher);
            launcher->ranks = 0;
            continue;
        }
        launcher->is_lost = false;
        launcher->ranks = world->is_even ? equal : 1 + (int)draw(world, LOCAL);
        open_memory(launcher, launcher->ranks);
        most = launcher->ranks > most ? launcher->ranks : most;
        for (int i = 0; i < launcher->ranks; i++) {
            world->ranks[world->count++] = (struct rank){.launcher = l,
                                                         .local = i,
                                                         .is_alive = true,
                                                         .step = begun + 1,
                                                         .gradients = begun,
                                                         .sent = begun};
        }
    }
    world->shift = most < world->count ? most : 0;
}

static bool all_sent_gradients(const struct world *world, uint64_t step)
{
    for (int r = 0; r < world->count; r++) {
        if (world->ranks[r].gradients < step) {
            return false;
        }
    }
    return true;
}

static void write_copy(struct world *world, struct rank *rank, int first, int part)
{
    struct cddpi_kept_memory *memory = memory_of(world, rank);
    const struct state state = {rank->step, world->writer, (uint64_t)part};

    rank->slot = cddpi_kept_next(memory, first, 1);
    assert_int_equal(cddpi_kept_reserve(memory, rank->slot, sizeof state), CDDP_OK);
    memcpy(cddpi_kept_begin(memory, rank->slot), &state,
           draw(world, 2) == 0 ? sizeof state : sizeof state / 2);
}

static void end_copy(struct world *world, struct rank *rank, int part)
{
    struct cddpi_kept_memory *memory = memory_of(world, rank);
    const struct state state = {rank->step, world->writer, (uint64_t)part};
    const struct cddpi_kept_stamp stamp = {.step = rank->step,
                                           .run = 1,
                                           .writer = world->writer,
                                           .layout = 5,
                                           .bytes = sizeof state,
                                           .part = (uint32_t)part,
                                           .parts = (uint32_t)world->count};

    memcpy((unsigned char *)(uintptr_t)cddpi_kept_data(memory, rank->slot), &state, sizeof state);
    cddpi_kept_end(memory, rank->slot, &stamp);
}

static void next_step(struct rank *rank)
{
    rank->act = SENDS_GRADIENTS;
    rank->step++;
}

/* Let rank @p number do one act, unless it waits for others. */
static void act(struct world *world, int number)
{
    struct rank *rank = &world->ranks[number];
    int from = (number + world->count - world->shift) % world->count;

    switch (rank->act) {
    case SENDS_GRADIENTS:
        rank->gradients = rank->step;
        rank->act = UPDATES;
        break;
    case UPDATES:
        if (all_sent_gradients(world, rank->step)) {
            world->updated = rank->step > world->updated ? rank->step : world->updated;
            rank->act = COPIES;
        }
        break;
    case COPIES:
        if (!is_kept(world, rank->step)) {
            next_step(rank);
            break;
        }
        write_copy(world, rank, CDDPI_KEPT_OWN, number);
        rank->act = ENDS_COPY;
        break;
    case ENDS_COPY:
        end_copy(world, rank, number);
        rank->act = SENDS_COPY;
        if (world->shift == 0) {
            next_step(rank);
        }
        break;
    case SENDS_COPY:
        rank->sent = rank->step;
        rank->act = GETS_COPY;
        break;
    case GETS_COPY:
        if (world->ranks[from].sent >= rank->step) {
            write_copy(world, rank, CDDPI_KEPT_OTHER, from);
            rank->act = ENDS_OTHER;
        }
        break;
    case ENDS_OTHER:
        end_copy(world, rank, from);
        next_step(rank);
        break;
    }
}

static void lose_launcher(struct world *world, int number)
{
    struct launcher *launcher = &world->launchers[number];

    if (launcher->is_lost || launcher->ranks == 0) {
        return;
    }
    launcher->is_lost = true;
    world->lost_launchers++;
    lose_memory(launcher);
    for (int r = 0; r < world->count; r++) {
        world->ranks[r].is_alive = world->ranks[r].is_alive && world->ranks[r].launcher != number;
    }
}

/* Some ranks, all, or a launcher; the others go on until they wait for the lost. */
static void disturb(struct world *world)
{
    unsigned kind = draw(world, 6);

    if (kind < 2) {
        lose_launcher(world, (int)draw(world, LAUNCHERS));
    } else if (kind == 2) {
        for (int r = 0; r < world->count; r++) {
            world->ranks[r].is_alive = false;
        }
    }
    world->ranks[draw(world, (unsigned)world->count)].is_alive = false;
}

static void run_generation(struct world *world)
{
    unsigned acts = draw(world, 60 * (unsigned)world->count);
    unsigned after = draw(world, 10 * (unsigned)world->count);

    for (unsigned i = 0; i < acts + after; i++) {
        int number = (int)draw(world, (unsigned)world->count);

        if (i == acts) {
            disturb(world);
        }
        if (world->ranks[number].is_alive) {
            act(world, number);
        }
    }
    if (after == 0) {
        disturb(world);
    }
}

/* What the ranks of the next generation, which begin_generation() has made, tell each other. */
static void gather(struct world *world, struct cddpi_keep_offer *offers,
                   struct cddpi_kept_memory *files[RANKS][FILES_READ])
{
    memset(offers, 0, RANKS * sizeof *offers);
    for (int r = 0; r < world->count; r++) {
        struct launcher *launcher = &world->launchers[world->ranks[r].launcher];
        int count = 0;

        offers[r].run = 1;
        offers[r].layout = 5;
        for (int i = world->ranks[r].local; i < launcher->files; i += launcher->ranks) {
            for (int slot = 0; slot < CDDPI_KEPT_SLOTS; slot++) {
                offers[r].stamps[count * CDDPI_KEPT_SLOTS + slot] = cddpi_kept_stamp(
                    &launcher->memory[i], slot);
            }
            files[r][count++] = &launcher->memory[i];
        }
    }
}

/* The newest copy before @p step that the generation from @p begun on has made; @p begun: none. */
static uint64_t newest_before(const struct world *world, uint64_t begun, uint64_t step)
{
    for (step = step > 0 ? step - 1 : 0; step > begun; step--) {
        if (is_kept(world, step)) {
            return step;
        }
    }
    return begun;
}

static void forget(struct world *world, const struct cddpi_kept_stamp *but)
{
    for (int l = 0; l < LAUNCHERS; l++) {
        for (int i = 0; i < world->launchers[l].files; i++) {
            cddpi_kept_forget_others(&world->launchers[l].memory[i], 1, but->writer, but->step);
        }
    }
}

/* Begin the next generation from what the one that has ended has left. */
static void go_on(struct world *world, uint64_t number)
{
    static struct cddpi_keep_offer offers[RANKS];
    struct cddpi_kept_memory *files[RANKS][FILES_READ];
    struct cddpi_keep_place places[RANKS];
    struct cddpi_kept_stamp chosen;
    uint64_t least = newest_before(world, world->begun, world->updated);
    /* a copy with a rank of another launcher survives the loss of one launcher; what was restored
     * is kept by those only who had it */
    bool is_safe = world->lost_launchers == 0 || (world->lost_launchers == 1 && world->is_even &&
                                                  world->shift > 0 && least > world->begun);
    int launchers = 0;

    begin_generation(world, 0);
    for (int l = 0; l < LAUNCHERS; l++) {
        launchers += world->launchers[l].ranks > 0;
    }
    gather(world, offers, files);
    cddpi_keep_choose(offers, world->count, &chosen, places, RANKS);
    if (is_safe && launchers == LAUNCHERS && chosen.step < least) {
        fail_msg("history %llu: step %llu is chosen, and step %llu is whole",
                 (unsigned long long)number, (unsigned long long)chosen.step,
                 (unsigned long long)least);
    }
    for (uint32_t part = 0; chosen.step > 0 && part < chosen.parts; part++) {
        int stamp = places[part].stamp;
        struct cddpi_kept_memory *file = files[places[part].rank][stamp / CDDPI_KEPT_SLOTS];
        const struct state right = {chosen.step, chosen.writer, part};

        assert_memory_equal(cddpi_kept_data(file, stamp % CDDPI_KEPT_SLOTS), &right, sizeof right);
    }
    forget(world, &chosen);
    world->begun = chosen.step;
    world->updated = chosen.step;
    for (int r = 0; r < world->count; r++) {
        world->ranks[r].step = chosen.step + 1;
        world->ranks[r].gradients = world->ranks[r].sent = chosen.step;
    }
}

static void whatever_ends_the_job_goes_on_from_one_state_that_is_whole(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= HISTORIES; number++) {
        struct world world = {.random = number * UINT64_C(0x9E3779B97F4A7C15)};

        begin_generation(&world, 0);
        for (int generation = 0; generation < GENERATIONS; generation++) {
            run_generation(&world);
            go_on(&world, number);
        }
        for (int l = 0; l < LAUNCHERS; l++) {
            lose_memory(&world.launchers[l]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_ends_the_job_goes_on_from_one_state_that_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
