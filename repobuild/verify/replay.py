"""Replays golden rows through a server with the real tritonclient, and compares the answers.

Every row goes alone and in batches, as JSON and as binary tensors, one after another and all at once; the
server's statistics have to show that the concurrent rows were joined into batches.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from repobuild.compare import Comparison, compare
from repobuild.errors import EnvironmentLacking, VerificationFailed, evidence
from repobuild.interrupts import undisturbed
from repobuild.recipe.types import Tolerance
from repobuild.report import Check, Fail, Pass, Skip
from repobuild.tensors import Array, Batch, DType, Signature, rows, take
from repobuild.verify.server import BundledServer

CONCURRENT = 64
TIMEOUT = 60.0
BATCH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Golden:
    """Rows and what the model itself answers to them.

    Attributes:
        wire: Input rows in the inputs' own types.
        want: The model's answers by output name.
        tolerance: How far an answer may lie from them.
        further: Requests of other sizes, and the answers to them.
    """

    wire: Batch
    want: Batch
    tolerance: Tolerance = Tolerance()
    further: tuple[tuple[Batch, Batch], ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """What is being verified.

    Attributes:
        model: Model name.
        version: Version that must be the one that answers.
        signature: Its tensors.
        config: Its configuration, a ModelConfig message.
        tolerance: Bounds by output.
    """

    model: str
    version: int
    signature: Signature
    config: Any
    tolerance: Tolerance

    @property
    def max_batch_size(self) -> int:
        """The largest batch, 0 without batching."""
        return int(self.config.max_batch_size)

    @property
    def waits(self) -> bool:
        """Whether the dynamic batcher waits for further requests."""
        return bool(self.config.dynamic_batching.max_queue_delay_microseconds)

    @property
    def burst(self) -> int:
        """How many rows may be sent at once without meeting the model's own queue limit."""
        limit = self.config.dynamic_batching.default_queue_policy.max_queue_size
        return min(CONCURRENT, limit) if limit else CONCURRENT

    @property
    def may_refuse(self) -> bool:
        """Whether the model's queue policy refuses requests that have waited for some time."""
        return bool(self.config.dynamic_batching.default_queue_policy.default_timeout_microseconds)


def replay(server: BundledServer, subject: Subject, golden: Golden) -> tuple[Check, ...]:
    """All comparisons through a running server, in the order made; an interrupt stops the server.

    Raises:
        VerificationFailed: The server ended, or refused a request.
        EnvironmentLacking: tritonclient's HTTP part is not installed.
    """

    def compared() -> tuple[Check, ...]:
        with _session(server, subject, golden) as session:
            return tuple(session.all())

    return undisturbed(compared, server.stop)


@contextlib.contextmanager
def connected(server: BundledServer, subject: Subject, golden: Golden) -> Iterator[Callable[[Batch], object]]:
    """A function that sends one batch in binary form and waits for the answer, for the length of a block.

    The block belongs under :func:`repobuild.interrupts.undisturbed`.

    Raises:
        VerificationFailed: The server ended, or refused a request.
        EnvironmentLacking: tritonclient's HTTP part is not installed.
    """
    with _session(server, subject, golden) as session:
        yield session.send


@contextlib.contextmanager
def _session(server: BundledServer, subject: Subject, golden: Golden) -> Iterator[_Replay]:
    try:
        from aiohttp import ClientError
        from geventhttpclient.response import HTTPParseError
        from tritonclient.http import InferenceServerClient
        from tritonclient.utils import InferenceServerException
    except ImportError as problem:
        raise EnvironmentLacking(
            "tritonclient-missing",
            "the client that verification uses does not import",
            evidence([str(problem)]),
            "pip install 'tritonclient[http,grpc]'",
        ) from problem
    client = InferenceServerClient(server.address, connection_timeout=TIMEOUT, network_timeout=TIMEOUT)
    try:
        yield _Replay(client, server.address, subject, golden)
    except (InferenceServerException, HTTPParseError, ClientError, OSError) as problem:
        died = server.died()
        if died is not None:
            raise died from problem
        raise VerificationFailed(
            "server-refuses",
            "the bundled server refuses a request of the verification",
            evidence([str(problem), *server.log_tail()[-3:]]),
            "the repository was not changed",
        ) from problem
    finally:
        client.close()


