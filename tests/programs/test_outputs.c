/* test_outputs.c - what programs write: a table of all files that users can name as outputs, and of
 * all kinds of files that may already be there. A device is never replaced, a pipe is never waited
 * for, and a refusal names the kind. On terminals, foreign text is printed without control
 * characters. */
#include "support/launcher.h"
#include "support/train.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/sysmacros.h>

enum { LIMIT_S = 60, DEVICE_MAJOR = 1, DEVICE_MINOR = 3 /* as /dev/null */ };

/* One way to write a file. $OUT is its path, $W the folder of all; BASE is a run that is over. */
struct output {
    const char *name;
    const char *file; /* below $OUT's folder; what is put in its place */
    const char *command;
};

#define TRAIN "$B/src/cddp-train $W/small.conf train.max_steps=1 train.tensorboard=false "
#define OF_RUN TRAIN "train.run_dir=$D "

static const struct output outputs[] = {
    {"train.prometheus", "x.prom", TRAIN "train.run_dir=$W/run-$N train.prometheus=$OUT"},
    {"train.sample_log", "log.0", TRAIN "train.run_dir=$W/run-$N train.sample_log=$D/log"},
    {"CDDP_ARRIVALS", "arrivals",
     "CDDP_ARRIVALS=$OUT $B/launcher/cddp-run --nproc 2 $W/small.conf "
     "train.max_steps=4 train.run_dir=$W/run-$N"},
    {"a run's train.conf", "train.conf", OF_RUN},
    {"a run's metrics.jsonl", "metrics.jsonl", OF_RUN},
    {"a run's metrics.jsonl that goes on", "metrics.jsonl",
     "cp -r $W/base/checkpoints $W/base/train.conf $D && " OF_RUN
     "train.max_steps=3 train.resume=auto"},
    {"a run's report.html", "report.html", OF_RUN},
    {"a run's checkpoints", "checkpoints", OF_RUN},
    {"a run's trace", "trace", OF_RUN "train.trace=1-1"},
    {"a rank's trace", "rank-0.json",
     "mkdir $W/traced-$N && ln -s $D $W/traced-$N/trace && " TRAIN
     "train.run_dir=$W/traced-$N train.trace=1-1"},
    {"cddp-run --log-dir", "rank-0.log", "$B/launcher/cddp-run --nproc 1 --log-dir $D -- true"},
    {"cddp-trace -o", "trace.json", "$B/src/cddp-trace -q -o $OUT $W/base"},
    {"cddp-trace --svg", "trace.svg", "$B/src/cddp-trace -q --svg $OUT $W/base"},
    {"cddp-report -o", "report", "$B/src/cddp-report -o $OUT $W/base"},
    {"cddp-convert --to cddp", "weights.safetensors", "$B/src/cddp-convert --to cddp $W/text $OUT"},
    {"cddp-convert --to llmc", "weights.bin", "$B/src/cddp-convert --to llmc $W/text $OUT"},
    {"cddp-convert --to hf, a file", "hf.safetensors", "$B/src/cddp-convert --to hf $W/text $OUT"},
    {"cddp-convert --to hf, a folder", "model.safetensors",
     "$B/src/cddp-convert --to hf $W/text $D"},
    {"cddp-convert --to hf, config.json", "config.json", "$B/src/cddp-convert --to hf $W/text $D"},
    {"cddp-tokenize --train", "words.json",
     "$B/src/cddp-tokenize --train 300 -o $OUT $W/words.txt"},
    {"cddp-bench --json", "bench.json",
     "$B/src/cddp-bench --nproc 2 --min 8 --max 8 --iterations 1 --json $OUT all_reduce"},
    {"cddp-tokenize", "tokens_train.bin", "$B/src/cddp-tokenize -o $D/tokens $W/words.txt"},
};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

/* What is in the place of an output. */
struct kind {
    const char *name;
    const char *make;  /* by a shell: $OUT, $D, $W */
    const char *words; /* one of these is said, if it is refused; NULL: nothing need be */
    const char *stays; /* a test of the shell that holds afterwards, too */
    bool needs_root;
};

