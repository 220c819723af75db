"""Inference requests of every form, and the check of what is answered to them."""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.soak.ledger import Wrong
from tests.soak.models import MEMBERS, Model
from tests.soak.truth import Life, now, reason_for
from tests.soak.wire import Reply, chunked_request, decoded, request

_MAGNITUDE = 9
_WORDS = ("", "a", "Grüße", "\u65e5\u672c", "x" * 300, 'quote " and \\', "tab\t")


@dataclass
class Question:
    """A request and what is needed to check its answer.

    Attributes:
        model: Whom it goes to.
        identity: Its id; empty for none.
        version: Version named in the path; 0 for none.
        values: Input, ``[rows, width]``, FP32, or strings as bytes objects.
        data: The bytes to send.
        since: When it was sent.
    """

    model: Model
    identity: str
    version: int
    values: np.ndarray[Any, Any]
    data: bytes
    since: float = 0.0

    def told(self) -> str:
        """The request in words, to find it again."""
        head = self.data[:400].split(b"\r\n\r\n")[0]
        return f"{self.model.name}, id {self.identity!r}, shape {list(self.values.shape)}, head {head!r}"


class Asker:
    """Makes questions.

    Args:
        rng: Decides everything.
        name: Starts the ids.
    """

    def __init__(self, rng: random.Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._count = 0

    def question(self, model: Model, version: int = 0) -> Question:
        """A request to a model in one of the forms that the protocol has.

        Args:
            model: The model; not a decoupled one.
            version: Version to name in the path; 0 for none.
        """
        rng = self._rng
        self._count += 1
        identity = f"{self._name}-{self._count}" if rng.random() < 0.8 else ""
        values = self._values(model)
        datatype = "BYTES" if model.strings else "FP32"
        tensor: dict[str, Any] = {"name": "IN", "datatype": datatype, "shape": list(values.shape)}
        document: dict[str, Any] = {"inputs": [tensor]}
        if identity:
            document["id"] = identity
        parameters = self._parameters(model)
        binary_out = rng.random() < 0.5 or values.size > 5000
        names = [name for name in output_names(model) if rng.random() < 0.7] if rng.random() < 0.4 else []
        if names:
            document["outputs"] = [
                {"name": name, "parameters": {"binary_data": binary_out}} for name in names
            ]
        elif binary_out:
            parameters["binary_data_output"] = True
        if parameters:
            document["parameters"] = parameters
        tail = b""
        if rng.random() < 0.5 or values.size > 20_000:
            tail = _packed(values)
            tensor["parameters"] = {"binary_data_size": len(tail)}
        elif model.strings:
            tensor["data"] = [value.decode() for value in values.ravel()]
        else:
            tensor["data"] = values.tolist() if rng.random() < 0.5 else values.ravel().tolist()
        head = json.dumps(document).encode()
        where = f"/versions/{version}" if version else ""
        path = f"/v2/models/{model.name}{where}/infer"
        return Question(model, identity, version, values, self._sent(path, head, tail))

    def _values(self, model: Model) -> np.ndarray[Any, Any]:
        rng = self._rng
        rows = rng.randint(1, model.batch) if rng.random() < 0.4 else 1
        width = model.largest
        if not model.fixed:
            # Few widths, so that requests can share batches; now and then a very large one.
            width = rng.choice((1, 2, 8, model.largest if rng.random() < 0.3 else 8))
        if model.strings:
            words = [rng.choice(_WORDS).encode() for _ in range(rows * width)]
            values = np.empty(rows * width, object)
            values[:] = words
            return values.reshape(rows, width)
        seed = rng.getrandbits(32)
        return np.random.default_rng(seed).integers(1, _MAGNITUDE + 1, (rows, width)).astype(np.float32)

    def _parameters(self, model: Model) -> dict[str, Any]:
        rng = self._rng
        found: dict[str, Any] = {}
        if model.name == "ranked":
            found["priority"] = rng.randint(0, 3)
        if model.queued and rng.random() < 0.3:
            found["timeout"] = rng.choice((1_000, 5_000, 50_000))
        if rng.random() < 0.05:
            found["mine"] = rng.choice(("text", 3, True))
        return found

    def _sent(self, path: str, head: bytes, tail: bytes) -> bytes:
        rng = self._rng
        headers: dict[str, str] = {}
        if tail:
            headers["Inference-Header-Content-Length"] = str(len(head))
        body = head + tail
        if rng.random() < 0.1:
            coding = rng.choice(("gzip", "deflate"))
            body = gzip.compress(body, 1) if coding == "gzip" else zlib.compress(body, 1)
            headers["Content-Encoding"] = coding
        if rng.random() < 0.1:
            headers["Accept-Encoding"] = rng.choice(("gzip", "deflate", "gzip;q=0.5, deflate"))
        if rng.random() < 0.1:
            return chunked_request(path, body, headers, rng.randint(max(1, len(body) // 50), len(body)))
        return request("POST", path, body, headers)


def output_names(model: Model) -> tuple[str, ...]:
    """The outputs of a model."""
    if model.backend == "ensemble":
        return ("MIDDLE", "OUT")
    return ("OUT", "ROWS", "PID") if model.backend == "python" else ("OUT",)


def check(question: Question, reply: Reply, lives: dict[str, Life]) -> str:
    """Check an answer in full.

    Args:
        question: The request.
        reply: What came.
        lives: What was possible, by model.

    Returns:
        The name of the allowed reason for a refusal; empty for a right answer.

    Raises:
        Wrong: The answer is wrong, or was not possible at that time.
    """
    model, until = question.model, now()
    life = lives[model.name]
    if reply.status != 200:
        text = reply.error
        reason = reason_for(model, life, reply.status, text, question.since, until, question.version)
        if not reason:
            raise Wrong(f"refused without an allowed reason: {reply.status} {text!r}; {question.told()}")
        return reason
    document, outputs = _read(reply)
    if document.get("model_name") != model.name or document.get("id", "") != question.identity:
        raise Wrong(f"another request's answer: {str(document)[:300]}; {question.told()}")
    version = int(document["model_version"])
    if question.version and version != question.version:
        raise Wrong(f"version {question.version} was asked, {version} answered; {question.told()}")
    if not life.may_answer(version, question.since, until):
        raise Wrong(f"version {version} answered, which was not there then; {question.told()}")
    _check_outputs(question, version, outputs, lives, until)
    return ""


def _check_outputs(
    question: Question, version: int, outputs: dict[str, Any], lives: dict[str, Life], until: float
) -> None:
    model, values = question.model, question.values
    for name, array in outputs.items():
        wide = values.shape if name in {"OUT", "MIDDLE"} else (len(values), 1)
        if array.shape != wide:
            raise Wrong(f"output {name} has shape {array.shape}; {question.told()}")
    if model.strings:
        if outputs["OUT"].tolist() != values.tolist():
            raise Wrong(f"other strings came back; {question.told()}")
        return
    if model.backend == "ensemble":
        _check_chain(question, outputs, lives, until)
        return
    out = outputs.get("OUT")
    if out is not None and not np.array_equal(out, values * np.float32(version)):
        raise Wrong(
            f"version {version} answered {out.ravel()[:8]} to {values.ravel()[:8]}; {question.told()}"
        )
    if (rows := outputs.get("ROWS")) is not None:
        seen = set(rows.ravel().tolist())
        if len(seen) != 1 or not len(values) <= seen.pop() <= model.batch:
            raise Wrong(f"batch sizes {rows.ravel()}; {question.told()}")
    if (pids := outputs.get("PID")) is not None and len(set(pids.ravel().tolist())) != 1:
        raise Wrong(f"processes {pids.ravel()}; {question.told()}")


def _check_chain(question: Question, outputs: dict[str, Any], lives: dict[str, Life], until: float) -> None:
    before = question.values
    allowed = {1}
    for name, member in zip(("MIDDLE", "OUT"), MEMBERS, strict=True):
        life = lives[member]
        live = [v for v in life.versions if life.may_answer(v, question.since, until)]
        allowed = {a * v for a in allowed for v in live}
        if name in outputs:
            factors = set((outputs[name] / before).ravel().tolist())
            if len(factors) != 1 or factors.pop() not in allowed:
                raise Wrong(
                    f"{name} is {outputs[name].ravel()[:8]} for {before.ravel()[:8]}, {question.told()}"
                )


def _read(reply: Reply) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """The JSON part of an answer and its tensors by name."""
    body = decoded(reply)
    length = reply.headers.get("inference-header-content-length")
    head, tail = (body, b"") if length is None else (body[: int(length)], body[int(length) :])
    try:
        document = json.loads(head)
    except ValueError as exc:
        raise Wrong(f"an answer that is no JSON: {head[:200]!r}") from exc
    outputs: dict[str, np.ndarray[Any, Any]] = {}
    for item in document["outputs"]:
        size = item.get("parameters", {}).get("binary_data_size")
        if size is None:
            flat = _from_json(item)
        else:
            flat, tail = _unpacked(item["datatype"], tail[:size]), tail[size:]
        outputs[item["name"]] = flat.reshape(item["shape"])
    if tail:
        raise Wrong(f"{len(tail)} bytes behind the last tensor")
    return document, outputs


def _from_json(item: dict[str, Any]) -> np.ndarray[Any, Any]:
    if item["datatype"] == "BYTES":
        return _strings([text.encode() for text in item["data"]])
    return np.array(item["data"], np.float32 if item["datatype"] == "FP32" else np.int32).ravel()


def _strings(found: list[bytes]) -> np.ndarray[Any, Any]:
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _packed(values: np.ndarray[Any, Any]) -> bytes:
    if values.dtype == object:
        return b"".join(struct.pack("<I", len(value)) + value for value in values.ravel())
    return values.astype("<f4").tobytes()


def _unpacked(datatype: str, data: bytes) -> np.ndarray[Any, Any]:
    if datatype != "BYTES":
        return np.frombuffer(data, "<f4" if datatype == "FP32" else "<i4")
    found = []
    while data:
        size = struct.unpack_from("<I", data)[0]
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return _strings(found)
