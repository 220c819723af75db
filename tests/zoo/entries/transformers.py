"""Models of the transformers library."""

from tests.zoo.architecture import Architecture
from tests.zoo.inputs import Input, integers, mask, normal

TOKENS = {"tokens": (8, 5, 13)}


def tokens(words: int, *, behind: bool = True) -> dict[str, Input]:
    """Token ids, and a mask of those that count, with the padding behind or before them."""
    kept = mask("batch", "tokens", behind=behind)
    return {"input_ids": integers(3, words, "batch", "tokens"), "attention_mask": kept}


TRANSFORMERS = (
    Architecture(
        "bert",
        "language.py",
        "Bert",
        tokens(99),
        outputs=("last_hidden_state", "pooler_output"),
        sizes=TOKENS,
        notes="a dataclass of the library as the answer",
    ),
    Architecture(
        "distilbert",
        "language.py",
        "DistilBert",
        tokens(99),
        outputs=("logits",),
        sizes=TOKENS,
        notes="the library's own class: many optional arguments, a dataclass with one tensor",
    ),
    Architecture("roberta", "language.py", "Roberta", tokens(99), outputs=("logits",), sizes=TOKENS),
    Architecture(
        "gpt2",
        "language.py",
        "Gpt2",
        tokens(80, behind=False),
        outputs=("logits",),
        sizes=TOKENS,
        weights="weights.pt",
        notes="padding before the words; tied weights",
    ),
    Architecture(
        "llama",
        "language.py",
        "Llama",
        tokens(80, behind=False),
        outputs=("logits",),
        sizes=TOKENS,
        notes="rotary positions, grouped queries; padding before the words",
    ),
    Architecture("t5_encoder", "language.py", "T5Encoder", tokens(70), sizes=TOKENS, weights="weights.pt"),
    Architecture(
        "whisper_encoder",
        "language.py",
        "WhisperEncoder",
        {"input_features": normal("batch", 16, 40)},
        outputs=("last_hidden_state",),
    ),
    Architecture(
        "clip",
        "language.py",
        "Clip",
        {**tokens(80), "pixel_values": normal("batch", 3, 16, 16)},
        outputs=("text", "image", "similarity"),
        sizes=TOKENS,
        notes="text and image",
    ),
    Architecture(
        "swin", "language.py", "Swin", {"pixel_values": normal("batch", 3, 32, 32)}, notes="shifted windows"
    ),
    Architecture(
        "wav2vec2",
        "language.py",
        "Wav2Vec2",
        {"input_values": normal("batch", "samples")},
        sizes={"samples": (240, 180, 333)},
        notes="a waveform of any length",
    ),
)