class _Replay:
    def __init__(self, client: Any, address: str, subject: Subject, golden: Golden) -> None:
        self._client = client
        self._address = address
        self._subject = subject
        self._golden = golden

    def all(self) -> Iterator[Check]:
        yield self._ready()
        yield self._metadata()
        for binary in (False, True):
            form = "binary" if binary else "JSON"
            if not binary and not self._speaks_json():
                yield Check(f"served: {form}", Skip("FP16 tensors have no JSON form"))
                continue
            alone = "rows alone" if self._subject.signature.batched else "all rows"
            yield self._compared(f"served: {form}, {alone}", self._pieces(1), binary)
            if self._subject.max_batch_size > 1:
                size = min(self._subject.max_batch_size, rows(self._golden.wire))
                yield self._compared(f"served: {form}, batches of {size}", self._pieces(size), binary)
        yield from self._sizes()
        yield from self._concurrent()

    def _sizes(self) -> Iterator[Check]:
        """Requests whose free axes have other sizes than the samples, binary."""
        for wire, want in self._golden.further:
            shapes = "; ".join(f"{name} {list(array.shape)}" for name, array in wire.items())
            title = f"served: sizes {shapes}"
            yield self._judged(title, [self._ask(wire, binary=True)], want, "1 request")

    def send(self, batch: Batch) -> object:
        """Send one batch in binary form and wait for the answer."""
        return self._ask(batch, binary=True)

    def _ready(self) -> Check:
        name, version = self._subject.model, str(self._subject.version)
        live = self._client.is_server_ready() and self._client.is_model_ready(name, version)
        verdict = (
            Pass("server and model are ready") if live else Fail("the server answers, the model is not ready")
        )
        return Check("served: ready", verdict)

    def _metadata(self) -> Check:
        metadata = self._client.get_model_metadata(self._subject.model)
        signature = self._subject.signature
        want = {
            what: [{**t.to_dict(), "shape": self._wire_shape(t.to_dict()["shape"])} for t in specs]
            for what, specs in (("inputs", signature.inputs), ("outputs", signature.outputs))
        }
        wrong = [
            f"{what} are {metadata[what]}, expected {want[what]}"
            for what in want
            if sorted(metadata[what], key=lambda t: t["name"]) != sorted(want[what], key=lambda t: t["name"])
        ]
        if metadata["versions"] != [str(self._subject.version)]:
            wrong.append(f"versions are {metadata['versions']}, expected {self._subject.version}")
        return Check(
            "served: metadata", Fail("; ".join(wrong)) if wrong else Pass("names, types and shapes agree")
        )

    def _wire_shape(self, shape: list[int]) -> list[int]:
        return [-1, *shape[1:]] if self._subject.signature.batched else shape

    def _pieces(self, size: int) -> list[Batch]:
        if not self._subject.signature.batched:
            return [self._golden.wire]
        count = rows(self._golden.wire)
        return [take(self._golden.wire, i, min(i + size, count)) for i in range(0, count, size)]

    def _compared(self, title: str, pieces: list[Batch], binary: bool) -> Check:
        answers = [self._ask(piece, binary) for piece in pieces]
        return self._judged(
            title, answers, self._golden.want, f"{len(pieces)} request{'s' if len(pieces) > 1 else ''}"
        )

    def _judged(self, title: str, answers: list[dict[str, Array]], want: Batch, what: str) -> Check:
        import numpy as np

        worst = None
        for spec in self._subject.signature.outputs:
            shapes = sorted({a[spec.name].shape[1:] for a in answers})
            if len(shapes) > 1:
                told = f"rows of output '{spec.name}' have dims {' and '.join(str(list(s)) for s in shapes)}"
                return Check(title, Fail(f"{what}: {told}, by the request that they come in"))
            got = np.concatenate([a[spec.name] for a in answers])
            outcome: Comparison = compare(
                spec.name, _text(got), want[spec.name], self._subject.tolerance.of(spec.name)
            )
            if not outcome.holds:
                return Check(title, Fail(f"{what}: {outcome.worst or outcome.why}"), outcome.worst)
            if outcome.worst and (worst is None or outcome.worst.absolute > worst.absolute):
                worst = outcome.worst
        return Check(title, Pass(f"{what}, all answers within tolerance"), worst)

    def _concurrent(self) -> Iterator[Check]:
        burst = self._subject.burst
        title = f"served: {burst} rows at once"
        if not self._subject.signature.batched:
            yield Check(title, Skip("the model has no batch dimension"))
            return
        if self._subject.may_refuse:
            yield Check(title, Skip("the queue policy may refuse requests that wait"))
            return
        count = rows(self._golden.wire)
        order = [i % count for i in range(burst)]
        want = {name: array[order] for name, array in self._golden.want.items()}
        joined = False
        for _ in range(BATCH_ATTEMPTS):
            before = self._statistics()
            answers = asyncio.run(self._at_once([take(self._golden.wire, i, i + 1) for i in order]))
            check = self._judged(title, answers, want, f"{burst} concurrent requests")
            if isinstance(check.verdict, Fail):
                yield check
                return
            after = self._statistics()
            inferences, executions = (after[k] - before[k] for k in ("inference_count", "execution_count"))
            joined = joined or executions < inferences == burst
            if joined:
                break
        # Which rows meet in a batch is chance, and with it the last bits: equal builds have equal reports.
        yield Check(check.name, check.verdict)
        yield self._batching(joined)

    def _batching(self, joined: bool) -> Check:
        title = "served: dynamic batching"
        if self._subject.max_batch_size < 2 or not self._subject.waits or self._subject.burst < 2:
            return Check(title, Skip("without a queue delay, batches form under load only"))
        if joined:
            return Check(title, Pass("the statistics show fewer executions than inferences"))
        return Check(title, Fail("concurrent rows were never joined, the statistics say"))

    def _speaks_json(self) -> bool:
        signature = self._subject.signature
        return all(t.dtype is not DType.FP16 for t in (*signature.inputs, *signature.outputs))

    def _statistics(self) -> dict[str, int]:
        reply = self._client.get_inference_statistics(self._subject.model)
        stats: dict[str, int] = reply["model_stats"][0]
        return stats

    def _ask(self, batch: Batch, binary: bool) -> dict[str, Array]:
        inputs, outputs = self._request(batch, binary)
        return self._arrays(self._client.infer(self._subject.model, inputs, outputs=outputs))

    async def _at_once(self, batches: list[Batch]) -> list[dict[str, Array]]:
        """Send all requests before any is answered; the other client's ``async_infer`` spaces them apart."""
        from tritonclient.http.aio import InferenceServerClient

        async with InferenceServerClient(
            self._address, conn_limit=len(batches), conn_timeout=TIMEOUT
        ) as client:
            requests = (self._request(batch, binary=True) for batch in batches)
            pending = (client.infer(self._subject.model, ins, outputs=outs) for ins, outs in requests)
            return [self._arrays(result) for result in await asyncio.gather(*pending)]

    def _request(self, batch: Batch, binary: bool) -> tuple[list[Any], list[Any]]:
        from tritonclient.http import InferInput, InferRequestedOutput

        inputs = []
        for spec in self._subject.signature.inputs:
            array = batch[spec.name]
            tensor = InferInput(spec.name, list(array.shape), spec.dtype.value)
            tensor.set_data_from_numpy(_bytes(array), binary_data=binary)
            inputs.append(tensor)
        outputs = [InferRequestedOutput(s.name, binary_data=binary) for s in self._subject.signature.outputs]
        return inputs, outputs

    def _arrays(self, result: Any) -> dict[str, Array]:
        return {s.name: result.as_numpy(s.name) for s in self._subject.signature.outputs}


def _bytes(array: Array) -> Array:
    """Text as the ``object`` array of bytes that tritonclient wants."""
    import numpy as np

    if array.dtype.kind != "U":
        return np.ascontiguousarray(array)
    return np.array([v.encode() for v in array.ravel()], dtype=object).reshape(array.shape)


def _text(array: Array) -> Array:
    import numpy as np

    if array.dtype.kind not in "OS":
        return array
    texts = [v.decode() if isinstance(v, bytes) else str(v) for v in array.ravel()]
    return np.array(texts, dtype=np.str_).reshape(array.shape)
