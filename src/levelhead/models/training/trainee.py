"""The copy of a model that is trained further, and the Trainer that trains it.

The Trainer's checkpoints hold weights, optimizer, schedule and the state of torch's generator; rows
and their blanks follow from the seed (`lessons`). So a training that was killed goes on bit for bit
as if it had not been.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import transformers
from threadpoolctl import threadpool_limits

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.model_layout import Anatomy, layers_of
from levelhead.models.diagnostics.one_visible_head import KnownHead
from levelhead.models.loading.quiet import quiet
from levelhead.models.queries.vocabulary import log_probs_of
from levelhead.models.training.from_scratch import ALONE_ON_CPU, IGNORED, Told, chance_aside
from levelhead.models.training.resumable import Marked, last_whole
from levelhead.models.training.training_examples import Lesson, Lessons

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from levelhead.models.lm import LM
    from levelhead.models.training.continued_pretraining import Schooling

HIDDEN = (
    *("hidden_dropout_prob", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop"),
    *("resid_dropout", "embed_dropout", "embedding_dropout", "mlp_dropout"),
)
"""What configs call the dropout of hidden states."""
ATTENTION = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
"""What configs call the dropout of attention."""


def trained(
    lm: LM,
    lessons: Sequence[Lesson],
    unfinished: Path,
    schooling: Schooling,
    progress: Callable[[int, int], None] | None,
) -> Anatomy:
    """A copy of a model, trained; goes on from the last whole checkpoint in the folder."""
    rows = Lessons(
        lm.tokens,
        lessons,
        rows=schooling.steps * schooling.batch,
        batch=schooling.batch,
        masked=None if lm.anatomy.cls.causal else schooling.masked,
        seed=schooling.seed,
    )
    with quiet(), chance_aside(), threadpool_limits(schooling.threads):
        torch.manual_seed(schooling.seed)
        pupil = pupil_of(lm, schooling.dropout)
        trainer = _Trainer(
            model=pupil.model,
            args=_arguments(schooling, unfinished),
            train_dataset=rows,
            data_collator=rows.collated,
            callbacks=[Marked(), *([Told(progress)] if progress else [])],
        )
        trainer.anatomy = pupil
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=last_whole(unfinished))
    pupil.model.eval()
    return pupil


def pupil_of(lm: LM, dropout: tuple[float, float] | None) -> Anatomy:
    """A copy of the model to be trained, in the class it was loaded as."""
    base = lm.anatomy.model
    config = copy.deepcopy(base.config)
    config.use_cache = False
    for name, share in dropouts(config, dropout).items():
        setattr(config, name, share)
    model = type(base)(config)
    model.load_state_dict(base.state_dict())
    if known := KnownHead.of(config):
        known.install(model.base_model, layers_of(model))
    return Anatomy.of(model, lm.anatomy.cls)


def dropouts(config: Any, dropout: tuple[float, float] | None) -> dict[str, float]:
    """The config's own names, and the share of each; an error if none is higher than it was."""
    if dropout is None:
        return {}
    found: dict[str, float] = {}
    for kind, names, share in zip(
        ("hidden", "attention"), (HIDDEN, ATTENTION), dropout, strict=True
    ):
        own = [name for name in names if hasattr(config, name)]
        if share and not own:
            raise LevelheadError(
                f"{config.model_type} has no dropout of {kind} states", mend=f"give {kind}=0"
            )
        found |= dict.fromkeys(own, share)
    if all(share <= getattr(config, name) for name, share in found.items()):
        was = ", ".join(f"{name} {getattr(config, name)}" for name in found)
        raise LevelheadError(
            f"a dropout of {dropout} is nowhere higher than the base's own ({was})",
            mend="give higher shares",
        )
    return found


class _Trainer(transformers.Trainer):
    """Asks for tokens only, and makes scores over the vocabulary only where one is asked for."""

    anatomy: Anatomy

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The mean negative log-probability (natural) of the tokens asked for."""
        labels = inputs.pop("labels")
        hidden = self.anatomy.backbone(**inputs).last_hidden_state
        if self.anatomy.cls.causal:
            hidden, labels = hidden[:, :-1], labels[:, 1:]
        asked = labels != IGNORED
        return -log_probs_of(self.anatomy, hidden[asked], labels[asked][:, None]).mean()


def _arguments(schooling: Schooling, unfinished: Path) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=str(unfinished),
        max_steps=schooling.steps,
        per_device_train_batch_size=schooling.batch,
        learning_rate=schooling.rate,
        lr_scheduler_type="linear",
        warmup_steps=schooling.steps // 10,
        weight_decay=0.01,
        seed=schooling.seed,
        data_seed=schooling.seed,
        train_sampling_strategy="sequential",  # `Lessons` holds the order
        **ALONE_ON_CPU
        | {
            "save_strategy": "steps",
            "save_steps": schooling.every,
            "save_total_limit": 2,  # the one before, too: the last may not be whole
        },
    )
