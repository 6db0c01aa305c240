"""`evenly doctor`: whether everything is here that training needs, and what to do where it is not."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evenly.mistakes import sentences

Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON on stdout.")]


def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, folders, data sets. Trains a small model; the exit code is 1 if something is wrong."""
    with sentences():
        from evenly.commands.checkup import look

        facts = look()
        if as_json:
            print(json.dumps({"schema": 1, **facts}))
        else:
            _show(facts, Console())
    if facts["problems"]:
        raise typer.Exit(1)


def _show(facts: dict[str, Any], console: Console) -> None:
    for title, lines in {**_packages(facts), **(_machine(facts) if "system" in facts else {})}.items():
        console.print(f"[bold]{title}[/bold]")
        for line in lines:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if "data" in facts:
        console.print(_data_table(facts["data"]))
    for warning in facts["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for problem in facts["problems"]:
        console.print(f"problem: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
    if not facts["problems"]:
        console.print("Everything that training needs is here.")


def _packages(facts: dict[str, Any]) -> dict[str, list[str]]:
    here = [f"{one['name']} {one['version']}: {one['enables']}" for one in facts["optional"] if one["version"]]
    missing = [f"{one['name']} is not here: {one['install']} for {one['enables']}" for one in facts["optional"] if not one["version"]]
    required = ", ".join(f"{name} {version or 'not installed'}" for name, version in facts["versions"].items())
    return {"versions": [required], "optional packages": here + missing}


def _machine(facts: dict[str, Any]) -> dict[str, list[str]]:
    system, cache, check = facts["system"], facts["compile_cache"], facts["self_check"]
    kept = f"{cache['folder']} ({_size(cache['bytes'])})" if cache["folder"] else "none (EVENLY_COMPILED is off, or there is no folder)"
    length = check["error"] or f"length of the model {check['found']:.6f}, expected {check['expected']:.6f}"
    return {
        "machine": [f"{system['platform']}, {system['cores']} cores, {_size(system['memory'])}"],
        "devices": [f"{one['platform']}: {one['kind']}, {_size(one['memory'])}" for one in facts["devices"]],
        "compiled programs kept between runs": [kept],
        "self-check, five rounds of q-FedAvg": [f"{'passed' if check['passed'] else 'FAILED'}: {length}"],
    }


def _data_table(data: dict[str, Any]) -> Table:
    missing = "" if data["exists"] else " (not there yet)"
    table = Table(title=f"data sets; files are looked for in {data['folder']}{missing}", title_justify="left")
    for column in ("name", "files", "to get them"):
        table.add_column(column, overflow="fold")
    for one in data["sets"]:
        table.add_row(one["name"], one["files"], one["get"] or "")
    return table


def _size(number: int | None) -> str:
    """Bytes in words; devices that do not say have none."""
    if number is None:
        return "memory not known"
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"
