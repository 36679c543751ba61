"""Words of the embedded corpus: each English lexeme has exactly one German one."""

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

    def german_form(self, case: str, plural: bool) -> str:
        """The noun in nom, acc, dat or gen."""
        if not plural:
            return (self.genitive or self.german) if case == "gen" else self.german
        ends_in_n = self.german_plural.endswith(("n", "s"))
        return self.german_plural + ("n" if case == "dat" and not ends_in_n else "")


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb: English forms, German present, infinitive and participle.

    `prefix` is separable; `singular`, `plural` and `infinitive` are given without it.
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

    @property
    def infinitive(self) -> str:
        return self.prefix + self.plural


PEOPLE = (
    Noun("teacher", "teachers", "Lehrerin", "Lehrerinnen", "f"),
    Noun("doctor", "doctors", "Arzt", "Ärzte", "m", "Arztes"),
    Noun("friend", "friends", "Freund", "Freunde", "m", "Freundes"),
    Noun("sister", "sisters", "Schwester", "Schwestern", "f"),
    Noun("brother", "brothers", "Bruder", "Brüder", "m", "Bruders"),
    Noun("child", "children", "Kind", "Kinder", "n", "Kindes"),
    Noun("engineer", "engineers", "Ingenieurin", "Ingenieurinnen", "f"),
    Noun("singer", "singers", "Sänger", "Sänger", "m", "Sängers"),
    Noun("neighbour", "neighbours", "Nachbarin", "Nachbarinnen", "f"),
    Noun("cook", "cooks", "Koch", "Köche", "m", "Kochs"),
    Noun("girl", "girls", "Mädchen", "Mädchen", "n", "Mädchens"),
    Noun("daughter", "daughters", "Tochter", "Töchter", "f"),
)

THINGS = (
    Noun("book", "books", "Buch", "Bücher", "n", "Buches"),
    Noun("letter", "letters", "Brief", "Briefe", "m", "Briefes"),
    Noun("picture", "pictures", "Bild", "Bilder", "n", "Bildes"),
    Noun("bag", "bags", "Tasche", "Taschen", "f"),
    Noun("bicycle", "bicycles", "Fahrrad", "Fahrräder", "n", "Fahrrads"),
    Noun("car", "cars", "Auto", "Autos", "n", "Autos"),
    Noun("coat", "coats", "Mantel", "Mäntel", "m", "Mantels"),
    Noun("lamp", "lamps", "Lampe", "Lampen", "f"),
    Noun("key", "keys", "Schlüssel", "Schlüssel", "m", "Schlüssels"),
    Noun("flower", "flowers", "Blume", "Blumen", "f"),
    Noun("newspaper", "newspapers", "Zeitung", "Zeitungen", "f"),
    Noun("knife", "knives", "Messer", "Messer", "n", "Messers"),
    Noun("chair", "chairs", "Stuhl", "Stühle", "m", "Stuhls"),
    Noun("clock", "clocks", "Uhr", "Uhren", "f"),
    Noun("table", "tables", "Tisch", "Tische", "m", "Tisches"),
    Noun("shirt", "shirts", "Hemd", "Hemden", "n", "Hemdes"),
)

PERSON_ADJECTIVES = {
    "old": "alt",
    "young": "jung",
    "friendly": "freundlich",
    "happy": "glücklich",
    "clever": "klug",
    "quiet": "ruhig",
    "polite": "höflich",
    "famous": "berühmt",
}

THING_ADJECTIVES = {
    "old": "alt",
    "new": "neu",
    "small": "klein",
    "big": "groß",
    "red": "rot",
    "blue": "blau",
    "beautiful": "schön",
    "cheap": "billig",
    "heavy": "schwer",
    "white": "weiß",
}

