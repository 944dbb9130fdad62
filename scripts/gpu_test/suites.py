"""suites - the parts `single` and `multi`: test programs on the card, one process at a time or several."""
import concurrent.futures, io, os, re, time

from .machine import first_reason
from .packing import GPU_TESTS

# Programs whose CUDA is used by one process at a time. They say whether kernels are right, so they come first.
SINGLE = re.compile(r"test_(cuda_\w+|nn_cuda|nn_cuda_step|nn_cuda_passes|device|device_faults|device_queues|"
                    r"device_capture|prefetcher|optim_device|launcher_gpu)$")
# On the emulation each part shows with a few small programs that it works: Meson runs them all anyway.
EMULATED = ("test_cuda_squares", "test_device_capture", "test_cuda_images", "test_group_device_open")


def programs(machine, single):
    at = f"{machine.build}/tests"
    names = sorted(name for name in os.listdir(at) if GPU_TESTS.match(name) and os.access(f"{at}/{name}", os.X_OK)
                   and os.path.isfile(f"{at}/{name}") and bool(SINGLE.match(name)) == single)
    if machine.emulated:
        names = [name for name in names if name in EMULATED]
    names.sort(key=lambda name: not name.startswith("test_train"))  # the longest first
    return [name for name in machine.tests if name in names] if machine.tests else names


def one_test(machine, name, deadline, env=None):
    log = io.StringIO()
    status, text, seconds = machine.run([f"{machine.build}/tests/{name}"], deadline, log, env)
    return result_of(name, status, text, seconds), log.getvalue()


def result_of(name, status, text, seconds):
    tests = re.split(r"^\[==========\] \d+ test\(s\) run", text, flags=re.M)[0]  # a summary follows
    count = {word: len(re.findall(rf"^\[ +{word} +\] \w+", tests, re.M)) for word in ("OK", "SKIPPED")}
    failed = re.findall(r"^\[ +FAILED +\] (\w+)\s*$", text, re.M)
    what = "skipped" if status == 77 else "ok" if status == 0 else "too slow" if status == 124 else "FAILED"
    if what == "ok" and count["OK"] == 0:
        what = "skipped"
    why = ""
    if what in ("FAILED", "too slow"):
        why = first_reason(text)
    elif what == "skipped":
        why = next(iter(re.findall(r"^skipped: (.*)$", text, re.M)), "")
    return {"test": name, "result": what, "status": status, "passed": count["OK"], "skipped": count["SKIPPED"],
            "failed": sorted(set(failed)), "seconds": round(seconds, 1), "why": why}


def run_programs(machine, log, part, names, each, at_once, env=None):
    """Fills @part as programs end, so that what is written down is never behind."""
    part |= {"rows": [], "failed": [], "seconds": 0}
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        jobs = [pool.submit(one_test, machine, name, each, env) for name in names]
        for job in concurrent.futures.as_completed(jobs):
            row, text = job.result()
            log.write(text)
            part["rows"].append(row)
            if row["result"] in ("FAILED", "too slow"):
                part["failed"].append(row["test"])
            part["seconds"] = round(time.monotonic() - start, 1)
            machine.save()


def at_once(few):
    """Programs beside each other: @few where cores are few, which programs of several ranks need more of."""
    return max(min(few, os.cpu_count() or 1), (os.cpu_count() or 1) // 4)


def run_single(machine, log, part):
    each = 400 if machine.emulated else 60
    run_programs(machine, log, part, programs(machine, True), each, at_once(4))


def run_multi(machine, log, part):
    """Each program starts up to four ranks, and most of its time goes into starting them: a context on an H100 takes
    1.0 s to make and release with 32 hardware queues, 0.3 s with 8, one process after the other. Four ranks need 12."""
    each = 400 if machine.emulated else 240
    env = None if machine.emulated else {"CUDA_DEVICE_MAX_CONNECTIONS": "14"}
    run_programs(machine, log, part, programs(machine, False), each, at_once(3), env)
