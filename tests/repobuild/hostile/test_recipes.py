"""Hostile recipes: each is refused with a code and a line, quickly and within bounded memory."""

import resource
import subprocess
import sys

import pytest

MIB = 1 << 20
LAUGHS = "a: &a [lol, lol]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(12)
)
RECIPES = {
    "billion laughs": (LAUGHS, "recipe-not-plain"),
    "merge keys": ("a: &a {name: m}\nb:\n  <<: *a\n", "recipe-not-plain"),
    "an alias to itself": ("a: &a [*a]\n", "recipe-not-plain"),
    "a tag that makes objects": (
        "name: !!python/object/apply:os.system [touch CANARY]\n",
        "recipe-not-plain",
    ),
    "a tag of one's own": ("name: !run touch CANARY\n", "recipe-not-plain"),
    "lists nested deeply": ("name: " + "[" * 20_000 + "]" * 20_000 + "\n", "recipe-not-plain"),
    "maps nested deeply": ("{a: " * 20_000 + "1" + "}" * 20_000, "recipe-not-plain"),
    "blocks nested deeply": (
        "".join(" " * i + "a:\n" for i in range(1_300)) + " " * 1_300 + "1\n",
        "recipe-not-plain",
    ),
    "dashes nested deeply": ("- " * 20_000 + "1\n", "recipe-not-plain"),
    "an integer of many digits": ("name: m\nopset: " + "9" * 500_000 + "\n", "recipe-"),
    "a hexadecimal integer": ("name: m\nopset: 0x" + "f" * 500_000 + "\n", "recipe-"),
    "an octal integer": ("name: m\nopset: 0o" + "7" * 500_000 + "\n", "recipe-"),
    "a base-60 integer": ("%YAML 1.1\n---\nname: m\nopset: " + ":".join(["59"] * 50_000) + "\n", "recipe-"),
    "a float without end": ("name: m\ntolerance: {atol: 1" + "0" * 400_000 + "e999999999}\n", "recipe-"),
    "many keys": ("".join(f"k{i}: 1\n" for i in range(5_000)), "recipe-invalid"),
    "the same key again": ("name: a\n" * 1_000, "recipe-not-yaml"),
    "many documents": ("--- {}\n" * 20_000, "recipe-not-yaml"),
    "a key that is a list": ("? [a, b]\n: 1\n", "recipe-"),
    "control characters": ('name: "\\e[2J"\n', "recipe-invalid"),
    "raw control characters": ("name: \x1b[2J\n", "recipe-not-yaml"),
    "bidirectional marks": ("\u202eeman: m\n", "recipe-invalid"),
    "nothing": ("", "recipe-invalid"),
    "a null byte": ("name: m\0\n", "recipe-not-yaml"),
    "more than a megabyte": ("#" * (MIB + 1), "recipe-too-large"),
    "a path that leads out": ("name: ../../x\nsource: {path: m}\nsamples: s\n", "recipe-invalid"),
    "directives": ("%YAML 9.9\n---\nname: m\n", "recipe-"),
    "many anchors": ("".join(f"- &a{i} x\n" for i in range(30_000)), "recipe-not-plain"),
}


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (2048 * MIB, 2048 * MIB))


@pytest.mark.parametrize("what", RECIPES)
def test_a_hostile_recipe_is_refused(tmp_path, tree, what):
    text, code = RECIPES[what]
    canary = tmp_path / "canary"
    (tmp_path / "recipe.yaml").write_text(text.replace("CANARY", str(canary)), newline="")
    before = tree(tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "repobuild",
            "convert",
            tmp_path / "recipe.yaml",
            "--repository",
            tmp_path / "r",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limit_memory,
    )
    said = done.stderr + done.stdout
    assert done.returncode == 3, said[-2000:]
    assert f"error[{code}" in said
    assert "Traceback" not in said
    assert not set(said) & {"\x1b", "\u202e", "\0"}
    assert len(said) < 100_000
    assert tree(tmp_path) == before
