"""Licences of the dependencies: every one is listed, and a new kind of licence is noticed."""

import csv
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def licences():
    spec = importlib.util.spec_from_file_location("licences", ROOT / "tools" / "licences.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(licences):
    with licences.FILE.open() as file:
        return {row["package"]: row for row in csv.DictReader(file)}


def test_every_dependency_is_listed_with_its_extras(licences):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = listed(licences)
    by_extra = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, requirements in by_extra.items():
        for text in requirements:
            if Requirement(text).name == project["name"]:
                continue  # an extra of other extras
            name = re.sub(r"[-_.]+", "-", Requirement(text).name).lower()
            needed_by = rows[name]["needed by"].split()
            assert extra in needed_by or not needed_by, name


def test_licences_are_those_of_the_installed_packages(licences):
    for name, row in listed(licences).items():
        installed = licences.licence(name)
        if licences.NOT_INSTALLED not in (installed, row["licence"]):
            assert installed == row["licence"], name


def test_another_kind_of_licence_is_noticed(licences):
    table = licences.FILE.read_text()
    assert licences.refused(table) == []
    assert licences.refused(table + "new,GPL-3.0-only,\nother,,ray\n") == [
        "new: GPL-3.0-only",
        "other: no licence stated",
    ]


def test_the_weekly_job_has_no_write_access():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "weekly.yml").read_text())
    assert job["permissions"] == {"contents": "read"}
    assert {"newest-releases", "vulnerabilities", "secrets"} <= job["jobs"].keys()
