"""Neutral sentence frames and neutral words, written for `contrast_pairs`."""

from __future__ import annotations

# Verbs are modal or in the past tense, so that they are equal for singular and plural subjects.
FRAMES: dict[str, tuple[str, ...]] = {
    "subject": (
        "{word} could be here.",
        "{word} will be there.",
        "{word} might have come.",
        "{word} would know.",
        "Perhaps {word} may agree.",
        "Then {word} must have gone.",
    ),
    "object": (
        "It was about {word}.",
        "This is for {word}.",
        "They had heard of {word}.",
        "Somebody saw {word} there.",
        "We went with {word}.",
        "I spoke to {word}.",
    ),
    "possessive determiner": (
        "It was {word} turn.",
        "This is {word} place.",
        "They had heard {word} name.",
        "Somebody saw {word} house.",
        "That was {word} idea.",
        "It will be {word} choice.",
    ),
    "possessive pronoun": (
        "It was {word}.",
        "This place is {word}.",
        "The choice was {word}.",
        "The idea could be {word}.",
        "That turn was {word}.",
        "The house will be {word}.",
    ),
    "reflexive": (
        "The person spoke of {word}.",
        "Somebody went there by {word}.",
        "The person had heard it {word}.",
        "Somebody asked {word} about it.",
        "The person came {word}.",
        "Somebody saw {word} there.",
    ),
    "address": (
        "Yes, {word}.",
        "Thank you, {word}.",
        "No, {word}.",
        "Of course, {word}.",
        "Hello, {word}.",
        "Please come in, {word}.",
    ),
    "verb": (
        "They {word} here.",
        "We {word} there.",
        "You {word} too.",
        "I {word} with them.",
        "People {word} then.",
        "Some {word} for a while.",
    ),
}
NAME_PHRASE = "{word} Taylor"
"""Titles need a name; this surname is used by all groups."""

# Controls of a fitted direction: pairs that differ in tense or number but not in a group.
TENSE_PAIRS = (
    ("walk", "walked"), ("wait", "waited"), ("work", "worked"), ("talk", "talked"),
    ("stay", "stayed"), ("arrive", "arrived"), ("listen", "listened"), ("laugh", "laughed"),
    ("sing", "sang"), ("sleep", "slept"), ("stand", "stood"), ("sit", "sat"), ("run", "ran"),
    ("come", "came"), ("go", "went"), ("speak", "spoke"), ("write", "wrote"), ("eat", "ate"),
    ("play", "played"), ("travel", "travelled"), ("rest", "rested"), ("move", "moved"),
    ("wonder", "wondered"), ("begin", "began"),
)  # fmt: skip
NUMBER_PAIRS = (
    ("river", "rivers"), ("house", "houses"), ("table", "tables"), ("road", "roads"),
    ("tree", "trees"), ("stone", "stones"), ("book", "books"), ("door", "doors"),
    ("window", "windows"), ("garden", "gardens"), ("street", "streets"), ("field", "fields"),
    ("hill", "hills"), ("bridge", "bridges"), ("letter", "letters"), ("lamp", "lamps"),
    ("box", "boxes"), ("cup", "cups"), ("chair", "chairs"), ("ship", "ships"),
    ("cloud", "clouds"), ("city", "cities"), ("song", "songs"), ("clock", "clocks"),
)  # fmt: skip