#define IS_NULL(path) "[ -c " path " ] && [ \"$(stat -Lc %t,%T " path ")\" = 1,3 ]"

static const struct kind kinds[] = {
    {"a device", "mknod $OUT c 1 3", "device", IS_NULL("$P"), true},
    {"a FIFO", "mkfifo $OUT", "FIFO|pipe", "[ -p $P ]", false},
    {"a folder", "mkdir $OUT && : >$OUT/mine", "folder|directory", "[ -f $P/mine ]", false},
    {"a link to a file", "echo mine >$D/target && ln -s target $OUT", NULL, "[ -f $D/target ]",
     false},
    {"a link to nowhere", "ln -s nowhere $OUT", NULL, "true", false},
    {"a link to a device", "mknod $W/device-$N c 1 3 && ln -s $W/device-$N $OUT", "device|link",
     IS_NULL("$W/device-$N"), true},
    {"a link to a FIFO", "mkfifo $W/fifo-$N && ln -s $W/fifo-$N $OUT", "FIFO|pipe|link",
     "[ -p $W/fifo-$N ]", false},
    {"another user's file", ": >$OUT && chown 65534 $OUT", NULL, "true", true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int shell(const char *command)
{
    int status = system(command);

    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Where what was in $OUT's place lies now: a run may have put it aside as a whole. */
static const char *place(const char *folder, const char *file)
{
    static char path[4200];
    struct stat info;

    snprintf(path, sizeof path, "%s/earlier-1/%s", folder, file);
    if (lstat(path, &info) != 0) {
        snprintf(path, sizeof path, "%s/%s", folder, file);
    }
    return path;
}

/* Whether the output is a folder, and so may be one beforehand. */
static bool is_folder(const struct output *output, const struct kind *kind)
{
    return strcmp(kind->name, "a folder") == 0 &&
           (strcmp(output->file, "checkpoints") == 0 || strcmp(output->file, "trace") == 0);
}

static int complaints;

static void complain(const struct output *output, const struct kind *kind, const char *what,
                     const char *err)
{
    print_message("--- %s, where there is %s: %s\n", output->name, kind->name, what);
    (void)shell(argument("cat %s", err));
    complaints++;
}

static void try(const struct output *output, const struct kind *kind, int number)
{
    char *folder = argument("%s", in_work("at-%d", number));
    char *err = argument("%s", in_work("said-%d", number));
    int status;

    assert_int_equal(mkdir(folder, 0755), 0);
    setenv("D", folder, 1);
    setenv("OUT", argument("%s/%s", folder, output->file), 1);
    support_setenv_number("N", number);
    if (shell(kind->make) != 0) {
        fail_msg("%s cannot be made", kind->name);
    }
    status = shell(argument("timeout -k 1 %d sh -c '%s' >%s 2>&1", LIMIT_S, output->command, err));
    setenv("P", place(folder, output->file), 1);
    if (status == 124 || status == 137) {
        complain(output, kind, "hangs", err);
    } else if (shell(kind->stays) != 0) {
        complain(output, kind, "replaces what is there", err);
    } else if (kind->words != NULL && !is_folder(output, kind) &&
               access(argument("%s/earlier-1", folder), F_OK) != 0 &&
               shell(argument("grep -Eq '%s' %s", kind->words, err)) != 0) {
        complain(output, kind, "does not say what is there", err);
    }
}

static void no_output_replaces_a_device_or_waits_for_a_pipe(void **state)
{
    int number = 0;

    (void)state;
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k].needs_root && geteuid() != 0) {
            print_message("only root can make %s\n", kinds[k].name);
            continue;
        }
        for (int i = 0; i < OUTPUTS; i++) {
            try(&outputs[i], &kinds[k], number++);
        }
    }
    assert_int_equal(complaints, 0);
}

