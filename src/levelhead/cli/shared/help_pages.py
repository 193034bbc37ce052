"""Help pages in plain text: options in sections, and examples at the end of each page."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from levelhead.cli.shared.exit_codes import INTERRUPTED, ExitWithCode

if TYPE_CHECKING:
    from collections.abc import Callable


class Panel(StrEnum):
    """Sections of a help page, in the order of the page."""

    MODEL = "Model"
    DATA = "Data"
    MEASURE = "Measure"
    HEADS = "Heads"
    EDIT = "Edit"
    TRAINING = "Training"
    STATISTICS = "Statistics"
    OUTPUT = "Output"
    EXECUTION = "Execution"


class Command(TyperCommand):
    """A command whose help page has sections, and whose epilog is a list of examples."""

    resume_text = ""
    """What an interrupted user can do next."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interruption says how to resume.

        Args:
            ctx: context of the command line.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            text = f"; {self.resume_text}" if self.resume_text else ""
            typer.echo(f"\nlevelhead: interrupted{text}", err=True)
            # A code of its own: scripts must not take an interruption for a failed gate.
            raise ExitWithCode(INTERRUPTED) from None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """List the parts of the usage line, without braces around arguments.

        Args:
            ctx: context of the command line.
        """
        return [piece.translate(_NO_BRACES) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by section.

        Args:
            ctx: context of the command line.
            formatter: collects the text of the page.
        """
        _format_sections(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line of its own.

        Args:
            ctx: context of the command line.
            formatter: collects the text of the page.
        """
        _format_examples(self.epilog, formatter)


class ResumableCommand(Command):
    """A command that continues where it stopped."""

    resume_text = "run the same command again to resume"


class CachingCommand(Command):
    """A command whose finished forward passes are stored."""

    resume_text = "run the same command again: stored responses are not computed anew"


class Group(TyperGroup):
    """A group of commands whose help page ends with examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line of its own.

        Args:
            ctx: context of the command line.
            formatter: collects the text of the page.
        """
        _format_examples(self.epilog, formatter)


_NO_BRACES = str.maketrans("", "", "{}")


def add_command(
    app: typer.Typer,
    name: str,
    function: Callable[..., None],
    *examples: str,
    command_class: type[Command] = Command,
) -> None:
    """Add a command with its examples to an application or group.

    Args:
        app: the application or group.
        name: name of the command.
        function: what it runs.
        examples: complete command lines.
        command_class: the kind of command, which knows how to resume.
    """
    app.command(name, cls=command_class, epilog="\n".join(examples))(function)


def _format_sections(command: Command, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            # typer would add the Python type, which says less than the name.
            dots = "" if parameter.nargs == 1 else "..."
            name = f"{getattr(parameter, 'metavar', None) or parameter.name}{dots}"
            sections.setdefault("Arguments", []).append((name, record[1]))
        else:
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(panel, []).append(record)
    for title in ("Arguments", *Panel, "Options"):
        if title in sections:
            with formatter.section(str(title)):
                formatter.write_dl(sections[title])


def _format_examples(epilog: str | None, formatter: Any) -> None:
    if not epilog:
        return
    with formatter.section("Examples"):
        # Not wrapped: an example is copied into a shell.
        for line in epilog.splitlines():
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
