"""EditableModel: a pretrained model with its tokenizer and its edits, and what identifies it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import Edit
from levelhead.models.edits.merge import find_sites_merged_into_readers, merge_edits
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.weight_checksums import record_checksum, require_unchanged

if TYPE_CHECKING:
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.loading.checkpoints import Checkpoint
    from levelhead.models.sites import Site


class Identity(NamedTuple):
    """Name, revision and checkpoint of a model."""

    name: str
    revision: str | None
    checkpoint: Checkpoint
    merged_edits: tuple[str, ...] = ()
    """Hashes of edits that were merged into the weights after loading."""

    @property
    def display_name(self) -> str:
        """The name for files that are shared: of a local folder only its last part."""
        # A full path would publish the name of a home folder.
        path = Path(self.name).expanduser()
        return path.resolve().name if path.exists() else self.name


@dataclass(frozen=True, eq=False, repr=False)
class EditableModel:
    """A pretrained model, its tokenizer and its edits: all that queries and files are built from.

    It runs nothing; `LM` adds the forward passes.
    """

    layout: ModelLayout
    tokens: Tokens
    identity: Identity
    edits: tuple[Edit, ...] = ()
    merged_sites: tuple[Site, ...] = field(default=(), kw_only=True)
    """Sites whose edits were merged into the map that reads them: the activation at these sites
    is still the base's."""
    system_prompt: str = field(default="", kw_only=True)
    """Put before every chat request that the model answers; empty: none."""

    @property
    def heads(self) -> frozenset[str]:
        """The heads that this checkpoint holds: masked, causal, next_sentence, classifier."""
        model_class = self.layout.model_class
        return frozenset(
            name
            for name, is_present in {
                "masked": bool(model_class.vocabulary) and not model_class.causal,
                "causal": model_class.causal,
                "next_sentence": bool(model_class.next_sentence),
                "classifier": bool(model_class.classifier),
            }.items()
            if is_present
        )

    @property
    def is_causal(self) -> bool:
        """Whether a token attends only to itself and to the tokens before it."""
        return self.layout.family.is_causal

    @property
    def labels(self) -> tuple[str, ...]:
        """The classifier's classes, in the order of `classify`'s columns."""
        self._require_classes("labels")
        names = cast("dict[int, str]", self.layout.model.config.id2label)
        labels = tuple(names[i] for i in sorted(names))
        # Labels of data are found by name: two classes of one name would be one.
        if len(set(labels)) < len(labels):
            raise LevelheadError(
                f"two classes of {self.identity.name} have the same name",
                hint="correct id2label in config.json",
            )
        return labels

    def token_ids_of_word(self, word: str) -> tuple[int, ...]:
        """Return the tokens of a word inside a sentence; empty if the vocabulary lacks the word."""
        # Behind another word: many tokenizers cut a word differently at the start of a text.
        text = f"The {word}"
        try:
            (encoded,) = self.tokens.encode([text])
            positions = self.tokens.positions_of_word(encoded, (4, len(text)), text)
        except UnreadableTextError:
            return ()
        return tuple(encoded.row.ids[i] for i in positions)

    @property
    def prompt_setting(self) -> dict[str, str]:
        """The system prompt as a setting and a part of hashes; none without a prompt."""
        # No key without one: stored responses of earlier versions stay valid.
        return {"system_prompt": self.system_prompt} if self.system_prompt else {}

    @property
    def content_hash(self) -> str:
        """SHA-256 of what determines its outputs: checkpoint, edits, precision, special tokens."""
        require_unchanged(self.layout.model)
        return content_hash(
            {
                "checkpoint": self.identity.checkpoint.hash,
                "folded": self.identity.merged_edits,
                "edits": [edit.content_hash for edit in self.edits],
                "class": type(self.layout.model).__name__,
                "dtype": str(self.layout.model.dtype),
                "bos": self.tokens.bos,
                **self.prompt_setting,
            }
        )

    def __str__(self) -> str:
        layout = self.layout
        heads = ", ".join(sorted(self.heads)) or "embeddings only"
        edits = f"; {len(self.edits)} edits" if self.edits else ""
        edits += "; a system prompt" if self.system_prompt else ""
        return (
            f"{self.identity.name}: {type(layout.model).__name__}, {layout.layers} layers x "
            f"{layout.heads} heads; {heads}{edits}"
        )

    __repr__ = __str__

    def edited(self, *edits: Edit) -> Self:
        """Return this model with more edits, after the edits it has. The base does not change."""
        for edit in edits:
            if not isinstance(edit, Edit):
                raise LevelheadError(
                    f"{edit!r:.60} is not an edit", hint="write lm.edited(first, second)"
                )
            for site in edit.sites:
                self.layout.require_site(site)
                width, size = edit.width(site), self.layout.site_width(site)
                if width is not None and width != size:
                    raise LevelheadError(
                        f"the {edit.kind} for {site} has width {width}, but the model has width "
                        f"{size} there",
                        hint="fit the edit on this model",
                    )
        return replace(self, edits=(*self.edits, *edits))

    def with_system_prompt(self, text: str) -> Self:
        """Return this model with a system prompt: a mitigation by prompt, without any edit.

        It precedes every chat request, and the system prompt of a measure. Texts that the model
        continues or scores as they are do not change. Another prompt replaces the one it has.
        """
        return replace(self, system_prompt=text)

    def merged(self) -> Self:
        """Return a copy of this model with its edits merged into plain weights.

        Raises NotMergeableError if plain weights cannot express an edit.
        """
        # The copy must be of the weights that the hash stands for.
        require_unchanged(self.layout.model)
        merged_edits = (*self.identity.merged_edits, *(edit.content_hash for edit in self.edits))
        layout = merge_edits(self.layout, self.edits)
        record_checksum(layout.model)
        return replace(
            self,
            layout=layout,
            identity=self.identity._replace(merged_edits=merged_edits),
            edits=(),
            merged_sites=tuple(
                dict.fromkeys(
                    (*self.merged_sites, *find_sites_merged_into_readers(self.layout, self.edits))
                )
            ),
        )

    def _require_head(self, head: str, verb: str) -> None:
        heads = self.heads
        if head in heads or (head == "vocabulary" and heads & {"masked", "causal"}):
            return
        available = ", ".join(sorted(heads)) or "none: it gives embeddings only"
        raise MissingHeadError(
            f"{verb} needs a head that {self.identity.name} does not hold; its heads: {available}",
            hint="use a checkpoint trained with that head (a new head would have random weights "
            "and return random scores)",
        )

    def _require_classes(self, verb: str) -> None:
        self._require_head("classifier", verb)
        config = self.layout.model.config
        kind = getattr(config, "problem_type", None)
        if int(config.num_labels or 0) < 2 or kind in ("regression", "multi_label_classification"):
            raise MissingHeadError(
                f"{self.identity.name} has no mutually exclusive classes: {config.num_labels} "
                "outputs" + (f", {kind}" if kind else ""),
                hint="use a classifier with two or more mutually exclusive classes",
            )
