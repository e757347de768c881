"""What `memos top` shows, as text: rows, budgets, counts, jobs and a memory's life."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from memos.interface.doors.cli.shared import counted
from memos.plugins.figures import size

Row = dict[str, Any]
FORMS = {"plaintext": ("text", "#78a6e6"), "activation": ("KV", "#e8ac58"), "parametric": ("adapter", "#c294e8")}
BAR_COLUMNS = 24  # of a budget's bar


def listed(overview: Any) -> list[Row]:
    """The hottest memories, each with the tier of its payload where it is known, and words for what has no text."""
    tiers = overview["tiers"] if overview["answering"] else {}

    def one(row: Row) -> Row:
        words = row["memory"] or f"{FORMS[row['form']][0]} of {counted(len(row['sources']))}"
        return row | {"tier": tiers.get(row["id"], ""), "words": words}

    return list(map(one, overview["hottest"]))


def cells(row: Row, hottest: float) -> tuple[Text, ...]:
    name, colour = FORMS[row["form"]]
    warm = round(8 * row["heat"] / hottest) if hottest else 0
    return (
        Text(f"{row['heat']:5.1f} ").append("▮" * warm, colour).append("▯" * (8 - warm), "dim"),
        Text(name, colour),
        Text(row["tier"]),
        Text(row["state"], "" if row["state"] in ("generated", "activated") else "italic"),
        Text(str(row["recalls"]), justify="right"),
        Text(size(row["bytes"]) if row["bytes"] else "", justify="right"),
        Text(row["topic"]),
        Text(row["words"]),
    )


def budgets(overview: Any) -> Text:
    """KV and adapters beside what there may be."""
    out = Text()
    for form, shown in (("activation", size), ("parametric", lambda count: f"{count:g}")):
        used, most = overview["used"][form], overview["budget"][form]
        share = min(1.0, used / most) if most else 0.0
        full = round(BAR_COLUMNS * share) or (1 if used else 0)
        name, colour = FORMS[form]
        out.append(f"{name:8}").append("█" * full, colour).append("░" * (BAR_COLUMNS - full), "dim")
        out.append(f" {shown(used)} of {shown(most)}\n")
    return out.append(f"model {overview['model']}, policy {overview['policy']}", "dim")


def counts(overview: Any) -> Text:
    """Forms, tiers, jobs and hit rates in numbers."""

    def many(form: str) -> int:
        return sum(n for name, n in overview["cubes"].items() if name.split()[0] == form)

    out = Text()
    for form, (name, colour) in FORMS.items():
        out.append(f"{name} ").append(f"{many(form)}  ", f"bold {colour}")
    uses = ", ".join(f"{name} {overview['uses'][form]}" for form, (name, _) in FORMS.items())
    jobs = ", ".join(f"{state} {n}" for state, n in overview["jobs"].items()) or "none"
    shown, every = len(overview["hottest"]), sum(overview["cubes"].values())
    if shown < every:
        out.append(f"below: the hottest {shown:,} of {every:,}")
    return out.append(f"\nuses: {uses}\n{in_memory(overview)}\njobs: {jobs}")


def in_memory(overview: Any) -> str:
    """Tiers and prefetching: of the process that answers, which may be another one."""
    if not overview["answering"]:
        return "in memory: not known here; another process may answer"
    tiers, ahead = list(overview["tiers"].values()), overview["prefetched"]
    lying = ", ".join(f"{tier} {tiers.count(tier)}" for tier in ("device", "host", "disk"))
    ready = f"{overview['prefetch_hits'] / ahead:.0%} of {ahead}" if ahead else "none yet"
    return f"{lying}; prefetched and used: {ready}"


def job_line(job: Row) -> str:
    return f"{job['state']:12}{job['kind']}  {' '.join(job['payload'].get('sources', ()))}  {job['note']}".rstrip()


def life(traced: Any, events: list[Row]) -> Text:
    """What a memory says, where it comes from, and what happened to it."""
    memory = traced["memory"]
    out = Text(memory["memory"] or f"{FORMS[memory['form']][0]}, {size(memory['bytes'])}", "bold")
    out.append(f"\n{memory['id']}  version {memory['version']}, {memory['form']}, {memory['state']}\n", "not bold dim")
    for title, side in (("made from", traced["sources"]), ("made of it", traced["derived"])):
        for cube in side:
            out.append(f"\n{title:11}{cube['form']:11} {cube['id']} {cube['memory']}", "not bold")
    for event in events:
        what = f"version {event['version']}" if "version" in event else event.get("state", event["event"])
        out.append(f"\n{event['at'][:19]}  {what}  {event.get('why', '')}", "not bold")
        out.append("".join(f"\n                     {line}" for line in event.get("diff", ())), "not bold dim")
    return out
