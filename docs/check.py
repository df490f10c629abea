"""Checks the built site: every link leads somewhere, and nothing is wider than the window.

Run by ``make docs``, or as ``python docs/check.py build/docs``. Links and anchors are read off the
pages. The layout is asked of Chromium, at 1300 and 400 pixels, with its console's errors; where
there is no Chromium, a line says that this was not done.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1300, 400)
# Pages whose layout is looked at: one of each kind, and the widest.
PAGES = (
    "index", "install", "gallery", "tutorials/fitting", "howto/jax", "reference/functrans",
    "reference/functrans.numpy", "ops", "coverage", "benchmarks", "changelog", "how_jit_works",
)
WAIT = 180  # seconds for all of them


class Page(HTMLParser):
    """The links of a page and the anchors in it."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "base":
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


def broken(root: Path) -> list[str]:
    """Links of the site that lead nowhere, and scripts and styles that it would have to fetch."""
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in sorted(root.rglob("*.html"))}
    return [
        f"{path.relative_to(root)}: {link}: {why}"
        for path, page in pages.items()
        for link in sorted(set(page.links))
        if (why := _fault(link, path, pages))
    ]


def _fault(link: str, path: Path, pages: dict[Path, Page]) -> str:
    if urlsplit(link).scheme or link.startswith("//"):
        return ""
    name, anchor = urldefrag(unquote(link.partition("?")[0] if "#" not in link else link))
    target = (path.parent / name).resolve() if name else path
    if not target.exists():
        return "there is no such file"
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "there is no such anchor"
    return ""


# Loads page after page into a frame of each width and posts what sticks out.
HARNESS = """<!doctype html><body style="margin:0"><script>
const found = [];
const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
function inScroller(e) {
  for (e = e.parentElement; e; e = e.parentElement) if (scrolls(e)) return true;
  return false;
}
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `border:0; height:1000px; width:${width}px`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page + ".html";
  document.body.append(frame);
  await loaded;
  const inner = frame.contentDocument, root = inner.documentElement;
  if (root.scrollWidth > width) found.push(`${page}: ${root.scrollWidth} wide at ${width}`);
  for (const e of inner.querySelectorAll("article *")) {
    const right = e.getBoundingClientRect().right;
    if (right > width + 1 && !inScroller(e)) {
      found.push(`${page}: <${e.tagName.toLowerCase()}> sticks out at ${width}: ` +
                 e.textContent.slice(0, 60));
      break;
    }
  }
  frame.remove();
}
(async () => {
  for (const page of PAGES) for (const width of WIDTHS) await look(page, width);
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class _Site(SimpleHTTPRequestHandler):
    """Serves the site and the page that looks at it; keeps what that one posts."""

    def __init__(self, *args, answers: list, done: threading.Event, harness: str, **options):
        self.answers, self.done, self.harness = answers, done, harness
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        if self.path != "/look":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.harness.encode())

    def do_POST(self) -> None:
        self.answers += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.done.set()

    def log_message(self, *args: object) -> None:
        pass


def browser() -> str | None:
    """A Chromium, if there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def sticking_out(root: Path, program: str, pages: Sequence[str] = PAGES) -> list[str]:
    """What is wider than the window, and what the browser's console complains of."""
    answers: list[str] = []
    done = threading.Event()
    harness = HARNESS.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS))
    site = functools.partial(_Site, directory=str(root), answers=answers, done=done,
                             harness=harness)
    with ThreadingHTTPServer(("127.0.0.1", 0), site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            console = _run(program, f"http://127.0.0.1:{server.server_port}/look", done)
        finally:
            server.shutdown()
    return answers + [line for line in console if "CONSOLE" in line and "Uncaught" in line]


def _run(program: str, url: str, done: threading.Event) -> list[str]:
    """The browser's messages while it looks at the pages."""
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--disable-dev-shm-usage", "--enable-logging=stderr", "--window-size=1400,1100",
    ]
    # its processes may still write into the profile when the first of them has ended
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with folder as profile, tempfile.TemporaryFile("w+") as log:
        command = [program, *flags, f"--user-data-dir={profile}", "--remote-debugging-port=0", url]
        with subprocess.Popen(command, stdout=log, stderr=log) as running:
            finished = done.wait(WAIT)
            running.terminate()
        log.seek(0)
        lines = log.read().splitlines()
    if not finished:
        raise TimeoutError(f"{program} did not answer in {WAIT} s:\n" + "\n".join(lines[-20:]))
    return lines


def report(root: Path) -> Iterator[str]:
    """The faults, or that there are none."""
    faults = broken(root)
    program = browser()
    if program is None:
        print("layout not checked: there is no Chromium")
    else:
        faults += sticking_out(root, program)
    yield from faults


def main() -> None:
    faults = list(report(Path(sys.argv[1]).resolve()))
    print("\n".join(faults) or "every link leads somewhere")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
