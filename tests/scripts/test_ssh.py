#!/usr/bin/env python3
"""test_ssh.py - cddp-run --hosts and --hostfile through the real ssh and an sshd that this test starts: on a port of
loopback, as the current user, with a key that exists only during the test. Skipped without an sshd.

    test_ssh.py BUILD
"""
import getpass, os, shutil, signal, socket, subprocess, sys, tempfile, time

from ports import free_port

RUN = os.path.join(sys.argv[1], "launcher/cddp-run")
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
HANG_S = 120  # only what hangs takes so long
THERE = f"{getpass.getuser()}@127.0.0.1"  # with a user's name, this machine is reached by ssh, too


def fail(what, text):
    raise SystemExit(f"test_ssh: {what}: {text}")


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as there:
            return there.recv(4) == b"SSH-"
    except OSError:
        return False


def serve(folder):
    """(sshd, its port), once it answers."""
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # it insists, as root
    make_key(f"{folder}/host")
    make_key(f"{folder}/user")
    shutil.copy(f"{folder}/user.pub", f"{folder}/authorized")
    for _ in range(5):  # another program may be given the port meanwhile
        port = free_port()
        write(f"{folder}/sshd_config", f"""ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
""")
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", f"{folder}/sshd_config"], stderr=open(f"{folder}/log", "w"))
        until = time.monotonic() + HANG_S / 4
        while server.poll() is None and time.monotonic() < until:
            if answers(port):
                return server, port
            time.sleep(0.05)
        server.kill()
        server.wait()
    return None, 0


def client(folder, port):
    """The words of --ssh."""
    path = f"{folder}/config-{port}"
    write(path, f"""Port {port}
IdentityFile {folder}/user
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile {folder}/known
LogLevel ERROR
BatchMode yes
""")
    return f"ssh -F {path}"


def run(ssh, *words):
    return subprocess.run([RUN, "--ssh", ssh, *words], capture_output=True, text=True, timeout=HANG_S)


def ranks_start_there(ssh, folder):
    script = "echo $RANK/$WORLD_SIZE $GROUP_RANK ${SSH_CONNECTION:+by ssh}"
    row = run(ssh, "--hosts", f"localhost:1,{THERE}:2", "--", "sh", "-c", script)
    lines = sorted(row.stdout.splitlines())
    if row.returncode != 0 or lines != ["0/3 0", "[1] 1/3 1 by ssh", "[2] 2/3 1 by ssh"]:
        fail("ranks of two hosts", f"{row.returncode}, {lines}, {row.stderr}")
    write(f"{folder}/hosts", f"# two machines\nlocalhost slots=1\n{THERE} slots=1\n")
    row = run(ssh, "--hostfile", f"{folder}/hosts", "--", "sh", "-c", script)
    if row.returncode != 0 or sorted(row.stdout.splitlines()) != ["0/2 0", "[1] 1/2 1 by ssh"]:
        fail("a hostfile", f"{row.returncode}, {row.stdout}, {row.stderr}")


def words_arrive_as_they_are(ssh):
    word = "two  words, 'quoted' \"twice\" $HOME `true` \\ ; * \u00fc"
    row = run(ssh, "--hosts", f"{THERE}:1", "--no-tag", "--", "printf", "%s|", word, "", "-x")
    if row.returncode != 0 or row.stdout != f"{word}||-x|":
        fail("words", f"{row.returncode}, {row.stdout!r}, {row.stderr}")


def the_token_stays_off_command_lines(ssh):
    row = run(ssh, "--hosts", f"localhost:1,{THERE}:1", "--", "sh", "-c",
              'test -n "$CDDP_TOKEN" && ! printf "%s" "$CDDP_TOKEN" | grep -lF -f - /proc/[0-9]*/cmdline 2>/dev/null')
    if row.returncode != 0:
        fail("the token", f"{row.returncode}, {row.stdout}, {row.stderr}")


def collectives_cross(ssh):
    bench = os.path.join(sys.argv[1], "src/cddp-bench")
    row = run(ssh, "--hosts", f"localhost:1,{THERE}:2", "--", bench, "all_reduce", "--check", "--min", "4", "--max", "1M",
              "--factor", "64", "-n", "2", "-w", "0")
    if row.returncode != 0:
        fail("collectives", f"{row.returncode}, {row.stdout}, {row.stderr}")


def failures_come_back(ssh):
    row = run(ssh, "--hosts", f"localhost:1,{THERE}:1", "--", "sh", "-c",
              "if [ $RANK = 1 ]; then echo it broke >&2; exit 7; fi; sleep 100")
    if row.returncode != 7 or "rank 1" not in row.stderr or "it broke" not in row.stderr:
        fail("a failure", f"{row.returncode}, {row.stderr}")


def what_ssh_says_is_shown(folder):
    row = run(client(folder, free_port()), "--hosts", f"localhost:1,{THERE}:1", "--", "sleep", "100")
    if row.returncode == 0 or "Connection refused" not in row.stderr or "127.0.0.1" not in row.stderr:
        fail("a host where no sshd listens", f"{row.returncode}, {row.stderr}")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def nothing_outlives_it(ssh, folder):
    job = subprocess.Popen([RUN, "--ssh", ssh, "--hosts", f"localhost:1,{THERE}:1", "--", "sh", "-c",
                            f'echo $$ >"{folder}/pid-$RANK.new"; mv "{folder}/pid-$RANK.new" "{folder}/pid-$RANK"; '
                            'while :; do sleep 1; done'], stdin=subprocess.DEVNULL)
    pids, until = [], time.monotonic() + HANG_S
    for rank in (0, 1):
        while not os.path.exists(f"{folder}/pid-{rank}"):
            if time.monotonic() > until:
                fail("ranks that go on", f"there is no rank {rank}")
            time.sleep(0.02)
        pids.append(int(open(f"{folder}/pid-{rank}").read()))
    job.kill()
    job.wait()
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > until:
            for pid in pids:
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            fail("a killed cddp-run", "a rank goes on")
        time.sleep(0.02)


def main():
    if SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        print("skipped: there is no sshd (openssh-server), ssh or ssh-keygen")
        return 77
    with tempfile.TemporaryDirectory(prefix="cddp-ssh-") as folder:
        server, port = serve(folder)
        if server is None:
            print(f"skipped: sshd does not start here: {open(f'{folder}/log').read().strip()}")
            return 77
        try:
            ssh = client(folder, port)
            probe = subprocess.run([*ssh.split(), THERE, "true"], capture_output=True, text=True, timeout=HANG_S)
            if probe.returncode != 0:  # an account that is locked or has no shell
                print(f"skipped: sshd lets nobody in: {probe.stderr.strip()}")
                return 77
            ranks_start_there(ssh, folder)
            words_arrive_as_they_are(ssh)
            the_token_stays_off_command_lines(ssh)
            collectives_cross(ssh)
            failures_come_back(ssh)
            what_ssh_says_is_shown(folder)
            nothing_outlives_it(ssh, folder)
        finally:
            server.terminate()
            server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
