"""Word lists of the demo. Invented names and everyday words; each list is one slot of a template.

Every list is used in full by the corpus and by the test split, while the training split sees only its first
part (:data:`SEEN`): what a test word has in common with the others must come from pretraining.
"""

from __future__ import annotations

SEEN = 0.5
"""Share of each list that the training and dev splits draw from."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


FIRST = _words(
    "Mira Jonas Anna Pavel Lena Tomas Ines Karim Sofia Oskar Nadia Ravi Elsa Marek Yara Bruno Hana Felix "
    "Amina Viktor Clara Idris Greta Mateo Zora Henrik Leila Stefan Olga Dario"
)
LAST = _words(
    "Berg Novak Lindt Okafor Sandoval Petrov Haddad Keller Moreau Tanaka Rossi Varga Nilsson Duarte "
    "Kimani Weiss Falk Horvat Castell Bauer Ortega Sorensen Mbeki Lang Farouk Jensen Ivanov Pohl Marino "
    "Dahl"
)
TOWN = _phrases(
    "Norhaven, Eastbrook, Kalmora, Stonefield, Velden, Marisca, Port Ellen, Rivona, Greyhill, Tarnow, "
    "Halden, Lake Orin, Sunmere, Old Quay, Brackwater, Fennick, Alderton, San Livio, Westmarch, Ostrava "
    "Bay, Pinecrest, Dunmore, Cape Lowe, Trellis, Karsten, Redcliff, Mount Avery, Solway, Isle Rana, "
    "Birchwood"
)
FIRM = _phrases(
    "Lumen Works, Halvor Steel, Bluefin Foods, Orbis Bank, Tallis Motors, Kestrel Air, Northlight Media, "
    "Quill Press, Sagan Labs, Verdant Energy, Copperline, Atlas Freight, Monza Textiles, Helix Health, "
    "Rook Security, Pioneer Mills, Delta Glass, Silvertown Rail, Ember Software, Corvid Games, Union "
    "Timber, Marlow Hotels, Beacon Insurance, Zephyr Wind, Granite Homes, Opal Telecom, Fairway Stores, "
    "Juno Chemicals, Crescent Films, Harbor Trust"
)
SPORT = _words(
    "goal match striker keeper referee league coach penalty stadium tournament team defender halftime "
    "champion sprint medal relay racket serve court marathon jersey trophy fans playoff pitch dribble "
    "header offside final"
)
FOOD = _words(
    "soup bread garlic butter oven recipe basil onion sauce cheese pasta pepper salad dough flour chicken "
    "lemon honey pancake rice stew mushroom vinegar olive carrot dessert cinnamon broth noodle cream"
)
WEATHER = _words(
    "rain storm cloud thunder frost breeze drizzle snow sunshine fog hail wind heatwave humidity forecast "
    "lightning blizzard shower drought temperature gust sleet rainbow mist flood ice monsoon thaw "
    "barometer haze"
)
MUSIC = _words(
    "guitar melody drummer chorus album piano concert violin rhythm singer orchestra tune lyrics bass "
    "band trumpet choir symphony encore harmony cello ballad flute record tempo microphone opera solo "
    "verse duet"
)
TOPICS = {"sport": SPORT, "food": FOOD, "weather": WEATHER, "music": MUSIC}
ADJECTIVE = _words(
    "great small strange quiet sudden simple famous early late perfect bright heavy soft wild gentle "
    "plain lovely rough fresh final"
)
THING = _phrases(
    "a red bicycle, a wooden boat, an old map, a silver watch, a brass lamp, a green scarf, a glass bowl, "
    "a leather bag, a paper kite, a stone bridge, a blue vase, a copper kettle, a steel ladder, a woven "
    "basket, a velvet chair, a marble table, a clay pot, an oak desk, a gold coin, a linen coat, a tin "
    "whistle, a canvas tent, a small telescope, a broken clock"
)
DAY = _phrases("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTH = _phrases(
    "January, February, March, April, May, June, July, August, September, October, November, December"
)
