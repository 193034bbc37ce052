"""Commands of levelhead in processes that need no second for their imports.

    python tests/work/warm_start.py

Reads a line of JSON for each command (arguments, folder, log) and forks; writes the number of the
process, and its exit code once it has ended. Only this process imports; it computes nothing, so
that no thread of a library is lost in the fork.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

PRELOADED = (
    *("levelhead.measures.registry", "levelhead.study.run", "levelhead.study.steps.kinds"),
    *("levelhead.locate.score_heads", "levelhead.cli.audit", "levelhead.data.corpus.mine"),
    *("levelhead.mitigate.selection.select_edit", "levelhead.report.audit_page.page"),
    *("levelhead.models.training.finetune", "levelhead.study.leaderboard", "scipy.stats", "polars"),
    *("levelhead.calibrate.run", "levelhead.models.serving.identify"),
    *("transformers.models.bert.modeling_bert", "transformers.models.bert.tokenization_bert"),
)


class WarmStart:
    """The process that forks, seen from the tests."""

    def __init__(self, environment):
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.codes = {}
        self.started = []
        self.news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            pid, code = json.loads(line)
            with self.news:
                if code is None:
                    self.started.append(pid)
                else:
                    self.codes[pid] = code
                self.news.notify_all()

    def start(self, arguments, place, log):
        """The number of the process of a command."""
        request = {"arguments": arguments, "place": str(place), "log": str(log)}
        with self.news:
            count = len(self.started)
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            self.news.wait_for(lambda: len(self.started) > count, timeout=60)
            return self.started[-1]

    def wait(self, pid, timeout):
        """The exit code of a process; None if it is still running after so many seconds."""
        with self.news:
            self.news.wait_for(lambda: pid in self.codes, timeout=timeout)
            return self.codes.get(pid)

    def close(self):
        """End the process that forks."""
        self.process.stdin.close()
        self.process.wait(timeout=60)


def run(request):
    """Run a command in this process, a new child."""
    os.setsid()
    os.chdir(request["place"])
    descriptor = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for output in (1, 2):
        os.dup2(descriptor, output)
    first, *rest = request["arguments"]
    if first == "tiny audit":
        import tiny_audits

        suite, *rest = rest
        for change in tiny_audits.replacements(Path(suite)):
            setattr(*change)
    if first == "tiny calibration":
        import tiny_calibration

        for change in tiny_calibration.replacements():
            setattr(*change)
    from levelhead.cli import main

    sys.argv = ["levelhead", *rest]
    main()


def serve():
    """Fork for every line."""
    for name in PRELOADED:
        __import__(name)
    lock = threading.Lock()

    def report(pid, code):
        with lock:
            os.write(1, f"{json.dumps([pid, code])}\n".encode())

    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 70
            try:
                run(json.loads(line))
            except SystemExit as end:
                code = end.code or 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        report(pid, None)
        threading.Thread(
            target=lambda pid=pid: report(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])),
            daemon=True,
        ).start()


if __name__ == "__main__":
    serve()
