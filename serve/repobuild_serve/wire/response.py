"""Writing inference responses: the outputs of a batch, split among its requests, as JSON and binary tensors.

Number texts are made once per batch and output, and a response joins pieces that are mostly made before.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from repobuild_serve.core.ticket import Answer, OutputTensor
from repobuild_serve.wire.classification import check_class_count, top_classes
from repobuild_serve.wire.json_numbers import number_rows, string_json
from repobuild_serve.wire.plan import InferPlan, Wanted
from repobuild_serve.wire.strings import pack, unpack_strings


class BatchResponses:
    """The responses to the requests of one batch.

    Args:
        plan: The model.
        answer: Outputs of the batch.
    """

    def __init__(self, plan: InferPlan, answer: Answer) -> None:
        self._plan = plan
        self._outputs = answer.outputs
        self._columns: list[list[bytes] | None] = [None] * len(answer.outputs)
        self._blobs: list[bytes | None] = [None] * len(answer.outputs)
        self._frames: dict[int, tuple[bytes, ...]] = {}
        self._headers: dict[tuple[int, int], bytes] = {}

    def json(self, start: int, stop: int, request_id: str) -> bytes:
        """The response with every output as JSON.

        Args:
            start: First row of the request.
            stop: Row after its last.
            request_id: The client's id; empty if none.
        """
        rows = stop - start
        frame = self._frames.get(rows)
        if frame is None:
            frame = self._frames[rows] = self._frame(rows)
        opening = with_id(request_id, frame[0]) if request_id else frame[0]
        if len(frame) == 2:
            column = self._columns[0] or self._column(0)
            return opening + (column[start] if rows == 1 else _joined(column[start:stop])) + frame[1]
        pieces = [opening]
        for index, closing in enumerate(frame[1:]):
            column = self._columns[index] or self._column(index)
            pieces.append(column[start] if rows == 1 else _joined(column[start:stop]))
            pieces.append(closing)
        return b"".join(pieces)

    def mixed(
        self, start: int, stop: int, request_id: str, wanted: tuple[Wanted, ...]
    ) -> tuple[bytes, list[bytes]]:
        """The response with the outputs asked for, each the way it was asked for.

        Returns:
            The JSON part, and the blobs that follow it.
        """
        blobs = [self._blob(item, start, stop) for item in wanted if item.binary]
        # Requests of one batch often share one ``wanted`` object; while the batch lives, its id is its own.
        key = (id(wanted), stop - start)
        header = self._headers.get(key)
        if header is None:
            header = self._mixed_header(start, stop, wanted, blobs)
            if all(
                item.binary and not item.classes and self._outputs[item.index].array is not None
                for item in wanted
            ):
                self._headers[key] = header
        return (with_id(request_id, header) if request_id else header), blobs

    def _frame(self, rows: int) -> tuple[bytes, ...]:
        pieces: list[bytes] = []
        text = self._opening()
        for number, output in enumerate(self._outputs):
            text += (
                (b"," if number else b"")
                + item_head(output.name, output.datatype.wire, self._shape(output, rows))
                + b',"data":['
            )
            pieces.append(text)
            text = b"]}"
        pieces.append(text + b"]}")
        return tuple(pieces)

    def _mixed_header(self, start: int, stop: int, wanted: Sequence[Wanted], blobs: Sequence[bytes]) -> bytes:
        sizes = iter([len(blob) for blob in blobs])
        items: list[bytes] = []
        for item in wanted:
            output = self._outputs[item.index]
            shape = self._shape(output, stop - start)
            if item.classes:
                shape = [*shape[: self._plan.settings.batched], min(item.classes, _width(output))]
            head = item_head(output.name, "BYTES" if item.classes else output.datatype.wire, shape)
            if item.binary:
                items.append(head + b',"parameters":{"binary_data_size":%d}}' % next(sizes))
            else:
                items.append(head + b',"data":[' + self._json_data(item, start, stop) + b"]}")
        return self._opening() + b",".join(items) + b"]}"

    def _json_data(self, item: Wanted, start: int, stop: int) -> bytes:
        if item.classes:
            return b",".join(string_json(text) for text in self._classes(item, start, stop))
        return _joined(self._column(item.index)[start:stop])

    def _blob(self, item: Wanted, start: int, stop: int) -> bytes:
        output = self._outputs[item.index]
        if item.classes:
            return pack(self._classes(item, start, stop))
        if output.array is None:
            return b"".join(output.strings[start:stop])
        blob = self._blobs[item.index]
        if blob is None:
            blob = self._blobs[item.index] = output.array.tobytes()
        size = output.array.shape[1] * output.array.itemsize
        return blob[start * size : stop * size]

    def _classes(self, item: Wanted, start: int, stop: int) -> list[bytes]:
        array = self._outputs[item.index].array
        assert array is not None
        check_class_count(array.shape[1])
        return top_classes(array[start:stop], item.classes, self._plan.labels[item.index])

    def _column(self, index: int) -> list[bytes]:
        column = self._columns[index]
        if column is None:
            output = self._outputs[index]
            column = number_rows(output.array) if output.array is not None else _string_rows(output)
            self._columns[index] = column
        return column

    def _shape(self, output: OutputTensor, rows: int) -> list[int]:
        return [rows, *output.dims] if self._plan.settings.batched else list(output.dims)

    def _opening(self) -> bytes:
        return b'{"model_name":%b,"model_version":"%d","outputs":[' % (
            orjson.dumps(self._plan.name),
            self._plan.version,
        )


def _joined(rows: Sequence[bytes]) -> bytes:
    # Only rows without elements are empty, and those must not leave commas behind.
    return b",".join(filter(None, rows))


def with_id(request_id: str, text: bytes) -> bytes:
    """A response's JSON part with the client's id in front."""
    return b'{"id":' + string_json(request_id.encode("utf-8", "surrogateescape")) + b"," + text[1:]


def item_head(name: str, wire: str, shape: Sequence[int]) -> bytes:
    """The start of an output's entry, up to its data."""
    return b'{"name":%b,"datatype":"%b","shape":%b' % (
        orjson.dumps(name),
        wire.encode(),
        orjson.dumps(list(map(int, shape))),
    )


def _width(output: OutputTensor) -> int:
    assert output.array is not None
    return int(output.array.shape[1])


def _string_rows(output: OutputTensor) -> list[bytes]:
    return [b",".join(map(string_json, unpack_strings(row))) for row in output.strings]
