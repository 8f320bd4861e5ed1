"""The example's runtime with models that do harm, as models of one's own may."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[5] / "examples/remote-runtime"))
import server  # noqa: E402


class Harm(server.Double):
    """Does `harm` when the first number is negative."""

    harm = None

    def run(self, inputs):
        if inputs["input"].values[0] < 0:
            type(self).harm()
        return super().run(inputs)


class Crash(Harm):
    @staticmethod
    def harm():
        print("about to crash", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
        threading.Event().wait()


class Hang(Harm):
    @staticmethod
    def harm():
        threading.Event().wait()


class Fail(Harm):
    @staticmethod
    def harm():
        raise RuntimeError("out of luck")


class Forks(server.Double):
    """Answers with the id of a process of its own that would stay."""

    def run(self, inputs):
        child = subprocess.Popen(["sleep", "1000"])
        given = inputs["input"]
        values = [float(child.pid)] * len(given.values)
        return [server.Tensor("output", "FP32", given.shape, values)]


class Told(server.Model):
    """Answers with an environment variable and the working folder."""

    inputs = [server.Spec("input", "BYTES", [-1])]
    outputs = [server.Spec("output", "BYTES", [-1])]

    def run(self, inputs):
        given = inputs["input"]
        values = [
            os.environ.get(name.decode(), f"none in {os.getcwd()}").encode()
            for name in given.values
        ]
        return [server.Tensor("output", "BYTES", given.shape, values)]


MODELS = {
    "crash": Crash,
    "hang": Hang,
    "fail": Fail,
    "forks": Forks,
    "told": Told,
    "double": server.Double,
}

if __name__ == "__main__":
    if "--deaf" in sys.argv:
        sys.argv.remove("--deaf")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.main(MODELS)
