/* sim.c - runs many histories, or tells one. See README.md. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_COUNT = 20000, PLANT_COUNT = 20000, KEPT_COUNT = 100, MOST_JOBS = 64 };

struct options {
    const char *program;
    uint64_t first, count;
    int jobs;
    int plant;
    const struct sim_kept *kept;
    bool tells;
    bool checks_plants;
    enum sim_kind_of_job kind;
    int seconds; /* 0: without limit */
};

static const char *const kind_words[] = {
    [SIM_ANY_JOB] = "", [SIM_WITH_STORE] = " --outside", [SIM_WITH_HEAD] = " --head"};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void report(const struct options *options, uint64_t seed)
{
    printf("history %llu: %s\n  tell it: %s --seed %llu%s%s%s%s%s\n", (unsigned long long)seed,
           sim.broken, options->program, (unsigned long long)seed, kind_words[options->kind],
           options->plant >= 0 ? " --plant " : "",
           options->plant >= 0 ? sim_plant_name(options->plant) : "",
           options->kept != NULL ? " --kept " : "",
           options->kept != NULL ? options->kept->name : "");
    fflush(stdout);
}

/* Every jobs-th history from first + job on. Returns 1 after one that breaks a rule. */
static int run_share(const struct options *options, int job)
{
    const struct sim_plan *plan = options->kept != NULL ? &options->kept->plan : NULL;
    double end_s = now_s() + options->seconds;

    for (uint64_t i = (uint64_t)job; i < options->count; i += (uint64_t)options->jobs) {
        if (!sim_run(options->first + i, plan, options->plant, options->kind, false)) {
            report(options, options->first + i);
            return 1;
        }
        if (options->seconds > 0 && now_s() > end_s) {
            printf("%llu histories in this time\n", (unsigned long long)(i + 1));
            return 0;
        }
    }
    return 0;
}

/* All histories, in processes that share the work. Returns how many have found something. */
static int run_all(const struct options *options)
{
    pid_t children[MOST_JOBS];
    int found = 0;

    fflush(stdout);
    for (int job = 0; job < options->jobs; job++) {
        children[job] = fork();
        if (children[job] == 0) {
            int status = run_share(options, job);

            fflush(stdout);
            _exit(status);
        }
    }
    for (int job = 0; job < options->jobs; job++) {
        int status = 1;

        if (children[job] < 0 || waitpid(children[job], &status, 0) < 0 || status != 0) {
            found++;
        }
    }
    return found;
}

static int tell(const struct options *options)
{
    const struct sim_plan *plan = options->kept != NULL ? &options->kept->plan : NULL;
    bool holds = sim_run(options->first, plan, options->plant, options->kind, true);

    printf("%s after %.3f s of its own time and %lld events\n",
           holds ? "all rules hold" : "A RULE IS BROKEN", (double)sim.now_ns / 1e9,
           (long long)sim.handled);
    return holds ? 0 : 1;
}

/* Whether each planted fault is found. */
static int check_plants(struct options options)
{
    enum sim_kind_of_job kind = options.kind;
    int missed = 0;

    for (options.plant = 0; options.plant < SIM_PLANTS; options.plant++) {
        double began_s = now_s();
        uint64_t i = 0;

        options.kind = options.plant >= SIM_NODE_PLANTS ? SIM_WITH_HEAD : kind;

        while (i < PLANT_COUNT &&
               sim_run(options.first + i, NULL, options.plant, options.kind, false)) {
            i++;
        }
        if (i == PLANT_COUNT) {
            printf("%-14s NOT FOUND (%s)\n", sim_plant_name(options.plant),
                   sim_plant_sentence(options.plant));
            missed++;
        } else {
            printf("%-14s found by history %llu, after %.2f s: %s\n", sim_plant_name(options.plant),
                   (unsigned long long)(options.first + i), now_s() - began_s, sim.broken);
        }
        fflush(stdout);
    }
    return missed > 0 ? 1 : 0;
}

static int check_kept(struct options options)
{
    int found = 0;

    options.count = options.count < KEPT_COUNT ? options.count : KEPT_COUNT;
    for (int i = 0; i < sim_kept_count; i++) {
        options.kept = &sim_kept[i];
        found += run_all(&options);
    }
    return found;
}

static int list(void)
{
    for (int i = 0; i < SIM_PLANTS; i++) {
        printf("--plant %-14s %s\n", sim_plant_name(i), sim_plant_sentence(i));
    }
    for (int i = 0; i < sim_kept_count; i++) {
        printf("--kept %s: %s\n", sim_kept[i].name, sim_kept[i].found);
    }
    return 0;
}

static const struct sim_kept *find_kept(const char *name)
{
    for (int i = 0; i < sim_kept_count; i++) {
        if (strcmp(sim_kept[i].name, name) == 0) {
            return &sim_kept[i];
        }
    }
    return NULL;
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s [--outside | --head] [--seed N] [--plant NAME] [--kept NAME]   tell one "
            "history\n"
            "       %s [--outside | --head] [--first N] [--count N] [--jobs N] [--time SECONDS] "
            "[--plant NAME]\n"
            "       %s --plants | --list\n",
            program, program, program);
    return 2;
}

static bool take_option(struct options *options, const char *name, const char *value)
{
    if (strcmp(name, "--seed") == 0 || strcmp(name, "--first") == 0) {
        options->first = strtoull(value, NULL, 10);
        options->tells = options->tells || strcmp(name, "--seed") == 0;
    } else if (strcmp(name, "--count") == 0) {
        options->count = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--jobs") == 0) {
        options->jobs = atoi(value);
    } else if (strcmp(name, "--time") == 0) {
        options->seconds = atoi(value);
        options->count = UINT64_MAX;
    } else if (strcmp(name, "--plant") == 0) {
        options->plant = sim_plant_find(value);
        return options->plant >= 0;
    } else if (strcmp(name, "--kept") == 0) {
        options->kept = find_kept(value);
        return options->kept != NULL;
    } else {
        return false;
    }
    return options->jobs > 0 && options->jobs <= MOST_JOBS;
}

int main(int argc, char **argv)
{
    struct options options = {
        .program = argv[0], .first = 1, .count = DEFAULT_COUNT, .jobs = 2, .plant = -1};
    double began_s = now_s();
    int found;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            return list();
        }
        if (strcmp(argv[i], "--plants") == 0) {
            options.checks_plants = true;
        } else if (strcmp(argv[i], "--head") == 0) {
            options.kind = SIM_WITH_HEAD;
        } else if (strcmp(argv[i], "--outside") == 0) {
            options.kind = SIM_WITH_STORE;
        } else if (i + 1 == argc || !take_option(&options, argv[i], argv[i + 1])) {
            return usage(argv[0]);
        } else {
            i++;
        }
    }
    if (options.tells) {
        return tell(&options);
    }
    if (options.checks_plants) {
        return check_plants(options);
    }
    found = options.kept == NULL && options.plant < 0 ? check_kept(options) : 0;
    found += run_all(&options);
    printf("%s: %.1f s\n", found == 0 ? "all rules hold" : "a rule is broken", now_s() - began_s);
    return found == 0 ? 0 : 1;
}
