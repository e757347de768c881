"""The dimensions of MemoryOS's user profile, and a rule for those of them that somebody states of himself.

    "I love hiking." -> Sports Interest: Low    the same said thrice -> High    "I hate sports." -> Low, whatever else

Groups and names are those of the prompt for the profile that MemoryOS (arXiv 2506.06326) released, which speaks of 90
dimensions and names these 51. There a model judges what a conversation reflects; the rule knows words. A dimension
without words needs a judgement, and has no rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from memos.operation.policies.policy import asks

Level = Literal["High", "Medium", "Low"]

# what people say of themselves, as beginnings of words
DIMENSIONS: dict[str, dict[str, str]] = {
    "Psychological Model": {
        "Extraversion": "outgoing|extrovert|sociable|meeting people|外向",
        "Openness": "open-minded|try new|trying new|curious|new experiences",
        "Agreeableness": "easygoing|easy-going|get along with|cooperat",
        "Conscientiousness": "organi[sz]ed|disciplined|responsible|punctual",
        "Neuroticism": "anxi|nervous|stressed|overwhelmed|焦虑",
        "Physiological Needs": "sleep|comfort",
        "Need for Security": "feel safe|stability|security",
        "Need for Belonging": "belong|accepted|part of (?:a|the|my) (?:group|team|community)",
        "Need for Self-Esteem": "respect|recogni[sz]ed|confiden|proud",
        "Cognitive Needs": "understand|learn|knowledge",
        "Aesthetic Appreciation": "beaut|aesthetic",
        "Self-Actualization": "potential|true self|my dream|grow as",
        "Need for Order": "tidy|clean|neat|order",
        "Need for Autonomy": "independen|on my own|my own boss|freedom",
        "Need for Power": "in charge|lead|influence",
        "Need for Achievement": "achiev|goal|accomplish|ambiti",
    },
    "AI Alignment Dimensions": {
        "Helpfulness": "",
        "Honesty": "honest answer|be honest",
        "Safety": "",
        "Instruction Compliance": "exactly as i|follow my instructions",
        "Truthfulness": "",
        "Coherence": "",
        "Complexity": "detailed answers?|in detail|详细",
        "Conciseness": "short answers?|brief|concise|简短",
    },
    "Content Platform Interest Tags": {
        "Science Interest": "science|physics|chemistry|biology|astronomy|科学",
        "Education Interest": "education|teach|study|studying|school",
        "Psychology Interest": "psycholog|counsel|mental health",
        "Family Concern": "famil|kids|children|parent|my (?:son|daughter)|家人|孩子",
        "Fashion Interest": "fashion|clothes|outfit",
        "Art Interest": "art|paint|drawing|pottery|sculpt|绘画",
        "Health Concern": "health|diet|exercise|健康",
        "Financial Management Interest": "financ|budget|invest|saving",
        "Sports Interest": "sport|hik|run|swim|soccer|football|basketball|tennis|yoga|cycling|biking|运动|跑步|足球",
        "Food Interest": "food|cook|bak|cuisine|restaurant|做饭|美食",
        "Travel Interest": "travel|trip|explor|旅行|旅游",
        "Music Interest": "music|guitar|piano|violin|clarinet|concert|song|sing|音乐",
        "Literature Interest": "book|read|novel|poet|literature|读书|小说",
        "Film Interest": "film|movie|cinema|电影",
        "Social Media Activity": "social media|instagram|twitter|tiktok|youtube|微博",
        "Tech Interest": "tech|computer|programming|coding|software|编程",
        "Environmental Concern": "environment|sustainab|climate|recycl|环保",
        "History Interest": "histor|历史",
        "Political Concern": "politic|election|vot|government|政治",
        "Religious Interest": "religio|church|faith|pray|spiritual",
        "Gaming Interest": "video games?|board games?|gaming|chess|游戏",
        "Animal Concern": "animal|pet|dog|cat|pup|kitty|猫|狗",
        "Emotional Expression": "",
        "Sense of Humor": "humou?r|jok",
        "Information Density": "",
        "Language Style": "formal|casual",
        "Practicality": "practical",
    },
}
HIGH, MEDIUM = 3, 2  # statements
_OWN = r"\b(?:i|i['’]m|me|my|we|our)\b"
_CARES = r"\b(?:love|like|enjoy|prefer|care|fan|keen|into|passion\w*|interest\w*|favou?rite|always|often|every|am|i['’]m|want|need)\b"  # fmt: skip # noqa: E501
_STATES = re.compile(rf"{_OWN}.*{_CARES}|{_CARES}.*{_OWN}|我.*(?:喜欢|爱|是|要)", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:hate|dislike|can['’]?t stand|not (?:a fan|into|interested)|don['’]t (?:like|care))\b|讨厌|不喜欢", re.I)  # fmt: skip # noqa: E501
_WORDS = {
    name: re.compile(rf"\b(?:{words})|(?:{'|'.join(w for w in words.split('|') if not w.isascii()) or '(?!)'})", re.I)
    for group in DIMENSIONS.values()
    for name, words in group.items()
    if words
}


def dimensions(text: str) -> list[str]:
    """Those of which a sentence says something about the one who speaks, in the order of the prompt."""
    if asks(text) or not (_STATES.search(text) or _DENIES.search(text)):
        return []
    return [name for name, words in _WORDS.items() if words.search(text)]


def level(statements: Iterable[str]) -> Level:
    """Of one dimension, by how many statements say it, if none of them denies it."""
    said = list(statements)
    if any(map(_DENIES.search, said)) or len(said) < MEDIUM:
        return "Low"
    return "High" if len(said) >= HIGH else "Medium"
