"""lm-evaluation-harness on an edited model.

    python -m levelhead.interop.lm_eval --model levelhead \
        --model_args pretrained=MODEL,edit=FOLDER --tasks TASK

accepts all options of `lm_eval`. In Python, the import of this module registers "levelhead" as a
model for `lm_eval.simple_evaluate(model="levelhead", model_args={...})`. The same code loads the
base and the edited model, so their scores differ only because of the edit.
"""

from __future__ import annotations

from typing import Any

from levelhead.core.errors import LevelheadError
from levelhead.models.export.torch_module import to_torch_module, to_torch_tokenizer
from levelhead.models.loading.load import load

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError:
    raise LevelheadError(
        "lm-evaluation-harness is not installed", hint="pip install 'lm-eval[hf]'"
    ) from None


@register_model("levelhead")
class EditedLM(HFLM):  # type: ignore[misc]
    """A causal model loaded by `levelhead.load`: safetensors only, no remote code, with edits."""

    def __init__(
        self,
        pretrained: str,
        edit: str | None = None,
        revision: str | None = None,
        dtype: str = "float32",
        device: str | None = "cpu",
        **options: Any,
    ) -> None:
        # Not HFLM's loader, which accepts pickled weights and knows no edits.
        lm = load(pretrained, revision=revision, dtype=dtype, device=device, edit=edit)
        # The harness scores continuations left to right, which masked models cannot do.
        if not lm.is_causal:
            raise LevelheadError(
                f"{pretrained} is no causal model", hint="measure it with levelhead itself"
            )
        super().__init__(
            pretrained=to_torch_module(lm),
            tokenizer=to_torch_tokenizer(lm),
            device=device,
            **options,
        )


def run_harness() -> None:
    """Run the command line of the harness."""
    # Only needed if this module is run as a program.
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    run_harness()