/* Nor is anything left beside it. */
static void a_folder_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        print_message("root can write to each folder\n");
        skip();
    }
    for (int i = 0; i < OUTPUTS; i++) {
        char *folder = argument("%s", in_work("closed-%d", i));
        char *err = argument("%s", in_work("closed-said-%d", i));

        assert_int_equal(mkdir(folder, 0555), 0);
        setenv("D", folder, 1);
        setenv("OUT", argument("%s/%s", folder, outputs[i].file), 1);
        support_setenv_number("N", 1000 + i);
        (void)shell(
            argument("timeout -k 1 %d sh -c '%s' >%s 2>&1", LIMIT_S, outputs[i].command, err));
        if (shell(argument("grep -Eq 'Permission denied' %s", err)) != 0) {
            (void)shell(argument("cat %s", err));
            fail_msg("%s does not say that its folder cannot be written", outputs[i].name);
        }
    }
}

/* Words of others, with escapes of a terminal in them, in each place from which they could reach
 * one: $E holds ESC, a C1 control and an override of the direction. */
static const char *const tellers[] = {
    "$B/src/cddp-train $W/small.conf data.train_images=no-$E",
    "$B/src/cddp-train $W/small.conf train.$E=1",
    "$B/src/cddp-train $W/small.conf train.device=$E",
    "$B/src/cddp-train $W/$E.conf",
    "CDDP_LOG=$E $B/src/cddp-train --dry-run $W/small.conf",
    "CDDP_TIMEOUT_MS=$E $B/src/cddp-train $W/small.conf train.max_steps=1 train.run_dir=$W/e1",
    "$B/src/cddp-train $W/small.conf train.max_steps=1 train.run_dir=$W/$E",
    "$B/src/cddp-train $W/small.conf train.max_steps=1 train.run_dir=$W/$E", /* put aside */
    "$B/src/cddp-train --dry-run $W/small.conf train.sample_log=$E",
    "$B/launcher/cddp-run --nproc 1 -- /no/$E",
    "$B/launcher/cddp-run --nproc 1 --$E -- true",
    "$B/launcher/cddp-run --nproc 2 --dry-run -- true $E",
    "$B/launcher/cddp-run --nproc 1 --hosts $E -- true",
    "CDDP_RUN_DIR=$E $B/launcher/cddp-run --env",
    "$B/src/cddp-trace $W/trace-$E.json",
    "$B/src/cddp-trace $W/trace.json",
    "$B/src/cddp-trace -q -o $W/o-$E $W/base/trace/rank-0.json",
    "$B/src/cddp-report -o $W/r-$E $W/base",
    "$B/src/cddp-convert --info $W/$E",
    "$B/src/cddp-convert --to cddp $W/text $W/c-$E",
    "$B/src/cddp-tokenize --train 300 -o $W/t-$E $W/words.txt",
    "$B/src/cddp-tokenize -o $W/u-$E $W/words.txt",
    "$B/src/cddp-tokenize -o $W/u $W/$E",
};

static void no_word_of_others_is_obeyed_by_a_terminal(void **state)
{
    static const char trace[] =
        "{\"rank\":0,\"world_size\":1,\"spans\":[{\"name\":\"forward\\u001b[2J\",\"begin_ns\":1,"
        "\"end_ns\":9,\"step\":1}],\"calls\":[{\"operation\":\"all\\u001b]0;x\\u0007\",\"number\":"
        "1,"
        "\"state\":\"started\",\"type\":\"\\u009b2J\",\"enqueued_ns\":1,\"started_ns\":2}]}";

    (void)state;
    setenv("E",
           "a\x1b[2Jb\xc2\x9b"
           "2Jc\xe2\x80\xae"
           "d\xff"
           "e",
           1);
    support_write_file(in_work("trace.json"), trace, sizeof trace - 1);
    complaints = 0;
    for (size_t i = 0; i < sizeof tellers / sizeof *tellers; i++) {
        char *said = argument("%s", in_work("told-%zu", i));

        (void)shell(argument("timeout -k 1 %d sh -c '%s' >%s 2>&1", LIMIT_S, tellers[i], said));
        if (shell(argument(
                "LC_ALL=C grep -q \"$(printf '\\033\\|\\302\\233\\|\\342\\200\\256\\|\\377')\" %s",
                said)) == 0) {
            print_message("--- %s\n", tellers[i]);
            (void)shell(argument("cat -v %s", said));
            complaints++;
        }
    }
    assert_int_equal(complaints, 0);
}

