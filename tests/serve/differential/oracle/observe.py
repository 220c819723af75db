"""Writes down what the real server answers: ``python -m oracle.observe FOLDER``.

The corpus runs twice, on two fresh servers; a case whose two answers differ is listed, since it can be compared with
nothing.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from oracle.answers import Aspects, aspects
from oracle.corpus.all import all_cases
from oracle.main_models import main_models
from oracle.servers import Server, serve
from oracle.wire import Request

OPTIONS = ("--disable-auto-complete-config", "--exit-on-error=false")


def main(target: Path) -> None:
    """Run, and write ``observed.txt`` and ``observed.jsonl``."""
    first = run()
    second = run()
    with (target / "observed.jsonl").open("w") as lines, (target / "observed.txt").open("w") as table:
        for name, case in all_cases().items():
            seen, again = first[name], second[name]
            varies = [] if isinstance(seen, str) or isinstance(again, str) else seen.differing(again)
            record = {"case": name, "request": shown(case.request), "answer": kept(seen), "varies": varies}
            lines.write(json.dumps(record) + "\n")
            table.write(line(record))
            if varies or isinstance(seen, str):
                print(name, varies, kept(seen), kept(again))


def run() -> dict[str, Aspects | str]:
    """The answers of one server; an exception's text where there was none."""
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name) / "repository"
        repository.mkdir()
        for model in main_models():
            model.write(repository)
        left, found = list(all_cases().values()), {}
        while left:
            with serve("real", repository, *OPTIONS) as server:
                while left and server.process.poll() is None:
                    case = left.pop(0)
                    found[case.name] = ask(server, case.request)
        return found


def ask(server: Server, request: Request) -> Aspects | str:
    """One answer."""
    try:
        return aspects(server.ask(request), server.repository)
    except OSError as error:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(1)
        return f"{type(error).__name__}: {error}; server ended with {server.process.poll()}"


def kept(answer: Aspects | str) -> object:
    """For the record."""
    return (
        answer
        if isinstance(answer, str)
        else {k: v for k, v in answer.__dict__.items() if v not in (None, {})}
    )


def shown(request: Request) -> dict[str, object]:
    """A request as JSON; octets as Latin-1."""
    body = b"".join(request.body) if isinstance(request.body, tuple) else request.body
    text = None if body is None else body.decode("latin-1")
    return {"method": request.method, "path": request.path, "headers": request.headers, "body": text}


def line(record: dict[str, object]) -> str:
    """A case in three lines."""
    request = record["request"]
    assert isinstance(request, dict)
    body = (request["body"] or "")[:400]
    asked = f"{request['method']} {request['path']} {request['headers'] or ''} {body!r}"
    answer = json.dumps(record["answer"], ensure_ascii=True)[:3000]
    return f"== {record['case']}{' VARIES ' + str(record['varies']) if record['varies'] else ''}\n{asked}\n-> {answer}\n\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
