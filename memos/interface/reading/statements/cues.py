"""Tables of the English words that say how a clause holds, where it ends, and how attributes are worded."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re

from memos.interface.reading.phrasebook import END, NAME
from memos.interface.reading.statements.readings import english_readings, one_of
from memos.lazy import pattern

PAST_DENIAL = pattern(r"\b(?:did|had|was) not\b")
NO_END = pattern(r"\bcannot (?:stop|quit|give up)|\bnever (?:quit|left|stopped|gave)")  # of what is done
ON_TOP = pattern(r"on top of|in addition|additionally|besides|plus|apart from", re.IGNORECASE)
NO_TRADE = pattern(lambda: one_of("no_trades"))  # before a job: it is none
# In doubt, hearsay or a question, nothing is stated.
DOUBT = pattern(
    r"\b(?:if|whether|unless|maybe|perhaps|might|could(?! eat)|would(?! like)|should|possibly|probably|likely to|wonder|suppos(?:e|ing|edly)|imagin(?:e|ing)|pretend\w*|wish(?:es)?|almost|nearly|apparently|rumou?rs?|joking|kidding|not sure|doubt|as though|as if|dreamt|dreamed|heard)\b|\bI (?:think|guess|believe(?! in)) (?=\w)",
    re.IGNORECASE,
)
SAYS = pattern(
    r"\b(?!I\b)[\w'’]+ (?:just |once |also )?(?:says?|said|tells?|told|thinks?|thought|claims?|claimed|asks?|asked|insists?|(?:believes?|believed)(?! in)|wrote|writes|heard|swears?|mentioned|suggested|wants? me|asked me)\b.*",
    re.IGNORECASE,
)
QUOTED = pattern(r"[\"“]\s*(?:I|He|She|We|They|My|You)\b[^\"”]*[\"”]?|(?<=[:,] )[‘'](?:I|We|My)\b[^’']*[’']?")
WISH = pattern(
    r"\b(?:will(?: be)?|shall|(?:am|is|are) (?:going to|gonna|about to|due to|supposed to|planning (?:to|on)|thinking (?:of|about)|considering|hoping (?:to|for)|looking (?:to|for|into)|trying to|training to be|saving (?:up )?for|tempted to)|plans? (?:to|on)|(?:wants?|wanted|hopes?|hoped|intends?|intended|aims?|tries|try|tried|needs?|has|have|had|would like|decided|promised|meant|used to want) to|dreams? (?:of|about)|considering|want(?=s? an?\b)s?|apply(?:ing)? (?:to|at|for)|applied (?:to|at|for)|interview\w*|would like)\b ?",
    re.IGNORECASE,
)
LATER = pattern(
    r"\b(?:next (?:week|month|year|spring|summer|autumn|fall|winter|semester|term|\w+day)|tomorrow|some ?day|one day|soon|in the future|eventually|from (?:January|February|March|April|May|June|July|August|September|October|November|December|next \w+|tomorrow))\b",
    re.IGNORECASE,
)
NOT_WANT = pattern(r"\b(?:not|never|cannot)\b", re.IGNORECASE)
USED_TO = pattern(r"\bused to (?:be\b)?", re.IGNORECASE)
BACK_THEN = pattern(
    r"\b(?:back then|in those days|in the past|at the time|before (?:that|this)|previously|formerly|as a (?:child|kid|boy|girl|teenager|student)|when (?:I|he|she|we|they) (?:was|were|had|lived|did)\b.*|in my (?:youth|childhood|twenties|teens)|growing up|at school|once upon a time|years ago|(?:until|till) .*|in (?:19|20)\d\d|last (?:year|summer|winter|spring|autumn|fall|week|month)|from \d{4} to \d{4}|for a (?:week|month|year|while|few \w+))\b",
    re.IGNORECASE,
)
FORMER = pattern(r"(?:\b[Mm]y|['’]s) (?:first|old|previous|former|ex|late|last|childhood|second|least)\b")
# The past of verbs that tell a state; that of "move" or "buy" tells a change.
PAST_VERB = pattern(
    lambda: (
        rf"(?<!been )(?<!have )(?<!has )\b(?:{'|'.join(english_readings().past)})\b"
        r"(?! (?:born|promoted|hired|fired|made|laid|let|put))"
    )
)
NO_LONGER = pattern(r"\b(?:no longer|not)\b(?= )|\bcannot (?=(?:\w+ ){1,5}any (?:more|longer))", re.IGNORECASE)
ANY_MORE = pattern(r",? ?\bany ?(?:more|longer)\b", re.IGNORECASE)
DO_NOT = pattern(r"\b(?:do|does) (?:not|no longer) ", re.IGNORECASE)
NEVER = pattern(r"\bnever ", re.IGNORECASE)
STOPPED = pattern(
    r"\b(?:have |has )?(?:stopped|quit|given up|gave up|finished|done with|ceased|quitted) (\w+ing)\b", re.IGNORECASE
)
# "I don't play today", "I don't like it very much": no end of anything.
PARTLY = pattern(
    r"\bon (?:\w+days?|weekends?|weekdays)\b|\b(?:today|tonight|yesterday|this \w+|at (?:night|work|home|all times)|in the (?:morning|afternoon|evening|summer|winter)\w*|often|always|every|much|well|yet|enough|usually|when|alone|right now|for (?:breakfast|lunch|dinner)|after|before|during|without|while|because|just|only|that)\b",
    re.IGNORECASE,
)
NOT_AT_ALL = pattern(
    r"\b(?:not|never)\b.*\b(?:want|need|think|know|plan|mean|let|forget|mind|stop|quit|give up|care|believe|have to)",
    re.IGNORECASE,
)
TOO = pattern(
    r",? \b(?:as well|too|additionally|in addition|besides|on top of (?:that|it))\b(?= *$)|\b(?:also|additionally|another)\b",
    re.IGNORECASE,
)
SIDE = pattern(r"\b(?:on (?:the side|weekends)|part[- ]time|in my spare time)\b", re.IGNORECASE)
INSTEAD = pattern(r",? \b(?:instead|rather)\b(?: of .*)?|\b(?:and )?no longer \w+$", re.IGNORECASE)
NOW = pattern(
    r",? ?\b(?:now(?! and (?:then|again))|nowadays|these days|from now on|as of (?:today|now|this \w+)|by now|at last|again)\b",
    re.IGNORECASE,
)
STRONG = pattern(r"switched|instead|changed|mostly|only|best friend|prefer")
WHEN = pattern(
    r",? ?\b(?:(?:late |early )?(?:last|this|earlier this) (?:week|month|year|spring|summer|autumn|fall|winter|morning|evening|night|weekend|\w+day|January|February|March|April|May|June|July|August|September|October|November|December)|yesterday|today|recently|lately|just|finally|currently|already|really|mostly|mainly|usually|actually|officially|happily|still|at the moment|right now|(?:a|an|one|two|three|four|five|six|\d+|a few|a couple of|several) (?:day|week|month|year)s? ago|in (?:(?:19|20)\d\d|January|February|March|April|May|June|July|August|September|October|November|December)|since (?:\w+ ?){1,2}$|for (?:\w+ ){1,3}(?:years|months|weeks)(?: now)?|for good|(?:on|every) (?:\w+days?|weekends?)|(?:every|each) (?:single )?(?:day|morning|evening|night|week|year)|in the (?:morning|evening|afternoon|mornings|evenings)|at night|daily|a lot|so much|very much|after all|in the end|all the time|at the age of \d+|for a living|myself)\b",
    re.IGNORECASE
)  # fmt: skip
OPENING = pattern(lambda: rf"^(?:(?:{one_of('openings')})\b[,:;.!—-]*\s*)+", re.IGNORECASE)
VERB = r"(?:am|is|are|was|have|has|live|work|play|drive|like|love|hate|enjoy|prefer|speak|drink|eat|study|use|own|moved|joined|started|switched|became|bought|got|took|adopted|quit|left|stopped|gave|sold|go|do|no longer|don['’]t|doesn['’]t|used|want|lives|works|plays|drives|likes|loves|hates|enjoys|speaks|drinks|eats|uses|owns|report|reports|keep|keeps|became)"
CLAUSE = pattern(
    r"[;—,!?]\s+|\.\s+(?=[A-Z])|:\s+|\s+(?:but|because|although|though|whereas|and then|while|since (?=I|we|my))\s*"
    rf"|\s+and\s+(?=(?:now |then |also |just |have |has )?(?:I|I['’]\w+|[Mm]y|[Ww]e|(?:now |also )?{VERB}"
    rf"|{NAME} (?:[a-z]+))\b)"
)
SUBJECT = pattern(rf"(?:I|{NAME})(?= )")
ITEM = (
    rf"(?!(?:{VERB}|\w+ed)\b)(?:an? |the |some |two |three )?(?!(?:I|we|he|she|they|it|my|now|not|then|also|but"
    r"|so|who|which|as|you|that|because)\b)[\w'-]+(?: [\w'-]+){0,2}?"
)
LIST = pattern(
    rf"((?:, {ITEM})*),? (?:and|as well as|plus) ({ITEM})(?=\s*(?:[.!?;]|, (?:too|as well|but|and)\b|$| too\b"
    rf"| as well\b| on\b| for\b| in\b| at\b))"
)
MARKS = str.maketrans({"’": "'", "‘": "'", "。": ".", "，": ", "})
SPELLINGS = (  # (what must stand in a text for it to be worth the expression, the expression, the usual spelling)
    ("i", pattern(r"\bi\b(?!\.)"), "I"),
    ("e", pattern(r"\b(?:We|we)(?= |')"), "I"),
    ("ur ", pattern(r"\b(?:Our|our)(?= )"), "my"),
    ("I", pattern(r"\bI'm\b|\bI're\b|\bI are\b|\bIm\b(?= )"), "I am"),
    ("im ", pattern(r"\bim\b(?= )"), "I am"),
    ("I've", pattern(r"\bI've\b"), "I have"),
    ("name's", pattern(r"\bname's (?=\w)"), "name is "),
    ("I'll", pattern(r"\bI'll\b"), "I will"),
    ("I'd", pattern(r"\bI'd\b"), "I would"),
    (
        "'",
        pattern(r"\b(can|could|do|does|did|is|are|was|were|has|have|had|would|should)n't\b", re.IGNORECASE),
        r"\1 not",
    ),
    ("won't", pattern(r"\bwon't\b"), "will not"),
    ("can", pattern(r"\bcan(?:'t| not)\b"), "cannot"),
    ("avorite", pattern(r"\b([Ff])avorite\b"), r"\1avourite"),
    ("olor", pattern(r"\b([Cc])olor\b"), r"\1olour"),
    ("now and ", pattern(r",? ?\b(?:every )?now and (?:then|again)\b"), " sometimes"),
    ("a new ", pattern(r"\b(a new (?:boss|manager|supervisor)), (?=[A-Z])"), r"\1 called "),
    (". ", pattern(r"\b(Dr|Mr|Mrs|Ms|St|Prof)\. "), r"\1 "),
    ("got a new ", pattern(r"\bgot a new (job|role|position)\b"), r"got a \1"),
)
ATTRIBUTE = pattern(
    rf"(?:(?:the (?P<of>[a-z][\w -]*?) of )?(?:[Mm]y|(?P<s>{NAME})'s)(?P<new> new)?|[Tt]he (?P<for>[a-z][\w -]*?) (?:of"
    rf"|for) my) (?P<noun>(?:favourite )?[A-Za-z][\w-]*(?: [a-z][\w-]*){{0,2}}?) (?P<verb>is called|is named|is"
    rf"|has changed to|changed to|became|has become"
    rf"|are)(?: now)? (?:now )?(?P<o>[\w@+#][\w@.+#'&-]*(?: [\w&+#][\w.'&-]*){{0,4}}?){END}"
)
CHANGED = pattern(
    rf"(?:(?P<who>I|{NAME})) (?:have |has )?(?:changed|updated|reset|switched|set) (?:my|his|her|their"
    rf"|the) (?P<noun>[\w-]+(?: [\w-]+){{0,2}}?) to (?P<o>[\w@+#][\w@.+#'&-]*(?: [\w&][\w.'&-]*){{0,3}}?){END}"
)
PAIR = pattern(
    rf"^({NAME}|[Mm]y \w+) and I (?:are |am |were |have |just )*(?P<rest>(?:no longer |not |best |good )*(?:friends"
    rf"|dating|married|engaged|together|broke|broken|split|divorced|separated|got divorced).*)"
)
PARTED = pattern(r"(?:broke|broken|split|divorced|separated|got)\b")
AM_JOB = pattern(
    rf"(?:I am|(?P<s>{NAME}) is) (?:an? )(?P<o>[\w-]+(?: [\w-]+){{0,2}}?)(?: by trade| by profession)?{END}"
)
AT_WORK = pattern(r"\b((?:work|works|working|am|is) (?:as )?an? (?!student)[a-z]+(?: [a-z]+)?) (?:at|for) (?=[A-Z])")
FROM_TO = pattern(
    r"\b((?:moved|relocated|switched|changed|went|swapped|transferred)(?: \w+)?) from ((?:[\w'-]+ ?){1,3}?) to (?=\w)"
)
FOR = pattern(r"\b(left|quit) ([A-Z]\w+) (?:for|to join) (?=[A-Z])")
NO_ATTRIBUTE = pattern(r"(?:not|very|so|too|really|on|in|at|to|an? [a-z]+ing)\b")
STEM_OF_E = pattern(lambda: f"(?:{one_of('stems_of_e')})$")  # of a gerund: "smok", of "smoke"
UPDATE = pattern(r"现在(?!在)|如今|搬到|搬家|换成|换了|改成|改为|改喝|改吃|不再|\b(?:any ?more|no longer|used to)\b")