/* Where no shell reads a path: behind "key=", in --option=, in the environment of a manifest. */
static const struct {
    const char *command; /* in an empty folder, with HOME=$W/home */
    const char *test;    /* that holds afterwards */
} unread[] = {
    {TRAIN "train.run_dir=~/a", "[ -f $W/home/a/metrics.jsonl ]"},
    {"$B/launcher/cddp-run --nproc 1 --run-dir=~/b --log-dir=~/l $W/small.conf train.max_steps=1",
     "[ -f $W/home/b/metrics.jsonl ] && [ -f $W/home/l/rank-0.log ]"},
    {"CDDP_RUN_DIR=\"~/c\" " TRAIN, "[ -f $W/home/c/metrics.jsonl ]"},
    {TRAIN "train.run_dir=$W/d train.prometheus=~/d.prom train.sample_log=~/d",
     "[ -f $W/home/d.prom ] && [ -f $W/home/d.0 ]"},
    {TRAIN "train.run_dir=$W/e data.train_images=~/train-images", "[ -f $W/e/metrics.jsonl ]"},
    {TRAIN "train.run_dir=~/e train.resume=~/a train.max_steps=2", "grep -q step-00000001 $SAID"},
    {"$B/src/cddp-trace -q --output=~/t.json --svg=~/t.svg $W/base",
     "[ -f $W/home/t.json ] && [ -f $W/home/t.svg ]"},
    {"$B/src/cddp-report --output=~/r.html $W/base", "[ -f $W/home/r.html ]"},
    {"$B/src/cddp-tokenize --output=~/k $W/words.txt", "[ -f $W/home/k_train.bin ]"},
    {TRAIN "train.run_dir=\\$HOME/f", "grep -q \"variable .HOME is not replaced\" $SAID"},
    {TRAIN "train.run_dir=\\${SCRATCH}/f", "grep -q \"variable .{SCRATCH} is not\" $SAID"},
    {"$B/launcher/cddp-run --nproc 1 --run-dir=\\$HOME/f $W/small.conf",
     "grep -q -e \"--run-dir: .HOME/f: the variable\" $SAID"},
    {TRAIN "train.run_dir=~root/f", "grep -q \"another user\" $SAID"},
    {"$B/src/cddp-convert --to hf $W/text \"~/hf\"", "grep -q \"no folder called ~\" $SAID"},
};

static void no_folder_is_called_by_what_a_shell_would_replace(void **state)
{
    char *home = argument("%s", getenv("HOME") != NULL ? getenv("HOME") : "/");

    (void)state;
    complaints = 0;
    assert_int_equal(shell("mkdir $W/home $W/empty && cp $W/train-images $W/home"), 0);
    setenv("HOME", argument("%s/home", work), 1);
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        setenv("SAID", in_work("unread-%zu", i), 1);
        (void)shell(argument("cd $W/empty && timeout -k 1 %d sh -c '%s' >$SAID 2>&1", LIMIT_S,
                             unread[i].command));
        if (shell(unread[i].test) != 0 || shell("[ -z \"$(ls -A $W/empty)\" ]") != 0) {
            print_message("--- %s\n", unread[i].command);
            (void)shell("cat $SAID; ls -A $W/empty");
            complaints++;
        }
    }
    setenv("HOME", home, 1);
    assert_int_equal(complaints, 0);
}

static int make_runs(void **state)
{
    if (make_text_work(state) != 0) {
        return -1;
    }
    setenv("B", launcher_path(""), 1);
    setenv("W", work, 1);
    return shell("exec >/dev/null 2>&1; $B/src/cddp-train $W/small.conf train.run_dir=$W/base "
                 "train.max_steps=2 train.trace=1-2 && $B/src/cddp-train $W/text.conf "
                 "train.run_dir=$W/text train.max_steps=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_output_replaces_a_device_or_waits_for_a_pipe),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_named),
        cmocka_unit_test(no_word_of_others_is_obeyed_by_a_terminal),
        cmocka_unit_test(no_folder_is_called_by_what_a_shell_would_replace),
    };

    return cmocka_run_group_tests(tests, make_runs, remove_work);
}
