"""lm-evaluation-harness on an edited model.

    python -m levelhead.interop.lm_eval --model levelhead \
        --model_args pretrained=MODEL,edit=FOLDER --tasks TASK

takes all that `lm_eval` takes. In Python, importing this module makes "levelhead" a model that
`lm_eval.simple_evaluate(model="levelhead", model_args={...})` knows. Base and edited model are read
by the same code: what differs between their scores is the edit.
"""

from __future__ import annotations

from typing import Any

from levelhead.core.errors import LevelheadError
from levelhead.models.export.torch_module import plain, plain_tokenizer
from levelhead.models.loading.load import load

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError:
    raise LevelheadError(
        "lm-evaluation-harness is not installed", mend="pip install 'lm-eval[hf]'"
    ) from None


@register_model("levelhead")
class EditedLM(HFLM):  # type: ignore[misc]
    """A causal model as `levelhead.load` reads it: safetensors only, no remote code, edits on."""

    def __init__(
        self,
        pretrained: str,
        edit: str | None = None,
        revision: str | None = None,
        dtype: str = "float32",
        device: str | None = "cpu",
        **options: Any,
    ) -> None:
        lm = load(pretrained, revision=revision, dtype=dtype, device=device, edit=edit)
        if not lm.is_causal:
            raise LevelheadError(
                f"{pretrained} is no causal model", mend="measure it with levelhead itself"
            )
        super().__init__(
            pretrained=plain(lm), tokenizer=plain_tokenizer(lm), device=device, **options
        )


def main() -> None:
    """The harness's own command line."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
