"""Looks at pages in headless Chromium: what axe-core finds, what runs over the edge, what the browser complains of.

Prints one JSON object for each page, theme and width, and takes pictures where --pictures names a folder. Chromium and
its driver come from the system (`chromium`, `chromium-driver`), axe-core from the package `axe-core-python`.
"""

import argparse
import base64
import gzip
import importlib.resources
import json
import pathlib
import re
import socket
import subprocess
import urllib.request

THEMES = ["light", "dark"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FINISH = "const done = arguments[arguments.length - 1];"
ANALYSE = FINISH + "axe.run().then(found => done(found.violations), error => done(String(error)));"
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth;"


def free_port():
    """A port that nobody has. The driver's own choice is of no use where there is no IPv6: it says 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Browser:
    """A session of chromedriver, by the WebDriver protocol."""

    def __init__(self):
        port = free_port()
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.PIPE, text=True)
        self.base = f"http://127.0.0.1:{port}/session"
        try:
            said = iter(self.driver.stdout.readline, "")
            next(line for line in said if "successfully on port" in line)
            self.begin()
        except BaseException:
            # Whoever reads what this program prints waits for the driver as well.
            self.driver.kill()
            raise

    def begin(self):
        """Opens the browser."""
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options = {"args": arguments, "binary": "/usr/bin/chromium"}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.call("", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/{session['sessionId']}"

    def call(self, path, body=None, method="POST"):
        """What a command answers."""
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def devtools(self, command, **parameters):
        """What a command of the browser's own protocol answers."""
        return self.call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def appear(self, theme, width, height=900):
        """Shows pages in a theme and at a width."""
        feature = {"name": "prefers-color-scheme", "value": theme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])
        scale = 2 if width < 600 else 1
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                      mobile=width < 600)

    def script(self, text, wait=False):
        """What a script gives."""
        return self.call("/execute/" + ("async" if wait else "sync"), {"script": text, "args": []})

    def sign_in(self, address, key):
        """Types a key into the form, and sends it."""
        self.call("/url", {"url": f"{address}/sign-in"})
        for css, text in [("#key", key), (".sign-in button", None)]:
            element = self.call("/element", {"using": "css selector", "value": css})[ELEMENT]
            action, body = ("click", {}) if text is None else ("value", {"text": text})
            self.call(f"/element/{element}/{action}", body)

    def picture(self, path):
        """Takes a picture of the whole page."""
        height = self.script("return Math.ceil(document.body.getBoundingClientRect().bottom + scrollY);")
        width = self.script("return document.documentElement.clientWidth;")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 6000), "scale": 1}
        taken = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(taken["data"]))

    def end(self):
        """Ends the browser and the driver."""
        try:
            self.call("", method="DELETE")
        finally:
            self.driver.terminate()
            self.driver.wait()


def look(browser, address, path, axe):
    """What there is to say against a page, as it is shown now."""
    browser.call("/url", {"url": address + path})
    browser.script(axe)
    violations = browser.script(ANALYSE, wait=True)
    assert isinstance(violations, list), violations
    log = browser.call("/se/log", {"type": "browser"})
    shown = browser.script("return location.pathname;")
    return {
        "page": path,
        "shown": shown,
        "heading": browser.script("return document.querySelector('h1').textContent;"),
        "violations": [
            {"rule": found["id"], "says": found["help"], "nodes": [node["html"] for node in found["nodes"]]}
            for found in violations
        ],
        "overflow_px": browser.script(OVERFLOW),
        "complaints": [entry["message"] for entry in log if entry["level"] == "SEVERE"],
    }


def fetched(address):
    """What a browser gets."""
    request = urllib.request.Request(address, headers={"accept": "text/html"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return answer.read()


def weigh(address, paths):
    """What the pages and all that they load come to, compressed."""
    pages = [fetched(address + path) for path in paths]
    files = {name for page in pages for name in re.findall(r'"(/pages/[^"]+)"', page.decode())}
    loaded = [fetched(address + name) for name in sorted(files)]
    return sum(len(gzip.compress(content)) for content in pages + loaded)


def main():
    """Looks at the pages that the arguments name."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("address")
    arguments.add_argument("paths", nargs="+")
    arguments.add_argument("--widths", type=int, nargs="+", default=[360, 1280])
    arguments.add_argument("--themes", nargs="+", default=THEMES)
    arguments.add_argument("--key", help="sign in with this key first")
    arguments.add_argument("--pictures", type=pathlib.Path, help="a folder")
    arguments.add_argument("--weigh", action="store_true", help="tell how large the pages are, compressed with gzip")
    given = arguments.parse_args()
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    browser = Browser()
    try:
        if given.key:
            browser.sign_in(given.address, given.key)
        for theme in given.themes:
            for width in given.widths:
                browser.appear(theme, width)
                for path in given.paths:
                    seen = look(browser, given.address, path, axe)
                    print(json.dumps({"theme": theme, "width": width} | seen), flush=True)
                    if given.pictures:
                        name = path.strip("/").replace("/", "-") or "served"
                        browser.picture(given.pictures / f"{name}-{theme}-{width}.png")
    finally:
        browser.end()
    if given.weigh:
        print(json.dumps({"gzip_bytes": weigh(given.address, given.paths)}))


if __name__ == "__main__":
    main()
