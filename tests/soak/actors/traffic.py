"""Clients that ask, in every form, and check every answer."""

from __future__ import annotations

import asyncio
import random

from tests.soak.asking import Asker, Question, check
from tests.soak.context import Soak
from tests.soak.ledger import ANSWER_SECONDS, Wrong
from tests.soak.models import Model
from tests.soak.truth import now
from tests.soak.wire import Ended, Wire

_MOST_PIPELINED = 8


class Traffic:
    """One client with one connection that it mostly keeps.

    Args:
        soak: What actors share.
        name: Its name, also the start of its request ids.
        models: Whom it asks.
    """

    def __init__(self, soak: Soak, name: str, models: list[Model]) -> None:
        self._soak = soak
        self._name = name
        self._models = models
        self._rng: random.Random = soak.rng(name)
        self._asker = Asker(self._rng, name)
        self._wire: Wire | None = None
        soak.paused.append(self.hang_up)

    def hang_up(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def run(self) -> None:
        """Ask until the end."""
        rng = self._rng
        async for _ in self._soak.rounds(self._name, lambda: rng.expovariate(40)):
            with self._soak.noting(self._name):
                await self._ask(self._questions())
            if rng.random() < 0.02:
                self.hang_up()
        self.hang_up()

    def _questions(self) -> list[Question]:
        rng = self._rng
        count = rng.randint(2, _MOST_PIPELINED) if rng.random() < 0.3 else 1
        found = []
        for _ in range(count):
            model = rng.choice(self._models)
            version = self._soak.lives[model.name].current if rng.random() < 0.1 else 0
            found.append(self._asker.question(model, version))
        return found

    async def _ask(self, questions: list[Question]) -> None:
        ledger, open_questions = self._soak.ledger, list(questions)
        if self._wire is None or self._wire.ended:
            self._wire = await Wire.open(self._soak.server.port)
        wire = self._wire
        for question in questions:
            question.since = now()
            ledger.sent[question.model.name] += 1
        await self._send(wire, b"".join(question.data for question in questions))
        try:
            while open_questions:
                question = open_questions[0]
                async with asyncio.timeout(ANSWER_SECONDS):
                    reply = await wire.reply()
                open_questions.pop(0)
                ledger.answered(question.model.name, now() - question.since)
                self._settle(question, check(question, reply, self._soak.lives))
            await asyncio.sleep(0)
            _check_silent(wire, questions[-1])
        except TimeoutError:
            self.hang_up()
            told = "; ".join(question.told() for question in open_questions)
            raise Wrong(f"no answer in {ANSWER_SECONDS} s: {told}") from None
        except Ended as exc:
            self._wire = None
            told = "; ".join(question.told() for question in open_questions)
            raise Wrong(f"the connection ended before the answers to {told} ({exc})") from None
        except Wrong:
            self.hang_up()
            raise

    async def _send(self, wire: Wire, data: bytes) -> None:
        """Send all at once, or in pieces with moments between."""
        rng = self._rng
        if rng.random() < 0.85:
            wire.send(data)
            return
        start = 0
        while start < len(data):
            stop = start + rng.randint(1, max(2, len(data) // 3))
            wire.send(data[start:stop])
            start = stop
            await asyncio.sleep(rng.random() * 0.01)

    def _settle(self, question: Question, reason: str) -> None:
        ledger, name = self._soak.ledger, question.model.name
        if reason:
            ledger.refused[name, reason] += 1
        else:
            ledger.good[name] += 1


def _check_silent(wire: Wire, last: Question) -> None:
    if left := wire.left():
        raise Wrong(f"more came than was asked for: {left[:200]!r}; last {last.told()}")
