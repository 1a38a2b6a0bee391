"""Builds the site of docs into site/, in Zensical's strict mode, and checks its links; --serve shows it."""

import shutil
import subprocess
import sys
from argparse import ArgumentParser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts._site.links import faults
from scripts._site.staging import CONFIG, ROOT, stage

SITE = ROOT / "site"


def build(site: Path) -> list[str]:
    """Build the site into a folder, which is emptied first; the lines say what is wrong with it."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        stage(folder)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / CONFIG)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return [*done.stdout.splitlines(), *done.stderr.splitlines()]
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(folder / "site", site)
    return faults(site.resolve())


def serve(site: Path, port: int) -> None:
    """Show the folder on this machine until Ctrl-C."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def main() -> int:
    parser = ArgumentParser(prog="scripts/site", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="show the site on this machine after it is built")
    parser.add_argument("--port", type=int, default=8008, help="port of --serve; 0 picks a free one")
    parser.add_argument("--folder", type=Path, default=SITE, help="where to build it; emptied first")
    arguments = parser.parse_args()
    wrong = build(arguments.folder)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong:
        return 1
    print(f"built {arguments.folder / 'index.html'}")
    if arguments.serve:
        serve(arguments.folder, arguments.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
