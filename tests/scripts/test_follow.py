#!/usr/bin/env python3
"""test_follow.py - cddp-report --follow, on a terminal of its own and on a pipe. Usage: test_follow.py BUILD"""
import codecs, fcntl, json, os, pty, re, select, socket, struct, subprocess, sys, tempfile, termios, time, unittest

REPORT = os.path.join(sys.argv[1], "src", "cddp-report")
BEGIN = {"kind": "run", "step": 0, "world_size": 2, "device": "processor\x1b[2J", "host": socket.gethostname(),
         "parameters": 1234}
END = {"kind": "end", "step": 40, "stopped": False, "seconds": 2.5}
LINES = 6
LIMIT_S = 60
# A clock that runs thirty times as fast: what waits for minutes ends in seconds.
FAST = {**os.environ, "LD_PRELOAD": os.path.abspath(os.path.join(sys.argv[1], "tests", "libfast_clock.so")),
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def step(number, **more):
    return {"step": number, "epoch": 1, "loss": 2 / number, "samples_per_s": 1000, "step_ms": 10, "data_ms": 1, "forward_ms": 3,
            "backward_ms": 4, "exposed_comm_ms": 1.5, "optimizer_ms": 0.5, **more}


def write(folder, *lines, mode="a", end="\n"):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "metrics.jsonl"), mode) as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines)[:-1] + end if lines else end)


class Lock:
    """What a run holds while a process runs it."""

    def __init__(self, folder):
        self.fd = os.open(folder, os.O_RDONLY)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Terminal:
    """A program on a terminal so many columns wide."""

    def __init__(self, columns, *words, **environment):
        self.fd, own = pty.openpty()
        self.resize(columns)
        self.said = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # what is read may end within a character
        self.process = subprocess.Popen(words, stdin=own, stdout=own, stderr=own, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
        os.close(own)

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def wait_for(self, pattern):
        end = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.said):
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {pattern!r} in {self.said!r}")
            self.said += self.decoder.decode(os.read(self.fd, 65536))

    def rest(self):
        try:
            while data := os.read(self.fd, 65536):
                self.said += self.decoder.decode(data)
        except OSError:  # what Linux says at the end of a terminal
            pass
        status = self.process.wait(LIMIT_S)
        os.close(self.fd)
        return status


