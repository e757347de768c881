"""Generated text for the small model: people, facts about them, and questions. Knows no tensors.

Everything is drawn from a seeded `random.Random`. A word is held out of training when its hash says
so (`held_out`), so training and evaluation agree without a list: held-out names and values are never
in a training text, not even as a distractor.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memos.interface.reading.phrasebook import Relation, phrasebook

UNKNOWN = "unknown"
SPEAKER = "User"  # who "I" is in a chat without names

NAMES = """Mira Tom Anna Ben Clara David Elena Felix Greta Hugo Ines Jonas Karin Leo Maya Nils Olga Paul Quinn
Rosa Sam Tara Ulrich Vera Will Xenia Yusuf Zoe Amir Bella Carlos Dora Emil Fatima George Hana Ivan Julia Kofi Lena
Marco Nadia Oscar Priya Rafael Sofia Theo Uma Victor Wendy Yara Zack Alice Bruno Chen Diego Erin Finn Gita Harold
Ida Jamal Kira Lars Monica Noah Otto Petra Ravi Sara Tariq Ursula Vikram Walter Ying Aisha Boris Celia Dmitri Eva
Frank Gloria Henry Irene Jack Kate Liam Martha Nora Owen Pia Ralph Stella Tina Una Vince Wanda Adam Beth Carl Daisy
Edgar Fiona Gavin Holly Isaac Joan Kevin Laura Max Nina Oliver Penny Robert Susan Tim Violet Wes Abby Brian Cora Dan
Ella Fred Grace Hank Iris Jill Ken Lucy Mark Nell Olive Pete Ruth Sean Tess Val Wren Mei Lin Wei Jun Hiro
Yuki Kenji""".split()
SURNAMES = """Berg Costa Diaz Evans Fischer Gupta Hansen Ito Jensen Khan Lopez Meyer Novak Okafor Patel Quist Rossi
Silva Tanaka Unger Varga Weber Young Zimmer Abbott Brooks Carter Dalton Ellis Foster Grant Hayes""".split()
WORLD_NAMES = """Balthazar Cassiopeia Desdemona Ebenezer Florimond Guinevere Hermenegild Isolde Jocasta Kunigunde
Leopoldine Melchior Nausicaa Ottokar Persephone Quirinus Rosamunde Sigismund Theodora Ulysses Valkyrie Wolfram
Xanthippe Yolanthe Zephyrine Aurelian Bonaventure Clytemnestra Dagobert Eleuthera Fortunatus Galadriel Hieronymus
Iphigenia Justinian Kriemhild Lysander Mnemosyne Nebuchadnezzar Orlando""".split()

PLACES = """Lisbon Porto Oslo Berlin Paris London Madrid Rome Vienna Prague Warsaw Dublin Athens Cairo Tokyo Kyoto
Seoul Delhi Mumbai Lima Quito Boston Chicago Denver Austin Seattle Toronto Montreal Sydney Perth Nairobi Lagos Accra
Hanoi Bangkok Manila Jakarta Beijing Shanghai Iceland Norway Peru Chile Kenya Japan India Brazil Canada Portugal
Greece Morocco Vietnam Nepal Cuba Malta Cyprus Bergen Geneva Zurich Munich Hamburg Lyon Turin Naples Seville""".split()
JOBS = """nurse teacher cook baker pilot doctor lawyer farmer painter plumber carpenter engineer librarian dentist
gardener journalist translator architect photographer chemist mechanic barber tailor firefighter electrician waiter
accountant biologist musician actor driver sailor potter welder geologist optician florist jeweller programmer
designer editor surgeon vet judge clerk guard""".split()
DRINKS = """tea coffee water milk cider lemonade cocoa espresso beer wine juice soda kombucha cappuccino latte mate
chai punch rum gin tonic matcha oolong""".split()
FOODS = """soup pizza pasta curry salad sushi bread rice stew pie cake noodles dumplings lasagne risotto pancakes
tacos chili omelette porridge ramen paella goulash burgers beans fish toast waffles""".split()
PETS = """cat dog parrot rabbit hamster turtle goldfish snake pony lizard canary ferret hedgehog gecko frog mouse
duck goat spider budgie""".split()
HOBBIES = """chess painting gardening pottery hiking knitting photography fishing baking sailing dancing astronomy
origami climbing birdwatching cycling sewing juggling poetry camping weaving puzzles surfing singing woodwork""".split()
COLOURS = """red blue green yellow purple orange pink black white brown grey turquoise violet crimson teal navy
beige indigo scarlet gold silver olive""".split()
INSTRUMENTS = """piano violin guitar cello flute drums trumpet harp clarinet oboe banjo saxophone accordion viola
ukulele organ tuba mandolin trombone lute""".split()
LANGUAGES = """English French German Spanish Italian Portuguese Polish Czech Danish Swedish Finnish Greek Turkish
Arabic Hindi Bengali Thai Korean Japanese Mandarin Swahili Hungarian Dutch Welsh""".split()
SPORTS = """tennis football rugby swimming rowing boxing judo karate fencing hockey golf cricket basketball
volleyball handball archery skiing badminton running squash wrestling curling""".split()
ALLERGIES = """peanuts shellfish pollen dust wheat eggs soy milk sesame celery mustard strawberries kiwis latex
penicillin walnuts almonds oysters""".split()
CARS = """Volvo Fiat Skoda Toyota Honda Mazda Saab Opel Ford Tesla Renault Subaru van truck pickup convertible
jeep minibus""".split()
ADJECTIVES = """green black sweet cold warm hot iced spicy fresh old little big silver golden dark light wild quiet
red white blue lemon ginger honey mint apple cherry vanilla salted smoked roast young grey spotted electric tiny
northern southern lost secret last first winter summer""".split()
TITLE_NOUNS = """River Garden Mountain House Winter Song Hour Road Island Bridge Letter Forest Sea Clock Door Lamp
Harbour Orchard Tower Mirror Village Storm Map Key""".split()
FIRMS = """Acme Northwind Globex Initech Umbra Vertex Bluebird Lumen Harbourline Stonegate Redwood Polaris Sunfield
Quartz Ironbridge Meadow Falcon Pioneer""".split()
MONTHS = "January February March April May June July August September October November December".split()

LEADS = [
    "By the way, ",
    "Oh, ",
    "Well, ",
    "You know, ",
    "As it happens, ",
    "So, ",
    "Yes, ",
    "Hm, ",
    "Good news: ",
    "I should mention that ",
]
TAILS = [
    ", as you know",
    ", by the way",
    ", more or less",
    ", since last year",
    ", I think",
    ", of course",
    ", and it shows",
    ", believe it or not",
]
CHATTER = """the weather was awful yesterday|what a long week it was|the train was late again|that sounds wonderful
dinner was nice last night|let us talk again soon|the meeting went on for ever|it has been raining all day
there is a market on the square|somebody left the lights on|the neighbours are loud today|that made everyone laugh
the coffee machine is broken|the bus was full this morning|good to see you again|the film was too long
the new shop opens on Monday|thanks for calling back|nobody expected that|the garden looks lovely
the stairs need cleaning|it is getting late now|that reminds me of old times|the photos came out well
we should do this more often|the holidays went by so fast|the phone rang all day
it was a busy day at the office""".replace("\n", "|").split("|")


def held_out(word: str) -> bool:
    """True for the tenth of all words that training never shows."""
    return zlib.crc32(word.lower().encode()) % 10 == 0


def invented(rng: random.Random) -> str:
    """A word nobody has seen: two or three syllables, lower case."""
    onsets = "b c d f g h j k l m n p r s t v w z br ch dr fl gr kl pr sh sk sl st th tr".split()
    vowels = "a e i o u a e i o ai ea ou".split()
    codas = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "rk"]
    return "".join(rng.choice(onsets) + rng.choice(vowels) + rng.choice(codas) for _ in range(rng.choice((2, 2, 3))))


@dataclass(frozen=True)
class Words:
    """The words a text may use: those of training, or only those held out of it."""

    unseen: bool = False
    invent: float = 0.5  # share of names and values that are invented words

    def _pick(self, rng: random.Random, draw: Callable[[], str]) -> str:
        while held_out(word := draw()) != self.unseen:
            pass
        return word

    def one(self, rng: random.Random, known: list[str], title: bool = False) -> str:
        known = [word for word in known if held_out(word) == self.unseen]
        if not known or rng.random() < self.invent:
            word = self._pick(rng, lambda: invented(rng))
            return word.title() if title else word
        return rng.choice(known)

    def of_pieces(self, rng: random.Random, pieces: Sequence[str]) -> str:
        """A word that nobody uses, of one to four pieces."""
        return self._pick(rng, lambda: "".join(rng.choices(pieces, k=rng.randint(1, 4))))

    def name(self, rng: random.Random) -> str:
        first = self.one(rng, NAMES, title=True)
        return f"{first} {self.one(rng, SURNAMES, title=True)}" if rng.random() < 0.15 else first

    def value(self, rng: random.Random, relation: str) -> str:
        match relation:
            case "sister" | "boss" | "friend":
                return self.name(rng)
            case "birthday":
                return self._pick(rng, lambda: f"{rng.randint(1, 28)} {rng.choice(MONTHS)}")
            case "code":
                return self._pick(rng, lambda: str(rng.randint(1000, 9999)))
            case "book":
                return f"{self.one(rng, ADJECTIVES, title=True).title()} {self.one(rng, TITLE_NOUNS, title=True)}"
            case "city" | "trip" | "language" | "employer":
                known = {"language": LANGUAGES, "employer": FIRMS}.get(relation, PLACES)
                return self.one(rng, known, title=True)
        known = {
            "job": JOBS,
            "drink": DRINKS,
            "food": FOODS,
            "pet": PETS,
            "hobby": HOBBIES,
            "colour": COLOURS,
            "instrument": INSTRUMENTS,
            "sport": SPORTS,
            "allergy": ALLERGIES,
            "car": CARS,
        }[relation]
        noun = self.one(rng, known)
        return f"{self.one(rng, ADJECTIVES)} {noun}" if rng.random() < 0.25 else noun


@dataclass(frozen=True)
class Fact:
    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class Question:
    text: str
    answer: str
    kind: str  # forward, reversed, updated, unknown, world, override
    form: str  # the form it was asked in


@dataclass
class Scene:
    """A memory of lines and the questions about it."""

    lines: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)


def world_facts() -> list[Fact]:
    """The fixed little world that the small model knows by heart: 40 people, 6 facts each."""
    rng, words = random.Random(20250522), Words(invent=0.0)
    return [
        Fact(name, relation, words.value(rng, relation))
        for name in WORLD_NAMES
        for relation in rng.sample(sorted(phrasebook()), 6)
    ]


WORLD = world_facts()
_WORLD = {(f.subject, f.relation): f.object for f in WORLD}


def ask(rng: random.Random, fact: Fact, kind: str, answer: str) -> Question:
    relation = phrasebook()[fact.relation]
    form = rng.choice(relation.asks)
    subject = "I" if fact.subject == SPEAKER else fact.subject
    return Question(relation.fill(form, subject), answer, kind, form)


def ask_who(rng: random.Random, fact: Fact, answer: str) -> Question:
    relation = phrasebook()[fact.relation]
    form = rng.choice(relation.who)
    return Question(relation.fill(form, "", fact.object), answer, "reversed" if answer != UNKNOWN else "unknown", form)


def state(rng: random.Random, fact: Fact, update: bool = False) -> str:
    """The fact as somebody writes or says it, with words around it now and then."""
    relation: Relation = phrasebook()[fact.relation]
    form = rng.choice(relation.updates if update else relation.says)
    spoken = fact.subject == SPEAKER or rng.random() < 0.35
    text = relation.fill(form, "I" if spoken else fact.subject, fact.object)
    if rng.random() < 0.15:
        lead = rng.choice(LEADS)
        text = lead + (text[0].lower() + text[1:] if text.startswith(("My ", "The ")) else text)
    if rng.random() < 0.1:
        text += rng.choice(TAILS)
    text += "!" if rng.random() < 0.05 else "."
    return f"{fact.subject}: {text}" if spoken else text


def scene(
    rng: random.Random,
    n_facts: int,
    n_questions: int,
    words: Words = Words(),
    *,
    chatter: float = 0.3,
    updated: float = 0.15,
    world: float = 0.1,
    unknown: float = 0.13,
    who: float = 0.14,
) -> Scene:
    """A memory of `n_facts` facts (in force) and `n_questions` questions about it.

    The shares say how many facts had an earlier value, and how many questions are about the little
    world, unanswerable, or reversed.
    """
    out, relations = Scene(), sorted(phrasebook())
    people = list(dict.fromkeys(words.name(rng) for _ in range(rng.randint(1, max(1, n_facts)))))
    if rng.random() < 0.15:
        people[0] = SPEAKER
    if world and rng.random() < 0.15:
        people[-1] = rng.choice(WORLD_NAMES)
    pairs: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    while len(pairs) < n_facts:
        pair = (rng.choice(people), rng.choice(relations))
        obj = words.value(rng, pair[1])
        if pair not in pairs and obj not in used and obj != pair[0]:
            pairs[pair] = obj
            used.add(obj)
    facts = out.facts = [Fact(s, r, o) for (s, r), o in pairs.items()]
    old: dict[tuple[str, str], str] = {}
    said: list[tuple[float, str]] = []
    for fact in facts:
        at = rng.random()
        if rng.random() < updated:
            while (was := words.value(rng, fact.relation)) in used:
                pass
            used.add(was)
            old[fact.subject, fact.relation] = was
            said.append((at * rng.random(), state(rng, Fact(fact.subject, fact.relation, was))))
        # "now lives in" is said without an earlier statement too, as when that one is out of the memory
        changed = rng.random() < (0.7 if (fact.subject, fact.relation) in old else 0.2)
        said.append((at, state(rng, fact, update=changed)))
    for _ in range(sum(rng.random() < chatter for _ in range(n_facts + 1))):
        remark = rng.choice(CHATTER)
        said.append((rng.random(), f"{rng.choice(people)}: {remark[0].upper() + remark[1:]}."))
    sentences = [text for _, text in sorted(said)]
    while sentences:  # now and then one memory holds several sentences
        take = rng.choice((2, 3)) if rng.random() < 0.12 else 1
        out.lines.append(" ".join(sentences[:take]))
        del sentences[:take]

    while len(out.questions) < n_questions:
        roll = rng.random()
        if roll < world:
            fact = rng.choice(WORLD)
            if (fact.subject, fact.relation) not in pairs:
                out.questions.append(ask(rng, fact, "world", fact.object))
        elif roll < world + unknown or not facts:
            if rng.random() < 0.3:
                fact = Fact("", rng.choice(relations), "")
                obj = words.value(rng, fact.relation)
                if obj not in used:
                    out.questions.append(ask_who(rng, Fact("", fact.relation, obj), UNKNOWN))
                continue
            stranger = not facts or rng.random() < 0.4
            subject = words.name(rng) if stranger else rng.choice(people)
            pair = (subject, rng.choice(relations))
            if pair not in pairs and pair not in _WORLD and (not stranger or subject not in people):
                out.questions.append(ask(rng, Fact(*pair, ""), "unknown", UNKNOWN))
        else:
            fact = rng.choice(facts)
            if rng.random() < who and fact.subject != SPEAKER:
                out.questions.append(ask_who(rng, fact, fact.subject))
            else:
                pair = (fact.subject, fact.relation)
                kind = "updated" if pair in old else "override" if pair in _WORLD else "forward"
                out.questions.append(ask(rng, fact, kind, fact.object))
    return out
