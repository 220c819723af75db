"""Repositories made to hurt: every one ends in findings, never in a crash, and nothing outside is touched."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repobuild.lint import inferred
from repobuild.lint.finding import MOST_FINDINGS, Findings
from repobuild.lint.inferred import ShapeInference
from repobuild.lint.onnx_file import Damaged, TooLarge, read_interface
from repobuild.lint.run import lint
from repobuild.releases import newest

_spec = importlib.util.spec_from_file_location("lint_samples_hostile", Path(__file__).with_name("samples.py"))
s = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(s)


def rules(told):
    """The rules that were told."""
    return {rule for rule, _, _ in told}


@pytest.mark.parametrize(
    "text",
    [
        "input {" * 50_000,
        "<" * 100_000,
        'name: "' + "x" * 100_000,
        "\x00\x01\x02" * 1000,
        "max_batch_size: " + "9" * 5000,
        "max_batch_size: 99999999999999999999",
        'parameters { key: "a" value {',
        "[type.googleapis.com/inference.ModelConfig] { name: 'x' }",
        "ensemble_scheduling { step { input_map { key: 'a' value: 'b' } " * 2000,
        "version_policy { specific { versions: -9223372036854775808 versions: -9223372036854775809 } }",
    ],
)
def test_a_configuration_of_garbage_is_a_finding(repository, told, text):
    """Whatever stands in config.pbtxt, it is told as unreadable."""
    assert rules(told(repository({"m/config.pbtxt": text, "m/1": None}))) == {"config-unreadable"}


def test_extreme_values_are_survived(repository, told):
    """The largest and smallest numbers of every field do not stop the check."""
    text = (
        'backend: "onnxruntime" max_batch_size: 2147483647\n'
        'input { name: "x" data_type: TYPE_FP32 dims: 9223372036854775807 dims: 9223372036854775807 }\n'
        'output { name: "y" data_type: 77 dims: -9223372036854775808 }\n'
        "dynamic_batching { priority_levels: 18446744073709551615 preferred_batch_size: -2147483648 }\n"
        "version_policy { latest { num_versions: 4294967295 } }\n"
        'model_warmup { name: "w" batch_size: 4294967295 inputs { key: "x" value { data_type: TYPE_FP64 '
        'dims: 9223372036854775807 dims: 9223372036854775807 input_data_file: "../../../etc/passwd" } } }\n'
    )
    found = rules(told(repository({"m/config.pbtxt": text, "m/1/model.onnx": s.graph()})))
    assert found == {
        "enum-unknown",
        "onnx-input-dims",
        "onnx-output-dims",
        "onnx-type-mismatch",
        "preferred-size-invalid",
        "priority-default",
        "tensor-dim-invalid",
        "warmup-batch-large",
        "warmup-file-missing",
        "warmup-type",
    }


def test_links_that_turn_in_circles_end(repository, told):
    """Links to themselves, to each other and to the folders above are named and not followed."""
    root = repository(s.onnx())
    (root / "m" / "self").symlink_to("self")
    (root / "m" / "up").symlink_to("..")
    (root / "m" / "1" / "round").symlink_to("../../m")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert sorted(r for r, _, _ in told(root)) == ["link-broken"] * 3


def test_links_out_of_the_repository_are_not_followed(repository, told, tmp_path):
    """Neither models, configurations nor weights are read from elsewhere."""
    away = tmp_path / "away"
    away.mkdir()
    (away / "config.pbtxt").write_text("nonsense that would be a finding")
    (away / "w.bin").write_bytes(b"12345678")
    root = repository(s.onnx(model=s.graph(external=(("w", "w.bin", 0, 8),))) | {"n/1/model.onnx": s.graph()})
    (root / "m" / "1" / "w.bin").symlink_to(away / "w.bin")
    (root / "n" / "config.pbtxt").symlink_to(away / "config.pbtxt")
    (root / "o").symlink_to(away)
    assert told(root) == [
        ("external-escapes", "m/1/model.onnx", None),
        ("link-outside", "m/1/w.bin", None),
        ("config-not-file", "n/config.pbtxt", None),
        ("link-outside", "n/config.pbtxt", None),
        ("link-outside", "o", None),
    ]


def test_a_link_within_the_repository_is_fine(repository, told):
    """Versions that share one file by a link inside the repository are no mistake."""
    root = repository(s.onnx(s.PLAIN, version="2") | {"m/1": None})
    (root / "m" / "1" / "model.onnx").symlink_to("../2/model.onnx")
    assert told(root) == []


def test_weights_that_are_a_link_to_another_version_escape(repository, told):
    """ONNX refuses external data that leaves the model's own folder."""
    graph = s.graph(external=(("w", "w.bin", 0, 8),))
    root = repository(s.onnx(model=graph) | {"m/shared.bin": b"12345678"})
    (root / "m" / "1" / "w.bin").symlink_to("../shared.bin")
    assert told(root) == [("external-escapes", "m/1/model.onnx", None)]


def test_pipes_and_sockets_are_not_opened(repository, told):
    """A named pipe without a writer would wait for ever; it is told and left alone."""
    root = repository(s.onnx(s.PLAIN.replace("  dims: [3]", '  dims: [3]\n  label_filename: "labels"')))
    for name in ("labels", "1/notes", "2"):
        os.mkfifo(root / "m" / name)
    (root / "n").mkdir()
    os.mkfifo(root / "n" / "config.pbtxt")
    (root / "o" / "1").mkdir(parents=True)
    (root / "o" / "config.pbtxt").write_text(s.PLAIN)
    os.mkfifo(root / "o" / "1" / "model.onnx")
    found = rules(told(root))
    assert found == {"special-file", "config-not-file", "label-file-missing", "not-checked"}


