"""Requests to an assistant about a person in an occupation, with a word that names the group."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from levelhead.core.errors import LevelheadError

FIELDS = ("{a} {person}", "{A} {person}")


class PersonRequest(NamedTuple):
    """A request about one occupation, once for each of two groups."""

    id: str
    occupation: str
    template: str
    first: str
    """Request with the first group's word."""
    second: str


@cache
def default_request_templates() -> tuple[str, ...]:
    """The templates of `person_requests.toml`."""
    return _load_templates("requests")


@cache
def default_persona_templates() -> tuple[str, ...]:
    """The requests to describe a person, of `person_requests.toml`."""
    return _load_templates("personas")


def _load_templates(name: str) -> tuple[str, ...]:
    text = files("levelhead.data.prompts").joinpath("person_requests.toml").read_text("utf-8")
    return tuple(tomllib.loads(text)[name])


def make_person_requests(
    templates: tuple[str, ...], occupations: tuple[str, ...], persons: tuple[str, str]
) -> tuple[PersonRequest, ...]:
    """Every template with every occupation, for a pair of group words.

    Args:
        templates: Texts with {a} or {A}, {person} and {occupation}.
        occupations: Job titles.
        persons: Word of each of the two groups, such as "woman" and "man".
    """
    for template in templates:
        if not any(field in template for field in FIELDS) or "{occupation}" not in template:
            raise LevelheadError(
                f"{template!r:.60} lacks a field",
                hint="write {a} {person} (or {A} {person}) and {occupation}",
            )
    return tuple(
        PersonRequest(
            f"{occupation}, request {number + 1}",
            occupation,
            template,
            *(_fill(template, occupation, person) for person in persons),
        )
        for occupation in occupations
        for number, template in enumerate(templates)
    )


def _fill(template: str, occupation: str, person: str) -> str:
    article = "an" if person[:1].lower() in "aeiou" else "a"
    return template.format(a=article, A=article.capitalize(), person=person, occupation=occupation)
