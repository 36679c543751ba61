"""Words of the embedded corpus: each English word has one German one where it is used.

English verbs whose past looks like their base form (put, read) are left out: a plural subject
would not tell their tense, and German has to know it.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun with the forms that cannot be derived."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str  # m, f or n
    genitive: str = ""  # singular; feminine nouns do not change
    weak: bool = False  # "der Junge, den Jungen": like the plural in all cases but the nominative

    def german_form(self, case: str, plural: bool) -> str:
        """The noun in nom, acc, dat or gen."""
        if not plural:
            if self.weak and case != "nom":
                return self.german_plural
            return (self.genitive or self.german) if case == "gen" else self.german
        ends_in_n = self.german_plural.endswith(("n", "s"))
        return self.german_plural + ("n" if case == "dat" and not ends_in_n else "")


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb: English forms, German present, participle and what it governs.

    `singular` and `plural` are the third person, without the separable `prefix`.
    """

    english: str  # base form, particle included
    english_third: str
    english_past: str
    singular: str
    plural: str
    participle: str
    prefix: str = ""
    auxiliary: str = "haben"
    case: str = "acc"  # of a personal object
    preposition: str = ""  # before a personal object
    benefit: bool = False  # may be done for somebody

    @property
    def infinitive(self) -> str:
        return self.prefix + self.plural

    def english_form(self, tense: str, plural: bool) -> str:
        """The third person in the present, the past or with a verb of MODALS."""
        if tense == "present":
            return self.english if plural else self.english_third
        if tense == "past":
            return self.english_past
        modal = MODALS[tense]
        return f"{modal.english_plural if plural else modal.english_third} {self.english}"

    def german_forms(self, tense: str, plural: bool) -> tuple[str, str, str]:
        """(finite verb, end of a main clause, end of a subordinate clause); past is the perfect."""
        if tense == "present":
            finite = self.plural if plural else self.singular
            return finite, self.prefix, self.prefix + finite
        if tense == "past":
            finite = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}[self.auxiliary][plural]
            end = self.participle
        else:
            finite = MODALS[tense].plural if plural else MODALS[tense].singular
            end = self.infinitive
        return finite, end, f"{end} {finite}"


@dataclasses.dataclass(frozen=True)
class Modal:
    """A verb that takes an infinitive: modal verbs and the future."""

    english_third: str
    english_plural: str
    singular: str
    plural: str