class Follow(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.run_dir = os.path.join(self.scratch.name, "run")
        os.mkdir(self.run_dir)
        self.writer = Lock(self.run_dir)  # the run goes on until it is closed

    def tearDown(self):
        self.writer.close()
        self.scratch.cleanup()

    def test_a_pipe_gets_a_line_for_each_line_and_an_end(self):
        with subprocess.Popen([REPORT, "--follow", self.run_dir], stdout=subprocess.PIPE, text=True) as process:
            self.assertIn("run/metrics.jsonl does not exist: waiting for the run to begin", process.stdout.readline())
            write(self.run_dir, BEGIN, step(10), end="\n" + json.dumps(step(20))[:30])  # half a line is not a line yet
            self.assertEqual(process.stdout.readline(), "2 ranks  processor\\x1b[2J  1234 parameters\n")
            self.assertEqual(process.stdout.readline(), "step 10  epoch 1  loss 0.2000  1000 samples/s  10.00 ms a step\n")
            write(self.run_dir, end=json.dumps(step(20))[30:] + "\n")
            self.assertIn("step 20  epoch 1  loss 0.1000", process.stdout.readline())
            write(self.run_dir, {"step": 20, "epoch": 1, "eval_loss": 0.25, "eval_accuracy": 0.875})
            self.assertEqual(process.stdout.readline(), "step 20  test loss 0.2500  test accuracy 87.50 %\n")
            write(self.run_dir, {"step": 30, "eval_loss": 2.0, "eval_accuracy": 0.5, "eval_perplexity": 7.389})
            self.assertEqual(process.stdout.readline(), "step 30  val loss 2.0000  perplexity 7.389\n")
            write(self.run_dir, {"kind": "sample", "step": 30, "text": "x"}, [1], "nothing", END)
            self.assertEqual(process.stdout.read(), "complete  40 steps  2.5 s\n")
            self.assertEqual(process.wait(LIMIT_S), 0)

    def test_a_run_that_is_resumed_is_followed_again(self):
        write(self.run_dir, BEGIN, step(10), step(20))
        with subprocess.Popen([REPORT, "--follow", self.run_dir], stdout=subprocess.PIPE, text=True) as process:
            self.assertTrue([process.stdout.readline() for _ in range(3)][2].startswith("step 20"))
            new = self.run_dir + "-new"
            write(new, BEGIN, step(10), BEGIN, step(15), END)  # as cddp-train replaces the file
            os.rename(os.path.join(new, "metrics.jsonl"), os.path.join(self.run_dir, "metrics.jsonl"))
            self.assertIn("step 15  ", process.stdout.read())
            self.assertEqual(process.wait(LIMIT_S), 0)

    def test_an_end_before_the_last_beginning_is_none(self):
        write(self.run_dir, BEGIN, step(10), {**END, "stopped": True}, BEGIN, step(20))
        with subprocess.Popen([REPORT, "--follow", self.run_dir], stdout=subprocess.PIPE, text=True) as process:
            self.assertTrue([process.stdout.readline() for _ in range(5)][4].startswith("step 20"))
            write(self.run_dir, step(30), END)
            self.assertTrue(process.stdout.read().startswith("step 30"))
            self.assertEqual(process.wait(LIMIT_S), 0)

    def test_a_terminal_gets_one_view_that_is_drawn_again(self):
        for columns in (30, 80, 200):
            with self.subTest(columns=columns):
                write(self.run_dir, BEGIN, *[step(i) for i in range(1, 3000)], mode="w")
                terminal = Terminal(columns, REPORT, "--follow", self.run_dir)
                terminal.wait_for(r"step 2999\b")
                write(self.run_dir, {"step": 3000, "eval_loss": 0.5, "eval_accuracy": 0.25}, END)
                self.assertEqual(terminal.rest(), 0)
                views = re.split(rf"\x1b\[{LINES}A", terminal.said)
                self.assertGreater(len(views), 1)
                for view in views:
                    lines = view.replace("\r", "").split("\n")
                    self.assertEqual(len(lines), LINES + 1, view)
                    self.assertEqual(lines.pop(), "")
                    for line in lines:
                        self.assertTrue(line.startswith("\x1b[0K"))
                        self.assertLess(len(line) - 4, columns)
                        self.assertNotIn("\x1b", line[1:])
                self.assertIn("complete", views[-1])
                self.assertRegex(views[-1], "loss  [\u2581-\u2588]{%d}" % min(columns - 8, 120))
                self.assertTrue(views[-1].split("loss  ")[1].startswith("\u2588"))  # it begins high, and ends low
                self.assertIn("data 10 %", views[-1])
                if columns >= 80:
                    for text in ("forward 30 %  backward 40 %  communication 15 %  optimizer 5 %", "test loss 0.5000", "1000 samples/s"):
                        self.assertIn(text, views[-1])

    def test_another_width_begins_a_new_view(self):
        write(self.run_dir, BEGIN, step(10))
        terminal = Terminal(60, REPORT, "--follow", self.run_dir)
        terminal.wait_for("running")
        terminal.resize(90)
        terminal.wait_for(rf"(?s)eval[^\n]*\n\r\x1b\[0Krun")
        write(self.run_dir, END)
        self.assertEqual(terminal.rest(), 0)

    def test_a_dumb_terminal_gets_plain_lines_and_another_charset_letters(self):
        write(self.run_dir, BEGIN, step(1), step(2), END)
        dumb = Terminal(80, REPORT, "--follow", self.run_dir, TERM="dumb")
        self.assertEqual(dumb.rest(), 0)
        self.assertNotIn("\x1b[", dumb.said)
        self.assertIn("step 2  epoch 1", dumb.said)
        letters = Terminal(80, REPORT, "--follow", self.run_dir, LC_ALL="C")
        self.assertEqual(letters.rest(), 0)
        self.assertTrue(letters.said.isascii())
        self.assertIn("loss  #_", letters.said)

    def test_a_killed_run_is_said_to_be_gone_and_then_given_up(self):
        write(self.run_dir, BEGIN, step(10))
        self.writer.close()
        said = subprocess.run([REPORT, "--follow", self.run_dir], capture_output=True, text=True, timeout=LIMIT_S, env=FAST)
        if "no process writes" not in said.stderr and "nothing new" in said.stderr:
            self.skipTest("locks of this file system may be another machine's, too")
        self.assertEqual(said.returncode, 1)
        waits, why = said.stderr.splitlines()
        self.assertRegex(waits, "no process writes to .*/run any more, and its metrics have no end: waiting 120 s for a restart")
        self.assertRegex(why, "the run in .*/run failed or was killed: .* train.resume=auto continues it")

    def test_a_run_on_another_machine_is_never_said_to_be_gone(self):
        self.writer.close()  # as seen from an NFS server, or the host of a virtual machine
        for host in ({"host": "not-" + socket.gethostname()}, {"host": None}):
            with self.subTest(host=host):
                write(self.run_dir, {**BEGIN, **host}, step(10), mode="w")
                with subprocess.Popen([REPORT, "--follow", self.run_dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=FAST) as process:
                    self.assertRegex(process.stderr.readline(), "nothing new in .*: waiting")
                    write(self.run_dir, END)
                    self.assertIn("complete", process.stdout.read())
                    self.assertEqual(process.wait(LIMIT_S), 0)

    def test_a_pipe_is_told_that_a_run_is_silent(self):
        write(self.run_dir, BEGIN, step(10))
        with subprocess.Popen([REPORT, "--follow", self.run_dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=FAST) as process:
            self.assertRegex(process.stderr.readline(), r"nothing new in .*/run/metrics.jsonl for [0-9]+ s: waiting \(Ctrl-C ends\)")
            write(self.run_dir, END)
            self.assertIn("complete", process.stdout.read())
            self.assertEqual(process.wait(LIMIT_S), 0)

    def test_a_killed_run_that_starts_again_is_followed(self):
        write(self.run_dir, BEGIN, step(10))
        self.writer.close()
        with subprocess.Popen([REPORT, "--follow", self.run_dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.assertRegex(process.stderr.readline(), "no process writes|nothing new")
            write(self.run_dir, BEGIN, step(20), END)
            self.assertIn("complete", process.stdout.read())
            self.assertEqual(process.wait(LIMIT_S), 0)

    def test_a_terminal_says_that_a_run_is_gone(self):
        write(self.run_dir, BEGIN, step(10))
        self.writer.close()
        terminal = Terminal(80, REPORT, "--follow", self.run_dir)
        terminal.wait_for("no process: waiting for a restart|nothing new")
        write(self.run_dir, END)
        self.assertEqual(terminal.rest(), 0)

    def test_what_cannot_be_followed_is_an_error(self):
        os.makedirs(os.path.join(self.run_dir, "metrics.jsonl"))
        for words, status, text in ((["--follow", self.run_dir], 1, "metrics.jsonl"), (["--follow"], 2, "give the folders"),
                                    (["--follow", "a", "b"], 2, "--follow takes the folder of one run"),
                                    (["--follow", "-o", "x.html", "a"], 2, "--follow takes the folder of one run")):
            said = subprocess.run([REPORT, *words], capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual(said.returncode, status)
            self.assertIn(text, said.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
