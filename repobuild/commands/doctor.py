"""``repobuild doctor``: whether this machine has what repobuild needs."""

from __future__ import annotations

import click

from repobuild.commands._options import json_option
from repobuild.envelope import AlreadyTold, Dialogue
from repobuild.errors import EnvironmentLacking, Evidence


@click.command()
@json_option
@click.pass_obj
def doctor(talk: Dialogue, /) -> None:
    """Look whether this machine has what repobuild needs: packages, disk, memory, ports, GPU.

    One line each: ok, warn or fail, with a hint. The exit status is 7 when something fails that convert
    needs.
    """
    from repobuild.doctor import examine

    found = []
    for finding in examine():
        found.append(finding)
        hint = f"; {finding.hint}" if finding.hint else ""
        talk.say(f"{finding.state:<4}  {finding.name:<30}  {finding.detail}{hint}")
    talk.result = {"findings": [f.to_dict() for f in found]}
    failed = [f for f in found if f.state == "fail"]
    counts = ", ".join(f"{sum(f.state == s for f in found)} {s}" for s in ("ok", "warn", "fail"))
    talk.say(f"{'FAILED' if failed else 'PASSED'} {counts}")
    if failed:
        raise AlreadyTold(
            EnvironmentLacking(
                "environment-unfit",
                "this machine lacks what repobuild needs",
                tuple(Evidence(f.detail, key=f.name) for f in failed),
                failed[0].hint,
            )
        )