GETTERS = (
    Verb("buy", "buys", "bought", "kauft", "kaufen", "gekauft"),
    Verb("find", "finds", "found", "findet", "finden", "gefunden"),
    Verb("sell", "sells", "sold", "verkauft", "verkaufen", "verkauft"),
    Verb("repair", "repairs", "repaired", "repariert", "reparieren", "repariert"),
    Verb("look for", "looks for", "looked for", "sucht", "suchen", "gesucht"),
    Verb("paint", "paints", "painted", "malt", "malen", "gemalt"),
    Verb("bring along", "brings along", "brought along", "bringt", "bringen", "mitgebracht", "mit"),
    Verb("pick up", "picks up", "picked up", "holt", "holen", "abgeholt", "ab"),
    Verb("look at", "looks at", "looked at", "schaut", "schauen", "angeschaut", "an"),
    Verb("put away", "puts away", "put away", "räumt", "räumen", "weggeräumt", "weg"),
)
"""Verbs with a thing as their object."""

MEETERS = (
    Verb("visit", "visits", "visited", "besucht", "besuchen", "besucht"),
    Verb("greet", "greets", "greeted", "grüßt", "grüßen", "gegrüßt"),
    Verb("call", "calls", "called", "ruft", "rufen", "angerufen", "an"),
    Verb("invite", "invites", "invited", "lädt", "laden", "eingeladen", "ein"),
    Verb(
        "get to know", "gets to know", "got to know", "lernt", "lernen", "kennengelernt", "kennen"
    ),
    Verb("help", "helps", "helped", "hilft", "helfen", "geholfen", case="dat"),
    Verb("thank", "thanks", "thanked", "dankt", "danken", "gedankt", case="dat"),
    Verb("listen to", "listens to", "listened to", "hört", "hören", "zugehört", "zu", case="dat"),
)
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
    Verb("wait", "waits", "waited", "wartet", "warten", "gewartet"),
    Verb("laugh", "laughs", "laughed", "lacht", "lachen", "gelacht"),
    Verb("dance", "dances", "danced", "tanzt", "tanzen", "getanzt"),
    Verb("arrive", "arrives", "arrived", "kommt", "kommen", "angekommen", "an", "sein"),
    Verb("get up", "gets up", "got up", "steht", "stehen", "aufgestanden", "auf", "sein"),
    Verb("go out", "goes out", "went out", "geht", "gehen", "ausgegangen", "aus", "sein"),
)
"""Verbs without an object."""

THINKERS = (
    Verb("say", "says", "said", "sagt", "sagen", "gesagt"),
    Verb("know", "knows", "knew", "weiß", "wissen", "gewusst"),
    Verb("believe", "believes", "believed", "glaubt", "glauben", "geglaubt"),
    Verb("hope", "hopes", "hoped", "hofft", "hoffen", "gehofft"),
)
"""Verbs followed by a that-clause."""

MODALS = {"can": ("kann", "können"), "must": ("muss", "müssen"), "should": ("soll", "sollen")}

CONJUNCTIONS = {
    "because": ("weil", "weil"),
    "although": ("obwohl", "obwohl"),
    "when": ("wenn", "als"),
}
"""German conjunction in the present and in the past."""

PLACES = {
    "in the garden": "im Garten",
    "in the kitchen": "in der Küche",
    "in the city": "in der Stadt",
    "at the market": "auf dem Markt",
    "at school": "in der Schule",
    "in the park": "im Park",
    "at the station": "am Bahnhof",
    "at home": "zu Hause",
}

TIMES = {
    "today": "heute",
    "in the morning": "am Morgen",
    "in the evening": "am Abend",
    "at the weekend": "am Wochenende",
    "in summer": "im Sommer",
    "in winter": "im Winter",
}

DAYS = {
    "Monday": "Montag",
    "Tuesday": "Dienstag",
    "Wednesday": "Mittwoch",
    "Thursday": "Donnerstag",
    "Friday": "Freitag",
    "Saturday": "Samstag",
    "Sunday": "Sonntag",
}

MONTHS = {
    "January": "Januar",
    "March": "März",
    "April": "April",
    "May": "Mai",
    "July": "Juli",
    "August": "August",
    "October": "Oktober",
    "December": "Dezember",
}

NUMBERS = {
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "seven": "sieben",
    "ten": "zehn",
}