@pytest.mark.parametrize(
    "location",
    [
        "../w.bin",
        "a/../../w.bin",
        "..",
        "/w.bin",
        "\\w.bin",
        "C:\\w.bin",
        "C:/w.bin",
        "a/\x00b",
        "",
        "...",
        "./../w.bin",
        "..\\w.bin",
    ],
)
def test_tricks_with_the_place_of_weights_are_errors(repository, told, location):
    """Every way out of the version folder is refused, and a name that is no file is missing."""
    graph = s.graph(external=(("w", location, 0, 8),))
    root = repository(s.onnx(model=graph) | {"m/w.bin": b"12345678"})
    ((rule, file, _),) = told(root)
    assert rule in ("external-escapes", "external-absolute", "external-missing")
    assert file == "m/1/model.onnx"


def test_names_of_any_bytes_are_printable(repository, repobuild_cli):
    """Control characters and bytes that are no UTF-8 reach the terminal escaped."""
    root = repository(s.onnx())
    for name in (b"\xff\xfe", b"\x1b[31mred", b"new\nline", "\u202edlo".encode()):
        (root / "m" / os.fsdecode(name)).write_bytes(b"x")
    outcome = repobuild_cli("lint", root)
    assert outcome.status == 0
    assert outcome.out.count("warning[name-unsafe]") == 4
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    for form in ("json", "sarif"):
        told = repobuild_cli("lint", root, "--format", form)
        assert told.status == 0
        assert json.dumps(json.loads(told.out), ensure_ascii=False).encode()
        assert r"'\\udcff\\udcfe' is a name" in told.out


def test_a_check_that_fails_is_a_finding_and_the_rest_goes_on(repository, monkeypatch):
    """A bug in one model's check does not hide what is wrong with another."""
    from repobuild.lint import run

    real = run.check_backend

    def broken(model, view, findings):
        if model.name == "a":
            raise RuntimeError("boom")
        real(model, view, findings)

    monkeypatch.setattr(run, "check_backend", broken)
    root = repository(s.onnx(name="a") | s.onnx(s.PLAIN + 'name: "c"\n', name="b"))
    found = [(f.rule, f.file) for f in lint(root, newest()).findings]
    assert found == [("lint-failed", "a"), ("name-mismatch", "b/config.pbtxt")]


def test_findings_are_bounded():
    """Past the limit findings are counted, and no longer kept."""
    findings = Findings()
    for number in range(MOST_FINDINGS + 10):
        findings.add("dot-file", "x", f"f{number}")
    assert len(findings.sorted()) == MOST_FINDINGS
    assert findings.left_out == 10


def test_python_that_would_break_the_parser_is_a_finding(repository, told):
    """Deep nesting, null bytes and strange encodings are told."""
    for number, source in enumerate((b"(" * 5000, b"x = 1\x00", b"# coding: nonsense\n", b"\xff\xfe\x00")):
        root = repository({f"m{number}/config.pbtxt": s.FREE, f"m{number}/1/model.py": source}, f"r{number}")
        assert rules(told(root, "24.10")) == {"python-syntax"}


def test_model_code_is_never_run(repository, told, tmp_path):
    """Neither model.py nor anything beside it is imported."""
    mark = tmp_path / "ran"
    source = f"open({str(mark)!r}, 'w')\n" + s.PYTHON
    root = repository(s.python(source=source) | {"m/1/__init__.py": source, "m/1/onnx.py": source})
    assert told(root) == []
    assert not mark.exists()


def test_code_beside_a_graph_is_not_taken_for_a_package(repository, monkeypatch, tmp_path):
    """The child that infers shapes imports onnx from where it is installed, not from the present folder."""
    mark = tmp_path / "ran"
    root = repository(s.onnx() | {"onnx.py": f"open({str(mark)!r}, 'w')\n"})
    monkeypatch.chdir(root)
    with ShapeInference() as inference:
        assert "y" in inference.outputs(root / "m" / "1" / "model.onnx")
    assert not mark.exists()


def test_a_child_that_dies_or_answers_nonsense_is_replaced(repository, monkeypatch, tmp_path):
    """No shapes are inferred then, and the next file is asked about again."""
    file = repository(s.onnx()) / "m" / "1" / "model.onnx"
    other = file.with_name("other.onnx")
    other.write_bytes(s.graph(opset=16))
    for number, program in enumerate(
        ("import os; os._exit(3)", "print('{')", "print('[]')", "print('x' * 2_000_000)")
    ):
        script = tmp_path / f"child{number}.py"
        script.write_text(program)
        third = file.with_name(f"third{number}.onnx")
        third.write_bytes(s.graph(opset=15 - number))
        with ShapeInference() as inference:
            with monkeypatch.context() as patch:
                patch.setattr(inferred, "__file__", str(script))
                assert inference.outputs(third) == {}
            assert "y" in inference.outputs(other)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_graphs_are_damage_and_nothing_else(tmp_path, data):
    """Cut, changed or made-up bytes are either read or refused, in bounded time."""
    import io

    whole = s.graph(external=(("w", "w", 0, 8),), nodes=(("ai.onnx.ml", "Scaler"),), ml=3)
    if data.draw(st.booleans()):
        at, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
        content = whole[:at] + bytes([byte]) + whole[at + 1 :]
    else:
        content = data.draw(st.binary(max_size=200))
    try:
        read_interface(io.BytesIO(content))
    except (Damaged, TooLarge):
        return


def test_every_cut_of_a_graph_is_noticed():
    """Wherever a file ends too early, it is damaged."""
    import io

    whole = s.graph()
    for end in range(len(whole)):
        try:
            read_interface(io.BytesIO(whole[:end]))
        except Damaged:
            continue
        # Fields may be missing at the very end; only whole trailing fields can go unnoticed.
        assert end >= len(whole) - 30