@dataclasses.dataclass(frozen=True)
class Kind:
    """Nouns that occur in the same phrases; a determiner None stands for no article."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[str, ...]
    determiners: tuple[str | None, ...]
    plural_determiners: tuple[str | None, ...] = ()  # none: it cannot be counted
    numbers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Frame:
    """Things, what people do with them, and where."""

    objects: Kind
    verbs: tuple[Verb, ...]
    places: tuple[str, ...] = ()


def _words(text: str) -> dict[str, str]:
    return dict(entry.split() for entry in text.split(", "))


ADJECTIVES = _words(
    "old alt, young jung, friendly freundlich, happy glücklich, clever klug, quiet ruhig, "
    "polite höflich, little klein, new neu, small klein, big groß, red rot, blue blau, "
    "white weiß, warm warm, beautiful schön, cheap billig, heavy schwer, "
    "interesting interessant, long lang, fresh frisch, cold kalt, good gut"
)

NUMBERS = _words("two zwei, three drei, four vier, five fünf, seven sieben, ten zehn")

# People.

FAMILY = Kind(
    (
        Noun("sister", "sisters", "Schwester", "Schwestern", "f"),
        Noun("brother", "brothers", "Bruder", "Brüder", "m", "Bruders"),
        Noun("daughter", "daughters", "Tochter", "Töchter", "f"),
        Noun("uncle", "uncles", "Onkel", "Onkel", "m", "Onkels"),
        Noun("aunt", "aunts", "Tante", "Tanten", "f"),
    ),
    ("old", "young", "friendly", "happy", "clever", "polite"),
    ("my", "our"),
    ("my", "our"),
    ("two", "three"),
)
ADULTS = Kind(
    (
        Noun("teacher", "teachers", "Lehrerin", "Lehrerinnen", "f"),
        Noun("doctor", "doctors", "Arzt", "Ärzte", "m", "Arztes"),
        Noun("friend", "friends", "Freund", "Freunde", "m", "Freundes"),
        Noun("neighbour", "neighbours", "Nachbarin", "Nachbarinnen", "f"),
        Noun("student", "students", "Student", "Studenten", "m", weak=True),
    ),
    ("old", "young", "friendly", "happy", "clever", "polite"),
    ("the", "the", "the", "a", "this", "our"),
    ("the", "the", "these", "our", None),
    ("two", "three", "four", "five"),
)
CHILDREN = Kind(
    (
        Noun("child", "children", "Kind", "Kinder", "n", "Kindes"),
        Noun("girl", "girls", "Mädchen", "Mädchen", "n", "Mädchens"),
        Noun("boy", "boys", "Junge", "Jungen", "m", weak=True),
    ),
    ("little", "friendly", "happy", "clever", "quiet"),
    ("the", "the", "a", "this"),
    ("the", "the", "these", None),
    ("two", "three", "four", "five"),
)

# Things.

BOOK = Noun("book", "books", "Buch", "Bücher", "n", "Buches")
LETTER = Noun("letter", "letters", "Brief", "Briefe", "m", "Briefes")
NEWSPAPER = Noun("newspaper", "newspapers", "Zeitung", "Zeitungen", "f")
BICYCLE = Noun("bicycle", "bicycles", "Fahrrad", "Fahrräder", "n", "Fahrrads")
CAR = Noun("car", "cars", "Auto", "Autos", "n", "Autos")
LAMP = Noun("lamp", "lamps", "Lampe", "Lampen", "f")
CLOCK = Noun("clock", "clocks", "Uhr", "Uhren", "f")
CHAIR = Noun("chair", "chairs", "Stuhl", "Stühle", "m", "Stuhls")
COAT = Noun("coat", "coats", "Mantel", "Mäntel", "m", "Mantels")
SHIRT = Noun("shirt", "shirts", "Hemd", "Hemden", "n", "Hemdes")
JACKET = Noun("jacket", "jackets", "Jacke", "Jacken", "f")
BAG = Noun("bag", "bags", "Tasche", "Taschen", "f")
PICTURE = Noun("picture", "pictures", "Bild", "Bilder", "n", "Bildes")
FLOWER = Noun("flower", "flowers", "Blume", "Blumen", "f")
ROOM = Noun("room", "rooms", "Zimmer", "Zimmer", "n", "Zimmers")
FLAT = Noun("flat", "flats", "Wohnung", "Wohnungen", "f")
DOOR = Noun("door", "doors", "Tür", "Türen", "f")
WINDOW = Noun("window", "windows", "Fenster", "Fenster", "n", "Fensters")
BREAD = Noun("bread", "", "Brot", "", "n", "Brotes")
CHEESE = Noun("cheese", "", "Käse", "", "m", "Käses")
SOUP = Noun("soup", "", "Suppe", "", "f")
MILK = Noun("milk", "", "Milch", "", "f")
TEA = Noun("tea", "", "Tee", "", "m", "Tees")
WATER = Noun("water", "", "Wasser", "", "n", "Wassers")

ONE = ("the", "the", "a", "a", "this", "my", "our")
MANY = ("the", "these", "my", None, None)

PRINT = Kind(
    (BOOK, LETTER, NEWSPAPER), ("old", "new", "interesting", "long"), ONE, MANY, tuple(NUMBERS)
)
GOODS = Kind(
    (BICYCLE, CAR, LAMP, CLOCK, CHAIR),
    ("old", "new", "small", "big", "cheap", "heavy", "beautiful", "white"),
    ONE,
    MANY,
    tuple(NUMBERS),
)
CLOTHES = Kind(
    (COAT, SHIRT, JACKET),
    ("red", "blue", "white", "new", "warm", "beautiful", "cheap"),
    ONE,
    MANY,
    ("two", "three", "four"),
)
LUGGAGE = Kind((BAG,), ("red", "blue", "new", "heavy"), ONE, MANY, ("two", "three"))
GIFTS = Kind(
    (BOOK, LETTER, PICTURE, FLOWER), ("beautiful", "small", "new"), ONE, MANY, tuple(NUMBERS)
)
ROOMS = Kind((ROOM, FLAT), ("small", "big", "new", "beautiful"), ONE, ("the", "these"))
OPENINGS = Kind(
    (DOOR, WINDOW), ("small", "big", "old", "heavy"), ("the", "a"), ("the",), ("two", "three")
)
FOOD = Kind((BREAD, CHEESE, SOUP), ("fresh", "good", "cold", "warm"), (None, None, "the"))
DRINKS = Kind((MILK, TEA, WATER), ("fresh", "cold", "warm", "good"), (None, None, "the"))

# Verbs.

BUY = Verb("buy", "buys", "bought", "kauft", "kaufen", "gekauft", benefit=True)
SELL = Verb("sell", "sells", "sold", "verkauft", "verkaufen", "verkauft")
FIND = Verb("find", "finds", "found", "findet", "finden", "gefunden")
CARRY = Verb("carry", "carries", "carried", "trägt", "tragen", "getragen", benefit=True)
THROW = Verb("throw away", "throws away", "threw away", "wirft", "werfen", "weggeworfen", "weg")
REPAIR = Verb("repair", "repairs", "repaired", "repariert", "reparieren", "repariert", benefit=True)
LOOK_FOR = Verb("look for", "looks for", "looked for", "sucht", "suchen", "gesucht", benefit=True)
ORDER = Verb("order", "orders", "ordered", "bestellt", "bestellen", "bestellt", benefit=True)
CLEAN = Verb("clean", "cleans", "cleaned", "putzt", "putzen", "geputzt")
WASH = Verb("wash", "washes", "washed", "wäscht", "waschen", "gewaschen", benefit=True)
EAT = Verb("eat", "eats", "ate", "isst", "essen", "gegessen")
DRINK = Verb("drink", "drinks", "drank", "trinkt", "trinken", "getrunken")
BRING = Verb(
    "bring along", "brings along", "brought along", "bringt", "bringen", "mitgebracht", "mit",
    benefit=True,
)  # fmt: skip
PICK_UP = Verb("pick up", "picks up", "picked up", "holt", "holen", "abgeholt", "ab", benefit=True)
LOOK_AT = Verb("look at", "looks at", "looked at", "schaut", "schauen", "angeschaut", "an")
TRY_ON = Verb("try on", "tries on", "tried on", "probiert", "probieren", "anprobiert", "an")
TIDY_UP = Verb("tidy up", "tidies up", "tidied up", "räumt", "räumen", "aufgeräumt", "auf")
OPEN = Verb("open", "opens", "opened", "macht", "machen", "aufgemacht", "auf")
CLOSE = Verb("close", "closes", "closed", "macht", "machen", "zugemacht", "zu")

FRAMES = (
    Frame(PRINT, (FIND, LOOK_FOR), ("in the library", "at school", "at the station", "at home")),
    Frame(PRINT, (BRING, THROW)),
    Frame(
        GOODS,
        (BUY, SELL, REPAIR, PICK_UP, LOOK_AT),
        ("in the city", "behind the house", "in front of the house", "at school"),
    ),
    Frame(CLOTHES, (BUY, LOOK_FOR), ("in the city", "at the market")),
    Frame(CLOTHES, (TRY_ON, WASH), ("at home",)),
    Frame(
        LUGGAGE,
        (CARRY, FIND, PICK_UP, LOOK_FOR),
        ("at the station", "in the park", "in front of the house"),
    ),
    Frame(ROOMS, (TIDY_UP, CLEAN, LOOK_AT)),
    Frame(OPENINGS, (OPEN, CLOSE, CLEAN, REPAIR), ("at home", "at school", "in the library")),
    Frame(FOOD, (BUY, EAT, ORDER), ("at the market", "in the city", "in the garden")),
    Frame(DRINKS, (BUY, DRINK, ORDER), ("at the station", "in the city", "in the park")),
)

MEETERS = (
    Verb("visit", "visits", "visited", "besucht", "besuchen", "besucht"),
    Verb("meet", "meets", "met", "trifft", "treffen", "getroffen"),
    Verb("call", "calls", "called", "ruft", "rufen", "angerufen", "an"),
    Verb("invite", "invites", "invited", "lädt", "laden", "eingeladen", "ein"),
    PICK_UP,
    Verb("help", "helps", "helped", "hilft", "helfen", "geholfen", case="dat"),
    Verb("thank", "thanks", "thanked", "dankt", "danken", "gedankt", case="dat"),
    Verb("listen to", "listens to", "listened to", "hört", "hören", "zugehört", "zu", case="dat"),
    Verb(
        "wait for", "waits for", "waited for", "wartet", "warten", "gewartet", preposition="auf"
    ),
    Verb(
        "speak with", "speaks with", "spoke with", "spricht", "sprechen", "gesprochen",
        case="dat", preposition="mit",
    ),
)  # fmt: skip
"""Verbs with a person as their object."""

GIVERS = (
    Verb("give", "gives", "gave", "gibt", "geben", "gegeben"),
    Verb("show", "shows", "showed", "zeigt", "zeigen", "gezeigt"),
    Verb("send", "sends", "sent", "schickt", "schicken", "geschickt"),
)
"""Verbs with a person (dative) and a thing (accusative)."""

DOERS = (
    Verb("work", "works", "worked", "arbeitet", "arbeiten", "gearbeitet"),
    Verb("sing", "sings", "sang", "singt", "singen", "gesungen"),
    Verb("dance", "dances", "danced", "tanzt", "tanzen", "getanzt"),
    Verb("play", "plays", "played", "spielt", "spielen", "gespielt"),
)
"""Verbs without an object, done alone or with somebody."""

MOVERS = (
    Verb("go", "goes", "went", "geht", "gehen", "gegangen", auxiliary="sein"),
    Verb("drive", "drives", "drove", "fährt", "fahren", "gefahren", auxiliary="sein"),
    Verb("run", "runs", "ran", "läuft", "laufen", "gelaufen", auxiliary="sein"),
    Verb("come back", "comes back", "came back", "kommt", "kommen", "zurückgekommen", "zurück",
         auxiliary="sein"),
)  # fmt: skip
"""Verbs with a direction."""

THINKERS = (
    Verb("say", "says", "said", "sagt", "sagen", "gesagt"),
    Verb("know", "knows", "knew", "weiß", "wissen", "gewusst"),
    Verb("believe", "believes", "believed", "glaubt", "glauben", "geglaubt"),
    Verb("hope", "hopes", "hoped", "hofft", "hoffen", "gehofft"),
)
"""Verbs followed by a that-clause."""

MODALS = {
    "can": Modal("can", "can", "kann", "können"),
    "must": Modal("must", "must", "muss", "müssen"),
    "want": Modal("wants to", "want to", "will", "wollen"),
    "should": Modal("should", "should", "sollte", "sollten"),
    "will": Modal("will", "will", "wird", "werden"),
}

# Where and when.

PLACES = {
    "in the garden": "im Garten",
    "in the kitchen": "in der Küche",
    "in the city": "in der Stadt",
    "in the library": "in der Bibliothek",
    "at the market": "auf dem Markt",
    "at school": "in der Schule",
    "in the park": "im Park",
    "at the station": "am Bahnhof",
    "at home": "zu Hause",
    "behind the house": "hinter dem Haus",
    "in front of the house": "vor dem Haus",
}

DIRECTIONS = {
    "to the park": "in den Park",
    "to the city": "in die Stadt",
    "to the library": "in die Bibliothek",
    "to school": "in die Schule",
    "to the market": "auf den Markt",
    "to the station": "zum Bahnhof",
    "home": "nach Hause",
}

TIMES = {
    "in the morning": "am Morgen",
    "in the evening": "am Abend",
    "at the weekend": "am Wochenende",
    "in summer": "im Sommer",
    "in winter": "im Winter",
}

PRESENT_TIMES = {"every day": "jeden Tag", "every week": "jede Woche", "every year": "jedes Jahr"}
PAST_TIMES = {"yesterday": "gestern", "last week": "letzte Woche", "last year": "letztes Jahr"}
FUTURE_TIMES = {"tomorrow": "morgen", "next week": "nächste Woche", "next year": "nächstes Jahr"}

DAYS = _words(
    "Monday Montag, Tuesday Dienstag, Wednesday Mittwoch, Thursday Donnerstag, "
    "Friday Freitag, Saturday Samstag, Sunday Sonntag"
)

MONTHS = _words(
    "January Januar, March März, April April, May Mai, July Juli, August August, "
    "October Oktober, December Dezember"
)

CONJUNCTIONS = {"because": "weil", "although": "obwohl", "before": "bevor"}
PRESENT_CONJUNCTIONS = CONJUNCTIONS | {"if": "wenn"}
PAST_CONJUNCTIONS = CONJUNCTIONS | {"when": "als"}
COORDINATORS = {", and": "und", ", but": ", aber"}
"""With the commas before them."""
