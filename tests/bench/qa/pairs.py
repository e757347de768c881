"""Makes published.json.gz: invented answers with the figures that LoCoMo's and A-Mem's published code gives them.

    NLTK_DATA=FOLDER python tests/bench/qa/pairs.py EVALUATION UTILS

EVALUATION is snap-research/locomo's task_eval/evaluation.py, UTILS mem0ai/mem0's evaluation/metrics/utils.py, FOLDER
has nltk's punkt_tab. Both files are read here and never imported: they import models that these figures do not need.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

PAIRS = Path(__file__).with_name("published.json.gz")
SEED, COUNT = 29, 1150
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
NAMES = (
    "Ilse Okoro|Dr. Vance|Mr. Petrov|Zoë|José Núñez|Anne-Marie|O'Brien|J.K. Amsel|Prof. Lindqvist|Béla|李雷|the Amsels"
)
THINGS = (
    "a red bicycle|the lighthouse keeper's lamp|two rescued greyhounds|running shoes|an old, dented kettle|pottery|"
    "generalization|the U.S. visa|her Ph.D. thesis|a 3.5-inch drive|ponies and donkeys|sky-blue curtains|crème brûlée|"
    "e.g. maps, charts etc.|a café in Orléans|wool & linen|the no. 7 tram|an mg. of salt|skis|dying plants|news|tea"
)
PLACES = (
    "St. Gallen|Washington D.C.|Wash.|the U.K.|Rome, Italy|Conn.|北京|São Paulo|Mt. Hood|a small town in Minn.|Málaga"
)
TIMES = (
    "7 May 2023|May 7, 2023|2022|the week before 9 June 2023|at 5 p.m.|around 10:30 a.m.|last Tues.|on 03/04/2021|"
    "Sept. 2020|yesterday|two weeks ago|in the '90s|1,204 days ago|Sunday, 14 January|2019-11-05|since Feb.|in 3 yrs."
)
NUMBERS = "3|12,500|$40|fifty-one|2.5|1.|about 6|no. 9|100%|the 2nd|-4|½"
VERBS = (
    "moved|bought|was studying|hasn't sold|painted|can't stand|gave up|cannot find|ran|doesn't remember|loves|is dying"
)
SHAPES = (
    "{name} {verb} {thing}.|{thing}|{time}|{place}|{number}|{thing}, {thing2} and {thing3}|{thing}, {thing2}, {thing3}|"
    "{name} {verb} {thing} in {place} {time}. {name2} {verb2} {thing2}!|Yes; {name} {verb} {thing}|{name}|"
    "{time}. {thing} {verb} it.|{number}. {thing}|It was {time}. the {thing} {verb}?! Yes.|No information available|"
    '"{thing}," said {name}. "{verb} {number}..." and then {thing2}|{name}\'s {thing} ({time}; {place})|'
    "Likely no; {name} {verb} {thing}, and {thing2}|not mentioned|{place}. administrators {number}. b-week {thing}|"
    "{verb} . . . {thing} -- {thing2}|{thing} a. b. {name}. 3 {thing2} vs. {thing3}|The date is Not Mentioned. {time}|"
    "{name} ’{verb}’ “{thing}” – {time}…|\t{thing}\n{thing2}\n\n{place} |{thing}; {thing2}: [{number}] {{x}} <{verb}>|"
    "i.e. {thing}. e.g. {thing2}. etc. {name} inc. {verb} co. {place}|{name} gonna {verb} 'tis {thing}. wanna? |"
    "{number}. {number2}. {time}. {name} p.m. {verb}|{thing}.) {name} {verb}.\" ok. {place}.'|and the a an|.|,|!?|'|"
    "😀 {thing} 👍"
)
CHOICES = dict(
    name=NAMES, name2=NAMES, thing=THINGS, thing2=THINGS, thing3=THINGS, place=PLACES, time=TIMES,
    number=NUMBERS, number2=NUMBERS, verb=VERBS, verb2=VERBS,
)  # fmt: skip


def sentence(rng: random.Random, fixed: dict[str, str]) -> str:
    drawn = {name: rng.choice(values.split("|")) for name, values in CHOICES.items()}
    return rng.choice(SHAPES.split("|")).format(**drawn | fixed)


def pairs(seed: int = SEED, count: int = COUNT) -> list[tuple[str, str | int, int]]:
    """Answers, gold answers and categories. The two share words, order or all but their accents and case."""
    rng, made = random.Random(seed), list[tuple[str, str | int, int]]()
    while len(made) < count:
        shared = {n: rng.choice(v.split("|")) for n, v in CHOICES.items() if rng.random() < 0.7}
        gold, answer = sentence(rng, shared), sentence(rng, shared)
        match rng.randrange(12):
            case 0:
                answer = gold.upper()
            case 1:
                words = gold.split()
                answer = " ".join(rng.sample(words, len(words)))
            case 2:
                answer += " " + sentence(rng, {})
            case 3:
                answer, gold = gold, answer + ", " + sentence(rng, shared)
            case 4:
                answer = ascii_accents(gold)
        made.append((answer, gold, 1 + len(made) % 5))
    edges = [
        ("", ""),
        ("", "tea"),
        ("tea", ""),
        ("   ", "tea"),
        ("2022", 2022),
        ("in 2022.", 2022),
        ("Tea" * 40, "tea"),
    ]
    return [*made, *((answer, gold, category) for answer, gold in edges for category in CATEGORIES)]


def ascii_accents(text: str) -> str:
    """Accents as characters of their own."""
    import unicodedata

    return unicodedata.normalize("NFD", text)


def published(path: Path) -> dict[str, Any]:
    """The functions of a file, with what they need of nltk."""
    tree = ast.parse(path.read_text("utf-8"))
    names = "import json, string, regex, nltk\nimport numpy as np\nfrom collections import Counter\n"
    names += "from typing import Dict\n"
    names += (
        "from nltk.stem import PorterStemmer\nfrom nltk.translate.bleu_score import SmoothingFunction, sentence_bleu\n"
    )
    space: dict[str, Any] = {}
    exec(names + "ps = PorterStemmer()", space)
    wanted = {
        "normalize_answer", "f1_score", "f1", "eval_question_answering",
        "simple_tokenize", "calculate_bleu_scores", "calculate_metrics",
    }  # fmt: skip
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    exec(compile(ast.Module(found, []), str(path), "exec"), space)
    return space


def figures(evaluation: Path, utils: Path, made: list[tuple[str, str | int, int]]) -> list[list[float]]:
    """F1, F1 of sets of words and BLEU-1 of each pair."""
    locomo, amem = published(evaluation), published(utils)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        lines = [{"prediction": answer, "answer": gold, "category": c} for answer, gold, c in made]
        json.dump({"qa": lines}, file)
        file.flush()
        f1s = locomo["eval_question_answering"](file.name)[0]
    rows = []
    for (answer, gold, _), f1 in zip(made, f1s, strict=True):
        bleu = amem["calculate_bleu_scores"](answer, str(gold))["bleu1"]
        rows.append([float(f1), float(amem["calculate_metrics"](answer, str(gold))["f1"]), float(bleu)])
    return rows


if __name__ == "__main__":
    made = pairs()
    rows = figures(Path(sys.argv[1]), Path(sys.argv[2]), made)
    cases = [[a, g, CATEGORIES[c], *row] for (a, g, c), row in zip(made, rows, strict=True)]
    text = json.dumps(cases, ensure_ascii=False, separators=(",", ":"))
    PAIRS.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(
        f"{len(cases)} pairs, {len({(a, str(g)) for a, g, _ in made})} of them distinct, {PAIRS.stat().st_size:,} bytes"
    )
