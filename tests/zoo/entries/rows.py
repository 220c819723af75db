"""Models of rows, sets and tables."""

from tests.zoo.architecture import Architecture
from tests.zoo.inputs import flags, integers, mask, normal

ROWS = (
    Architecture("mlp", "dense.py", "Mlp", {"x": normal("batch", 12)}),
    Architecture(
        "autoencoder",
        "dense.py",
        "Autoencoder",
        {"x": normal("batch", 16)},
        outputs=("reconstruction", "code", "error"),
    ),
    Architecture(
        "vae_encoder",
        "dense.py",
        "VaeEncoder",
        {"image": normal("batch", 1, 16, 16)},
        notes="random in training, its mean when evaluated",
    ),
    Architecture(
        "siamese",
        "dense.py",
        "Siamese",
        {"left": normal("batch", 10), "right": normal("batch", 10)},
        outputs=("similarity", "distance"),
        notes="outputs of rank 1",
    ),
    Architecture(
        "nbeats",
        "dense.py",
        "NBeats",
        {"history": normal("batch", 24)},
        outputs=("output_0", "output_1"),
        notes="an output that is a tuple",
    ),
    Architecture(
        "mixture_of_experts",
        "dense.py",
        "MixtureOfExperts",
        {"x": normal("batch", 8)},
        outputs=("output", "expert"),
        notes="weights gathered by top-k",
    ),
    Architecture(
        "deep_sets",
        "sets.py",
        "DeepSets",
        {"items": normal("batch", "items", 5), "mask": mask("batch", "items", dtype="bool")},
        sizes={"items": (6, 4, 11)},
    ),
    Architecture(
        "attention_pooling",
        "sets.py",
        "AttentionPooling",
        {"items": normal("batch", "items", 6), "mask": mask("batch", "items", dtype="bool")},
        outputs=("logits", "attention"),
        sizes={"items": (6, 4, 11)},
    ),
    Architecture(
        "wide_and_deep",
        "tabular.py",
        "WideAndDeep",
        {
            "user_id": integers(0, 50, "batch"),
            "item_id": integers(0, 40, "batch"),
            "country": integers(0, 7, "batch", dtype="int32"),
            "dense": normal("batch", 3),
        },
        notes="inputs of rank 1",
    ),
    Architecture(
        "deep_fm",
        "tabular.py",
        "DeepFm",
        {"fields": integers(0, 5, "batch", 4)},
        weights="weights.pt",
        notes="offsets in a buffer",
    ),
    Architecture(
        "telemetry",
        "tabular.py",
        "Telemetry",
        {
            "flags": flags("batch", 3),
            "payload": integers(0, 256, "batch", "bytes", dtype="uint8"),
            "counters": integers(-5, 1000, "batch", 2, dtype="int32"),
        },
        outputs=("score", "label", "alarm", "total", "first"),
        sizes={"bytes": (9, 5, 16)},
        notes="bool, uint8 and int32 in; FP32, INT64, bool, INT32 and UINT8 out",
    ),
    Architecture(
        "nested_output",
        "tabular.py",
        "NestedOutput",
        {"x": normal("batch", 6)},
        outputs=("age", "box_centre", "box_size", "colour_0", "colour_1"),
        notes="dictionaries and tuples inside each other",
    ),
)
