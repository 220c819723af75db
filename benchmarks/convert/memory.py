"""Peak memory of conversions by the kind of file, as a ratio to the weights.

    python benchmarks/convert/memory.py [--layers 4] [--width 4096] [kind ...]

The kinds are those of :data:`KINDS`. Each is a whole ``repobuild convert`` of the same network from
``torch_export.py``; memory is measured as it is there, and what importing PyTorch takes is taken off for
the kinds that need it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_export import EMPTY, peak, prepare

MODULE = {"file": "net.py", "class": "Net"}
KINDS: dict[str, dict[str, Any]] = {
    "state_dict": {"source": {"path": "weights.pt", "kind": "torch"}},
    "legacy state_dict": {"source": {"path": "legacy.pt", "kind": "torch"}},
    "safetensors": {"source": {"path": "weights.safetensors"}},
    "pt2": {"source": {"path": "model.pt2"}},
    "torchscript": {"source": {"path": "model.ts"}},
    "onnx": {"source": {"path": "model.onnx"}},
    "onnx, external data": {"source": {"path": "beside.onnx"}},
    "state_dict, target pytorch": {"source": {"path": "weights.pt", "kind": "torch"}, "targets": ["pytorch"]},
}
"""What differs in the recipe, by what is converted."""

MAKE = """
import sys, torch, warnings
warnings.simplefilter("ignore")
from net import Net
from safetensors.torch import save_file
layers, width = int(sys.argv[1]), int(sys.argv[2])
net = Net(layers, width)
net.load_state_dict(torch.load("weights.pt", weights_only=True))
net.eval()
x = torch.zeros(2, width)
torch.save(net.state_dict(), "legacy.pt", _use_new_zipfile_serialization=False)
save_file(net.state_dict(), "weights.safetensors")
torch.jit.trace(net, x).save("model.ts")
batch = {0: torch.export.Dim("batch", min=1, max=64)}
torch.export.save(torch.export.export(net, (x,), dynamic_shapes=(batch,)), "model.pt2")
free = ({0: torch.export.Dim.DYNAMIC},)
for name, external in (("model.onnx", False), ("beside.onnx", True)):
    torch.onnx.export(
        net, (x,), name, dynamo=True, dynamic_shapes=free, external_data=external, verbose=False
    )
"""


def main() -> None:
    """Convert each kind once, and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("kinds", nargs="*")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="repobuild-bench-") as folder:
        home = Path(folder)
        weights = prepare(home, chosen.layers, chosen.width)
        words = [str(chosen.layers), str(chosen.width)]
        subprocess.run([sys.executable, "-c", MAKE, *words], cwd=home, check=True, stderr=subprocess.DEVNULL)
        packages = peak([sys.executable, "-c", EMPTY])[1]
        print(f"weights {weights / 1e6:.0f} MB; importing PyTorch and its exporter {packages / 1e6:.0f} MB")
        for name in chosen.kinds or KINDS:
            recipe = json.loads((home / "recipe.yaml").read_text()) | KINDS[name]
            if recipe["source"]["path"].endswith((".pt", ".safetensors")):
                kwargs = {"layers": chosen.layers, "width": chosen.width}
                recipe["source"]["module"] = {**MODULE, "kwargs": kwargs}
            (home / "one.yaml").write_text(json.dumps(recipe))
            repository = home / f"repository-{list(KINDS).index(name)}"
            command = [sys.executable, "-m", "repobuild", "convert", str(home / "one.yaml")]
            command += ["--repository", str(repository), "--trust", "module", "--trust", "torchscript"]
            seconds, most, _ = peak([*command, "--quiet"])
            off = 0 if name.startswith("onnx") else packages
            print(f"{name:28}  {(most - off) / weights:5.2f}x the weights   {seconds:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
