"""Where the two servers may differ, and why.

An entry names cases by pattern, and the parts of the answer that differ. A case that no longer differs as written
fails its test, so an entry cannot outlive its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Difference:
    """Cases, the parts of their answers (of ``Aspects``) that differ, and the reason."""

    cases: tuple[str, ...]
    parts: frozenset[str]
    reason: str


_JSON = frozenset({"json"})
_ERROR = frozenset({"status", "json"})
_ANSWER = frozenset({"status", "type", "json"})
_NO_TRACE = "trace settings are not served yet: 501"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (
            "settings-trace",
            "settings-trace-model",
            "settings-trace-nothing",
            "settings-trace-mode",
            "settings-trace-level-unknown",
            "settings-trace-unknown-key",
        ),
        _ANSWER,
        _NO_TRACE,
    ),
    Difference(
        (
            "settings-trace-unknown-model*",
            "settings-trace-level-text",
            "settings-trace-level-two",
            "settings-trace-rate-*",
            "settings-trace-count",
            "settings-trace-log-frequency",
            "settings-trace-no-file",
            "settings-trace-empty-body",
        ),
        _ERROR,
        _NO_TRACE,
    ),
    Difference(("settings-trace-file",), _JSON, _NO_TRACE),
    Difference(
        ("route-server", "route-server-query"),
        _JSON,
        "the list of extensions names what is served, so that a client can ask instead of trying",
    ),
    Difference(
        (
            "metadata-apart-config",
            "metadata-chain-config",
            "metadata-counted_chain-config",
            "metadata-counted_failing-config",
            "metadata-diamond-config",
            "metadata-exposed-config",
            "metadata-failing-config",
            "metadata-old-config",
            "metadata-ranked-config",
            "metadata-seen-config",
            "metadata-streamed-config",
            "metadata-whole_chain-config",
        ),
        _JSON,
        "V15: current configs of ensembles have max_inflight_requests",
    ),
    Difference(("parameters-args",), _JSON, "the name of the backend's own folder on sys.path"),
    Difference(
        (
            "ensemble-apart",
            "ensemble-diamond",
            "ensemble-diamond-rows",
            "ensemble-diamond-swapped",
            "ensemble-exposed",
            "ensemble-sequence-echo",
        ),
        _JSON,
        "outputs of ensembles come in the order of the config; there, in that of a hash table",
    ),
    Difference(
        ("ensemble-exposed-last", "ensemble-exposed-middle"),
        _ANSWER,
        "contract 9.3: an output that also feeds a later step is given, where Triton ends in a deadlock",
    ),
    Difference(
        ("bls-error", "bls-error-async", "bls-failing-ensemble"),
        _JSON,
        "a model that calls another one sees the code of its error; there every code becomes INTERNAL",
    ),
    Difference(
        ("core-optional-second-only",),
        _ANSWER,
        "a required input that is missing is refused; there it counts as long as as many others came",
    ),
    Difference(
        (
            "core-batches-differ",
            "core-batches-differ-id",
            "core-over-and-shape",
            "core-wrong-names",
            "core-three-of-two",
            "core-optional-three",
        ),
        _JSON,
        "which input is named first: in the request's order; there, in that of a hash table",
    ),
    Difference(
        ("json-doc-same-key-twice",), _ANSWER, "of repeated members the last counts; there, the first"
    ),
    Difference(
        ("json-doc-same-key-twice-other", "parameters-twice", "generate-parameters-both"),
        _JSON,
        "of repeated members the last counts; there, the first, or both",
    ),
    Difference(
        ("json-data-long-integer-as-float",),
        _JSON,
        "rounded correctly; there, one unit in the last place off",
    ),
    Difference(
        ("parameters-large", "parameters-larger"), _JSON, "another spelling of the same double in JSON"
    ),
    Difference(("parameters-nul", "id-5"), _JSON, "a NUL belongs to a text; there, it ends one"),
    Difference(
        ("json-shape-beyond-63",),
        frozenset({"status", "json"}),
        "shapes beyond 64 bits are refused as in current releases; there, they wrap around",
    ),
    Difference(("binary-tail-shape-overflow",), _JSON, "the same, for binary tensors"),
    Difference(
        ("binary-tail-length-32-bits",),
        _ANSWER,
        "a header length beyond 32 bits is refused; there, it is cut",
    ),
    Difference(
        ("binary-tail-length-body",),
        frozenset({"status", "json"}),
        "bytes behind the JSON text but inside its stated length are an error; there, a NUL ends the text",
    ),
    Difference(
        ("classes-huge", "classes-huger"),
        _JSON,
        "a class count beyond 32 bits is taken as it is; there, it is cut",
    ),
)

# Requests that end the real server or one of its stubs, and the status that ours answers them with, living on.
CRASHING = {
    "json-shape-huge": 500,
    "json-shape-huge-product": 400,
    "classes-zero-size": 200,
}


def expected(case: str) -> set[str]:
    """The parts of a case's answer that are to differ."""
    return {
        part
        for entry in DIFFERENCES
        if any(fnmatchcase(case, pattern) for pattern in entry.cases)
        for part in entry.parts
    }
