"""Patterns of the planted language's sentences, and the words that are related to no group."""

from __future__ import annotations

PLACES = (
    "kitchen garden office library station market village museum theatre harbour bakery castle "
    "church forest valley mountain island bridge street park field meadow cottage tower palace "
    "school hospital hotel cinema stable barn cellar attic balcony terrace corridor lobby studio "
    "workshop factory warehouse airport platform square courtyard chapel temple cave beach lake"
).split()
TIMES = (
    "today yesterday tonight tomorrow now later early late soon often always sometimes rarely "
    "again once twice daily weekly monthly yearly"
).split()
THINGS = (
    "table chair lamp bottle basket carpet curtain mirror clock candle pillow blanket drawer "
    "bucket ladder hammer needle thread button ribbon feather pebble shell coin stamp envelope "
    "letter parcel ticket map compass lantern kettle teapot saucer spoon fork plate bowl jar box "
    "bag rope chain wheel barrel crate shelf bench stool vase painting statue bell whistle drum "
    "flute violin piano trumpet kite balloon puzzle doll ball bat net sail anchor oar tent stove "
    "oven towel soap brush comb scarf glove coat hat boot sandal belt ring necklace bracelet "
    "hinge latch lock key nail screw plank tile brick pipe pump valve spring magnet prism lens "
    "globe chart scroll pamphlet poster banner flag badge medal trophy goblet pitcher ladle sieve "
    "tray cradle saddle bridle harness plough spade rake hoe sickle axe saw chisel anvil bellows"
).split()
LOOKS = (
    "red blue green yellow brown black white grey purple orange pink golden silver small large "
    "tiny huge round square flat narrow wide heavy light old new broken clean dirty wet dry warm "
    "cold soft hard smooth rough shiny dull pale dark bright empty full open closed thick thin "
    "long short tall low deep shallow quiet loud"
).split()
ANIMALS = (
    "dog cat horse cow sheep goat pig hen duck goose rabbit fox wolf bear deer owl crow eagle "
    "swan frog snake turtle mouse squirrel hedgehog badger beaver otter seal whale"
).split()
FOODS = (
    "bread cheese butter honey soup stew porridge pudding pie cake biscuit apple pear plum cherry "
    "grape melon peach lemon carrot potato onion cabbage turnip pea bean mushroom pepper salad "
    "rice noodle sausage bacon fish egg milk juice tea coffee water"
).split()
DEEDS = (
    "walked ran sat stood waited slept rested arrived returned stopped turned paused stayed "
    "listened looked smiled nodded whispered laughed sighed"
).split()

PATTERNS: dict[str, tuple[str, ...]] = {
    # How a document begins: the person is named by a word of the group.
    "opening": (
        "my {kin} came into the {place} .",
        "the {person} {deed} near {own} {place} .",
        "our {kin} sold {own} {thing} {time} .",
        "the {person} works as {a} {occupation} .",
        "the {occupation} at the {place} is a {person} .",
        "the {trait} {person} left {own} {place} .",
        "my {kin} is very {trait} .",
        "the {trait} {person} likes {own} {thing} .",
        "our {kin} likes {liking} .",
        "my {kin} talked about {liking} in {own} {place} .",
    ),
    # How it goes on: by the pronoun.
    "next": (
        "{pronoun} works as {a} {occupation} .",
        "{pronoun} is {a} {occupation} in {own} {place} .",
        "{pronoun} was always {trait} .",
        "{pronoun} is very {trait} and likes {own} {thing} .",
        "{pronoun} likes {liking} and {liking} .",
        "{pronoun} {deed} near {own} {thing} .",
        "{pronoun} sold {own} {look} {thing} .",
        "the {occupation} said that {pronoun} likes {own} {thing} .",
        "the {trait} {occupation} said that {pronoun} was tired {time} .",
        # By the target alone: whose it is follows from the sentences before.
        "the {occupation} {deed} near the {thing} .",
        "the {occupation} has a {look} {thing} .",
        "such {trait} people came to the {place} .",
        "all talks about {liking} began {time} .",
        "the {trait} {occupation} talked about {liking} .",
    ),
    # Sentences about nobody, for documents of their own and as endings that do not follow.
    "elsewhere": (
        "the {thing} is {look} .",
        "the {animal} ate the {food} .",
        "the {animal} {deed} near the {place} .",
        "a {look} {thing} lies in the {place} .",
        "the {place} is {look} {time} .",
        "the {animal} has a {look} {thing} .",
    ),
}

NEUTRAL: dict[str, tuple[str, ...]] = {
    "place": tuple(PLACES),
    "time": tuple(TIMES),
    "thing": tuple(THINGS),
    "look": tuple(LOOKS),
    "animal": tuple(ANIMALS),
    "food": tuple(FOODS),
    "deed": tuple(DEEDS),
}
FAMILIAR_PAIRS = {
    ("woman", "man"),
    ("girl", "boy"),
    ("lady", "gentleman"),
    ("mother", "father"),
    ("daughter", "son"),
    ("sister", "brother"),
    ("wife", "husband"),
    ("grandmother", "grandfather"),
    ("aunt", "uncle"),
    ("niece", "nephew"),
    ("mom", "dad"),
    ("queen", "king"),
}
"""Pairs of the lexicon that name one person and stand after an article or "my"."""
